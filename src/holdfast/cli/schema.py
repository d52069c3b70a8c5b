"""`holdfast schema`: what commands answer, for whoever reads it by program."""

import json
from typing import Any

import click

from holdfast.cli.envelope import misuse
from holdfast.cli.frame import Answer, as_json_option, say


@click.command()
@click.argument("command", nargs=-1, metavar="[COMMAND…]")
@as_json_option
def schema(*, command: tuple[str, ...], as_json: bool) -> None:
    """Print the JSON Schema of a command's --json answers.

    Without a command, print those of all commands.

    \b
    Try:
      holdfast schema job get
      holdfast schema --json
    """
    from holdfast.cli.schemas import schema_of
    from holdfast.cli.shapes import SHAPES

    asked = " ".join("get" if word == "show" else word for word in command)
    names = [name for name in SHAPES if not asked or name == asked or name.startswith(f"{asked} ")]
    if not names:
        raise misuse(f"there is no command {asked!r:.80}", action="See: holdfast --help")
    found = {name: schema_of(name) for name in names}
    shown: Any = found.get(asked, found)
    say(Answer({"schemas": found}, lambda page: page.block(json.dumps(shown, indent=2), indent="")), as_json)
