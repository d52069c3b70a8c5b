"""Error texts without what differs from case to case, so that errors of the same cause have the same text."""

import re

TEXT_CHARACTERS_MAX = 200
_READ_CHARACTERS_MAX = 1_000
"""How much of a text is read. A longer one is cut first."""
_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
_HEX = re.compile(r"\b(?:0[xX][0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,12})*)\b")
_DIGITS = re.compile(r"\d+")


def mask_error(text: str) -> str:
    """Return an error's text with quoted parts as `'…'`, and hexadecimal numbers and digits as `#`."""
    text = _QUOTED.sub("'…'", text[:_READ_CHARACTERS_MAX])
    return _DIGITS.sub("#", _HEX.sub("#", text))[:TEXT_CHARACTERS_MAX]
