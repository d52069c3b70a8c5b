"""`holdfast schema`: print the JSON Schemas of the commands' `--json` answers."""

import json
from typing import Any

import click

from holdfast.cli.command import CommandResult, as_json_option, print_result
from holdfast.cli.output import usage_error


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
    from holdfast.cli.answer_shapes import SHAPES, schema_of

    wanted = " ".join("get" if word == "show" else word for word in command)
    names = [name for name in SHAPES if not wanted or name == wanted or name.startswith(f"{wanted} ")]
    if not names:
        raise usage_error(f"there is no command {wanted!r:.80}", action="See: holdfast --help")
    schemas = {name: schema_of(name) for name in names}
    shown: Any = schemas.get(wanted, schemas)
    print_result(CommandResult({"schemas": schemas}, lambda page: page.block(json.dumps(shown, indent=2), indent="")), as_json)
