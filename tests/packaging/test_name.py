"""Every page, message and file names the distribution `holdfast-ledger`: `holdfast` on the package index is another project's."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from _holdfast_program import DISTRIBUTION
from tests.support.processes import ROOT

WRONG = re.compile(
    r"""
    (?<![\w./-])holdfast\[[\w{.]  # with an extra
    | \b(?:pip[\d.]*|pipx|uv|poetry|pdm|conda|rye|pixi)\s[^;|&`\n]*\b(?:install|add|inject|download)\s[^;|&`\n]*?
      (?<=[\s'"])holdfast(?![\w-]|[./:]\w)
    | (?:\buvx|\bpipx\ run|\buv\ tool\ run)\s+(?:-\S+\s+)*['"]?holdfast(?![\w./:-])
    | --(?:from|spec|with)[ =]['"]?holdfast(?![\w./:-])
    | (?<![\w./-])holdfast\s?(?:[=<>~!]=\s?\d|\(pyproject\.toml\))  # with a version, and in the comment of a lock file
    | (?<!\w)holdfast-[^\s/`'"]*\.(?:whl|tar\.gz)
    | pypi\.org/(?:project|simple|p)/holdfast(?![\w-])
    | \b(?:version|distribution|metadata|requires)\(['"]holdfast['"]  # functions of importlib.metadata
    """,
    re.VERBOSE | re.IGNORECASE,
)


def files() -> Iterator[Path]:
    """Every file of the repository. What .gitignore names at the top is not in it: make has made that."""
    made = {".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/"))}
    for top in ROOT.iterdir():
        if top.name not in made:
            yield from (path for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file())


def test_no_file_names_the_distribution_of_another_project() -> None:
    found, pages = [], 0
    for path in files():
        if path.suffix in (".png", ".pyc") or path == Path(__file__):
            continue
        pages += 1
        lines = enumerate(path.read_text(errors="replace").splitlines(), 1)
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in lines if "holdfast" in line and WRONG.search(line)
        ]
    assert found == [], f"the distribution is {DISTRIBUTION}"
    assert pages > 1_000


@pytest.mark.parametrize(
    "line",
    [
        "pip install holdfast",
        "/opt/holdfast/bin/pip install 'holdfast[all]'",
        "python -m pip install --no-deps --find-links /dist holdfast",
        "uv pip install 'holdfast' && holdfast demo",
        "uv add holdfast",
        "pipx install holdfast",
        "uvx holdfast demo",
        "uvx --from holdfast holdfast demo",
        "pipx run --spec=holdfast holdfast demo",
        "action = f\"pip install 'holdfast[{extra}]'\"",
        'all = ["holdfast[postgres,metrics]"]',
        "holdfast==0.1.0 \\",
        "    # via holdfast (pyproject.toml)",
        "dist/holdfast-0.1.0-py3-none-any.whl",
        "https://pypi.org/project/holdfast/",
        'importlib.metadata.version("holdfast")',
    ],
)
def test_a_line_that_names_it_is_noticed(line: str) -> None:
    assert WRONG.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "/opt/holdfast/bin/pip install 'holdfast-ledger[all]'",
        "pip uninstall -y holdfast && pip install --force-reinstall --no-deps holdfast-ledger",
        "uvx --from holdfast-ledger holdfast demo",
        "uvx --from dist/holdfast_ledger-*.whl holdfast demo",
        "pip install . && holdfast demo",
        "python3 -m venv /opt/holdfast",
    ],
)
def test_a_line_that_does_not_is_right(line: str) -> None:
    assert not WRONG.search(line)


def test_one_place_in_the_source_has_the_name() -> None:
    named = [path for path in (ROOT / "src").rglob("*.py") if DISTRIBUTION in path.read_text()]
    assert named == [ROOT / "src/_holdfast_program.py"]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
