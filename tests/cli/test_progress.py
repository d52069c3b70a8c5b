"""Long commands show their progress on a terminal only, and remove the line at the end."""

import fcntl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from tests.cli.conftest import Run, Start, command, environment
from tests.support.terminal import Terminal

Show = Callable[..., Terminal]
BLOCKED = b"opening the ledger"


@pytest.fixture
def show(folder: Path) -> Iterator[Show]:
    """Start a command on its own terminal."""
    shown: list[Terminal] = []

    def shower(words: str, program: list[str] | None = None) -> Terminal:
        shown.append(Terminal([*(program or []), *command(*words.split())], folder, environment()))
        return shown[-1]

    yield shower
    for one in shown:
        one.close()


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        ledger.enqueue("index")
        yield ledger


@pytest.mark.parametrize(("words", "last"), [("migrate", "The ledger "), ("job enqueue index --queue default", "Job ")])
def test_a_waiting_command_shows_for_how_long(show: Show, folder: Path, words: str, last: str) -> None:
    """A new ledger waits for its lock. With --json, or without a terminal, this is not shown."""
    with (folder / "holdfast.db-lock").open("w+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        quiet = [show(f"{words} --json"), show(f"--json {words}"), show(words, ["env", "TERM=dumb"])]
        watched = show(words)
        watched.until(f"{BLOCKED.decode()}: ")
    assert watched.end() == 0
    assert BLOCKED.decode() not in "".join(watched.screen.display)
    assert any(line.startswith(last) for line in watched.screen.display)
    for one in quiet:
        assert one.end() == 0
        assert BLOCKED not in one.written and b"\x1b[K" not in one.written


def test_a_check_shows_its_progress(ledger: Ledger, show: Show, folder: Path) -> None:
    """The input is a pipe that gives more lines until the progress was seen."""
    lines: list[bytes] = []
    ledger.export(lines.append)
    checking = show("verify gate")
    with (folder / "gate").open("wb") as gate:
        gate.write(lines[0])

        def more(text: str) -> bool:
            gate.write(lines[1] * 1_000)
            gate.flush()
            return "lines checked: " in text

        checking.until(more)
    assert checking.end() == 1
    assert "lines checked" not in checking.text
    assert " events of 0 jobs" in checking.screen.display[0]


def test_a_failure_removes_the_progress_line(show: Show, folder: Path) -> None:
    with (folder / "holdfast.db-lock").open("w+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shown = show("job enqueue index --queue default --depends-on 99")
        shown.until(f"{BLOCKED.decode()}: ")
    assert shown.end() == 1
    assert BLOCKED.decode() not in "".join(shown.screen.display)
    assert any(line.startswith("Failed: not_found: there is no job 99") for line in shown.screen.display)


def test_a_pipe_gets_no_progress(show: Show, start: Start, folder: Path) -> None:
    """When the command on the terminal shows its progress, the one in the pipe has waited as long."""
    with (folder / "holdfast.db-lock").open("w+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        piped = start("migrate")
        show("migrate").until(f"{BLOCKED.decode()}: ")
    code, out, err = piped.rest()
    assert (code, out.startswith("The ledger "), BLOCKED.decode() in out + err) == (0, True, False)


PROGRAM = """
import sys
import holdfast.cli.output as progress
progress.EVERY_SECONDS = 0.0
from holdfast.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("words", "said", "last"),
    [
        ("events export --out all.jsonl", "positions exported: ", "are in all.jsonl"),
        ("dlq replay --all", "jobs done: 0", "2 replayed."),
        ("dlq discard 2 3", "jobs done: 0", "2 discarded: 2, 3."),
        ("job cancel 1", "jobs done: 0", "Job 1 is cancelled."),
        ("seal --once --key main.key", "leaves sealed: ", "Sealed up to position"),
    ],
)
def test_every_long_command_shows_progress(ledger: Ledger, folder: Path, run: Run, words: str, said: str, last: str) -> None:
    """Show the progress at every step instead of every half second."""
    for _ in range(2):
        ledger.dead_letter(ledger.enqueue("index").id, reason_code="timeout", failure_stage="exec")
    if words.startswith("seal"):
        assert run("key", "new", "main", "--role", "server").code == 0
    terminal = Terminal([sys.executable, "-c", PROGRAM, *words.split()], folder, environment())
    assert terminal.end() == 0
    assert said.encode() in terminal.written
    assert said not in terminal.text
    assert last in terminal.text
    terminal.close()
