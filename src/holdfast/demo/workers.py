"""The demo's worker processes: the parent starts them, reads their output, kills one and terminates the others."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from holdfast.core.model import Fence

APP = "holdfast.demo.app:app"


class DemoError(Exception):
    """A check of the demo, or one of its worker processes, has failed."""


class FatalJobStarted(msgspec.Struct, frozen=True):
    """The message of the worker that has started the fatal job."""

    job: int
    attempt: int
    token: str
    worker: str

    @property
    def fence(self) -> Fence:
        return Fence(self.job, self.attempt, self.token, self.worker)


class DemoWorkers:
    """Worker processes by name. Leaving the context kills the remaining ones."""

    def __init__(self, environment: Mapping[str, str], names: Sequence[str]) -> None:
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._buffers: dict[str, bytes] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        process = self._processes[name] = _start_worker(self._environment, name)
        self._buffers[name] = b""
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._selector.close()
        for process in self._processes.values():
            _end_worker(process)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def listen(self, seconds: float) -> FatalJobStarted | None:
        """Return the message that comes within that time, if any. Raise DemoError if a worker has ended."""
        for key, _ in self._selector.select(seconds):
            name: str = key.data
            chunk = os.read(key.fd, 65_536)
            if not chunk:
                raise DemoError(f"{name} ended by itself with exit code {self._processes[name].wait()}")
            line, end, self._buffers[name] = (self._buffers[name] + chunk).partition(b"\n")
            if end:
                return msgspec.json.decode(line, type=FatalJobStarted)
            self._buffers[name] = line
        return None

    def kill(self, name: str) -> None:
        """Send SIGKILL: the worker cannot release its job or sign out."""
        process = self._processes.pop(name)
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        _end_worker(process)

    def terminate_all(self, seconds: float) -> None:
        """Send SIGTERM to all workers and wait until they have ended."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._processes.items():
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise DemoError(f"{name} has not ended within {seconds:g} s") from None
            if code:
                raise DemoError(f"{name} ended with exit code {code}")


def _start_worker(environment: Mapping[str, str], name: str) -> "subprocess.Popen[bytes]":
    """Start a worker. The url is passed in the environment, because other users can read a command line.

    The worker has its own session, so that Ctrl-C reaches only the parent.
    """
    return subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-m", "holdfast", "worker", "run", APP, "--name", name, "--log", "text", "--log-level", "error"],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _end_worker(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
