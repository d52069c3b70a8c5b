"""Real supervisors of real programs, in a folder of their own."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Done, Running, command, environment
from tests.support import forked

Supervise = Callable[..., Running]
Ended = Callable[..., Done]

EXIT = ["sh", "-c", 'exit "$0"']
QUICK = ["--backoff", "1ms", "--grace", "10s"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/holdfast.db"


@pytest.fixture
def sockets() -> Iterator[str]:
    """The folder of sockets: the paths of a test's folders are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        yield folder


@pytest.fixture
def supervise(folder: Path, sockets: str) -> Iterator[Supervise]:
    """Start a supervisor. The test ends it if it still runs."""
    running: list[Running] = []

    def starter(*arguments: object, **env: str) -> Running:
        running.append(Running(command("supervise", *arguments), folder, environment(XDG_RUNTIME_DIR=sockets, **env)))
        return running[-1]

    yield starter
    for one in running:
        one.close()


@pytest.fixture
def ended(folder: Path, sockets: str) -> Ended:
    """Run a supervisor to its end."""

    def runner(*arguments: object, **env: str) -> Done:
        words = command("supervise", *arguments)
        return Done(*forked.run(words, folder, environment(XDG_RUNTIME_DIR=sockets, **env)))

    return runner


def is_alive(pid: int) -> bool:
    """A zombie process counts as dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def pipe(folder: Path, name: str = "gate") -> Path:
    """A named pipe. Opening it waits for the other end."""
    path = folder / name
    os.mkfifo(path)
    return path
