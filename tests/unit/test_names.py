"""Names and words: no class name is used twice, and no text needs decoding."""

import re
from collections import defaultdict
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
ROOT = Path(__file__).parents[2]
TEXTS = {".py", ".sql", ".md", ".mjs"}

VAGUE = re.compile(r"(?<![a-z])(somebody|nobody|anybody|whoever|whatever|befell|strangers?|innocent)(?![a-z])", re.IGNORECASE)
"""Also as a part of a name: `_` separates words."""

ALLOWED = ('"-u", "nobody"',)
"""A user of the system."""

PICTURES = {"door", "doors", "bell", "bells", "carrier", "notary", "crew", "shift", "ear", "ears", "told", "wish", "wishes"}


def defined(path: Path, what: str) -> list[str]:
    """The names that a file defines with these words."""
    return re.findall(rf"^ *(?:{what}) +(\w+)", path.read_text(), re.MULTILINE)


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in defined(path, "class"):
            places[name.lstrip("_")].append(str(path.relative_to(SOURCE)))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_text_speaks_of_people_without_a_name() -> None:
    """Docstrings, comments, messages, pages and names of tests say who acts: the caller, the worker, another process."""
    folders = ["src/holdfast", "tests", "docs", "bench", "tools"]
    sources = [
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
    ]
    sources += [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in TEXTS]
    sources = [path for path in sources if path != Path(__file__)]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(sources)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if VAGUE.search(line) and not any(allowed in line for allowed in ALLOWED)
    ]
    assert len(sources) > 600
    assert found == []


def test_no_test_is_named_by_a_picture() -> None:
    """Test files and test functions have the words of the field: group commit, notification, worker, cancel request."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    names = [(path, name) for path in files for name in (path.stem, *defined(path, "def|async def|class"))]
    found = [f"{path.relative_to(ROOT)}: {name}" for path, name in names if PICTURES & set(name.lower().split("_"))]
    assert len(names) > 4_000
    assert found == []
