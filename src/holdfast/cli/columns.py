"""How many columns of a terminal a text takes, and texts made to fit into columns."""

import unicodedata

_JAMO = range(0x1160, 0x1200)
"""Vowels and finals of Hangul, which are drawn into the syllable before them."""


def width(text: str) -> int:
    """Of a visible text: most characters take one column, those of East Asia and emoji two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or ord(character) in _JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clipped(text: str, columns: int) -> str:
    """As much of it as fits; half a wide character does not."""
    if width(text) <= columns:
        return text
    taken = 0
    for place, character in enumerate(text):
        taken += _width(character)
        if taken > columns:
            return text[:place]
    return text


def shortened(text: str, columns: int) -> str:
    """The same, with a mark where something is left out."""
    return text if width(text) <= columns else f"{clipped(text, columns - 1)}…"


def padded(text: str, columns: int, *, to_right: bool = False) -> str:
    blanks = " " * (columns - width(text))
    return blanks + text if to_right else text + blanks


def folded(text: str, columns: int) -> list[str]:
    """In lines that fit. Where even one character is too wide, it stands alone."""
    lines: list[str] = []
    while text:
        part = clipped(text, columns) or text[0]
        lines.append(part)
        text = text[len(part) :]
    return lines or [""]
