"""Names in the sentences of pages exist, and names that pages call missing do not."""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

import holdfast
from docs.generate import ROOT, pages
from holdfast import errors
from holdfast.cli import main
from holdfast.core.model import UNDO_KIND
from tests.docs.pages import blocks, problems, with_blocks

PAGES = [*pages(), ROOT / "CHANGELOG.md"]
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_VERB = re.compile(r"(?<![\w./])ledger\.([a-z_]+)")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
_COMMAND = re.compile(r"holdfast((?: [a-z]+(?:-[a-z]+)*)+)")
_DOTTED = re.compile(r"(?<![\w./-])(holdfast(?:\.[A-Za-z_]\w*)+)")
_FOLDERS = (
    "core|ledger|store|services|worker|cli|mcp|agent|aio|demo|supervise|telemetry|watch|testing|proof|bench|docs|src|tests|tools"
)
_FILE = re.compile(rf"((?:{_FOLDERS})/[\w/.-]+\.(?:py|sql|md))")

NOT_OURS = {"--init", "--upgrade", "--help", "--durations"}
"""Options of other programs, and the one that click adds."""
NOT_COMMANDS = {"holdfast episode v1", "holdfast beat v1", "holdfast event v1"}
"""Texts that are hashed or signed."""
NOT_NAMES = {"holdfast.toml", "holdfast.db", UNDO_KIND, "holdfast.relay"}
"""Files, a kind of jobs and a logger."""


def spans(page: Path) -> Iterator[str]:
    """The code in a page's sentences."""
    for found in _SPAN.finditer(_BLOCK.sub("", page.read_text())):
        yield found[1]


def commands(command: click.Command = main) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for word in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), word)
            assert found is not None
            yield from commands(found)


def is_command(words: list[str]) -> bool:
    """Whether these words begin with a command. The words after a whole command are its arguments."""
    command: click.Command = main
    for word in words:
        if not isinstance(command, click.Group):
            return True
        found = command.get_command(click.Context(command), word)
        if found is None:
            return False
        command = found
    return True


def exists(dotted: str) -> bool:
    """Whether this is a module of Holdfast, or a name in one."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def unknown(words: re.Pattern[str], known: Callable[[str], bool]) -> list[str]:
    """The words of this pattern in the sentences of all pages that are not known."""
    return problems(lambda page: (word for span in spans(page) for word in words.findall(span) if not known(word)), PAGES)


def test_the_verbs_in_sentences_exist(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
        known = set(dir(ledger))
    assert unknown(_VERB, known.__contains__) == []


def test_the_options_in_sentences_exist() -> None:
    options = [option for command in commands() for option in command.params if isinstance(option, click.Option)]
    known = {text for option in options for text in (*option.opts, *option.secondary_opts)} | NOT_OURS
    assert unknown(_OPTION, known.__contains__) == []


def test_the_commands_in_sentences_exist() -> None:
    def wrong(page: Path) -> Iterator[str]:
        for span in spans(page):
            found = _COMMAND.match(span)
            if span not in NOT_COMMANDS and found is not None and not is_command(found[1].split()):
                yield span

    assert problems(wrong, PAGES) == []


def test_the_modules_and_classes_in_sentences_exist() -> None:
    assert unknown(_DOTTED, lambda dotted: dotted in NOT_NAMES or exists(dotted)) == []


def test_the_files_in_sentences_exist() -> None:
    assert unknown(_FILE, lambda file: (ROOT / file).exists() or (ROOT / "src/holdfast" / file).exists()) == []


def test_names_that_do_not_exist_are_noticed() -> None:
    assert is_command(["job", "get"]) and is_command(["explain", "this"]) and not is_command(["job", "explain"])
    assert exists("holdfast.core.vocabulary.DIALECTS") and not exists("holdfast.core.vocabulary.UNKNOWN")


def test_every_answer_in_an_example_is_compared() -> None:
    """Otherwise an output that `printed` does not find would not be compared."""

    def wrong(page: Path) -> list[str]:
        return [f"line {block.line}" for block in blocks(page, "python") if block.text.count("# →") != len(block.printed)]

    assert problems(wrong, with_blocks("python")) == []


# Statements that something is missing

ABSENT = re.compile(r"not yet there|not there yet|not implemented|nothing raises|is reserved", re.IGNORECASE)
ABOUT_LEDGERS = ("a ledger that is not there yet", "the ledger is created if it does not exist")
"""Sentences that speak of a user's database, not of Holdfast."""
MISSING: dict[str, tuple[str, ...]] = {}
"""Sentences that call something missing, and the commands that would provide it.

If such a command exists, the sentence is wrong.
"""


def test_every_statement_that_something_is_missing_is_listed() -> None:
    def statements(page: Path) -> list[str]:
        text = " ".join(_BLOCK.sub("", page.read_text()).split())
        for sentence in MISSING:
            text = text.replace(sentence, "")
        for words in ABOUT_LEDGERS:
            text = re.sub(re.escape(words), "", text, flags=re.IGNORECASE)
        return [text[max(0, found.start() - 60) : found.end() + 60] for found in ABSENT.finditer(text)]

    assert problems(statements, pages()) == []


def test_names_that_pages_call_missing_do_not_exist() -> None:
    for sentence, names in MISSING.items():
        assert any(sentence in page.read_text() for page in pages()), "no page says so any more: take it out of this test"
        assert not {command.name for command in commands()} & set(names)


NOT_RAISED_HERE = {"HoldfastError", "PermanentError"}
"""The base class, and the error that only handlers raise."""


def test_every_error_of_the_table_is_raised_somewhere() -> None:
    made = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for path in (ROOT / "src/holdfast").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)]
    assert [kind.__name__ for kind in classes if kind.__name__ not in made | NOT_RAISED_HERE] == []
