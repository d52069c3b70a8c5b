"""`holdfast supervise`: any program as a supervised one, and what is known of those that were."""

import hashlib
import shlex
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import (
    CommandResult,
    as_json_option,
    db_option,
    key_option,
    load_keys,
    open_ledger,
    print_result,
    report_new_ledger,
)
from holdfast.cli.config import is_new, ledger_url
from holdfast.cli.exit_codes import REFUSED
from holdfast.cli.output import CommandError, Page, usage_error
from holdfast.cli.values import JOB_ID, duration, format_age
from holdfast.errors import Conflict
from holdfast.regular_file import read_regular
from holdfast.telemetry.formatters import printable

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.ledger.verbs.runs import RunState
    from holdfast.supervise import RunOutcome

NOT_FOUND = 127
NAME_CUT_BYTES = 120
"""A longer command is cut to this for the name of its run. Names have 200 bytes at most."""
POLICY_BYTES_MAX = 65_536
SILENT = timedelta(seconds=15)
"""Supervisors say every 5 s how their run is: one that has not for so long is shown as silent."""
_NUMBERS = ("max_restarts", "breaker_failures")


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
@click.option("--name", help="The name of the run in the ledger. [default: program, arguments and job]")
@click.option("--job", "job_id", type=JOB_ID, metavar="JOB", help="Hold this job while the command runs; the command does it.")
@click.option("--policy", metavar="FILE|K=V,…", help="The numbers below, from a TOML file or as max_restarts=3,window=10m.")
@click.option("--max-restarts", type=int, help="The most restarts in any window. [default: 10]")
@click.option("--window", type=duration, help="The time over which restarts are counted. [default: 10m]")
@click.option(
    "--breaker-failures", type=int, help="This many restarts in the breaker's window end the run for good. [default: 5]"
)
@click.option("--breaker-window", type=duration, help="The time over which the breaker counts. [default: 30s]")
@click.option("--stall-timeout", type=duration, help="How long the program may be silent. [default: 1m after its first beat]")
@click.option("--expect-beats", is_flag=True, help="Count silence from the start, before the first beat.")
@click.option(
    "--backoff", type=duration, help="Wait before the first restart; doubled for each one in the window. [default: 500ms]"
)
@click.option("--backoff-max", type=duration, help="The longest wait before a restart. [default: 30s]")
@click.option("--grace", type=duration, help="Time between SIGTERM and SIGKILL. [default: 10s]")
@click.option("--list", "listing", is_flag=True, help="List the runs in the ledger and their states.")
@click.option("--reset", metavar="NAME", help="Allow a run that has ended for good to begin again.")
@key_option
@db_option
@as_json_option
def supervise(
    *,
    command: tuple[str, ...],
    keys: tuple[str, ...],
    db: str | None,
    listing: bool,
    reset: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a program, and restart it when it fails or hangs.

    The limits of restarts are kept in the ledger and outlive the supervisor.

    Ends with 0 after a clean exit or an orderly stop, with 1 where no restart is allowed any more, and like a shell with 127 or
    126 where the command cannot be found or not be run.

    \b
    Try:
      holdfast supervise --name once -- true
    """
    if [listing, reset is not None, bool(command)].count(True) != 1:
        raise usage_error(
            "give a command after --, or one of --list and --reset", action="For example: holdfast supervise -- ./serve"
        )
    url = ledger_url(db)
    quiet = as_json or (bool(command) and not sys.stderr.isatty())  # only the log is on standard error then
    made = not listing and is_new(url)
    completes = options.get("job_id") is not None
    with open_ledger(url, load_keys(keys), create=not listing, serves=completes) as ledger:
        if made and not quiet:
            report_new_ledger(url)
        if listing:
            print_result(_list(ledger), as_json)
        elif reset is not None:
            state = ledger.reset_run(reset)
            print_result(CommandResult({"run": state}, lambda page: page.line(f"{state.name} may begin again.")), as_json)
        else:
            _run(ledger, url, list(command), as_json, **options)


def _run(
    ledger: "Ledger", url: str, command: list[str], as_json: bool, *, name: str | None, job_id: int | None, **numbers: Any
) -> None:
    from holdfast.cli.supervise_output import open_reporter
    from holdfast.supervise import ResetNeeded, Supervisor, run_policy

    expect_beats, policy = numbers.pop("expect_beats"), numbers.pop("policy")
    called = name or _run_name(command, job_id)
    chosen = _parse_policy(policy) | {key: value for key, value in numbers.items() if value is not None}
    supervisor = Supervisor(
        ledger,
        command,
        name=called,
        url=url,
        observer=open_reporter(sys.stderr, called, as_json),
        policy=run_policy(chosen),
        expect_beats=expect_beats,
        job_id=job_id,
    )
    try:
        ending = supervisor.supervise()
    except Conflict as refused:
        action = "Stop that one, or give this one another --name."
        raise CommandError(refused.code, refused.message, action=action, **refused.context) from None
    except ResetNeeded as refused:
        raise _restart_denied(refused.reason.value, f"{refused}, and is not started again", refused.name) from None
    _report_end(ending, called, command[0], as_json)


def _run_name(command: list[str], job_id: int | None) -> str:
    """The program without its folder, its arguments, and the job. A long one is cut, and ends with a hash of all of it."""
    words = [Path(command[0]).name or command[0], *command[1:]]
    plain = printable(shlex.join(words) if len(words) > 1 else words[0]).strip()
    if len(plain.encode()) > NAME_CUT_BYTES:
        digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        plain = f"{plain.encode()[:NAME_CUT_BYTES].decode('utf-8', 'ignore').strip()}… {digest}"
    return plain if job_id is None else f"{plain}-{job_id}"


def _report_end(ending: "RunOutcome", name: str, program: str, as_json: bool) -> None:
    from holdfast.supervise.supervisor import format_restarts

    if ending.error is not None:
        raise ending.error
    assert ending.reason is not None
    facts: dict[str, Any] = {"run_id": ending.run_id, "restarts": ending.restarts, "last_exit": ending.exit_code}
    if ending.reason in ("clean_exit", "operator_shutdown"):
        whole = facts | {"reason": ending.reason, "receipt": ending.receipt}
        print_result(CommandResult(whole, lambda page: None), as_json)
        return
    if ending.reason == "unrecoverable_error":
        words = f"{program!r:.200} cannot be {'found' if ending.exit_code == NOT_FOUND else 'run'}"
        raise CommandError(ending.reason.value, words, exit_code=ending.exit_code or REFUSED, **facts)
    words = f"{ending.run_id} is not started again: {ending.reason.value}, {format_restarts(ending.restarts)}"
    raise _restart_denied(ending.reason.value, words, name, **facts)


def _restart_denied(code: str, message: str, name: str, **facts: Any) -> CommandError:
    return CommandError(code, message, action=f"Find out why, then: holdfast supervise --reset {shlex.quote(name)}", **facts)


def _parse_policy(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    if "=" not in given or Path(given).exists():
        try:
            return tomllib.loads(read_regular(given, POLICY_BYTES_MAX).decode())
        except OSError as error:
            raise usage_error(f"{given} cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise usage_error(f"{given}: {error}") from None
    parts = [part.strip().partition("=")[::2] for part in given.split(",")]
    pairs = dict(parts)
    if len(pairs) != len(parts):
        raise usage_error(f"{given}: each setting is to be named once")
    try:
        return {key: int(value) if key in _NUMBERS else value for key, value in pairs.items()}
    except ValueError:
        raise usage_error(f"{given}: {' and '.join(_NUMBERS)} are whole numbers") from None


def _list(ledger: "Ledger") -> CommandResult:
    now, found = ledger.now(), ledger.runs(limit=1_000)

    def show(page: Page) -> None:
        rows = [
            (
                state.name,
                state.run,
                state.program,
                _run_state(state, now - state.updated_at),
                state.restarts,
                "–" if state.exit_code is None else state.exit_code,
                f"{format_age(now - state.updated_at)} ago",
            )
            for state in found
        ]
        if rows:
            page.table(("name", "run", "program", "state", "restarts", "last exit", "seen"), rows)
        else:
            page.line("Nothing was ever supervised here.")

    return CommandResult({"runs": found, "now": now}, show)


def _run_state(state: "RunState", passed: timedelta) -> str:
    if state.terminal_reason is not None:
        return state.terminal_reason
    if state.receipt is None or state.reset_by is not None:
        return "reset"
    return f"{state.receipt['health_verdict']}{', silent' if passed > SILENT else ''}"
