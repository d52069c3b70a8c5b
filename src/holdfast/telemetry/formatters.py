"""Log formatters: one line per record. Line ends and terminal control characters in a message are escaped."""

import json
import logging
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from holdfast.core.text import iso_format, safe_str, truncate

FIELDS = ("job_id", "attempt", "kind", "queue", "worker", "correlation_id", "trace_id")
"""The fields of a job that a log line has."""

MESSAGE_CHARACTERS_MAX = 8_192
EXCEPTION_CHARACTERS_MAX = 16_384
VALUE_CHARACTERS_MAX = 2_048
ITEMS_MAX = 50
"""The most extra fields of a line, and the most items of a container in one of them."""
NESTING_MAX = 4
LINE_BYTES_MAX = 65_536
"""A longer JSON line is shortened and loses its extra fields. An escaped character takes up to twelve bytes."""
_SHORT_TEXT_CHARACTERS = 1_024
_SHORT_VALUE_CHARACTERS = 128
_INTEGER_BITS_MAX = 64

_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOT_EXTRA = _RECORD_ATTRIBUTES | frozenset(FIELDS)
_OWN_FIELDS = frozenset({"ts", "level", "logger", "message", "exception", "truncated"})


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def trace_id_of(value: Any) -> Any:
    """Return the trace id in a W3C traceparent: 32 hex digits, as trace backends show it. Return other values unchanged."""
    match = _TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else match[1]


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields from `extra=` that are not in FIELDS. A name that the formatter uses itself gets an underscore."""
    extra = ((name, value) for name, value in vars(record).items() if name not in _NOT_EXTRA)
    return {
        f"{name}_" if name in _OWN_FIELDS else truncate(str(name), VALUE_CHARACTERS_MAX): safe_json_value(value)
        for name, value in islice(extra, ITEMS_MAX)
    }


def bound_fields(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    return {name: safe_json_value(value) for name, value in found.items() if value is not None}


def message_of(record: logging.LogRecord) -> str:
    """Return the message. If its arguments do not fit, append them unformatted."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the caller's arguments may raise anything
        message = f"{_str_or_type(record.msg)} {_str_or_type(record.args)}"
    return truncate(message, MESSAGE_CHARACTERS_MAX)


def _str_or_type(value: object) -> str:
    """Return `str(value)`, or the name of its type if that raises, so that the line is still written."""
    return safe_str(value, f"<{type(value).__name__}>")


def safe_json_value(value: object) -> Any:
    """Return `json_value(value)`, or the name of its type if that raises, so that the line is still written."""
    if value is None or (type(value) is str and len(value) <= VALUE_CHARACTERS_MAX):  # by far the most
        return value
    try:
        return json_value(value)
    except Exception:  # noqa: BLE001 - a container may raise anything
        return f"<{type(value).__name__}>"


def json_value(value: object, depth: int = 0) -> Any:
    """Convert a value to JSON types, with limits on length, number of items and nesting."""
    match value:
        case str() if type(value) is str:  # a match of Mapping() takes a microsecond
            return truncate(value, VALUE_CHARACTERS_MAX)
        case None | bool():
            return value
        case int() if value.bit_length() <= _INTEGER_BITS_MAX:
            return int(value)
        case int():
            return truncate(f"{int(value):#x}", VALUE_CHARACTERS_MAX)
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth < NESTING_MAX:
            return {
                truncate(_str_or_type(key), VALUE_CHARACTERS_MAX): json_value(item, depth + 1)
                for key, item in islice(value.items(), ITEMS_MAX)
            }
        case list() | tuple() | set() | frozenset() if depth < NESTING_MAX:
            return [json_value(item, depth + 1) for item in islice(value, ITEMS_MAX)]
    return truncate(_str_or_type(value), VALUE_CHARACTERS_MAX)


def timestamp(record: logging.LogRecord) -> str:
    """Return the time of a record in RFC 3339, UTC."""
    return iso_format(datetime.fromtimestamp(record.created, UTC), "microseconds")


class _Formatter(logging.Formatter):
    def exception(self, record: logging.LogRecord) -> str:
        if record.exc_info and not record.exc_text:
            try:
                record.exc_text = self.formatException(record.exc_info)
            except Exception:  # noqa: BLE001 - an exception's __str__ may raise anything
                record.exc_text = _str_or_type(record.exc_info[0])
        parts = [record.exc_text or "", self.formatStack(record.stack_info) if record.stack_info else ""]
        whole = "\n".join(part for part in parts if part)
        # The last line names the exception, so the beginning is cut.
        return whole if len(whole) <= EXCEPTION_CHARACTERS_MAX else "…" + whole[-EXCEPTION_CHARACTERS_MAX:]


class JsonFormatter(_Formatter):
    """Formats a record as one line of ASCII JSON: ts, level, logger, message, bound fields, extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        own = {"ts": timestamp(record), "level": record.levelname, "logger": record.name, "message": message_of(record)}
        whole = own | bound_fields(record) | extra_fields(record)
        if exception := self.exception(record):
            whole["exception"] = exception
        line = _encode(whole)
        if len(line) <= LINE_BYTES_MAX:
            return line
        short = {
            name: truncate(_str_or_type(value), _SHORT_VALUE_CHARACTERS) for name, value in (own | bound_fields(record)).items()
        }
        short["message"] = truncate(own["message"], _SHORT_TEXT_CHARACTERS)
        return _encode(short | {"exception": exception[-_SHORT_TEXT_CHARACTERS:], "truncated": True})


def _encode(line: Mapping[str, Any]) -> str:
    """Encode as ASCII: control characters and all line ends of Unicode become escapes. json leaves only DEL as it is."""
    return _dumps(line).replace("\x7f", "\\u007f")


class TextFormatter(_Formatter):
    """Formats a record for people: time, level, logger, message, fields. An exception follows on indented lines."""

    INDENT = "    | "

    def format(self, record: logging.LogRecord) -> str:
        fields = {"job" if name == "job_id" else name: value for name, value in bound_fields(record).items()} | extra_fields(
            record
        )
        suffix = " ".join(f"{printable(name)}={printable(_str_or_type(value))}" for name, value in fields.items())
        head = f"{timestamp(record)} {printable(record.levelname):<8} {printable(record.name)}: {printable(message_of(record))}"
        lines = [truncate(f"{head}  [{suffix}]" if suffix else head, LINE_BYTES_MAX)]
        lines += [self.INDENT + printable(line) for line in self.exception(record).splitlines()]
        return "\n".join(lines)


def printable(value: str) -> str:
    """Escape every character that is not printable: line ends, control characters, changes of the writing direction."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
