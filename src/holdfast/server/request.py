"""Read a request: headers, query and body, all bounded and strict."""

import math
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast.core import limits, strict_json
from holdfast.errors import UnsupportedMediaType, ValidationError
from holdfast.ledger.options import GONE
from holdfast.server.origins import Headers, is_json
from holdfast.server.problems import too_large

Receive = Callable[[], Awaitable[dict[str, Any]]]

QUERY_BYTES_MAX = 8_192
LEVELS_AROUND = 4
"""Levels of a body around the value of a caller, such as the arguments of one of many jobs. The ledger checks that value."""
_CHUNK = 65_536
_TAG = re.compile(r'"[0-9]{1,16}"', re.ASCII)


class ClientGone(Exception):
    """The client closed its connection before its request was complete."""


_REPEATABLE = frozenset({"accept", "accept-encoding", "accept-language", "cookie", "forwarded", "via", "x-forwarded-for"})


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by their name in lower case. Raise ValidationError if one that means one thing is there twice."""
    found: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), _text(raw_value)
        if name not in found:
            found[name] = value
        elif name in _REPEATABLE:
            found[name] += ("; " if name == "cookie" else ", ") + value
        else:
            raise ValidationError(f"the header {name!r:.80} is there twice", field=name[:80])
    return found


def _text(value: bytes) -> str:
    """Decode the value of a header. Names of actors and keys may have any letter, in UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def read_query(raw: bytes, wanted: type) -> Any:
    """Return the query as `wanted` describes it. A parameter that is unknown, or came twice and is no list, is refused."""
    if len(raw) > QUERY_BYTES_MAX:
        raise too_large("the query", len(raw), QUERY_BYTES_MAX)
    if not raw:
        return _empty_query(wanted)
    lists = _lists_of(wanted)
    found: dict[str, Any] = {}
    for pair in raw.split(b"&"):
        name_bytes, _, value_bytes = pair.partition(b"=")
        try:
            name, value = (unquote_to_bytes(part.replace(b"+", b" ")).decode() for part in (name_bytes, value_bytes))
        except UnicodeDecodeError:
            raise ValidationError("the query is not UTF-8", field="query") from None
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise ValidationError(f"{name!r:.80} came twice", field=name[:80])
        else:
            found[name] = value
    return _convert(found, wanted)


@cache
def _empty_query(wanted: type) -> Any:
    return _convert({}, wanted)


@cache
def _names_of(wanted: type) -> tuple[tuple[str, str], ...]:
    """Return the names of the parameters, as attributes and as they are sent."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(wanted))


@cache
def _lists_of(wanted: type) -> frozenset[str]:
    """Return the names of parameters that may come more than once."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(wanted) if "list[" in str(field.type))


def _convert(found: dict[str, Any], wanted: type) -> Any:
    try:
        query: Any = msgspec.convert(found, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, "query") from None
    for attribute, name in _names_of(wanted):
        value = getattr(query, attribute)
        # The conversion reads the text "null" as null if the parameter is no text.
        if value is None and name in found:
            raise ValidationError(f"{name}: leave it out instead of null", field=name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValidationError(f"{name} is not a finite number", field=name)
    return query


async def read_body(receive: Receive, headers: Headers, most: int) -> bytes:
    """Return the body. Raise before it is complete if it is larger than `most`, also if it is compressed."""
    encoding = (headers.get("content-encoding") or "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise UnsupportedMediaType(f"the body is encoded as {encoding!r:.80}", encoding=encoding[:80])
    declared = headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > most:
        raise too_large("the body", int(declared), most)
    inflater = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    parts: list[bytes] = []
    size = received = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        data = message.get("body", b"")
        received += len(data)
        if received > most:  # compressed data may inflate to nothing
            raise too_large("the body", received, most)
        for part in _inflated(inflater, data, most - size):
            parts.append(part)
            size += len(part)
            if size > most:
                raise too_large("the body", size, most)
    if inflater is not None and not inflater.eof:
        raise ValidationError("the body is not complete gzip", field="body")
    return b"".join(parts)


def _inflated(inflater: Any, data: bytes, left: int) -> Iterable[bytes]:
    """Yield the data, inflated step by step, so that a small body cannot take much memory."""
    if inflater is None:
        yield data
        return
    try:
        while data:
            part = inflater.decompress(data, min(_CHUNK, max(1, left + 1)))
            yield part
            left -= len(part)
            data = inflater.unconsumed_tail
            if inflater.unused_data:
                raise ValidationError("the body goes on after the end of its gzip", field="body")
    except zlib.error:
        raise ValidationError("the body is not gzip", field="body") from None


def check_content_type(headers: Headers) -> None:
    if not is_json(headers):
        given = headers.get("content-type") or ""
        raise UnsupportedMediaType(f"the body is {given!r:.80}, not application/json", content_type=given[:80])


def decode_body(body: bytes, wanted: Any, most: int) -> Any:
    """Return the body as `wanted` describes it. Keys given twice, numbers that are not exact and unknown fields are refused.

    No body at all stands for an object without fields.
    """
    body = body or b"{}"
    strict_json.check("body", body, most, levels_around=LEVELS_AROUND)
    try:
        return _decoder(wanted).decode(body)
    except msgspec.ValidationError as error:
        raise invalid(error, "body") from None


@cache
def _decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(wanted)


GONE_PARAMETERS = {
    "dialect": "To read names of a dialect, use /v1/events/stream, or give the dialect to a sink.",
    "fields": "To unset fields of a policy, send PATCH with null for each of them.",
    "format": "Leave it out: the answer has one JSON object a line.",
    "max_age": "Leave it out: the numbers are counted at each request.",
    "totals": "Leave it out: the numbers are those that are kept.",
}
"""Parameters of the query that do not exist any more, with what to use instead."""


def invalid(error: msgspec.ValidationError, where: str) -> ValidationError:
    """Return the error of a value that has not the shape that the route wants, with the path of the value."""
    text, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".") or where
    words = f"{text[0].lower()}{text[1:]}"
    gone = GONE_PARAMETERS if where == "query" else GONE
    unknown = text.removeprefix("Object contains unknown field `").rstrip("`")
    return ValidationError(words if path == "" else f"{field}: {words}", field=field, action=gone.get(unknown))


def etag_rev(text: str | None, header: str) -> int | None:
    """Return the revision of an If-Match or If-None-Match header. `*` means any."""
    if text is None or text.strip() == "*":
        return None
    tag = text.strip()
    if not _TAG.fullmatch(tag):
        raise ValidationError(f'{header} is a revision in quotes, like "12"', field=header)
    return limits.check_integer(header, int(tag[1:-1]), 1, limits.REV_MAX)
