"""What somebody may have meant who typed a name that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches

import click


def meant(group: click.Group, ctx: click.Context, typed: str) -> str:
    """` Did you mean 'job'?`, or nothing. Verbs are known under their nouns: `enqueue` is `job enqueue`."""
    nouns = group.list_commands(ctx)
    found = [f"{noun} {typed}" for noun in nouns if typed in _verbs(group, ctx, noun)] or get_close_matches(typed, nouns)
    return f" Did you mean {' or '.join(repr(name) for name in found)}?" if found else ""


def meant_name(typed: str, known: Iterable[str]) -> str:
    """`Did you mean hello? `, or nothing."""
    found = get_close_matches(typed, known, n=1)
    return f"Did you mean {found[0]}? " if found else ""


def _verbs(group: click.Group, ctx: click.Context, noun: str) -> list[str]:
    command = group.get_command(ctx, noun)
    return command.list_commands(ctx) if isinstance(command, click.Group) else []
