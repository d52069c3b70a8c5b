"""Help says how a command is used, with examples that work; colour is for those who want it."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli import main
from tests.cli.conftest import Run


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(("holdfast", *path)), command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands(found, (*path, name))


COMMANDS = dict(commands(main))


def examples(command: click.Command, mark: str) -> list[str]:
    """The lines below the mark. What follows `Try:` works on a ledger with nothing in it."""
    found = re.search(rf"^ *{mark}s?:\n(.*?)(\n\n|\Z)", command.help or "", re.DOTALL | re.MULTILINE)
    return [line.strip() for line in found[1].splitlines() if line.strip()] if found else []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_of_itself(name: str) -> None:
    found = [line for mark in ("Try", "Example") for line in examples(COMMANDS[name], mark)]
    assert found
    assert any(name in line for line in found)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if examples(command, "Try")])
def test_what_can_be_tried_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(variable)
    with pytest.raises(SystemExit):
        main(["migrate"])
    for line in examples(COMMANDS[name], "Try"):
        _, *words = shlex.split(line)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0, f"{line}: {capfd.readouterr()}"


# Colour


@pytest.mark.parametrize(
    ("arguments", "env", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": ""}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        (["--no-color"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_those_who_want_it(run: Run, arguments: list[str], env: dict[str, str], coloured: bool) -> None:
    env = {"FORCE_COLOR": "", "NO_COLOR": "", **env}
    assert run("job", "enqueue", "index", "--queue", "default").code == 0
    assert ("\x1b[" in run("job", "list", *arguments, **env).out) is coloured
    assert ("\x1b[" in run("job", "get", "9", *arguments, **env).err) is coloured
    if arguments:
        assert "\x1b[" not in run(*arguments, "job", "list", **env).out
