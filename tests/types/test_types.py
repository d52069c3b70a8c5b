"""Type checkers accept and refuse a user's program as expected, and the annotations fit the code that runs."""

import ast
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import CallOptions, EnqueueOptions, PolicyFields
from holdfast.core import policy
from holdfast.ledger import Ledger
from holdfast.ledger.public import HandlerOptions
from holdfast.worker.app import App
from holdfast.worker.handlers import HandlerSettings, make_handler
from tests.docs.pages import blocks
from tests.docs.test_examples import MODULE
from tests.support.processes import ROOT

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"
PAGES = (ROOT / "README.md", ROOT / "docs/guides/quickstart.md")
"""The pages whose examples a newcomer copies first."""


class Finding(NamedTuple):
    file: str
    line: int
    message: str


def marked() -> set[int]:
    return {number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}


def write_examples(folder: Path) -> list[str]:
    """Write the Python blocks of each page to a file, at the lines that they have on the page. A block that is a file is one."""
    texts: dict[str, str] = {}
    for page in PAGES:
        for block in blocks(page, "python"):
            module = MODULE.match(block.text)
            file = f"{page.stem if module is None else module[1]}.py"
            text = texts.get(file, "")
            texts[file] = text + "\n" * (block.line - 1 - text.count("\n")) + block.text
    for file, text in texts.items():
        (folder / file).write_text(text)
    return [str(folder / file) for file in texts]


def of_mypy(folder: Path) -> list[Finding]:
    """Run mypy as a user does: Holdfast is installed, and its settings are not used."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--output", "json"]
    files = [str(RIGHT), str(WRONG), *write_examples(folder)]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [Finding(Path(one["file"]).name, one["line"], one["message"]) for one in found]


def of_pyright(folder: Path) -> list[Finding]:
    """Run basedpyright with all its rules, except those that object to JSON values, unused answers and unused parameters."""
    settings: dict[str, Any] = {
        "include": [str(RIGHT), str(WRONG), *write_examples(folder)],
        "typeCheckingMode": "recommended",
        "pythonVersion": "3.13",
        "reportAny": False,
        "reportUnusedCallResult": False,
        "reportUnusedParameter": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(settings["include"])
    return [
        Finding(Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"]) for one in found["generalDiagnostics"]
    ]


@pytest.mark.parametrize("checker", [of_mypy, of_pyright])
def test_a_type_checker_finds_every_mistake_and_nothing_else(checker: Callable[[Path], list[Finding]], tmp_path: Path) -> None:
    """The examples of README and quickstart are part of what has no mistake."""
    found = checker(tmp_path)
    assert "\n".join(map(str, (one for one in found if one.file != WRONG.name))) == ""
    assert {one.line for one in found} == marked()
    assert len(marked()) >= 24


def test_no_module_makes_up_names_for_type_checkers() -> None:
    """A module-level `__getattr__` that type checkers see gives every misspelt name a type."""
    sources = [(path, ast.parse(path.read_text())) for path in (ROOT / "src").rglob("*.py") if "__getattr__" in path.read_text()]
    assert [
        str(path)
        for path, tree in sources
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
    ] == []


def keywords(function: object) -> set[str]:
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return {one.name for one in found if one.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_typed_options_are_the_existing_options() -> None:
    assert HandlerOptions.__annotations__.keys() == EnqueueOptions.__annotations__.keys() - {"policy"}
    assert CallOptions.__annotations__.keys() == EnqueueOptions.__annotations__.keys() | keywords(Ledger.enqueue)
    known = {*policy._DURATIONS, *policy._COUNTS, *policy._CHOICES, *policy._SWITCHES}
    assert PolicyFields.__annotations__.keys() == known
    own = keywords(make_handler) - {"batch", "batch_wait"}
    assert HandlerSettings.__annotations__.keys() == HandlerOptions.__annotations__.keys() | own


def test_a_handler_decorator_works_without_parentheses() -> None:
    app = App("sqlite:///:memory:")

    @app.handler
    def plain(n: int) -> int:
        return n

    assert [handler.kind for handler in app.registry] == ["plain"]
    assert plain(3) == 3
