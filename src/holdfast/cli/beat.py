"""`holdfast beat`: for shell scripts that are supervised."""

import click

from holdfast import supervised
from holdfast.cli.command import CommandResult, as_json_option, print_result
from holdfast.cli.output import CommandError


@click.command()
@click.option("--stage", help="The stage of the program's work.")
@click.option("--progress", type=int, help="The progress of the program's work.")
@as_json_option
def beat(*, stage: str | None, progress: int | None, as_json: bool) -> None:
    """Tell `holdfast supervise` that the program is alive.

    \b
    Example:
      holdfast supervise --stall-timeout 30s -- sh -c 'while work; do holdfast beat; done'
    """
    if not supervised.is_supervised():
        raise CommandError("not_supervised", "nobody supervises this program", action="Run it by: holdfast supervise -- COMMAND")
    if not supervised.beat(stage=stage, progress=progress):
        raise CommandError("not_heard", "its supervisor does not hear it", action="It may have ended.")
    print_result(CommandResult({"beat": True}, lambda page: None), as_json)
