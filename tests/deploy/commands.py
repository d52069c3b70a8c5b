"""Run the commands that deployment files name, with the Holdfast of this environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from tests.support.processes import ROOT

DEPLOY = ROOT / "deploy"
SECONDS = 60.0
HOLDFAST = Path(sys.executable).with_name("holdfast")


def check_arguments(arguments: Sequence[str]) -> dict[str, object]:
    """Parse arguments of `holdfast` as the program does, without running it. Return the options of its command."""
    from holdfast.cli import main

    command: click.Command | None = main
    rest = list(arguments)
    context = click.Context(main)
    while isinstance(command, click.Group):
        command = command.get_command(context, rest.pop(0))
    assert command is not None, arguments
    return dict(command.make_context(command.name, rest, parent=context).params)


class Started:
    """A program that runs. Its standard output is read line by line."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log

    def line(self) -> str:
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        assert found, self._log.read_text()
        return found

    def log(self) -> str:
        return self._log.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(SECONDS)


@contextmanager
def started(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Iterator[Started]:
    """Run a program with this environment only."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            list(command), cwd=folder, env=dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield Started(process, log)
        finally:
            process.kill()


def bare_environment(**variables: str) -> dict[str, str]:
    """Return an environment with a path and these variables only."""
    return {"PATH": f"{HOLDFAST.parent}:{os.defpath}", **variables}
