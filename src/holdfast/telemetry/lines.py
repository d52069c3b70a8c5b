"""One record, one line. Whatever is in a message, it cannot end its line, begin another, or speak to a terminal."""

import json
import logging
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

FIELDS = ("job_id", "attempt", "kind", "queue", "worker", "correlation_id", "trace_id")
"""What can be bound: see `logs.bind`."""

MESSAGE_CHARACTERS_MAX = 8_192
EXCEPTION_CHARACTERS_MAX = 16_384
VALUE_CHARACTERS_MAX = 2_048
ITEMS_MAX = 50
"""Extras of a line, and items of a container in one."""
NESTING_MAX = 4
LINE_BYTES_MAX = 65_536
"""A JSON line that would be longer goes without its extras, and shortened. An escaped character takes up to twelve bytes."""
_TEXT_SHORT = 1_024
_NAME_SHORT = 128
_INTEGER_BITS_MAX = 64

_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OWN = frozenset({"ts", "level", "logger", "message", "exception", "truncated"})


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_BARE = re.compile(r"[^\s\"=\\]+")
"""What logfmt needs no quotes around."""


def trace_of(given: Any) -> Any:
    """The 32 hex digits of a W3C traceparent, which trace backends know a trace by. Any other value stays as it is."""
    found = _TRACEPARENT.fullmatch(given) if isinstance(given, str) else None
    return given if found is None else found[1]


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What the line gave in `extra=`, but for what can be bound. A name that the line has itself gets an underscore."""
    given = ((name, value) for name, value in vars(record).items() if name not in _RECORD and name not in FIELDS)
    return {f"{name}_" if name in _OWN else cut(str(name)): shown(value) for name, value in islice(given, ITEMS_MAX)}


def bound(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    return {name: shown(value) for name, value in found.items() if value is not None}


def said(record: logging.LogRecord) -> str:
    """The message; one whose arguments do not fit it is shown with them beside it."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - somebody else's arguments
        message = f"{text(record.msg)} {text(record.args)}"
    return cut(message, MESSAGE_CHARACTERS_MAX)


def text(value: object) -> str:
    """What a value says of itself; one that cannot must not keep a line from being written."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - somebody else's __str__
        return f"<{type(value).__name__}>"


def cut(value: str, characters_max: int = VALUE_CHARACTERS_MAX) -> str:
    return value if len(value) <= characters_max else value[:characters_max] + "…"


def shown(value: object) -> Any:
    """`value` as JSON has it. One that changes or fails while it is looked at must not keep a line from being written."""
    try:
        return plain(value)
    except Exception:  # noqa: BLE001 - somebody else's container
        return f"<{type(value).__name__}>"


def plain(value: object, depth: int = 0) -> Any:
    """`value` as JSON has it, bounded in every direction."""
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() <= _INTEGER_BITS_MAX:
            return int(value)
        case int():
            return cut(f"{int(value):#x}")
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth < NESTING_MAX:
            return {cut(text(key)): plain(item, depth + 1) for key, item in islice(value.items(), ITEMS_MAX)}
        case list() | tuple() | set() | frozenset() if depth < NESTING_MAX:
            return [plain(item, depth + 1) for item in islice(value, ITEMS_MAX)]
    return cut(text(value))


def stamp(record: logging.LogRecord) -> str:
    """RFC 3339, UTC."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Formatter(logging.Formatter):
    def exception(self, record: logging.LogRecord) -> str:
        if record.exc_info and not record.exc_text:
            try:
                record.exc_text = self.formatException(record.exc_info)
            except Exception:  # noqa: BLE001 - somebody else's exception
                record.exc_text = text(record.exc_info[0])
        parts = [record.exc_text or "", self.formatStack(record.stack_info) if record.stack_info else ""]
        whole = "\n".join(part for part in parts if part)
        # The end says what was raised.
        return whole if len(whole) <= EXCEPTION_CHARACTERS_MAX else "…" + whole[-EXCEPTION_CHARACTERS_MAX:]


class JsonFormatter(_Formatter):
    """One JSON object a line, in ASCII: ts, level, logger, message, what is bound, extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        own = {"ts": stamp(record), "level": record.levelname, "logger": record.name, "message": said(record)}
        whole = own | bound(record) | extras(record)
        if exception := self.exception(record):
            whole["exception"] = exception
        line = _encode(whole)
        if len(line) <= LINE_BYTES_MAX:
            return line
        short = {name: cut(text(value), _NAME_SHORT) for name, value in (own | bound(record)).items()}
        short["message"] = cut(own["message"], _TEXT_SHORT)
        return _encode(short | {"exception": exception[-_TEXT_SHORT:], "truncated": True})


def _encode(line: Mapping[str, Any]) -> str:
    """ASCII alone: every control character and every line end Unicode knows is an escape; DEL is the one json leaves."""
    return json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("\x7f", "\\u007f")


class TextFormatter(_Formatter):
    """For people: time, level, logger, message, what is bound. An exception follows on lines that are indented."""

    INDENT = "    | "

    def format(self, record: logging.LogRecord) -> str:
        fields = {"job" if name == "job_id" else name: value for name, value in bound(record).items()} | extras(record)
        told = " ".join(f"{visible(name)}={visible(text(value))}" for name, value in fields.items())
        head = f"{stamp(record)} {visible(record.levelname):<8} {visible(record.name)}: {visible(said(record))}"
        lines = [cut(f"{head}  [{told}]" if told else head, LINE_BYTES_MAX)]
        lines += [self.INDENT + visible(line) for line in self.exception(record).splitlines()]
        return "\n".join(lines)


class LogfmtFormatter(_Formatter):
    """`name=value` pairs on one line: ts, level, logger, msg, what is bound, extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        own = {"ts": stamp(record), "level": record.levelname.lower(), "logger": record.name, "msg": said(record)}
        whole = own | bound(record) | extras(record)
        if exception := self.exception(record):
            whole["exception"] = exception
        line = " ".join(f"{_name(name)}={_value(value)}" for name, value in whole.items())
        if len(line.encode()) <= LINE_BYTES_MAX:
            return line
        short = {name: cut(text(value), _NAME_SHORT) for name, value in (own | bound(record)).items()}
        short |= {"msg": cut(own["msg"], _TEXT_SHORT), "exception": exception[-_TEXT_SHORT:], "truncated": "true"}
        return " ".join(f"{_name(name)}={_value(value)}" for name, value in short.items())


def _name(name: str) -> str:
    """Without anything that would end the name."""
    return re.sub(r"[\s\"=]", "_", visible(name)) or "_"


def _value(value: Any) -> str:
    """Quoted where it has to be. Containers are JSON; True and False are as in JSON, too."""
    whole = json.dumps(value) if isinstance(value, bool | dict | list) or value is None else text(value)
    if _BARE.fullmatch(whole) and whole.isprintable():
        return whole
    return '"' + visible(whole.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def visible(value: str) -> str:
    """Everything that is not to be seen, from line ends to what turns writing around, as an escape."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
