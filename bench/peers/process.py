"""One process of a contender: started, listened to, and ended by its id."""

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

from bench.peers.programs.telling import MARK

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10.0
COMPLAINT_LINES = 8


class Silent(Exception):
    """A process ended, or did not say in time what it should have said."""


class Late(Silent):
    """What should have been said was not said in time."""


class Fact(NamedTuple):
    what: str
    at: float
    speaker: int
    """The id of the process that said it."""


class Ear:
    """What one or more processes have said, in the order in which it arrived."""

    def __init__(self) -> None:
        self._facts: Queue[Fact] = Queue()

    def listen(self, stream: IO[str], speaker: int) -> None:
        """Until the stream ends."""
        for line in stream:
            if line.startswith(MARK):
                fact = json.loads(line[len(MARK) :])
                self._facts.put(Fact(fact["what"], fact["at"], speaker))
        self._facts.put(Fact("ended", 0.0, speaker))

    def wait(self, what: str, seconds: float, *, deaf_to: int | None = None) -> Fact:
        """The next fact of this name; Silent if none comes, or if a process ends that is still listened to."""
        until = monotonic() + seconds
        while True:
            try:
                fact = self._facts.get(timeout=max(0.0, until - monotonic()))
            except Empty:
                raise Late(f"nobody said {what!r} within {seconds:g} s") from None
            if fact.speaker == deaf_to:
                continue
            if fact.what == what:
                return fact
            if fact.what == "ended":
                raise Silent(f"a process ended before it said {what!r}")

    def heard(self, what: str, seconds: float) -> bool:
        """Whether it was said in time. A process that ends is still an error."""
        try:
            self.wait(what, seconds)
        except Late:
            return False
        return True


class Process:
    """Leads a group of its own, so that whatever it starts ends with it."""

    def __init__(self, command: Sequence[str], home: Path, ear: Ear, environment: Mapping[str, str] | None = None) -> None:
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
        self._listener = threading.Thread(target=ear.listen, args=(self._process.stdout, self.id), daemon=True)
        self._listener.start()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def finish(self, seconds: float) -> None:
        """Wait for its good end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Silent(f"it did not finish within {seconds:g} s") from None
        if code:
            raise Silent(f"it ended with {code}")

    def kill(self) -> None:
        """As a machine that fails would: the whole group at once."""
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
