"""`--field`: single values of an answer, for scripts that have no other way to read JSON."""

import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from holdfast.cli.envelope import misuse
from holdfast.cli.frame import Answer
from holdfast.cli.page import Page

field_option = click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME",
    help="Print only this value, such as task.id; may be repeated, one line each.",
)


def check(fields: Sequence[str]) -> None:
    """Before anything is done: a name that no answer to this command has is a slip, not an empty value."""
    if not fields:
        return
    from holdfast.cli.shapes import SHAPES

    context = click.get_current_context()
    if context.params.get("as_json"):
        raise misuse("--field and --json exclude each other", action="Leave one of them out.")
    name = _named(context)
    for field in fields:
        if not any(_has(shape, field.split(".")) for shape in SHAPES[name]):
            raise misuse(f"no answer has a field {field!r:.80}", action=f"See what there is: holdfast schema {name}")


def _named(context: click.Context) -> str:
    """The command without the program's own name, which may be of several words."""
    if context.parent is None:
        return ""
    return f"{_named(context.parent)} {context.info_name}".strip()


def _has(kind: Any, names: Sequence[str]) -> bool:
    """What lies within a task's own JSON is not known beforehand."""
    found = [kind, *get_args(kind)] if get_origin(kind) in (Union, types.UnionType) else [kind]
    structs = [one for one in found if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    if not names or not structs:
        return not names or Any in found
    return any(names[0] in hints and _has(hints[names[0]], names[1:]) for hints in map(get_type_hints, structs))


def picked(answer: Answer, fields: Sequence[str]) -> Answer:
    """The answer, as these values alone where people would be told all of it."""
    if not fields:
        return answer
    whole = msgspec.to_builtins(answer.data)

    def show(page: Page) -> None:
        for field in fields:
            page.line(_text(_value(whole, field.split("."))))

    return answer._replace(show=show)


def _value(found: Any, names: Sequence[str]) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
