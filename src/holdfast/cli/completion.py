"""`holdfast completion`: shell completion, and suggestions for mistyped names."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from holdfast.cli.command import COMPLETE_VARIABLE, CommandResult, as_json_option, ledger_from_options, print_result
from holdfast.cli.config import ledger_url

if TYPE_CHECKING:
    from holdfast.ledger import Ledger

OFFERED_MAX = 200


class KnownName(click.ParamType[str]):
    """A name. The shell offers those that the ledger has."""

    name = "text"

    def __init__(self, known: "Callable[[Ledger], list[str]]") -> None:
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = _names_in(ledger_from_options(ctx), self._known)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)][:OFFERED_MAX]


def _names_in(db: str | None, known: "Callable[[Ledger], list[str]]") -> list[str]:
    """Return names that the ledger has, or an empty list if it cannot be read: completion must not print errors."""
    import holdfast

    try:
        with holdfast.open(ledger_url(db), keys=(), create=False) as ledger:
            return known(ledger)
    except Exception:  # noqa: BLE001 - the shell would print the error into the command line
        return []


QUEUE = KnownName(lambda ledger: [queue.name for queue in ledger.queues()])
LIMIT = KnownName(lambda ledger: [limit.name for limit in ledger.limits()])


def name_hint(typed: str, known: Iterable[str]) -> str:
    """Return `Did you mean hello? `, or an empty text."""
    found = get_close_matches(typed, known, n=1)
    return f"Did you mean {found[0]}? " if found else ""


SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@as_json_option
def completion(*, shell: str, as_json: bool) -> None:
    """Print a script that completes commands in a shell.

    \b
    Example:
      eval "$(holdfast completion bash)"       in ~/.bashrc; zsh likewise, in ~/.zshrc
      holdfast completion fish | source        in ~/.config/fish/completions/holdfast.fish

    \b
    Try:
      holdfast completion zsh
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root()
    made = completion_class(root.command, {}, "holdfast", COMPLETE_VARIABLE)
    script = made.source_template % made.source_vars()
    print_result(CommandResult({"shell": shell, "script": script}, lambda page: page.block(script, indent="")), as_json)
