"""The demo's worker processes, seen from the parent: start them, hear them, kill one, send the rest home."""

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import msgspec


class CrewError(Exception):
    """A worker did not do its part."""


class Crew:
    """Worker processes by name. Leaving it ends whoever is left."""

    def __init__(self, url: str, queue: str, names: Sequence[str]) -> None:
        self._processes = {name: _start(url, queue, name) for name in names}
        self._ears = selectors.DefaultSelector()
        self._heard: dict[str, bytes] = dict.fromkeys(names, b"")
        self._going_home = False
        self._unread: list[tuple[str, dict[str, Any]]] = []
        for name, process in self._processes.items():
            assert process.stdout is not None
            self._ears.register(process.stdout, selectors.EVENT_READ, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._ears.close()
        for process in self._processes.values():
            _end(process)

    def names(self) -> list[str]:
        return list(self._processes)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def listen(self, seconds: float) -> None:
        """Hear what is said within that time; returns as soon as anybody has said something."""
        for key, _ in self._ears.select(seconds):
            name: str = key.data
            chunk = os.read(key.fd, 65_536)
            if not chunk:
                self._hear_the_end(name)
                continue
            *lines, self._heard[name] = (self._heard[name] + chunk).split(b"\n")
            self._unread += [(name, msgspec.json.decode(line)) for line in lines]

    def _hear_the_end(self, name: str) -> None:
        """In order only for a worker that was sent home: the first to go must not be mistaken for a deserter."""
        process = self._processes[name]
        assert process.stdout is not None
        self._ears.unregister(process.stdout)
        if process.wait() or not self._going_home:
            raise CrewError(f"{name} ended by itself with exit code {process.returncode}")

    def wait_for(self, what: str, seconds: float, *, everyone: bool = False) -> dict[str, dict[str, Any]]:
        """What was said under that heading, by the first to say it or by everyone."""
        deadline = time.monotonic() + seconds
        while True:
            found = {name: said for name, said in self._unread if said["says"] == what}
            if len(found) >= (len(self._processes) if everyone else 1):
                self._unread = [(name, said) for name, said in self._unread if said["says"] != what]
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                raise CrewError(f"waited {seconds:g} s for a worker to say {what!r}")
            self.listen(left)

    def kill(self, name: str) -> None:
        """SIGKILL: the worker gets no chance to say goodbye."""
        process = self._processes.pop(name)
        assert process.stdout is not None
        self._ears.unregister(process.stdout)
        _end(process)

    def send_home(self, seconds: float) -> dict[str, int]:
        """Let everyone finish; how many jobs each has done."""
        self._going_home = True
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
        said = self.wait_for("finished", seconds, everyone=True)
        for name, process in self._processes.items():
            if process.wait(seconds):
                raise CrewError(f"{name} ended with exit code {process.returncode}")
        return {name: fields["done"] for name, fields in said.items()}


def _start(url: str, queue: str, name: str) -> "subprocess.Popen[bytes]":
    """The url goes by the environment, since anybody may read a command line. A session of its own: Ctrl-C is the parent's."""
    return subprocess.Popen(  # noqa: S603 - a module of this very package
        [sys.executable, "-m", "holdfast.cli.demo_worker", queue, name],
        env={**os.environ, "HOLDFAST_URL": url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
