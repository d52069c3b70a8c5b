"""Progress messages of a supervisor on standard error: JSON log lines, or sentences on a terminal.

Standard output belongs to the supervised command. On a terminal the command writes to the same screen, so no line is ever
overwritten.
"""

import logging
import signal
from typing import IO, Any

from holdfast.supervise.supervisor import format_restarts
from holdfast.telemetry import logs
from holdfast.telemetry.formatters import printable

log = logging.getLogger("holdfast.supervise")

_ORDERLY = ("clean_exit", "operator_shutdown")
_WARNINGS = ("stalled", "not started", "waiting for the ledger")


def open_reporter(stream: IO[str], name: str, as_json: bool) -> "LogReporter | TerminalReporter":
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
