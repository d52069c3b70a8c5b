"""Other processes: forks that start together, and single programs that read and write lines."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import forked

ROOT = Path(__file__).parents[2]
PROGRAMS = "tests.integration.programs"


def _environment(source: Path | None) -> dict[str, str]:
    """Return the environment of a program that imports Holdfast from this folder. With None it is that of this process."""
    if source is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))}


def fleet(function: str, count: int, *, timeout: float = 120.0, source: Path | None = None, **arguments: Any) -> list[Any]:
    """Run `module.function` in `count` processes at the same time and return their answers. `source` is the Holdfast to import.

    Each gets its number, `go` (which returns when all processes have called it) and the arguments.
    """
    module, _, name = function.partition(".")
    command = [sys.executable, "-m", f"{PROGRAMS}.fleet", f"{PROGRAMS}.{module}", name, str(count)]
    done = forked.run(command, ROOT, _environment(source), stdin=json.dumps(arguments), timeout_s=timeout)
    assert done.code == 0, done.err
    answers: list[Any] = json.loads(done.out)
    return answers


class Program:
    """A running program, started with `prefix` if given, that imports the Holdfast in `source` if given.

    The end of the block ends it.
    """

    def __init__(self, name: str, *arguments: Any, prefix: Sequence[str] = (), source: Path | None = None) -> None:
        self._process = forked.popen(
            [*prefix, sys.executable, "-m", f"{PROGRAMS}.{name}", *map(str, arguments)],
            cwd=ROOT,
            env=_environment(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """The next line of its output. Fail if it has ended."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            self._process.wait(timeout=60)
            assert self._process.stderr is not None
            raise AssertionError(f"the program ended with {self._process.returncode}: {self._process.stderr.read()}")
        return text.rstrip("\n")

    def answer(self) -> Any:
        return json.loads(self.line())

    def tell(self, text: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def kill(self) -> list[str]:
        """Send SIGKILL, and return its unread output."""
        self._process.kill()
        assert self._process.stdout is not None
        rest = self._process.stdout.read()
        self._process.wait()
        # An incomplete line does not count.
        return rest.split("\n")[:-1]

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until it ends by itself, with exit code 0."""
        _, said = self._process.communicate(timeout=timeout)
        assert self._process.returncode == 0, said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
