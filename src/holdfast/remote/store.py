"""The place of the store in a remote ledger: what the ledger's verbs ask of a store and a server can answer."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from holdfast.core.model import Micros
from holdfast.ledger import KeyRecord
from holdfast.ledger.public import to_micros
from holdfast.proof.key_book import ENROLLED, REVOKED, KeyChange
from holdfast.remote import answers as a
from holdfast.remote.refusals import StoreOnly
from holdfast.remote.transport import Transport
from holdfast.remote.waiting import RemoteWaiter
from holdfast.store.base import Lane, Schema

T = TypeVar("T")


class RemoteStore(StoreOnly):
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

    def waiter(self, *, events: bool) -> RemoteWaiter:
        """Return a waiter for new work. The verbs that wait for events ask the server themselves."""
        assert not events
        return RemoteWaiter(self._transport)

    def wake(self, queues: Sequence[str]) -> None:
        """Do nothing: the server wakes those who wait."""

    def close(self) -> None:
        self._transport.close()


class RemoteReadings(StoreOnly):
    """The readings of a session that a server has. Any other is refused."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def now(self) -> Micros:
        return to_micros(self._transport.call("GET", "/v1/now", a.having("now", datetime)).now)

    def key_log(self) -> list[KeyChange]:
        """Return the changes of the key book, without their signatures, which only verification needs."""
        found = self._transport.call("GET", "/v1/keys", a.having("keys", list[KeyRecord])).keys
        return sorted((change for key in found for change in _changes(key)), key=lambda change: change.pos)


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
