"""Commands that an answer suggests, made to be for the same ledger when somebody pastes them."""

import re
import shlex

import click

from holdfast.cli.address import without_password

_OURS = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|\bholdfast ([a-z]+)(?: ([a-z]+))?""")
"""What is quoted is somebody's name for something, whatever it says."""
_TYPED = f"{__name__}.db"


def pasteable(text: str) -> str:
    """`text`, in which each command of ours names the ledger as this one was told to: by --db, or not at all.

    A password is left out, and so such a command reaches this ledger or none; libpq has other places to look for one.
    """
    context = click.get_current_context()
    db = context.meta.get(_TYPED)
    return _OURS.sub(lambda found: _named(context.find_root(), found, db), text) if db else text


def typed_ledger(ctx: click.Context) -> str | None:
    """The ledger that --db names, be it before the noun."""
    found: str | None = ctx.params.get("db") or ctx.meta.get(_TYPED)
    return found


def note_ledger(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The ledger that was named here or before the noun, kept for what is suggested later, also when the command has failed."""
    found: str | None = value or ctx.meta.get(_TYPED)
    ctx.meta[_TYPED] = found
    return found


def _named(root: click.Context, found: re.Match[str], db: str) -> str:
    """With the option before all arguments: behind `--` it would be one of them."""
    command, end = root.command, found.start()
    for place in (1, 2):
        if isinstance(command, click.Group) and found[place]:
            inner = command.get_command(root, found[place])
            if inner is None:
                return found[0]
            command, end = inner, found.end(place)
    if isinstance(command, click.Group) or not any(option.name == "db" for option in command.params):
        return found[0]
    words, rest = found[0][: end - found.start()], found[0][end - found.start() :]
    return f"{words} --db {shlex.quote(without_password(db, instead=''))}{rest}"
