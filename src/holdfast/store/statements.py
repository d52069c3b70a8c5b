"""Loading of .sql files: named statements, each after a `-- name: …` line, and numbered migrations.

A part, after a `-- part: …` line, stands once for several statements, which have its name in braces.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple


class Migration(NamedTuple):
    version: int
    name: str
    text: str


def _folder(package: str) -> Path:
    """Return the folder of a package. Holdfast is always installed unpacked, and importlib.resources is slower than reading."""
    [home] = import_module(package).__path__
    return Path(home)


@cache
def statements(package: str) -> dict[str, str]:
    """Return the named statements in the package's `sql` folder."""
    return read_statements(sorted((_folder(package) / "sql").iterdir()))


def read_statements(files: list[Path]) -> dict[str, str]:
    """Return the named statements in these files."""
    found: dict[str, str] = {}
    parts: dict[str, str] = {}
    for file in files:
        for block in re.split(r"^-- (?=name: |part: )", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            title, _, text = block.partition("\n")
            kind, _, name = title.partition(": ")
            (found if kind == "name" else parts)[name.strip()] = _without_layout(text[: text.rindex(";")])
    return {name: _with_parts(text, parts) for name, text in found.items()}


def _without_layout(text: str) -> str:
    """Return a text without comments and indentation. The driver of PostgreSQL parses long statements anew for each call."""
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("--"))


def _with_parts(text: str, parts: dict[str, str]) -> str:
    """Put in the parts that a text names, and those that they name."""
    for name, part in parts.items():
        if f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", _with_parts(part, parts))
    return text


@cache
def migrations(package: str) -> tuple[Migration, ...]:
    """Return the package's migrations in order."""
    found = []
    for file in sorted((_folder(package) / "migrations").glob("*.sql")):
        number, _, name = file.stem.partition("_")
        found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(found)
