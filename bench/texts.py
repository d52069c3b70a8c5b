"""Named statements from the .sql files of this folder."""

from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def texts(name: str) -> dict[str, str]:
    """Every statement of one file by the name in its `-- name: …` line."""
    found = {}
    for block in (HERE / name).read_text().split("-- name: ")[1:]:
        title, _, text = block.partition("\n")
        found[title.strip()] = text.strip().rstrip(";")
    return found
