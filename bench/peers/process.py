"""One process of a contender: start it, read its messages, end it by its id."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from time import monotonic
from types import TracebackType
from typing import IO, NamedTuple, Self

from bench.peers.programs.messages import MARK

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10.0
COMPLAINT_LINES = 8


class Silent(Exception):
    """A process ended, or did not send an expected message in time."""


class Late(Silent):
    """An expected message did not come in time."""


class Fact(NamedTuple):
    what: str
    at: float
    speaker: int
    """The id of the process that sent it."""


class MessageLog:
    """The messages of one or more processes, in the order of their arrival."""

    def __init__(self) -> None:
        self._facts: Queue[Fact] = Queue()

    def listen(self, stream: IO[str], speaker: int) -> None:
        """Read messages until the stream ends."""
        for line in stream:
            if line.startswith(MARK):
                fact = json.loads(line[len(MARK) :])
                self._facts.put(Fact(fact["what"], fact["at"], speaker))
        self._facts.put(Fact("ended", 0.0, speaker))

    def wait(self, what: str, seconds: float, *, except_from: int | None = None) -> Fact:
        """Return the next message of this name. Raise Silent if none comes, or if one of the other processes ends."""
        until = monotonic() + seconds
        while True:
            try:
                fact = self._facts.get(timeout=max(0.0, until - monotonic()))
            except Empty:
                raise Late(f"no process sent {what!r} within {seconds:g} s") from None
            if fact.speaker == except_from:
                continue
            if fact.what == what:
                return fact
            if fact.what == "ended":
                raise Silent(f"a process ended before it sent {what!r}")

    def arrives(self, what: str, seconds: float) -> bool:
        """Whether the message comes in time. A process that ends is still an error."""
        try:
            self.wait(what, seconds)
        except Late:
            return False
        return True


class Process:
    """A process in its own process group, so that its child processes end with it."""

    def __init__(
        self, command: Sequence[str], home: Path, messages: MessageLog, environment: Mapping[str, str] | None = None
    ) -> None:
        self._complaints = (home / f"stderr-{len(list(home.glob('stderr-*')))}").open("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=home,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", **(environment or {})},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.id = self._process.pid
        self._listener = threading.Thread(target=messages.listen, args=(self._process.stdout, self.id), daemon=True)
        self._listener.start()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def finish(self, seconds: float) -> None:
        """Wait for its normal end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Silent(f"it did not finish within {seconds:g} s") from None
        if code:
            raise Silent(f"it ended with {code}")

    def kill(self) -> None:
        """Kill the whole process group at once, as a failing machine would."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def complaint(self) -> str:
        """The last lines it wrote to standard error."""
        self._complaints.seek(0)
        return "\n".join(self._complaints.read().splitlines()[-COMPLAINT_LINES:])

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.id, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()
        self._listener.join(STOP_SECONDS)
        if error is not None and (said := self.complaint()):
            error.add_note(said)
        self._complaints.close()
