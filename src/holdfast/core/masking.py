"""Error texts without what differs from case to case, so that errors of the same cause have the same text."""

import re

TEXT_CHARACTERS_MAX = 200
_READ_CHARACTERS_MAX = 1_000
"""How much of a text is read. A longer one is cut first."""
_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
_DOMAINS = "com|org|net|edu|gov|info|dev|app|cloud|example|test|invalid|local|localdomain|internal|intranet|lan|home|corp|arpa"
_HOST = re.compile(
    r"\b[a-zA-Z][\w+.-]*://[^\s'\"<>,;)\]]*[\w/#=]"  # a URL
    r"|(?<![\w.-])[\w.+-]+@[\w-][\w.-]*\w"  # user@host
    rf"|(?<![\w.-])(?:[\w-]+\.)+(?:{_DOMAINS}|[a-z]{{2}}(?=:\d))(?::\d+)?(?!\w|[.-]\w)"  # a name in a domain
    r"|(?<![\w.-])(?:localhost|[a-zA-Z][\w.]*-[\w.-]*)(?=:\d):\d+(?!\w)"  # name:port
    r"|(?<=\bhost )[\w.-]*[\w.][-._\d][\w.-]*\w|(?<=\bnode )[\w.-]*[\w.][-._\d][\w.-]*\w"
)
_HEX = re.compile(r"\b(?:0[xX][0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,12})*)\b")
_IPV6 = re.compile(r"(?<![\w:])\[?(?=[\w:]*\d)(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}\]?(?![\w:])")
_NUMBER = re.compile(r"(?:(?<![\w#…])[-+])?\d+(?:[.,:]\d+)*")


def mask_error(text: str) -> str:
    """Return an error's text with quoted parts as `'…'`, hosts and URLs as `…`, and numbers as `#`."""
    text = _QUOTED.sub("'…'", text[:_READ_CHARACTERS_MAX])
    return _NUMBER.sub("#", _IPV6.sub("#", _HEX.sub("#", _HOST.sub("…", text))))[:TEXT_CHARACTERS_MAX]
