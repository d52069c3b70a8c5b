"""Every `holdfast` command that a page shows is run, in the page's order, and prints what the page says."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.docs.pages import Block, blocks, name, with_blocks
from tests.support import forked
from tests.support.waiting import wait_until

_FILE = re.compile(r"# (\w+\.\w+)\n")
LIVE = ["queued", "claimed", "running", "stalled"]


class Shell:
    """A folder in which the commands of a page are run. A block that begins with the name of a file is that file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._url = f"sqlite:///{folder}/holdfast.db"
        self._behind: list[subprocess.Popen[str]] = []
        """Background processes: `%1` is the first."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        path = f"{self._installed()}{os.pathsep}{os.environ['PATH']}"
        self._env = {**kept, "LOGNAME": "you", "PYTHONWARNINGS": "", "PATH": path}

    def _installed(self) -> Path:
        """A folder for PATH with the command `holdfast`."""
        program = self._folder / "bin" / "holdfast"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {forked.shell_command("holdfast")} "$@"\n')
        program.chmod(0o755)
        return program.parent

    def write(self, block: Block) -> None:
        if found := _FILE.match(block.text):
            (self._folder / found[1]).write_text(block.text)

    def type(self, line: str) -> str:
        """Run a command and return its output, with standard error."""
        words = shlex.split(line)
        if words[0] == "kill":
            return self.kill(*words[1:])
        command = [sys.executable, *(["-m"] if words[0] == "holdfast" else []), *words[words[0] == "python" :]]
        if words[0] == "sh":
            command = words
        if command[-1] == "&":
            self._start(command[:-1])
            return ""
        with forked.popen(command, cwd=self._folder, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as done:
            said, _ = done.communicate(timeout=60)
        assert "Traceback" not in said.splitlines(), said
        return said

    def _start(self, command: list[str]) -> None:
        """Start a worker and wait until it has signed in and all ready jobs are done."""
        begun = forked.popen(command, cwd=self._folder, env=self._env, stderr=subprocess.DEVNULL)
        self._behind.append(begun)
        with holdfast.open(self._url) as ledger:
            wait_until(lambda: any(there.details.get("pid") == begun.pid for there in ledger.workers()))
            wait_until(lambda: not ledger.list(status=LIVE, limit=1))

    def kill(self, *words: str) -> str:
        """Kill a background process like a shell. With -9, wait until a job runs, as a reader would."""
        hard = words[:1] == ("-9",)
        if hard:
            with holdfast.open(self._url) as ledger:
                wait_until(lambda: ledger.list(status="running", limit=1))
        for word in words[hard:]:
            behind = self._behind[int(word.removeprefix("%")) - 1]
            behind.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
            assert behind.wait(60) == (-signal.SIGKILL if hard else 0)
        return ""

    def close(self) -> None:
        """Stop background processes in order."""
        self.kill(*(f"%{number}" for number, behind in enumerate(self._behind, 1) if behind.poll() is None))


def expected(block: Block) -> list[tuple[str, list[str]]]:
    """Each command, and the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def pattern_of(lines: list[str]) -> str:
    """Three dots match any text, and change the width of the columns beside them: an age may be 9s or 10s."""
    pattern = re.escape("\n".join(lines)).replace("…", ".*")
    return re.sub(r"(\\ ){2,}", " {2,}", pattern) if ".*" in pattern else pattern


@pytest.mark.parametrize("page", with_blocks("console"), ids=name)
def test_commands_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for block in blocks(page, "console", "python", "sh", "toml"):
            if block.language != "console":
                shell.write(block)
                continue
            for command, lines in expected(block):
                said = shell.type(command).splitlines()
                assert re.fullmatch(pattern_of(lines), "\n".join(said)), f"{name(page)}: {command}\n" + "\n".join(said)
    finally:
        shell.close()


def test_columns_may_move_with_the_width_of_an_age() -> None:
    shown = ["  queue  oldest  queued", "  crawl  …s           2"]
    assert re.fullmatch(pattern_of(shown), "  queue  oldest  queued\n  crawl  15s          2")
    assert not re.fullmatch(pattern_of(shown), "  queue  oldest  queued\n  crawl  15s          3")
    assert not re.fullmatch(pattern_of(["a  b"]), "a   b")
