"""Command groups, the options that all commands share, opening the ledger for a command, and exit codes."""

import errno
import getpass
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.config import LazyAppHooks, is_new, key_files, ledger_url, setting, without_password
from holdfast.cli.output import (
    HINTS,
    JSON_REQUESTED,
    REQUEST_ID,
    CommandError,
    OutputClosed,
    Page,
    failure_line,
    show_elapsed,
    success_line,
    usage_error,
)
from holdfast.errors import HoldfastError
from holdfast.telemetry.formatters import printable
from holdfast.version import install_command

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.proof.keys import KeyFile

_SUGGESTED_COMMAND = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|\bholdfast ([a-z]+)(?: ([a-z]+))?""")
"""Quoted text matches first and stays as it is: it is a name, even if it reads like a command."""
_DB_KEY = f"{__name__}.db"


def with_db_option(text: str) -> str:
    """Return `text` with this command's --db, if there is one, added to each `holdfast` command in it.

    The password is left out, so a suggested command may not be able to connect. libpq also reads passwords from other places.
    """
    context = click.get_current_context()
    db = context.meta.get(_DB_KEY)
    return _SUGGESTED_COMMAND.sub(lambda found: _insert_db_option(context.find_root(), found, db), text) if db else text


def ledger_from_options(ctx: click.Context) -> str | None:
    """Return the ledger that --db names, also if --db comes before the noun."""
    found: str | None = ctx.params.get("db") or ctx.meta.get(_DB_KEY)
    return found


def remember_ledger(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the ledger that --db names here or before the noun. Keep it for commands suggested later, also after a failure."""
    found: str | None = value or ctx.meta.get(_DB_KEY)
    ctx.meta[_DB_KEY] = found
    return found


def _insert_db_option(root: click.Context, found: re.Match[str], db: str) -> str:
    """Return the command with --db before all arguments: after `--` it would be an argument itself."""
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
"""The variable that a shell's completion script sets. It does not depend on how the program was started."""

COMMAND_MODULES = {
    "demo": "holdfast.demo.command",
    "doctor": "holdfast.cli.maintenance",
    "gate": "holdfast.cli.explain",
    "migrate": "holdfast.cli.maintenance",
    "resume": "holdfast.cli.task",
    "sweep": "holdfast.cli.maintenance",
}
"""The module of each command that has no module of its own name in `holdfast.cli`."""


class CommandResult(NamedTuple):
    """The result of a command: `data` for JSON, `show` for text."""

    data: Any
    show: Callable[[Page], None]
    failed: CommandError | None = None
    """The error, if the command failed or did only a part of its work."""


class CommandGroup(click.Group):
    """A group that prints its help if no command is given, and names the nearest command for a wrong word."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.invoke_without_command, self.no_args_is_help, self.callback = True, False, _help_without_command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not (args[0].startswith("-") or ctx.resilient_parsing) and self.get_command(ctx, args[0]) is None:
            from holdfast.cli.wrong_words import unknown_command

            raise unknown_command(ctx, args[0])
        return super().resolve_command(ctx, args)


def _help_without_command() -> None:
    """Print the help of a group that is called without a command. With --json, that is a usage error: an answer is one line."""
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        if ctx.meta.get(JSON_REQUESTED):
            ctx.fail("Missing command.")
        click.echo(ctx.get_help(), color=ctx.color)


class LazyGroup(CommandGroup):
    """The top-level group. It imports a command's module when the command is used, and reports every failure.

    `sections` are the commands by what they are for. The help lists them so.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.sections = sections
        self._nouns = sorted(name for names in sections.values() for name in names)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._nouns)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._nouns))
        for title, names in self.sections.items():
            with formatter.section(title):
                found = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl(
                    [(name.ljust(width), command.get_short_help_str(formatter.width)) for name, command in found if command]
                )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._nouns:
            return None
        module = import_module(COMMAND_MODULES.get(cmd_name, f"holdfast.cli.{cmd_name}"))
        found: click.Command = getattr(module, cmd_name)
        return found

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command and exit.

        Exit codes: 0 success, 1 refused, 2 usage error, 3 ledger out of reach, 130 interrupted, 141 output closed.
        """
        whole = list(sys.argv[1:] if args is None else args)
        given = whole[: whole.index("--")] if "--" in whole else whole  # the other arguments are for another program
        options = {"complete_var": COMPLETE_VARIABLE, **extra, "standalone_mode": False}
        sys.exit(run_command(lambda: click.Group.main(self, whole, *rest, **options), given))

    # If the reader of the output is gone, click would exit with 1, like a refusal.

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
    """Print the result as text or JSON, then raise its error, if it has one."""
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
    """Remember --json, which may come before the noun, between noun and verb, or after both."""
    ctx.meta[JSON_REQUESTED] = value or ctx.meta.get(JSON_REQUESTED, False)
    return bool(ctx.meta[JSON_REQUESTED])


_JSON_OPTION: dict[str, Any] = {"is_flag": True, "callback": _remember_json, "help": "Answer with one line of JSON."}
json_group_option = click.option("--json", expose_value=False, **_JSON_OPTION)


class NounGroup(CommandGroup):
    """The verbs of one noun. --json, --db and --no-color may also come before the verb. `show` is another name of `get`."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        json_group_option(db_group_option(no_color_option(self)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "get" if cmd_name == "show" else cmd_name)


def as_json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json and --no-color to a command."""
    return click.option("--json", "as_json", **_JSON_OPTION)(no_color_option(function))


_DB_OPTION: dict[str, Any] = {
    "metavar": "URL",
    "callback": remember_ledger,
    "help": "The ledger. Else HOLDFAST_URL, holdfast.toml, or sqlite:///holdfast.db.",
}
db_option = click.option("--db", **_DB_OPTION)
db_group_option = click.option("--db", expose_value=False, **_DB_OPTION)


class GeneratedRequestId(str):
    """A request id that was generated because none was typed."""

    __slots__ = ()


def _request_id_or_new(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Return the request id. The answer contains it, so that the same command can be sent again."""
    found = GeneratedRequestId(os.urandom(8).hex()) if value is None else value
    ctx.meta[REQUEST_ID] = found
    return found


request_option = click.option(
    "--request-id",
    metavar="ID",
    callback=_request_id_or_new,
    help="The id of the request. A request that is sent twice is done once. Generated if you give none.",
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
    """Make a command from a function that takes an open ledger and returns a result. Create the ledger if there is none."""
    return _ledger_command(function, create=True)


def with_existing_ledger(function: "Callable[..., CommandResult]") -> Callable[..., None]:
    """Make a command from a function that takes an open ledger and returns a result. Raise if there is no ledger."""
    return _ledger_command(function, create=False)


def _ledger_command(function: "Callable[..., CommandResult]", *, create: bool) -> Callable[..., None]:
    @key_option
    @db_option
    @as_json_option
    @wraps(function)
    def command(*, keys: tuple[str, ...], db: str | None, as_json: bool, **options: Any) -> None:
        url, ring = ledger_url(db), load_keys(keys)
        creates = create and is_new(url)
        with open_ledger(url, ring, create=create) as ledger:
            if creates and not as_json:
                report_new_ledger(url)
            answer = function(ledger, **options)
        print_result(answer, as_json)

    return command


def report_new_ledger(url: str) -> None:
    """Print that the ledger is new: the user may have wanted another one."""
    Page().remark(f"{url} did not exist: an empty ledger was created.")


def load_keys(given: Sequence[str]) -> "list[KeyFile]":
    """Return the keys that a command signs with."""
    from holdfast.files.keys import keyring

    return list(keyring(key_files(given)))


def open_ledger(url: str, keys: "Sequence[KeyFile]" = (), *, create: bool, serves: bool = False) -> "Ledger":
    """Open the ledger. With `create`, create it if it does not exist.

    This may take long if a large ledger is migrated or another process holds a lock. The app that holdfast.toml names for its
    validators is imported when a result is first validated. With `serves` it is imported at once: set it for a command that
    serves clients, or that has work to do before it completes a job.
    """
    import holdfast

    named = setting("validators")
    validators = None
    if named is not None:
        validators = LazyAppHooks(named)
        if serves:
            validators.load()
    if url.startswith(("http://", "https://")):
        _report_silent_server()
    with show_elapsed("opening the ledger"):
        return holdfast.open(
            url,
            actor=default_actor(keys),
            keys=keys,
            create=create,
            validators=validators,
            token_file=setting("token_file"),
            ca_file=setting("ca_file"),
        )


def import_with_extra(module: str, extra: str, what: str) -> ModuleType:
    """Import a module of Holdfast. Raise if the packages of the extra, which it needs, are not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        words = f"{what} needs the package {error.name}"
        raise CommandError("missing_extra", words, action=install_command(extra)) from None


def _report_silent_server() -> None:
    """Print on standard error that a server does not answer, unless the command has set up its own log."""
    import logging

    log = logging.getLogger("holdfast.remote")
    if not logging.getLogger().handlers and not log.handlers:
        log.addHandler(logging.StreamHandler())


def default_actor(keys: "Sequence[KeyFile]") -> str:
    """Return the actor to record: the operator, if the operator keys all have one name; else the name of the account."""
    names = {key.name for key in keys if key.role == "operator"}
    if len(names) == 1:
        return names.pop()
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = ""
    return name or "cli"


REFUSED, UNAVAILABLE = 1, 3
INTERRUPTED, OUTPUT_CLOSED = 130, 141
"""The codes that shells use for a program that SIGINT or SIGPIPE has ended."""
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def run_command(run: Callable[[], object], given: Sequence[str]) -> int:
    """Call `run`, report its failure, flush the output and return the exit code. `given` are the arguments that were typed."""
    try:
        code = _run_and_report(run, given)
        return code or _flush_output()
    except (OutputClosed, BrokenPipeError):
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        discard_unwritten_output()


def _flush_output() -> int:
    """Flush standard output: a full disk may show only now."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        return _report_write_error(error)
    return 0


def _report_write_error(error: OSError) -> int:
    if error.errno not in _DISK_ERRORS:
        raise error
    return Page().fail(f"the answer cannot be written: {error.strerror}")


def _run_and_report(run: Callable[[], object], given: Sequence[str]) -> int:
    try:
        code = run()
    except click.Abort:
        return _report_error(CommandError("interrupted", "interrupted", exit_code=INTERRUPTED), given)
    except click.UsageError as error:
        return _report_usage_error(error, given)
    except click.ClickException as error:
        return _report_error(CommandError("error", error.format_message()), given)
    except (HoldfastError, CommandError) as error:
        return _report_error(error, given)
    except OSError as error:
        return _report_write_error(error)
    return code if isinstance(code, int) else 0


def _report_error(error: HoldfastError | CommandError, given: Sequence[str]) -> int:
    error.message, error.action = _redact_urls(error.message, given), _redact_urls(error.action, given)
    if "--json" in given:
        click.echo(failure_line(error))
    elif isinstance(error, CommandError) and error.is_printed:
        pass
    else:
        Page().fail(f"{error.code}: {error.message}" if isinstance(error, HoldfastError) else error.message, error.action)
    return exit_code_of(error)


def _redact_urls(message: str, given: Sequence[str]) -> str:
    """Return `message` without the urls that were typed. Import the code for that only if one may be there."""
    if "postgres" not in " ".join(given).lower():
        return message
    from holdfast.core.urls import redact_urls

    return redact_urls(message, given)


def exit_code_of(error: HoldfastError | CommandError) -> int:
    if isinstance(error, CommandError):
        return error.exit_code
    return UNAVAILABLE if error.fault == "store" else REFUSED


def _report_usage_error(error: click.UsageError, given: Sequence[str]) -> int:
    """Print a usage error in one line, with control characters escaped. Click would print what was typed unchanged."""
    from holdfast.cli.wrong_words import UnknownCommand, replacement

    instead = replacement(error)
    text = error.message if instead else error.format_message()  # without click's guess at what was meant
    message = _redact_urls(" ".join(text.split("\n")).replace("\t", ""), given)
    hint = instead or HINTS.get(_missing_option(error))
    if "--json" in given:
        if isinstance(error, UnknownCommand):
            hint = hint or error.action
        return _report_error(usage_error(message, action=hint) if hint else usage_error(message), given)
    if error.ctx is not None:
        # Print one suggestion only: the hint if there is one, else --help.
        more = "" if hint else f"Try '{error.ctx.command_path} {error.ctx.help_option_names[0]}' for help.\n"
        click.echo(f"{error.ctx.get_usage()}\n{more}", err=True)
    click.echo(f"Error: {printable(message)}" + (f"\nTry: {hint}" if hint else ""), err=True)
    return error.exit_code


def _missing_option(error: click.UsageError) -> str:
    """Return the name of the option that is missing, or an empty text."""
    param = error.param if isinstance(error, click.MissingParameter) else None
    return "" if param is None else param.name or ""


def discard_unwritten_output() -> None:
    """Discard output that cannot be written. Python would report it at exit and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
