"""Read pages: their code blocks, links and marks."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.generate import ROOT, pages

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^\s*(?:print\(.*)?\)  # → (.*)$", re.MULTILINE)
"""A call of print on one line, or the end of one that takes several."""


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def printed(self) -> list[str]:
        """The output that the block claims."""
        return _PRINTED.findall(self.text)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text()
    found = [Block(page, text[: m.start()].count("\n") + 2, m[1], m[2]) for m in _BLOCK.finditer(text)]
    return [block for block in found if block.language in languages]


def problems(found_in: Callable[[Path], Iterable[object]], checked: Sequence[Path]) -> list[str]:
    """What a check has found in these pages, each with its page."""
    return [f"{name(page)}: {found}" for page in checked for found in found_in(page)]


def with_blocks(*languages: str) -> list[Path]:
    return [page for page in pages() if blocks(page, *languages)]
