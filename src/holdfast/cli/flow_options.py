"""The options of a job's limits, partition, labels and worker, and pairs such as a=3."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from holdfast.cli.completion import LIMIT


def read_pairs(what: str, words: tuple[str, ...], default: int | None = None) -> dict[str, int]:
    """Return NAME=NUMBER as a mapping. Without a number, a name has the default, if there is one."""
    found: dict[str, int] = {}
    for word in words:
        name, equals, number = word.rpartition("=")
        if not equals:
            name, number = word, "" if default is None else str(default)
        if not name or not number.isascii() or not number.isdigit():
            raise click.BadParameter(f"{word!r:.80} is not of the form {what}")
        if name in found:
            raise click.BadParameter(f"{name!r:.80} is named twice")
        found[name] = int(number[:20])
    return found


def format_replaced(begin: str, old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """Return which values are gone and which have changed, after the words `begin`; an empty text if all are as before."""
    gone = [f"{name} {value}" for name, value in old.items() if value is not None and new.get(name) is None]
    changed = [f"{name} was {value}" for name, value in old.items() if value is not None and new.get(name) not in (None, value)]
    lost = [f"{' and '.join(gone)} {'are' if len(gone) > 1 else 'is'} gone"] if gone else []
    return f"{begin}: {'; '.join(lost + changed)}." if lost or changed else ""


def _limits(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, int] | None:
    return read_pairs("NAME or NAME=UNITS", value, default=1) or None


def flow_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decide when a job may start, besides its priority and its time."""
    for option in (
        click.option("--for-worker", metavar="NAME", help="Only this worker may have it."),
        click.option("--requires", multiple=True, metavar="LABEL", help="Its worker must have this label; may be repeated."),
        click.option("--partition", metavar="NAME", help="The partition, such as a tenant. Partitions of a queue take turns."),
        click.option(
            "--limit",
            "limits",
            type=LIMIT,
            multiple=True,
            callback=_limits,
            metavar="NAME[=UNITS]",
            help="A limit that it draws on, and how many units; may be repeated.",
        ),
    ):
        function = option(function)
    return function


label_option = click.option(
    "--label", "labels", multiple=True, help="A label that the agent has, for tasks that require it; may be repeated."
)
