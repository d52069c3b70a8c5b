"""SQL lives in .sql files: named statements after `-- name: …` lines, and numbered migrations."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    version: int
    name: str
    text: str


@cache
def statements(package: str) -> dict[str, str]:
    """Every named statement in the package's `sql` folder."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
        for block in file.read_text().split("-- name: ")[1:]:
            name, _, text = block.partition("\n")
            found[name.strip()] = text.strip().rstrip(";")
    return found


@cache
def migrations(package: str) -> tuple[Migration, ...]:
    """The package's migrations in order."""
    found = []
    for file in sorted(files(package).joinpath("migrations").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text()))
    return tuple(found)
