"""What all commands have in common: where the ledger is, in which form to answer, how to end."""

import getpass
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.address import is_new, key_files, ledger_url
from holdfast.cli.envelope import Failed, failure, misuse, success
from holdfast.cli.page import Page
from holdfast.errors import HoldfastError, NoLedger

if TYPE_CHECKING:
    from holdfast.core.proof.keyfile import KeyFile
    from holdfast.ledger import Ledger

REFUSED, UNAVAILABLE = 1, 3
COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"
"""By which a shell's script asks for completions, however the program was started."""


class Answer(NamedTuple):
    """What a command has to say: to machines, and to people."""

    data: Any
    show: Callable[[Page], None]
    failed: Failed | None = None
    """Where only a part was done: why not the rest."""


class Nouns(click.Group):
    """Commands that live in files of their own name, read when they are asked for. Every failure ends here."""

    def __init__(self, *args: Any, nouns: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._nouns = nouns

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._nouns)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._nouns:
            return None
        found: click.Command = getattr(import_module(f"holdfast.cli.{cmd_name}"), cmd_name)
        return found

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Runs what `args` say, and exits: 0 done, 1 refused, 2 not understood, 3 out of reach."""
        whole = list(sys.argv[1:] if args is None else args)
        given = whole[: whole.index("--")] if "--" in whole else whole  # what follows is for another program
        try:
            code = super().main(whole, *rest, **{"complete_var": COMPLETE_VARIABLE, **extra, "standalone_mode": False})
        except click.Abort:
            code = _end(Failed("interrupted", "interrupted"), given)
        except click.UsageError as error:
            code = _misunderstood(error, given)
        except click.ClickException as error:
            code = _end(Failed("error", error.format_message()), given)
        except (HoldfastError, Failed) as error:
            code = _end(error, given)
        sys.exit(code if isinstance(code, int) else 0)


def _end(error: HoldfastError | Failed, given: Sequence[str]) -> int:
    if "--json" in given:
        click.echo(failure(error))
    elif isinstance(error, HoldfastError):
        # What all errors of a code have in common is in the documentation; what was found for this one is said.
        action = error.action if isinstance(error, NoLedger) else vars(error).get("action")
        Page().fail(f"{error.code}: {error.message}" + (f". {action}" if action else ""))
    else:
        Page().fail(f"{error.message}. {error.action}" if error.action else error.message)
    return exit_code_of(error)


def exit_code_of(error: HoldfastError | Failed) -> int:
    if isinstance(error, Failed):
        return error.exit_code
    return UNAVAILABLE if error.fault == "store" else REFUSED


def _misunderstood(error: click.UsageError, given: Sequence[str]) -> int:
    if "--json" in given:
        return _end(misuse(error.format_message()), given)
    error.show()
    return error.exit_code


def say(answer: Answer, as_json: bool) -> None:
    """In the form that was asked for. Raises what failed: to be said last."""
    if not as_json:
        answer.show(Page())
    elif answer.failed is None:
        click.echo(success(answer.data))
    if answer.failed is not None:
        raise answer.failed


def _without_colour(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


no_color_option = click.option(
    "--no-color", is_flag=True, expose_value=False, is_eager=True, callback=_without_colour, help="Like the variable NO_COLOR."
)


def as_json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """How to answer."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Answer with one line of JSON.")
    return as_json(no_color_option(function))


db_option = click.option("--db", metavar="URL", help="The ledger. Else HOLDFAST_URL, holdfast.toml, or sqlite:///holdfast.db.")
key_option = click.option(
    "--key", "keys", multiple=True, metavar="FILE", help="A key to sign with. Else HOLDFAST_KEYS, or keys in holdfast.toml."
)


def asks_a_ledger(function: "Callable[..., Answer]") -> Callable[..., None]:
    """A command whose function is given an open ledger first, made where none is there, and whose answer is then said."""
    return _asking(function, create=True)


def reads_a_ledger(function: "Callable[..., Answer]") -> Callable[..., None]:
    """The same for a command that changes nothing: where no ledger is, none is made."""
    return _asking(function, create=False)


def _asking(function: "Callable[..., Answer]", *, create: bool) -> Callable[..., None]:
    @key_option
    @db_option
    @as_json_option
    @wraps(function)
    def command(*, keys: tuple[str, ...], db: str | None, as_json: bool, **options: Any) -> None:
        url, ring = ledger_url(db), loaded_keys(keys)
        made = create and is_new(url)
        with open_ledger(url, ring, create=create) as ledger:
            if made and not as_json:
                remark_new(url)
            answer = function(ledger, **options)
        say(answer, as_json)

    return command


def remark_new(url: str) -> None:
    """It may be another one than was meant."""
    Page().remark(f"{url} was not there: it is new, and empty.")


def loaded_keys(given: Sequence[str]) -> "list[KeyFile]":
    """The keys that a command signs with."""
    from holdfast.keyfiles import keyring

    return list(keyring(key_files(given)))


def open_ledger(url: str, keys: "Sequence[KeyFile]" = (), *, create: bool) -> "Ledger":
    """With `create`, one that is not there is made."""
    import holdfast

    return holdfast.open(url, actor=_who(keys), keys=keys, create=create)


def _who(keys: "Sequence[KeyFile]") -> str:
    """Whose name goes into the record: the operator's whose key is loaded, if it is one's alone; else that of the account."""
    names = {key.name for key in keys if key.role == "operator"}
    if len(names) == 1:
        return names.pop()
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = ""
    return name or "cli"
