"""What handlers declare of their kinds, and how jobs take what their callers leave out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.ledger.base import LedgerBase
from holdfast.ledger.public import to_datetime
from holdfast.store.fleet import Declaration


class DeclarationRecord(msgspec.Struct, frozen=True):
    """The declaration of a kind's handler."""

    kind: str
    queue: str
    """The queue of its jobs."""
    policy: dict[str, Any]
    """The declared fields, durations in milliseconds (`lease_ttl_ms`)."""
    declared_at: datetime
    declared_by: str
    """The worker or the program that wrote the declaration."""


class DeclarationVerb(LedgerBase):
    def declarations(self) -> dict[str, DeclarationRecord]:
        """Return the declarations of handlers, by kind."""
        return {found.kind: _record(found) for found in self._store.read_statement(lambda session: session.declarations())}


def _record(found: Declaration) -> DeclarationRecord:
    return DeclarationRecord(found.kind, found.queue, msgspec.to_builtins(found.settings), to_datetime(found.at), found.by)


def declared_item(item: Mapping[str, Any], declared: Mapping[str, DeclarationRecord]) -> dict[str, Any]:
    """Return an item of `enqueue_many` with the queue that the handler of its kind declares, unless it names one.

    A kind has one declaration at most: that of the worker that started last. An item whose kind has none is returned as it is.
    """
    kind = item.get("kind")
    found = declared.get(kind) if isinstance(kind, str) else None
    if found is None or item.get("queue") is not None:
        return dict(item)
    return {**item, "queue": found.queue}
