"""What a supervisor says while it runs: lines for machines, or one calm line for a person. Standard output is the command's."""

import logging
import shutil
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

from holdfast.cli.values import age
from holdfast.telemetry import logs
from holdfast.telemetry.lines import cut, visible

if TYPE_CHECKING:
    from holdfast.supervise import Looking

log = logging.getLogger("holdfast.supervise")


def voice_of(stream: IO[str], as_json: bool) -> "LogVoice | TerminalVoice":
    if stream.isatty() and not as_json:
        logs.configure(level="WARNING", stream=stream)
        return TerminalVoice(stream)
    logs.configure(json=True, stream=stream)
    return LogVoice(receipts=as_json)


class LogVoice:
    """A line of JSON for everything that happens."""

    every_s = 3_600.0

    def __init__(self, *, receipts: bool) -> None:
        self._receipts = receipts

    def happened(self, what: str, **facts: Any) -> None:
        if what != "receipt" or self._receipts:
            log.info(what, extra=facts)

    def status(self, looking: "Looking") -> None:
        """The lines say it all."""


class TerminalVoice:
    """A line that is written anew every second, and above it what has happened."""

    every_s = 1.0

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def happened(self, what: str, **facts: Any) -> None:
        if what != "receipt":
            told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
            self._stream.write(f"\r\x1b[2K{visible(f'{what}: {told}' if told else what)}\n")
            self._stream.flush()

    def status(self, looking: "Looking") -> None:
        line = cut(visible(describe(looking)), shutil.get_terminal_size().columns - 1)
        self._stream.write(f"\r\x1b[2K{line}")
        self._stream.flush()


def describe(looking: "Looking") -> str:
    """How the run is, in a line."""
    watch, tick = looking.watch, looking.tick()
    said = [looking.name]
    if looking.child is None or watch is None:
        said.append("waits for its next start")
    else:
        said.append(f"up {_since(watch.started_tick, tick)}")
        if watch.beaten_tick is not None:
            said.append(f"last beat {_since(watch.beaten_tick, tick)} ago")
        if (told := watch.describe()) is not None:
            said.append(told)
    return " · ".join([*said, f"{looking.run.body.restarts} restarts"])


def _since(then: int, now: int) -> str:
    return age(timedelta(milliseconds=now - then))
