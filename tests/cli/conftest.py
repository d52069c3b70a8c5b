"""The command line in real processes, each test in its own folder."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import pytest

from tests.support import forked
from tests.support.stores import leave_to_torture

SHOP = '''
import os
from holdfast import App, Context

app = App(os.environ["SHOP_URL"])
other = App("sqlite:///other.db")
words = "not an app"


@app.handler("hold", queue="hold")
def hold(job: Context) -> str:
    """Report the start, and end when the other end of the pipe is opened."""
    print("began", job.job.id, flush=True)
    with open("gate") as gate:
        return gate.read()


@app.handler("note", queue="a")
@app.handler("mark", queue="b")
def note(job: Context) -> str:
    print(job.job.kind, flush=True)
    return job.job.queue
'''


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The one line of JSON that the command printed."""
        [line] = self.out.splitlines()
        assert line.isascii()
        return json.loads(line)


Run = Callable[..., Done]
Typed = Callable[..., Done]

ONE_STORE = {
    "test_agent_loop.py",
    "test_dlq.py",
    "test_group.py",
    "test_job.py",
    "test_limit.py",
    "test_schedule.py",
    "test_task.py",
}
"""Files of tests of options and texts. What their verbs do on each store is tested by the contract."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_torture(items, lambda item: item.path.parent == Path(__file__).parent and item.path.name in ONE_STORE)


class Commands:
    """The commands of one noun on one ledger."""

    def __init__(self, run: Run, url: str, *noun: str) -> None:
        self.run = run
        self.url = url
        self._noun = noun

    def __call__(self, *arguments: object) -> Done:
        return self.run(*self._noun, "--db", self.url, *arguments)

    def ask(self, *arguments: object) -> Any:
        """The data that a command answers."""
        done = self("--json", *arguments)
        assert done.code == 0, done
        return done.answer["data"]


class Running:
    """A command that runs until it is stopped."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        self._process = forked.popen(command, cwd=folder, env=env, stdout=PIPE, stderr=PIPE)

    def line(self) -> str:
        """The next line on its standard output."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        assert text, self.rest()
        return text.rstrip("\n")

    def logged(self, message: str) -> dict[str, Any]:
        """The next line of its log that contains this text."""
        assert self._process.stderr is not None
        for text in self._process.stderr:
            found: dict[str, Any] = json.loads(text)
            if found["message"].startswith(message):
                return found
        raise AssertionError(f"never logged: {message}")

    def says(self, words: str) -> str:
        """The next line on its standard error that contains this text."""
        assert self._process.stderr is not None
        for text in self._process.stderr:
            if words in text:
                return text
        raise AssertionError(f"never said: {words}")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def rest(self) -> Done:
        """Wait until the command has ended, and return its result."""
        out, err = self._process.communicate(timeout=60)
        return Done(self._process.returncode, out, err)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


Start = Callable[..., Running]


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which commands run, with an app in shop.py and the pipe that its handler reads."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    os.mkfifo(folder / "gate")
    return folder


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "holdfast", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "SHOP_URL": "sqlite:///shop.db", **more}


@pytest.fixture
def run(folder: Path) -> Run:
    """Run a command to its end."""

    def runner(*arguments: object, stdin: str | None = None, **env: str) -> Done:
        return Done(*forked.run(command(*arguments), folder, environment(**env), stdin=stdin or ""))

    return runner


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a command. The test ends it if it still runs."""
    running: list[Running] = []

    def starter(*arguments: object, **env: str) -> Running:
        running.append(Running(command(*arguments), folder, environment(**env)))
        return running[-1]

    yield starter
    for one in running:
        one.close()


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], restored_logs: None) -> Typed:
    """Run a command in this process, to its end."""

    def typed(*words: str) -> Done:
        from holdfast.cli import main

        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, said.out, said.err)

    return typed
