"""`holdfast beat`: send a heartbeat from a supervised shell script."""

import math

import click

from holdfast.cli.command import CommandResult, as_json_option, print_result
from holdfast.cli.output import CommandError
from holdfast.keeping import supervised


@click.command()
@click.option("--stage", help="The stage of the program's work.")
@click.option("--progress", type=float, help="The progress of the program's work. A number between 0 and 1 is a share.")
@as_json_option
def beat(*, stage: str | None, progress: float | None, as_json: bool) -> None:
    """Send a heartbeat to `holdfast supervise`.

    \b
    Example:
      holdfast supervise --stall-timeout 30s -- sh -c 'while work; do holdfast beat; done'
    """
    if progress is not None and not math.isfinite(progress):
        raise click.BadParameter(f"{progress} is not a finite number", param_hint="--progress")
    if not supervised.is_supervised():
        raise CommandError("not_supervised", "this program is not supervised", action="Run it by: holdfast supervise -- COMMAND")
    if not supervised.beat(stage=stage, progress=progress):
        raise CommandError("not_heard", "the supervisor does not receive heartbeats", action="It may have ended.")
    print_result(CommandResult({"beat": True}, lambda page: None), as_json)
