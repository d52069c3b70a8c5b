"""The architecture page matches the code: files, packages, words."""

import re
import tomllib
from pathlib import Path

from docs.generate import ROOT

PACKAGE = ROOT / "src/holdfast"
_PATH = re.compile(r"(?<![\w./-])([\w-]+(?:/[\w-]+)*(?:\.(?:py|sql|md)|/(?=[\w\s])))")
"""A file, or the name of a folder with a slash behind it."""
_FOLDER = re.compile(r"`((?:core|ledger|store|services|worker|cli|mcp|docs|tests|tools)/[\w/-]+)`")
LIFECYCLE_WORDS = {
    *("ledger", "job", "attempt", "lease", "fence", "worker", "incarnation", "event", "policy", "tier", "receipt", "outbox"),
    *("sweeper", "command", "stage", "failure stage"),
}
WORDS_MAX = 44


def architecture() -> str:
    return (ROOT / "docs/architecture.md").read_text()


def exists(path: str) -> bool:
    return (ROOT / path).exists() or (PACKAGE / path).exists()


def paths() -> list[str]:
    text = re.sub(r"\]\([^)]*\)", "]", architecture())  # links are checked with those of all pages
    return sorted({*_PATH.findall(text), *_FOLDER.findall(text)} - {"hot.sql", "cold.sql"})


def test_every_path_in_the_architecture_exists() -> None:
    assert [path for path in paths() if not exists(path)] == []


def test_paths_are_found() -> None:
    assert {"core/table.py", "store/sqlite/sql/hot.sql", "worker/", "errors.py", "tests/cli", "docs/generate.py"} <= {*paths()}
    assert not exists("core/nothing.py")


def test_the_architecture_is_two_pages() -> None:
    assert len(architecture().splitlines()) < 130


# Packages


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [found] = [contract["layers"] for contract in contracts if contract["id"] == "packages"]
    return [part.strip(" ()") for layer in found for part in re.split("[|:]", layer)]


def test_contributing_lists_the_layers_of_the_import_contract() -> None:
    assert re.findall(r"^    (holdfast(?:\.\w+)+) ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE) == layers()


def test_the_import_contract_has_every_package_and_module() -> None:
    parts = parts_of("holdfast", PACKAGE)
    spanning = {part for part in parts if any(layer.startswith(f"{part}.") for layer in layers())}
    """Packages whose modules are in several layers."""
    parts |= {module for name in spanning for module in parts_of(name, PACKAGE / name.removeprefix("holdfast."))}
    assert len(layers()) == len(set(layers()))
    assert set(layers()) == parts - spanning


def parts_of(name: str, folder: Path) -> set[str]:
    """Return the packages and the modules in a folder."""
    packages = {f"{name}.{path.parent.name}" for path in folder.glob("*/__init__.py")}
    return packages | {f"{name}.{path.stem}" for path in folder.glob("*.py") if not path.stem.startswith("__")}


# Texts


def glossary() -> list[tuple[str, str]]:
    return re.findall(r"^- \*\*(.+?)\*\*: (.+)$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)


def test_the_glossary_is_short_and_sorted() -> None:
    words = [word for word, _ in glossary()]
    assert len(words) == (ROOT / "docs/glossary.md").read_text().count("\n- ")
    assert len(words) <= WORDS_MAX
    assert words == sorted(set(words))


def test_the_glossary_has_the_words_of_the_lifecycle() -> None:
    assert dict(glossary()).keys() >= LIFECYCLE_WORDS


def test_each_word_has_one_to_three_sentences() -> None:
    assert [word for word, meaning in glossary() if not 1 <= len(re.findall(r"\.(?: |$)", meaning)) <= 3] == []
