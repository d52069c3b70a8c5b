"""Help shows how a command is used, with examples that work; colour can be turned off."""

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
    """The lines below the mark. Examples below `Try:` work on an empty ledger."""
    found = re.search(rf"^ *{mark}s?:\n(.*?)(\n\n|\Z)", command.help or "", re.DOTALL | re.MULTILINE)
    return [line.strip() for line in found[1].splitlines() if line.strip()] if found else []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_of_itself(name: str) -> None:
    found = [line for mark in ("Try", "Example") for line in examples(COMMANDS[name], mark)]
    assert found
    assert any(name in line for line in found)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if examples(command, "Try")])
def test_examples_that_can_be_tried_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], restored_logs: None
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


SUMMARY_MAX = 60
NOUNS = [name for name, command in COMMANDS.items() if isinstance(command, click.Group)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_summary_fits_its_line(name: str) -> None:
    summary = (COMMANDS[name].help or "").split("\n\n")[0]
    assert len(summary) <= SUMMARY_MAX and summary.endswith(".") and "\n" not in summary
    assert COMMANDS[name].get_short_help_str(SUMMARY_MAX + 1) == summary.removesuffix(".").rstrip() + "."


@pytest.mark.parametrize("name", NOUNS)
def test_no_summary_is_cut(name: str, run: Run) -> None:
    said = run(*name.split()[1:], "--help", COLUMNS="80").out
    assert "..." not in said.partition("Show this message and exit.")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str) -> None:
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            said = re.sub(r"\[default.*", "", option.help or "").strip()
            assert said.endswith(".") and len(said.split()) > 1, option.opts


@pytest.mark.parametrize("noun", ["job", "task", "dlq", "policy"])
def test_show_is_another_name_of_get(noun: str, run: Run) -> None:
    assert run(noun, "show", "--help").out == run(noun, "get", "--help").out.replace(f"{noun} get [", f"{noun} show [")
    assert "  show " not in run(noun, "--help").out
    assert run("schema", noun, "show").out == run("schema", noun, "get").out


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
def test_options_and_environment_turn_colour_on_and_off(
    run: Run, arguments: list[str], env: dict[str, str], coloured: bool
) -> None:
    env = {"FORCE_COLOR": "", "NO_COLOR": "", **env}
    assert run("job", "enqueue", "index", "--queue", "default").code == 0
    assert ("\x1b[" in run("job", "list", *arguments, **env).out) is coloured
    assert ("\x1b[" in run("job", "get", "9", *arguments, **env).err) is coloured
    if arguments:
        assert "\x1b[" not in run(*arguments, "job", "list", **env).out
