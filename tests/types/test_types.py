"""Type checkers accept and refuse a user's program as expected, and the annotations fit the code that runs."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import CallOptions, EnqueueOptions, PolicyFields
from holdfast.core import policy
from holdfast.ledger import Ledger
from holdfast.ledger.public import HandlerOptions
from holdfast.worker.app import App
from holdfast.worker.handlers import HandlerSettings, make_handler
from tests.support.processes import ROOT

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"


def marked() -> set[int]:
    return {number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}


def of_mypy(folder: Path) -> dict[str, set[int]]:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(folder),
        "--output",
        "json",
    ]
    done = subprocess.run(
        [*command, str(RIGHT), str(WRONG)],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            finding = json.loads(line)
            found.setdefault(Path(finding["file"]).name, set()).add(finding["line"])
    return found


def of_pyright(folder: Path) -> dict[str, set[int]]:
    settings = {
        "include": [str(HERE)],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnknownMemberType": False,
        "reportUnknownVariableType": False,
        "reportUnknownArgumentType": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, set[int]] = {}
    for finding in json.loads(done.stdout)["generalDiagnostics"]:
        found.setdefault(Path(finding["file"]).name, set()).add(finding["range"]["start"]["line"] + 1)
    found.pop(Path(__file__).name, None)
    return found


@pytest.mark.parametrize("checker", [of_mypy, of_pyright])
def test_a_type_checker_finds_every_mistake_and_nothing_else(checker: object, tmp_path: Path) -> None:
    assert callable(checker)
    assert checker(tmp_path) == {WRONG.name: marked()}
    assert len(marked()) >= 18


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
