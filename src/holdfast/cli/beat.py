"""`holdfast beat`: for shell scripts that are supervised."""

import click

from holdfast import supervised
from holdfast.cli.envelope import Failed
from holdfast.cli.frame import Answer, as_json_option, say


@click.command()
@click.option("--stage", help="Where the program is in its work.")
@click.option("--progress", type=int, help="How far it has come.")
@as_json_option
def beat(*, stage: str | None, progress: int | None, as_json: bool) -> None:
    """Say that the program is alive, to the `holdfast supervise` that runs it."""
    if not supervised.is_supervised():
        raise Failed("not_supervised", "nobody supervises this program", action="Run it by: holdfast supervise -- COMMAND")
    if not supervised.beat(stage=stage, progress=progress):
        raise Failed("not_heard", "its supervisor does not hear it", action="It may have ended.")
    say(Answer({"beat": True}, lambda page: None), as_json)
