"""Values and errors in plain words, for people."""

import re
from typing import Any

import msgspec

SHOWN_CHARACTERS_MAX = 80
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED = re.compile(r"\bObject (missing required|contains unknown) field `(.*?)`", re.DOTALL)

_SHAPE = "a statement of another shape: "


def shown(value: object) -> str:
    """A value that anybody may have written: short, and without characters that a terminal acts upon."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        text = str(value)[: SHOWN_CHARACTERS_MAX + 1]
        if not text.strip():
            return "an empty text"
        text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
        return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"
    return "a list" if isinstance(value, list) else "an object"


def decoded(body: bytes | str) -> Any:
    """The JSON in `body`, whatever its shape; None where there is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def in_words(message: str, value: Any) -> str:
    """What a decoder says of `value`, which has another shape than it should: the field, and what is in it."""
    place = _PLACE.search(message)
    path = [] if place is None else [part for part in place[1].split(".") if part]
    named = _NAMED.search(message)
    if named is not None:
        field = shown(named[2])
        return f"the field {field} is missing" if named[1] == "missing required" else f"{field} is no field of Holdfast's"
    if not path:
        return "it is not what Holdfast writes"
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return f"{shown(path[-1])} is not what Holdfast writes"
        value = value[part]
    return f"its {path[-1]} is {shown(value)}, which Holdfast does not write there"


def plain(detail: str) -> str:
    """A rule's words, without those of a decoder at their end."""
    start, colon, rest = detail.partition(_SHAPE)
    return start + colon + in_words(rest, None) if colon else detail
