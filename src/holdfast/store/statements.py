"""Loading of .sql files: named statements, each after a `-- name: …` line, and numbered migrations.

A part, after a `-- part: …` line, stands once for several statements, which have its name in braces.

Statements that are the same on both stores are in the folder `sql` beside this file. Their tables have the prefix `holdfast.`,
and their parameters a colon. Where the stores differ within such a statement, each of them has a part of that name.
"""

import re
from collections.abc import Collection
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
    """Return the named statements of a store's package, with those that both stores share."""
    return read_statements(_folder(package))


def read_statements(store: Path, names: Collection[str] | None = None) -> dict[str, str]:
    """Return the named statements of the store in this folder, only those in files with these `names` if they are given."""
    found: dict[str, str] = {}
    parts: dict[str, str] = {}
    for folder in (store.parent / "sql", store / "sql"):
        for file in sorted(folder.iterdir()):
            if names is None or file.name in names:
                text = file.read_text(encoding="utf-8")
                _read(text if folder.parent == store else _translated(text, store.name), found, parts)
    return {name: _with_parts(text, parts) for name, text in found.items()}


def _translated(text: str, store: str) -> str:
    """Return shared statements as this store writes tables and parameters."""
    if store == "sqlite":
        return text.replace("holdfast.", "holdfast_")
    return re.sub(r"(?<![:\w]):([a-z]\w*)", r"%(\1)s", text.replace("%", "%%"))


def _read(text: str, found: dict[str, str], parts: dict[str, str]) -> None:
    """Add the statements and the parts of a file."""
    for block in re.split(r"^-- (?=name: |part: )", text, flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        kind, _, name = title.partition(": ")
        (found if kind == "name" else parts)[name.strip()] = _without_layout(body[: body.rindex(";")])


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
