"""`holdfast supervise`: run any program under supervision, list runs and reset them."""

import hashlib
import logging
import shlex
import signal
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from holdfast.cli.command import (
    REFUSED,
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
from holdfast.cli.output import CommandError, usage_error
from holdfast.cli.values import JOB_ID, duration
from holdfast.core.text import format_age, truncate_bytes
from holdfast.errors import Conflict
from holdfast.files.regular import read_regular
from holdfast.telemetry.formatters import printable

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.ledger.verbs.services import RunState
    from holdfast.supervise import RunOutcome

log = logging.getLogger("holdfast.supervise")

NOT_FOUND = 127
NAME_CUT_BYTES = 120
"""The name of a run is the command, cut to this length. Names have at most 200 bytes."""
POLICY_BYTES_MAX = 65_536
SILENT = timedelta(seconds=15)
"""A supervisor reports every 5 s. A run without a report for this long is shown as silent."""
_NUMBERS = ("max_restarts", "breaker_failures")


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
@click.option("--name", help="The name of the run in the ledger. [default: program, arguments and job]")
@click.option("--job", "job_id", type=JOB_ID, metavar="JOB", help="Hold this job while the command does its work.")
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

    The restarts are counted in the ledger, so the limits hold across supervisors.

    The exit code is 0 after a clean exit or an orderly stop, and 1 if no restart is allowed any more. As in a shell, it is 127 if
    the command is not found, and 126 if it cannot be run.

    \b
    Try:
      holdfast supervise --name once -- true
    """
    if [listing, reset is not None, bool(command)].count(True) != 1:
        raise usage_error(
            "give a command after --, or one of --list and --reset", action="For example: holdfast supervise -- ./serve"
        )
    url = ledger_url(db)
    quiet = as_json or (bool(command) and not sys.stderr.isatty())  # standard error then has log lines only
    creates = not listing and is_new(url)
    completes = options.get("job_id") is not None
    with open_ledger(url, load_keys(keys), create=not listing, serves=completes) as ledger:
        if creates and not quiet:
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
    from holdfast.cli.supervise import open_reporter
    from holdfast.supervise import ResetNeeded, Supervisor, run_policy

    expect_beats, policy = numbers.pop("expect_beats"), numbers.pop("policy")
    run_name = name or _run_name(command, job_id)
    settings = _parse_policy(policy) | {key: value for key, value in numbers.items() if value is not None}
    supervisor = Supervisor(
        ledger,
        command,
        name=run_name,
        url=url,
        observer=open_reporter(sys.stderr, run_name, as_json),
        policy=run_policy(settings),
        expect_beats=expect_beats,
        job_id=job_id,
    )
    try:
        outcome = supervisor.supervise()
    except Conflict as refused:
        action = "Stop that one, or give this one another --name."
        raise CommandError(refused.code, refused.message, action=action, **refused.context) from None
    except ResetNeeded as refused:
        raise _restart_denied(refused.reason.value, f"{refused}, and is not started again", refused.name) from None
    _report_end(outcome, run_name, command[0], as_json)


def _run_name(command: list[str], job_id: int | None) -> str:
    """Return the program without its folder, its arguments and the job. Cut a long name, and append a hash of the command."""
    words = [Path(command[0]).name or command[0], *command[1:]]
    plain = printable(shlex.join(words) if len(words) > 1 else words[0]).strip()
    if len(plain.encode()) > NAME_CUT_BYTES:
        digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        plain = f"{truncate_bytes(plain, NAME_CUT_BYTES).strip()}… {digest}"
    return plain if job_id is None else f"{plain}-{job_id}"


def _report_end(outcome: "RunOutcome", name: str, program: str, as_json: bool) -> None:
    from holdfast.supervise.supervisor import format_restarts

    if outcome.error is not None:
        raise outcome.error
    assert outcome.reason is not None
    facts: dict[str, Any] = {"run_id": outcome.run_id, "restarts": outcome.restarts, "last_exit": outcome.exit_code}
    if outcome.reason in ("clean_exit", "operator_shutdown"):
        whole = facts | {"reason": outcome.reason, "receipt": outcome.receipt}
        print_result(CommandResult(whole, lambda page: None), as_json)
        return
    if outcome.reason == "unrecoverable_error":
        words = f"{program!r:.200} cannot be {'found' if outcome.exit_code == NOT_FOUND else 'run'}"
        raise CommandError(outcome.reason.value, words, exit_code=outcome.exit_code or REFUSED, **facts)
    words = f"{outcome.run_id} is not started again: {outcome.reason.value}, {format_restarts(outcome.restarts)}"
    raise _restart_denied(outcome.reason.value, words, name, **facts)


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
        raise usage_error(f"{given}: each setting may be given once")
    try:
        return {key: int(value) if key in _NUMBERS else value for key, value in pairs.items()}
    except ValueError:
        raise usage_error(f"{given}: {' and '.join(_NUMBERS)} are whole numbers") from None


def _list(ledger: "Ledger") -> CommandResult:
    now, found = ledger.now(), ledger.runs(limit=1_000)
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
    heads = ("name", "run", "program", "state", "restarts", "last exit", "seen")
    return CommandResult({"runs": found, "now": now}, lambda page: page.listing(heads, rows, "There are no supervised runs."))


def _run_state(state: "RunState", passed: timedelta) -> str:
    if state.terminal_reason is not None:
        return state.terminal_reason
    if state.receipt is None or state.reset_by is not None:
        return "reset"
    return f"{state.receipt['health_verdict']}{', silent' if passed > SILENT else ''}"


_ORDERLY = ("clean_exit", "operator_shutdown")
_WARNINGS = ("stalled", "not started", "waiting for the ledger")


def open_reporter(stream: IO[str], name: str, as_json: bool) -> "LogReporter | TerminalReporter":
    """Return what reports the supervisor's progress on standard error: as JSON log lines, or as sentences on a terminal.

    Standard output belongs to the supervised command. On a terminal the command writes to the same screen, so no line is ever
    overwritten.
    """
    from holdfast.telemetry import logs

    if stream.isatty() and not as_json:
        logs.configure(level="WARNING", stream=stream)
        return TerminalReporter(stream, name)
    logs.configure(json=True, stream=stream)
    return LogReporter(name, receipts=as_json)


class LogReporter:
    """Logs a line of JSON for each event, with the name of the run."""

    def __init__(self, name: str, *, receipts: bool) -> None:
        self._name = name
        self._receipts = receipts
        self._stopping = False

    def on_event(self, what: str, **facts: Any) -> None:
        self._stopping = self._stopping or what.startswith("stopping")
        if what != "receipt" or self._receipts:
            log.log(self._level(what, facts), what, extra={"run": self._name, **facts})

    def _level(self, what: str, facts: dict[str, Any]) -> int:
        """Return the log level. A non-zero exit code is a failure unless the supervisor was stopping the command."""
        if what == "over":
            return logging.INFO if facts["reason"] in _ORDERLY else logging.ERROR
        failed = what == "ended" and facts["exit_code"] != 0 and not self._stopping
        return logging.WARNING if failed or what in _WARNINGS else logging.INFO


class TerminalReporter:
    """Writes a sentence for each event, prefixed with the name of the run to distinguish it from the command's output."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream = stream
        self._name = name

    def on_event(self, what: str, **facts: Any) -> None:
        if what != "receipt":
            self._stream.write(f"{printable(f'{self._name}: {describe(what, facts)}')}\n")
            self._stream.flush()


def describe(what: str, facts: dict[str, Any]) -> str:
    """Return an event as text."""
    from holdfast.supervise.supervisor import format_restarts

    match what, facts:
        case "started" | "continuing", {"restarts": restarts, **rest}:
            pid = f", pid {rest['pid']}" if "pid" in rest else ""
            return f"{what}{pid}, {format_restarts(restarts)}" if restarts else f"{what}{pid}"
        case "ended", {"exit_code": code, "error": error}:
            return f"ended {_exit_text(code)}: {error}"
        case "ended", {"exit_code": code}:
            return f"ended {_exit_text(code)}"
        case "restarting", {"attempt": attempt, "max_restarts": most, "wait_ms": wait_ms}:
            return f"restarting in {wait_ms} ms ({attempt} of {most})"
        case "stalled", {"silent_ms": silent_ms}:
            return f"has hung: silent for {silent_ms} ms"
        case "over", {"reason": reason, "restarts": restarts}:
            return f"over, {format_restarts(restarts)}: {reason}"
    details = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    return f"{what}: {details}" if details else what


def _exit_text(code: int | None) -> str:
    """Return how a process ended. A negative code is the signal that ended it; None is unknown."""
    if code is None:
        return "with an unknown exit code"
    try:
        return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
