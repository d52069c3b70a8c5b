"""Hiding of contents from readers: patterns on args, results, checkpoints, errors and payloads.

A pattern is a path of keys, such as `args.card` or `*.password`. `*` stands for any number of characters, also across dots. A
path begins with `args`, `result`, `checkpoint`, `error`, `payload` or `statement`. Inside of contents, one of these names begins
a path too, so that `args.card` also hides the card in the payload of an event. An element of a list has the path of its list.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core.access import matches
from holdfast.core.explain import Explanation
from holdfast.core.explain.formatting import ERROR_CHARACTERS_MAX
from holdfast.core.formatting import format_error

T = TypeVar("T")
HIDDEN = "[redacted]"
ROOTS = {
    "args": "args",
    "result": "result",
    "checkpoint": "checkpoint",
    "error": "error",
    "last_error": "error",
    "payload": "payload",
    "sealed_payload": "payload",
    "statement": "statement",
}
"""The fields that have contents, each with the name that patterns use."""
KEY_PATH = "payload.flow.limits.key"
"""An argument by which a limit is counted. It is hidden if any argument may be: the event does not say which one it is."""
TEXTS = {"sealed_payload", "statement"}
"""The fields whose contents are JSON as a text."""
_HIDDEN_RAW = msgspec.Raw(b'"[redacted]"')
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_Paths = tuple[str, ...]


class Redaction:
    """Hides what matches a pattern. All else stays as it is: JSON keeps its bytes, and an object without a match is returned."""

    def __init__(self, patterns: Sequence[str]) -> None:
        limits.check_count("redact", len(patterns), limits.REDACT_PATTERNS_MAX)
        self._patterns = tuple(dict.fromkeys(limits.check_key("redact", pattern) for pattern in patterns))
        self.hides_keys = any(pattern.startswith(("args", "*")) for pattern in self._patterns)
        """Whether the keys of limits are hidden, because some arguments are."""

    def fields(self, answer: T) -> T:
        """Return an answer, of dicts, lists and structs, without what is hidden. A signed statement is hidden in the same way."""
        found: T = self._visit(answer, ())
        return found

    def json(self, root: str, body: bytes) -> bytes:
        """Return JSON without what is hidden. `root` is the name of the field that has it. Bytes that are not JSON stay."""
        paths = (ROOTS[root],)
        if self._hides(paths):
            return bytes(_HIDDEN_RAW)
        return bytes(self._visit_raw(msgspec.Raw(body), paths))

    def hides(self, path: str) -> bool:
        """Return whether contents at this path are hidden."""
        return self._hides((path,))

    def _hides(self, paths: _Paths) -> bool:
        if self.hides_keys and KEY_PATH in paths:
            return True
        return any(matches(pattern, path) for pattern in self._patterns for path in paths)

    def _visit(self, value: Any, paths: _Paths) -> Any:
        """Return the value, or a copy with parts hidden. Paths are empty outside of contents, where nothing is hidden."""
        if isinstance(value, msgspec.Raw):
            return self._visit_raw(value, paths) if paths else value
        if isinstance(value, dict):
            shown = {key: self._child(key, one, paths) for key, one in value.items()}
            return shown if any(shown[key] is not one for key, one in value.items()) else value
        if isinstance(value, list | tuple):
            items = [self._visit(one, paths) for one in value]
            changed = any(new is not old for new, old in zip(items, value, strict=True))
            return type(value)(items) if changed else value
        if isinstance(value, msgspec.Struct):
            changes = {
                name: new
                for name in value.__struct_fields__
                if (new := self._child(name, old := getattr(value, name), paths)) is not old
            }
            if isinstance(value, Explanation) and "last_error" in changes:
                changes |= _sentences_without_error(value)
            return msgspec.structs.replace(value, **changes) if changes else value
        return value

    def _child(self, key: Any, value: Any, paths: _Paths) -> Any:
        inner = _inner_paths(key, paths)
        if value is not None and value is not msgspec.UNSET and inner and self._hides(inner):
            return HIDDEN
        if key in TEXTS and isinstance(value, str):
            shown = self.json(key, value.encode()).decode()
            return value if shown == value else shown
        return self._visit(value, inner)

    def _visit_raw(self, raw: msgspec.Raw, paths: _Paths) -> msgspec.Raw:
        """Like `_visit` for JSON: parts that are not changed keep their bytes."""
        body = bytes(raw).lstrip()
        try:
            if body[:1] == b"{":
                fields = _object(body)
                shown = {key: self._raw_child(key, one, paths) for key, one in fields.items()}
                return msgspec.Raw(_encode(shown)) if any(shown[key] is not one for key, one in fields.items()) else raw
            if body[:1] == b"[":
                items = _array(body)
                new_items = [self._visit_raw(one, paths) for one in items]
                is_changed = any(new is not old for new, old in zip(new_items, items, strict=True))
                return msgspec.Raw(_encode(new_items)) if is_changed else raw
        except msgspec.DecodeError:
            return raw
        return raw

    def _raw_child(self, key: str, raw: msgspec.Raw, paths: _Paths) -> msgspec.Raw:
        inner = _inner_paths(key, paths)
        return _HIDDEN_RAW if self._hides(inner) else self._visit_raw(raw, inner)


def _sentences_without_error(explanation: Explanation) -> dict[str, Any]:
    """Return the sentences of an explanation that repeat its job's error, without it."""
    error, why = format_error(explanation.last_error, ERROR_CHARACTERS_MAX), explanation.why_not_running
    shown = None if why is None else msgspec.structs.replace(why, words=why.words.replace(error, HIDDEN))
    return {"text": explanation.text.replace(error, HIDDEN), "why_not_running": shown}


def _inner_paths(key: Any, paths: _Paths) -> _Paths:
    inner = tuple(f"{path}.{key}" for path in paths)
    root = ROOTS.get(key) if isinstance(key, str) else None
    return inner if root is None else (*inner, root)
