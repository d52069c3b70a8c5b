"""What handlers declare of their kinds, and how jobs take what their callers leave out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.ledger.base import LedgerBase
from holdfast.ledger.public import to_datetime
from holdfast.store.fleet import Declaration

DECLARED_OPTIONS = ("queue", "limits", "requires")
"""The options of jobs that the handler of their kind declares."""


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
    limits: dict[str, int] = {}
    """The limits that its jobs draw on, with units."""
    requires: tuple[str, ...] = ()
    """The labels that its jobs require."""


class DeclarationVerb(LedgerBase):
    def declarations(self) -> dict[str, DeclarationRecord]:
        """Return the declarations of handlers, by kind."""
        return {found.kind: _record(found) for found in self._store.read_statement(lambda session: session.declarations())}


def _record(found: Declaration) -> DeclarationRecord:
    policy, at = msgspec.to_builtins(found.settings), to_datetime(found.at)
    return DeclarationRecord(found.kind, found.queue, policy, at, found.by, found.flow.limits, found.flow.requires)


def declared_item(item: Mapping[str, Any], declared: Mapping[str, DeclarationRecord]) -> dict[str, Any]:
    """Return an item of `enqueue_many` with the queue, limits and labels that the handler of its kind declares.

    What the item gives itself stays. A kind has one declaration at most: that of the worker that started last. An item whose
    kind has none, or that names another queue, is returned as it is.
    """
    kind = item.get("kind")
    found = declared.get(kind) if isinstance(kind, str) else None
    if found is None or item.get("queue") not in (None, found.queue):
        return dict(item)
    return with_defaults(item, {"queue": found.queue, "limits": found.limits, "requires": found.requires})


def with_defaults(item: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item with the queue, limits and labels of `defaults` that it does not give itself."""
    taken = {name: defaults[name] for name in DECLARED_OPTIONS if item.get(name) is None and defaults.get(name)}
    return {**item, **taken}
