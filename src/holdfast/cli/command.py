"""Command groups, the options that all commands share, and opening the ledger for a command."""

import getpass
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.config import is_new, key_files, ledger_url, setting, without_password
from holdfast.cli.exit_codes import OutputClosed, run_command
from holdfast.cli.output import JSON_REQUESTED, REQUEST_ID, CommandError, Page, show_elapsed, success_line
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.proof.keys import KeyFile


_SUGGESTED_COMMAND = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|\bholdfast ([a-z]+)(?: ([a-z]+))?""")
"""What is quoted is somebody's name for something, whatever it says."""
_DB_KEY = f"{__name__}.db"


def with_db_option(text: str) -> str:
    """`text`, in which each command of ours names the ledger as this one was told to: by --db, or not at all.

    A password is left out, and so such a command reaches this ledger or none; libpq has other places to look for one.
    """
    context = click.get_current_context()
    db = context.meta.get(_DB_KEY)
    return _SUGGESTED_COMMAND.sub(lambda found: _insert_db_option(context.find_root(), found, db), text) if db else text


def ledger_from_options(ctx: click.Context) -> str | None:
    """The ledger that --db names, be it before the noun."""
    found: str | None = ctx.params.get("db") or ctx.meta.get(_DB_KEY)
    return found


def remember_ledger(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The ledger that was named here or before the noun, kept for what is suggested later, also when the command has failed."""
    found: str | None = value or ctx.meta.get(_DB_KEY)
    ctx.meta[_DB_KEY] = found
    return found


def _insert_db_option(root: click.Context, found: re.Match[str], db: str) -> str:
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


COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"
"""By which a shell's script asks for completions, however the program was started."""

COMMAND_MODULES = {
    "demo": "holdfast.demo.command",
    "gate": "holdfast.cli.explain",
    "migrate": "holdfast.cli.maintenance",
    "resume": "holdfast.cli.task",
    "sweep": "holdfast.cli.maintenance",
}
"""Where a command is that has no module of its own name in `holdfast.cli`."""


class CommandResult(NamedTuple):
    """What a command has to say: to machines, and to people."""

    data: Any
    show: Callable[[Page], None]
    failed: CommandError | None = None
    """Where only a part was done: why not the rest."""


class LazyGroup(click.Group):
    """Commands that live in files of their own name, read when they are asked for. Every failure ends here."""

    def __init__(self, *args: Any, nouns: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._nouns = nouns

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._nouns)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._nouns:
            return None
        module = import_module(COMMAND_MODULES.get(cmd_name, f"holdfast.cli.{cmd_name}"))
        found: click.Command = getattr(module, cmd_name)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._nouns and not args[0].startswith("-") and not ctx.resilient_parsing:
            from holdfast.cli.completion import command_hint

            raise click.UsageError(f"No such command {args[0]!r:.80}.{command_hint(self, ctx, args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Runs what `args` say, and exits: 0 done, 1 refused, 2 not understood, 3 out of reach, 130 interrupted, 141 unread."""
        whole = list(sys.argv[1:] if args is None else args)
        given = whole[: whole.index("--")] if "--" in whole else whole  # what follows is for another program
        options = {"complete_var": COMPLETE_VARIABLE, **extra, "standalone_mode": False}
        sys.exit(run_command(lambda: click.Group.main(self, whole, *rest, **options), given))

    # Click would end with 1, like a refusal, where nobody reads what is said.

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*given, **more)
        except BrokenPipeError as error:
            raise OutputClosed from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosed from error
        except (HoldfastError, CommandError) as error:
            error.action = with_db_option(error.action)
            error.request_id = ctx.meta.get(REQUEST_ID)
            raise


def print_result(answer: CommandResult, as_json: bool) -> None:
    """In the form that was asked for. Raises what failed: to be said last."""
    if not as_json:
        answer.show(Page())
    elif answer.failed is None:
        context = click.get_current_context(silent=True)
        click.echo(success_line(answer.data, None if context is None else context.meta.get(REQUEST_ID)))
    if answer.failed is not None:
        raise answer.failed


def _disable_color(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


no_color_option = click.option(
    "--no-color",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_disable_color,
    help="Print without colour, as with the variable NO_COLOR.",
)


def _remember_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """It may stand before the noun, between noun and verb, or behind both."""
    ctx.meta[JSON_REQUESTED] = value or ctx.meta.get(JSON_REQUESTED, False)
    return bool(ctx.meta[JSON_REQUESTED])


_JSON_OPTION: dict[str, Any] = {"is_flag": True, "callback": _remember_json, "help": "Answer with one line of JSON."}
json_group_option = click.option("--json", expose_value=False, **_JSON_OPTION)


class NounGroup(click.Group):
    """Verbs of one noun. How to answer may be said before the verb, too. `show` is another name of `get`."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        json_group_option(db_group_option(no_color_option(self)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "get" if cmd_name == "show" else cmd_name)


def as_json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """How to answer."""
    return click.option("--json", "as_json", **_JSON_OPTION)(no_color_option(function))


_DB_OPTION: dict[str, Any] = {
    "metavar": "URL",
    "callback": remember_ledger,
    "help": "The ledger. Else HOLDFAST_URL, holdfast.toml, or sqlite:///holdfast.db.",
}
db_option = click.option("--db", **_DB_OPTION)
db_group_option = click.option("--db", expose_value=False, **_DB_OPTION)


class GeneratedRequestId(str):
    """A request id that was drawn here, since none was typed."""

    __slots__ = ()


def _request_id_or_new(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """The request id, which the answer repeats: with it the same command can be sent again."""
    found = GeneratedRequestId(os.urandom(8).hex()) if value is None else value
    ctx.meta[REQUEST_ID] = found
    return found


request_option = click.option(
    "--request-id",
    metavar="ID",
    callback=_request_id_or_new,
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


def with_ledger(function: "Callable[..., CommandResult]") -> Callable[..., None]:
    """A command whose function is given an open ledger first, made where none is there, and whose answer is then said."""
    return _ledger_command(function, create=True)


def with_existing_ledger(function: "Callable[..., CommandResult]") -> Callable[..., None]:
    """The same for a command that changes nothing: where no ledger is, none is made."""
    return _ledger_command(function, create=False)


def _ledger_command(function: "Callable[..., CommandResult]", *, create: bool) -> Callable[..., None]:
    @key_option
    @db_option
    @as_json_option
    @wraps(function)
    def command(*, keys: tuple[str, ...], db: str | None, as_json: bool, **options: Any) -> None:
        url, ring = ledger_url(db), load_keys(keys)
        made = create and is_new(url)
        with open_ledger(url, ring, create=create) as ledger:
            if made and not as_json:
                report_new_ledger(url)
            answer = function(ledger, **options)
        print_result(answer, as_json)

    return command


def report_new_ledger(url: str) -> None:
    """It may be another one than was meant."""
    Page().remark(f"{url} was not there: it is new, and empty.")


def load_keys(given: Sequence[str]) -> "list[KeyFile]":
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
        from holdfast.cli.apps import LazyAppHooks

        validators = LazyAppHooks(named)
        if serves:
            validators.load()
    with show_elapsed("opening the ledger"):
        return holdfast.open(url, actor=_default_actor(keys), keys=keys, create=create, validators=validators)


def _default_actor(keys: "Sequence[KeyFile]") -> str:
    """Whose name goes into the record: the operator's whose key is loaded, if it is one's alone; else that of the account."""
    names = {key.name for key in keys if key.role == "operator"}
    if len(names) == 1:
        return names.pop()
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = ""
    return name or "cli"
