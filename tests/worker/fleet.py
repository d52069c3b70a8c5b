"""Real worker processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import forked

ROOT = Path(__file__).parents[2]


class Fleet:
    """Worker processes by name. The end of the block ends those that still run."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, **settings: Any) -> int:
        """Start a worker and return its process id when it is ready to claim."""
        process = forked.popen(
            [sys.executable, "-m", "tests.worker.programs.jobs", name, *(f"{key}={value}" for key, value in settings.items())],
            cwd=ROOT,
            env={**os.environ, "HOLDFAST_URL": self._url},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        self._processes[name] = process
        return process.pid

    def name_of(self, pid: int) -> str:
        return next(name for name, process in self._processes.items() if process.pid == pid)

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self.wait(name)

    def wait(self, name: str) -> int:
        """Wait for the end of a worker and return its exit code."""
        process = self._processes.pop(name)
        process.communicate(timeout=60)
        return process.returncode

    def is_gone(self, name: str) -> bool:
        return self._processes[name].poll() is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes.values():
            process.kill()
            process.send_signal(signal.SIGCONT)
            process.communicate()
