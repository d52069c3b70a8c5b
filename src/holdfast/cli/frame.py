"""What all commands have in common: where the ledger is, in which form to answer, how to end."""

import getpass
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.address import is_new, key_files, ledger_url, setting
from holdfast.cli.ending import Unread, ended
from holdfast.cli.envelope import JSON_ASKED, REQUEST_ID, Failed, success
from holdfast.cli.page import Page
from holdfast.cli.pasting import note_ledger, pasteable
from holdfast.cli.progress import meanwhile
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.core.proof.keyfile import KeyFile
    from holdfast.ledger import Ledger

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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._nouns and not args[0].startswith("-") and not ctx.resilient_parsing:
            from holdfast.cli.meant import meant

            raise click.UsageError(f"No such command {args[0]!r:.80}.{meant(self, ctx, args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Runs what `args` say, and exits: 0 done, 1 refused, 2 not understood, 3 out of reach, 130 interrupted, 141 unread."""
        whole = list(sys.argv[1:] if args is None else args)
        given = whole[: whole.index("--")] if "--" in whole else whole  # what follows is for another program
        options = {"complete_var": COMPLETE_VARIABLE, **extra, "standalone_mode": False}
        sys.exit(ended(lambda: click.Group.main(self, whole, *rest, **options), given))

    # Click would end with 1, like a refusal, where nobody reads what is said.

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*given, **more)
        except BrokenPipeError as error:
            raise Unread from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Unread from error
        except (HoldfastError, Failed) as error:
            error.action = pasteable(error.action)
            error.request_id = ctx.meta.get(REQUEST_ID)
            raise


def say(answer: Answer, as_json: bool) -> None:
    """In the form that was asked for. Raises what failed: to be said last."""
    if not as_json:
        answer.show(Page())
    elif answer.failed is None:
        context = click.get_current_context(silent=True)
        click.echo(success(answer.data, None if context is None else context.meta.get(REQUEST_ID)))
    if answer.failed is not None:
        raise answer.failed


def _without_colour(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


no_color_option = click.option(
    "--no-color",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_without_colour,
    help="Print without colour, as with the variable NO_COLOR.",
)


def _json_asked_for(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """It may stand before the noun, between noun and verb, or behind both."""
    ctx.meta[JSON_ASKED] = value or ctx.meta.get(JSON_ASKED, False)
    return bool(ctx.meta[JSON_ASKED])


_ONE_LINE: dict[str, Any] = {"is_flag": True, "callback": _json_asked_for, "help": "Answer with one line of JSON."}
json_before_option = click.option("--json", expose_value=False, **_ONE_LINE)


class Noun(click.Group):
    """Verbs of one noun. How to answer may be said before the verb, too. `show` is another name of `get`."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        json_before_option(db_before_option(no_color_option(self)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "get" if cmd_name == "show" else cmd_name)


def as_json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """How to answer."""
    return click.option("--json", "as_json", **_ONE_LINE)(no_color_option(function))


_LEDGER: dict[str, Any] = {
    "metavar": "URL",
    "callback": note_ledger,
    "help": "The ledger. Else HOLDFAST_URL, holdfast.toml, or sqlite:///holdfast.db.",
}
db_option = click.option("--db", **_LEDGER)
db_before_option = click.option("--db", expose_value=False, **_LEDGER)


class Drawn(str):
    """A request id that was drawn here, since none was typed."""

    __slots__ = ()


def _drawn(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """The request id, which the answer repeats: with it the same command can be sent again."""
    found = Drawn(os.urandom(8).hex()) if value is None else value
    ctx.meta[REQUEST_ID] = found
    return found


request_option = click.option(
    "--request-id",
    metavar="ID",
    callback=_drawn,
    help="Names the request. The same request sent again is done once. Made up if you give none.",
)
key_option = click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="A key to sign with. Else HOLDFAST_KEYS, or keys in holdfast.toml.",
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


def open_ledger(url: str, keys: "Sequence[KeyFile]" = (), *, create: bool, serves: bool = False) -> "Ledger":
    """With `create`, one that is not there is made. Migrating a large one may take long, and so may a lock of somebody else.

    The app that holdfast.toml names for its validators is imported when a result is first looked at; at once for a command that
    `serves` others, or that has work to do before it completes anything.
    """
    import holdfast

    named = setting("validators")
    validators = None
    if named is not None:
        from holdfast.cli.apps import NamedHooks

        validators = NamedHooks(named)
        if serves:
            validators.load()
    with meanwhile("opening the ledger"):
        return holdfast.open(url, actor=_who(keys), keys=keys, create=create, validators=validators)


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
