"""Between the door and the store: which lane a call takes, what happens when a group fails, who is woken and what is counted."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.core.commands import ClaimNext, Enqueue
from holdfast.errors import HoldfastError, Unavailable
from holdfast.ledger import tally
from holdfast.ledger.door import Call, Door
from holdfast.ledger.execute import execute
from holdfast.ledger.notary import Notary
from holdfast.store.base import Contention, Lane, Session, StatementFailed, Store
from holdfast.telemetry.metrics import Metrics

T = TypeVar("T")

KEYED_MAX = 8
"""Enqueues with a key at once; each has a connection of its own."""
TRIES_MAX = 8
"""How often one call is run again when other transactions get in its way."""


class Carrier:
    def __init__(self, store: Store, metrics: Metrics, notary: Notary) -> None:
        self._store = store
        self._notary = notary
        self._metrics = metrics
        self._doors: dict[Lane, Door] = {lane: Door(self._carry_by(lane)) for lane in store.lanes() if lane != "keyed"}
        self._keyed = threading.BoundedSemaphore(KEYED_MAX)

    def go(self, call: Call) -> list[Any]:
        answers = self._counted(lambda: self._send(call))
        tally.answered(self._metrics, call)
        return answers

    def _counted(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except HoldfastError as error:
            tally.refused(self._metrics, error)
            raise

    def _send(self, call: Call) -> list[Any]:
        lane = _lane(call)
        if lane == "keyed" and lane in self._store.lanes():
            return self._go_alone(call)
        return self._doors.get(lane, self._doors["work"]).go(call)

    def _go_alone(self, call: Call) -> list[Any]:
        """An enqueue with a key may have to wait for a stranger's transaction: nobody else waits with it."""
        with self._keyed:
            self._carry("keyed", [call])
        return call.outcome()

    def one(self, call: Call) -> Any:
        """The only answer of a call with one command; a refusal is raised."""
        answer = self.go(call)[0]
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    def within(self, connection: Any, call: Call) -> list[Any]:
        """Straight into the caller's own transaction. Counted when it is answered: nobody tells whether that commits."""
        self._counted(lambda: self._run_within(connection, call))
        tally.answered(self._metrics, call)
        return call.answers

    def _run_within(self, connection: Any, call: Call) -> None:
        try:
            queues = sorted({command.queue for command in call.commands if isinstance(command, Enqueue)})
            self._store.within(connection, lambda session: execute(session, [call], self._notary), queues)
        except (Contention, StatementFailed) as error:
            raise Unavailable(f"the database refused this: {error}") from error

    def alone(self, work: Callable[[Session], T]) -> T:
        """A transaction that is not a command on a job."""
        return self._counted(lambda: _again(lambda: self._store.transact("work", work)))

    def at_once(self, work: Callable[[Session], T]) -> T:
        """One statement that is not a command on a job, and that may be run twice."""
        return self._counted(lambda: _again(lambda: self._store.poke(work)))

    def claim(self, call: Call) -> list[Any]:
        """A claim whose answer nobody will ask for again: one statement, past the door where claims have a lane of their own."""
        if "claim" not in self._doors:
            claimed: list[Any] = self.one(call)
            return claimed
        [command] = call.commands
        assert isinstance(command, ClaimNext)
        found = self.at_once(lambda session: session.claim(command))
        call.answers, call.changed = [found], bool(found)
        tally.answered(self._metrics, call)
        if found:
            self._store.wake([])
        return found

    def _carry_by(self, lane: Lane) -> Callable[[list[Call]], None]:
        return lambda calls: self._carry(lane, calls)

    def _carry(self, lane: Lane, calls: list[Call]) -> None:
        if len(calls) == 1:
            self._run_each(lane, calls)
        else:
            try:
                self._run(lane, calls)
            except Unavailable:
                raise
            except Exception:  # noqa: BLE001 - whatever it was, it was one call's: each gets to know by itself
                self._run_each(lane, calls)

    def _run(self, lane: Lane, calls: list[Call], *, careful: bool = False) -> None:
        def work(session: Session) -> None:
            execute(session, calls, self._notary, careful=careful)
            if changed := [call.wakes for call in calls if call.changed]:
                session.wake(set().union(*changed))

        self._store.transact(lane, work)
        for call in calls:
            call.settled = True

    def _run_each(self, lane: Lane, calls: list[Call]) -> None:
        """Each call in a transaction of its own, so that only the guilty one hears of its failure."""
        for call in calls:
            try:
                _again(partial(self._run, lane, [call]), partial(self._run, lane, [call], careful=True))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                call.fail(error)


def _again(work: Callable[[], T], carefully: Callable[[], T] | None = None) -> T:
    """Run `work`, again where other transactions get in its way, and then `carefully` where there is such a way."""
    for number in range(1, TRIES_MAX + 1):
        try:
            return work() if number == 1 or carefully is None else carefully()
        except StatementFailed as error:
            raise Unavailable(f"the database refused this: {error}") from error
        except Contention as error:
            if number == TRIES_MAX:
                raise Unavailable(f"other transactions kept getting in the way: {error}") from error
    raise AssertionError("unreachable")


def _lane(call: Call) -> Lane:
    first = call.commands[0]
    if isinstance(first, ClaimNext):
        return "claim"
    if isinstance(first, Enqueue) and any(getattr(command, "dedupe_key", None) for command in call.commands):
        return "keyed"
    return "work"
