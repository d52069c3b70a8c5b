"""The contract of a store. The ledger uses it and contains no SQL. An open transaction is a `Session` (`store/session.py`)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from holdfast.core.model import EventRecord
from holdfast.errors import Unavailable
from holdfast.store.sealing import StableRows
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

T = TypeVar("T")

Lane = Literal["claim", "work", "keyed"]
"""Groups in different lanes may run at the same time if the store can do that. An enqueue with a key may have to wait for another
transaction, so it has a lane of its own."""


END_TRANSACTION_ACTION = "End that transaction, or its session with pg_terminate_backend, then retry."


class Contention(Exception):
    """A conflict with another transaction (a deadlock, a race for the same key). Nothing was changed: run it again."""


def lock_refusal(error: Exception, holder: str | None, what: str = "") -> Unavailable:
    """Return the error for a call that a lock of another transaction blocked.

    `holder` describes that transaction, if it is known. `what` is put before the message.
    """
    reason = str(error).split("\n", 1)[0] + (f": {holder}" if holder else "")
    refused = Unavailable(f"{what}another transaction is in the way: {reason}", locked=True)
    if holder:
        refused.action = END_TRANSACTION_ACTION
    return refused


class StatementFailed(Exception):
    """The database rejected the values of one statement. Nothing was changed. Other calls in the same group are not the cause."""


class Schema(NamedTuple):
    """The schema version, and which migrations ran when the store was opened."""

    found: int
    """The version before; 0 if there were no tables."""
    version: int
    applied: tuple[str, ...]
    """The names of the migrations that ran."""


class Store(Protocol):
    """The storage of a ledger. Safe to use from many threads."""

    ledger_id: str
    schema: Schema
    patience: float
    """How many seconds a writing call waits for each response of the store."""

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        """Run `work` in one transaction and commit when it returns. Raise Unavailable with the outcome on failure."""

    def transact_enqueue(self, work: Callable[[Session], T]) -> T:
        """Run `work`, whose one statement that writes is an enqueue, in one transaction. This may take fewer messages."""

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        """Run `work` in the caller's open transaction, on the caller's connection, inside a savepoint.

        If the store can, it wakes waiters of `queues` when the caller commits.
        """

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on one snapshot. It must not write."""

    def read_long(self, work: Callable[[Session], T]) -> T:
        """Run `work`, which may take long, on one snapshot. It must not write. If the store can, it reads a copy."""

    def read_statement(self, work: Callable[[Session], T]) -> T:
        """Run `work`, which is ONE statement that does not write. No transaction is begun or ended around it."""

    def write_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """Run `work`, which is ONE statement that may write, as a transaction of its own. A server gets nothing else.

        It may run twice if the connection breaks, so it must be idempotent. With `again=False` it runs once, and a broken
        connection raises Unavailable with an unknown outcome.
        """

    def stable_pos(self) -> int:
        """Return the stable position: no event at or below it can still be committed."""

    def stable_events(self, after: int, limit: int) -> list[EventRecord]:
        """Return the next events in the total order, up to the stable position: no later commit can insert one between them."""

    def stable_rows(self, after: int, limit: int) -> StableRows:
        """Return the next events and key changes in the total order, up to the stable position, as plain rows.

        At most `limit` events. `event_hashes` takes rows of this form.
        """

    def wake(self, queues: Sequence[str]) -> None:
        """Wake waiters after a commit. Without queues, event followers may be woken some milliseconds later."""

    def waiter(self, *, events: bool) -> "Waiter":
        """Return a waiter for new work or, with `events`, for any event."""

    def lock_holder(self, job_id: int | None = None, seconds: float = 0.0) -> str | None:
        """Describe the other transaction that has locked a job and is at least `seconds` old. Return None if it is unknown.

        Without a job, describe the transactions that have locked anything of this ledger for a second or longer.
        """

    def vitals(self) -> "StoreHealth":
        """Return the health of the store itself, apart from the jobs in it."""

    def take_changed_groups(self) -> Sequence[int]:
        """Return the groups whose counts may have to be brought up to date after commits, and forget them."""

    def lanes(self) -> Sequence[Lane]: ...
    def close(self) -> None: ...


class Waiter(Protocol):
    """Waits for the ledger to change."""

    def wait(self, timeout: float) -> bool:
        """Return True as soon as there may be a change, and False after `timeout` seconds without one."""

    def close(self) -> None: ...
