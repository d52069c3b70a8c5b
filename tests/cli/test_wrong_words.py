"""The first words that a person types: a group alone, a wrong word, a word of another tool."""

import json
import re

import click
import pytest

from holdfast.cli import SECTIONS
from holdfast.cli.wrong_words import _MEANT, ELSEWHERE, GONE
from tests.cli.conftest import Typed
from tests.cli.test_help import COMMANDS, NOUNS


@pytest.mark.parametrize("name", NOUNS)
def test_a_group_without_a_command_prints_its_help(name: str, typed: Typed) -> None:
    words = name.split()[1:]
    helped = typed(*words, "-h")
    assert helped.code == 0 and "Options:" in helped.out
    assert typed(*words) == helped
    assert typed(*words, "--db", "sqlite:///none.db") == helped
    answer = json.loads(typed(*words, "--json").out)
    assert (answer["success"], answer["error_code"], answer["error"]) == (False, "usage", "Missing command.")


def test_each_command_is_in_one_section_of_the_help(typed: Typed) -> None:
    said = typed("-h").out
    listed = [
        line.split()[0] for title in SECTIONS for line in said.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
    ]
    assert sorted(listed) == sorted({name.split()[1] for name in COMMANDS if " " in name})
    assert len(SECTIONS) in (4, 5)
    assert listed[0] == "job"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("jobs", "'job'"),
        ("enqueue", "'job enqueue'"),
        ("enqeue", "'job enqueue'"),
        ("doctr", "'doctor'"),
        ("replay", "'dlq replay' or 'group replay' or 'job replay'"),
        ("job lst", "'job list'"),
        ("queue enqueue", "'job enqueue'"),
        ("job claim", "'task start'"),
        ("ready", "'job list --status=queued'"),
        ("next", "'task start'"),
        ("schedule next", "'schedule preview'"),
        ("done", "'task complete'"),
        ("create", "'job enqueue'"),
        ("token create", "'token new'"),
        ("purge", "'job cancel --dry-run'"),
        ("dlq purge", "'dlq discard'"),
        ("ps", "'job list'"),
        ("retry", "'job replay'"),
        ("task rm", "'job cancel'"),
        ("queue resume", "'queue unpause'"),
        ("schedule unpause", "'schedule resume'"),
        ("help", "'--help'"),
    ],
)
def test_a_wrong_word_gets_the_nearest_command(words: str, meant: str, typed: Typed) -> None:
    wrong = words.rpartition(" ")[2]
    said = f"No such command '{wrong}'. Did you mean {meant}?"
    done = typed(*words.split())
    assert (done.code, done.out) == (2, "") and said in done.err
    answer = json.loads(typed("--json", *words.split()).out)
    path = " ".join(word for word in meant.split("'")[1].split() if not word.startswith("--"))
    assert (answer["error"], answer["suggested_action"]) == (said, f"See: holdfast {path} --help".replace("  ", " "))


@pytest.mark.parametrize("words", ["xyzzy", "job xyzzy", "worker stop"])
def test_a_word_that_resembles_nothing_gets_no_guess(words: str, typed: Typed) -> None:
    assert "Did you mean" not in typed(*words.split()).err


def accepts(words: str) -> bool:
    """Whether these words are a command, with options that it has."""
    path, dashes, options = words.partition("--")
    command = COMMANDS.get(f"holdfast {path}".strip())
    if command is None:
        return False
    known = [name for param in command.get_params(click.Context(command)) for name in param.opts]
    return not dashes or f"--{options.partition('=')[0]}" in known


def verbs(name: str) -> set[str]:
    group = COMMANDS[name]
    assert isinstance(group, click.Group)
    return set(group.list_commands(click.Context(group)))


def test_the_words_of_other_tools_lead_to_commands_that_exist() -> None:
    known = set().union(*(verbs(name) for name in NOUNS if name != "holdfast"))
    for words, meant in _MEANT.items():
        assert [one for one in meant[:-1] if one not in known and not accepts(one)] == [], words
        assert accepts(meant[-1]), words
    assert sum(len(words.split()) for words in _MEANT) == len(ELSEWHERE), "a word is there twice"
    assert not verbs("holdfast") & ELSEWHERE.keys(), "a word is a command"
    assert not [gone for gone in GONE if f"holdfast {gone}" in COMMANDS]
    named = [words for text in GONE.values() for words in re.findall(r"holdfast ((?:[a-z]+ ?)+)", text)]
    assert named and not [words for words in named if not accepts(words.strip().removesuffix(" beside the worker"))]


def test_a_word_that_a_group_has_is_its_command_there(typed: Typed) -> None:
    found = [(name, word) for name in NOUNS for word in ELSEWHERE.keys() & verbs(name)]
    assert found
    assert [(name, word) for name, word in found if typed(*name.split()[1:], word, "--help").code != 0] == []
