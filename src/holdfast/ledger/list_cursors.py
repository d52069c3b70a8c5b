"""Cursors of lists: texts that say where the next page begins, for one filter and order only."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.model import NEVER, Micros
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.store.jobs import JobFilter, JobRows


class ListPlace(NamedTuple):
    """Where a page begins: after an id, or after a time and an id."""

    after: int = 0
    place: tuple[Micros, int] | None = None


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    chosen: str
    """A hash of the filter and the order."""
    id: int
    at: Micros | None = None


_decoder = msgspec.json.Decoder(_Cursor)


def _hash(chosen: JobFilter) -> str:
    return validate.body_hash(msgspec.structs.astuple(chosen)).hex()[:16]


def next_cursor(chosen: JobFilter, found: JobRows) -> str | None:
    """Return the cursor of the page after this one, None if it is the last one. `chosen` has neither place nor limit."""
    if found.next_place is not None:
        at, id_ = found.next_place
        cursor = _Cursor(_hash(chosen), id_, at)
    elif found.next_after is not None:
        cursor = _Cursor(_hash(chosen), found.next_after)
    else:
        return None
    return urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def read_place(chosen: JobFilter, after: Any, cursor: Any) -> ListPlace:
    """Return where a page begins, given by an id or by a cursor."""
    limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
    if cursor is None:
        if after and chosen.sort is not None:
            raise ValidationError("after is for orders by id; use cursor", field="after")
        return ListPlace(after)
    if after:
        raise ValidationError("give after or cursor, not both", field="after")
    text = limits.check_key("cursor", cursor)
    try:
        found = _decoder.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise ValidationError("cursor is not one of a list", field="cursor") from None
    if found.chosen != _hash(chosen) or (found.at is None) == (chosen.sort is not None):
        raise ValidationError("cursor is of a list with another filter or order", field="cursor")
    limits.check_integer("cursor", found.id, 0, limits.JOB_ID_MAX)
    if found.at is None:
        return ListPlace(found.id)
    return ListPlace(0, (limits.check_integer("cursor", found.at, 0, NEVER), found.id))
