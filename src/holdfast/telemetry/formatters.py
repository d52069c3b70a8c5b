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
_SHORT_TEXT_CHARACTERS = 1_024
_SHORT_VALUE_CHARACTERS = 128
_INTEGER_BITS_MAX = 64

_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OWN_FIELDS = frozenset({"ts", "level", "logger", "message", "exception", "truncated"})


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_UNQUOTED = re.compile(r"[^\s\"=\\]+")
"""What logfmt needs no quotes around."""


def trace_id_of(given: Any) -> Any:
    """The 32 hex digits of a W3C traceparent, which trace backends know a trace by. Any other value stays as it is."""
    found = _TRACEPARENT.fullmatch(given) if isinstance(given, str) else None
    return given if found is None else found[1]


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the line gave in `extra=`, but for what can be bound. A name that the line has itself gets an underscore."""
    given = ((name, value) for name, value in vars(record).items() if name not in _RECORD_ATTRIBUTES and name not in FIELDS)
    return {
        f"{name}_" if name in _OWN_FIELDS else truncate(str(name)): safe_json_value(value)
        for name, value in islice(given, ITEMS_MAX)
    }


def bound_fields(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    return {name: safe_json_value(value) for name, value in found.items() if value is not None}


def message_of(record: logging.LogRecord) -> str:
    """The message; one whose arguments do not fit it is shown with them beside it."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - somebody else's arguments
        message = f"{safe_str(record.msg)} {safe_str(record.args)}"
    return truncate(message, MESSAGE_CHARACTERS_MAX)


def safe_str(value: object) -> str:
    """What a value says of itself; one that cannot must not keep a line from being written."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - somebody else's __str__
        return f"<{type(value).__name__}>"


def truncate(value: str, characters_max: int = VALUE_CHARACTERS_MAX) -> str:
    return value if len(value) <= characters_max else value[:characters_max] + "…"


def safe_json_value(value: object) -> Any:
    """`value` as JSON has it. One that changes or fails while it is looked at must not keep a line from being written."""
    try:
        return json_value(value)
    except Exception:  # noqa: BLE001 - somebody else's container
        return f"<{type(value).__name__}>"


def json_value(value: object, depth: int = 0) -> Any:
    """`value` as JSON has it, bounded in every direction."""
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() <= _INTEGER_BITS_MAX:
            return int(value)
        case int():
            return truncate(f"{int(value):#x}")
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth < NESTING_MAX:
            return {truncate(safe_str(key)): json_value(item, depth + 1) for key, item in islice(value.items(), ITEMS_MAX)}
        case list() | tuple() | set() | frozenset() if depth < NESTING_MAX:
            return [json_value(item, depth + 1) for item in islice(value, ITEMS_MAX)]
    return truncate(safe_str(value))


def timestamp(record: logging.LogRecord) -> str:
    """RFC 3339, UTC."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Formatter(logging.Formatter):
    def exception(self, record: logging.LogRecord) -> str:
        if record.exc_info and not record.exc_text:
            try:
                record.exc_text = self.formatException(record.exc_info)
            except Exception:  # noqa: BLE001 - somebody else's exception
                record.exc_text = safe_str(record.exc_info[0])
        parts = [record.exc_text or "", self.formatStack(record.stack_info) if record.stack_info else ""]
        whole = "\n".join(part for part in parts if part)
        # The end says what was raised.
        return whole if len(whole) <= EXCEPTION_CHARACTERS_MAX else "…" + whole[-EXCEPTION_CHARACTERS_MAX:]


class JsonFormatter(_Formatter):
    """One JSON object a line, in ASCII: ts, level, logger, message, what is bound, extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        own = {"ts": timestamp(record), "level": record.levelname, "logger": record.name, "message": message_of(record)}
        whole = own | bound_fields(record) | extra_fields(record)
        if exception := self.exception(record):
            whole["exception"] = exception
        line = _encode(whole)
        if len(line) <= LINE_BYTES_MAX:
            return line
        short = {name: truncate(safe_str(value), _SHORT_VALUE_CHARACTERS) for name, value in (own | bound_fields(record)).items()}
        short["message"] = truncate(own["message"], _SHORT_TEXT_CHARACTERS)
        return _encode(short | {"exception": exception[-_SHORT_TEXT_CHARACTERS:], "truncated": True})


def _encode(line: Mapping[str, Any]) -> str:
    """ASCII alone: every control character and every line end Unicode knows is an escape; DEL is the one json leaves."""
    return json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("\x7f", "\\u007f")


class TextFormatter(_Formatter):
    """For people: time, level, logger, message, what is bound. An exception follows on lines that are indented."""

    INDENT = "    | "

    def format(self, record: logging.LogRecord) -> str:
        fields = {"job" if name == "job_id" else name: value for name, value in bound_fields(record).items()} | extra_fields(
            record
        )
        told = " ".join(f"{printable(name)}={printable(safe_str(value))}" for name, value in fields.items())
        head = f"{timestamp(record)} {printable(record.levelname):<8} {printable(record.name)}: {printable(message_of(record))}"
        lines = [truncate(f"{head}  [{told}]" if told else head, LINE_BYTES_MAX)]
        lines += [self.INDENT + printable(line) for line in self.exception(record).splitlines()]
        return "\n".join(lines)


class LogfmtFormatter(_Formatter):
    """`name=value` pairs on one line: ts, level, logger, msg, what is bound, extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        own = {"ts": timestamp(record), "level": record.levelname.lower(), "logger": record.name, "msg": message_of(record)}
        whole = own | bound_fields(record) | extra_fields(record)
        if exception := self.exception(record):
            whole["exception"] = exception
        line = " ".join(f"{_logfmt_name(name)}={_logfmt_value(value)}" for name, value in whole.items())
        if len(line.encode()) <= LINE_BYTES_MAX:
            return line
        short = {name: truncate(safe_str(value), _SHORT_VALUE_CHARACTERS) for name, value in (own | bound_fields(record)).items()}
        short |= {
            "msg": truncate(own["msg"], _SHORT_TEXT_CHARACTERS),
            "exception": exception[-_SHORT_TEXT_CHARACTERS:],
            "truncated": "true",
        }
        return " ".join(f"{_logfmt_name(name)}={_logfmt_value(value)}" for name, value in short.items())


def _logfmt_name(name: str) -> str:
    """Without anything that would end the name."""
    return re.sub(r"[\s\"=]", "_", printable(name)) or "_"


def _logfmt_value(value: Any) -> str:
    """Quoted where it has to be. Containers are JSON; True and False are as in JSON, too."""
    whole = json.dumps(value) if isinstance(value, bool | dict | list) or value is None else safe_str(value)
    if _UNQUOTED.fullmatch(whole) and whole.isprintable():
        return whole
    return '"' + printable(whole.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def printable(value: str) -> str:
    """Everything that is not to be seen, from line ends to what turns writing around, as an escape."""
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
