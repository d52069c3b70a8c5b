"""The place of the store in a remote ledger: what the ledger's verbs ask of a store and a server can answer."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from holdfast.core.limits import HTTP_WAIT_SECONDS_MAX
from holdfast.core.model import Micros
from holdfast.errors import ValidationError
from holdfast.ledger import KeyRecord
from holdfast.ledger.public import to_micros
from holdfast.proof.key_book import ENROLLED, REVOKED, KeyChange
from holdfast.remote import answers as a
from holdfast.remote.transport import Transport
from holdfast.store.base import Lane, Schema

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""How much longer than its wait a request that waits may take."""
EVENT_POLL_SECONDS = 0.25
"""How long to wait for an event before looking again. A server wakes callers for new work, not for every event."""


class RemoteStore:
    """The ledger's id and schema, waiters, and the two readings that signing needs. All else is on the server."""

    def __init__(self, transport: Transport, facts: a.LedgerFacts) -> None:
        self._transport = transport
        self._session = RemoteReadings(transport)
        self.ledger_id = facts.ledger_id
        self.schema = Schema(facts.schema, facts.schema, ())

    @property
    def patience(self) -> float:
        return self._transport.seconds

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._transport.seconds = seconds

    def lanes(self) -> Sequence[Lane]:
        return ()

    def read(self, work: Callable[[Any], T]) -> T:
        return work(self._session)

    read_long = read_statement = read

    def waiter(self, *, events: bool) -> "RemoteWaiter":
        return RemoteWaiter(self._transport, events=events)

    def wake(self, queues: Sequence[str]) -> None:
        """Do nothing: the server wakes those who wait."""

    def close(self) -> None:
        self._transport.close()


class RemoteReadings:
    """The readings of a session that a server has. Any other is refused."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def now(self) -> Micros:
        return to_micros(self._transport.call("GET", "/v1/now", a.having("now", datetime)).now)

    def key_log(self) -> list[KeyChange]:
        """Return the changes of the key book, without their signatures, which only verification needs."""
        found = self._transport.call("GET", "/v1/keys", a.having("keys", list[KeyRecord])).keys
        return sorted((change for key in found for change in _changes(key)), key=lambda change: change.pos)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise needs_store()


def needs_store() -> ValidationError:
    return ValidationError(
        "this needs the ledger's database, and this ledger is open on a server",
        field="url",
        action="Open the ledger with the url of its database.",
    )


def _changes(key: KeyRecord) -> list[KeyChange]:
    public = bytes.fromhex(key.public)
    made = KeyChange(
        key.enrolled_pos,
        ENROLLED,
        key.key_id,
        key.role,
        key.name,
        public,
        to_micros(key.enrolled_at),
        key.enrolled_by,
        key.vouched_by,
    )
    if key.revoked_pos is None or key.revoked_at is None:
        return [made]
    by, signer = key.revoked_by or "", key.revocation_vouched_by or ""
    at = to_micros(key.revoked_at)
    return [made, KeyChange(key.revoked_pos, REVOKED, key.key_id, key.role, key.name, public, at, by, signer)]


class RemoteWaiter:
    """Waits for the server to tell of a change. A change between two waits is not missed."""

    def __init__(self, transport: Transport, *, events: bool) -> None:
        self._transport = transport
        self._events = events
        self._seen: str | None = None
        if not events:
            self._seen = self._ask(0.0).change

    def wait(self, timeout: float) -> bool:
        """Return True as soon as there may be a change, and False after `timeout` seconds without one."""
        if self._events:
            time.sleep(max(0.0, min(timeout, EVENT_POLL_SECONDS)))
            return True
        found = self._ask(max(0.0, min(timeout, HTTP_WAIT_SECONDS_MAX)))
        self._seen = found.change
        return found.woken

    def _ask(self, seconds: float) -> a.WakeUp:
        query = {"wait_s": seconds, "after": self._seen}
        return self._transport.call("GET", "/v1/wake", a.WakeUp, query=query, seconds=seconds + ANSWER_SECONDS, lane="wait")

    def close(self) -> None:
        """Do nothing: the connection belongs to the ledger."""
