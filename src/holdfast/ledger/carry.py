"""Between the door and the store: which lane a call takes, what happens when a group fails, who is woken and what is counted."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.core.commands import ClaimNext, Enqueue, Replay, ReplayMany
from holdfast.errors import HoldfastError, Unavailable
from holdfast.ledger import tally
from holdfast.ledger.door import Call, Door
from holdfast.ledger.execute import execute
from holdfast.ledger.notary import Notary
from holdfast.ledger.repeating import is_locked
from holdfast.store.awaiting import use_connection
from holdfast.store.base import END_IT, Contention, Lane, Session, StatementFailed, Store, locked_out
from holdfast.store.unwrap import unwrap
from holdfast.telemetry.metrics import Metrics

T = TypeVar("T")

ALONE_MAX = 8
"""Calls that run at once outside the group; each has a connection of its own."""
ALONE_SECONDS = 30.0
"""How long such a call waits for its turn."""
PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, *[0.25] * 19)
"""Seconds before each try of a call that met a lock of another transaction: five in all, or some eight where each try waits for
the lock as well."""
MANY_PAUSES = PAUSES[:13]
"""The same for calls on many jobs, and in a caller's own transaction: some two seconds."""


class Carrier:
    def __init__(self, store: Store, metrics: Metrics, notary: Notary) -> None:
        self._store = store
        self._notary = notary
        self._metrics = metrics
        self._doors: dict[Lane, Door] = {lane: Door(self._carry_by(lane)) for lane in store.lanes() if lane != "keyed"}
        self._alone = threading.BoundedSemaphore(ALONE_MAX)

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
        """Run a call in the next group; then, by itself, what it found locked. No other call waits with that."""
        lane = _lane(call)
        if lane == "keyed" and lane in self._store.lanes():
            self._run_alone(lane, call, careful=False)
        else:
            self._doors.get(lane, self._doors["work"]).go(call)
        if call.locked:
            self._unlock(lane, call)
        return call.outcome()

    def _unlock(self, lane: Lane, call: Call) -> None:
        """Run again what is locked of a call. Where everything is, that is the call itself: its answer may have to be kept."""
        for pause in (PAUSES if len(call.commands) == 1 else MANY_PAUSES) if call.patient else PAUSES[:1]:
            _wait(pause)
            places = [place for place, answer in enumerate(call.answers) if is_locked(answer)]
            if len(places) == len(call.answers):
                self._run_alone(lane, call)
            else:
                self._run_part(lane, call, places)
            if not call.locked:
                return
        if len(call.answers) == 1:
            call.answers = [self._with_holder(call.answers[0])]

    def _run_part(self, lane: Lane, call: Call, places: list[int]) -> None:
        """Run some commands of a call again. The others are done, so a failure is the answer to these alone."""
        part = Call(call.verb, [call.commands[place] for place in places], repeat=False, keep=False, body_hash=b"")
        if call.said:
            again = {command.job_id for command in part.commands}  # type: ignore[attr-defined]
            part.said = [beat for beat in call.said if beat.job_id in again]
        self._run_alone(lane, part)
        if part.failure is not None and not isinstance(part.failure, HoldfastError):
            raise part.failure
        answers = part.answers if part.failure is None else [part.failure] * len(places)
        for place, answer in zip(places, answers, strict=True):
            call.answers[place] = answer
        call.locked, call.changed, call.outcomes = part.locked, call.changed or part.changed, call.outcomes + part.outcomes

    def _run_alone(self, lane: Lane, call: Call, *, careful: bool = True) -> None:
        if not self._alone.acquire(timeout=ALONE_SECONDS):
            raise Unavailable("too many calls wait for locks of other transactions", locked=True)
        try:
            self._try(lane, call, careful=careful)
        finally:
            self._alone.release()

    def _with_holder(self, refused: Unavailable) -> Unavailable:
        """The refusal with the transaction that holds the lock, where the store can tell."""
        job_id = refused.context.get("job_id")
        holder = None if "request_id" in refused.context else self._store.lock_holder(job_id)
        if holder is None:
            return refused
        told = Unavailable(f"{refused.message}: {holder}", locked=True, **({} if job_id is None else {"job_id": job_id}))
        told.action = END_IT
        return told

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
            use_connection()
            connection = unwrap(connection)
            queues = sorted({command.queue for command in call.commands if isinstance(command, Enqueue)})
            for pause in MANY_PAUSES:
                _wait(pause)
                self._store.within(connection, lambda session: execute(session, [call], self._notary), queues)
                if not call.locked:
                    return
            raise call.answers[0]
        except Contention as error:
            raise locked_out(error, self._store.lock_holder()) from error
        except StatementFailed as error:
            raise Unavailable(f"the database refused this: {error}") from error

    def alone(self, work: Callable[[Session], T], *, wait: bool = True) -> T:
        """A transaction that is not a command on a job. Without `wait` it is tried once where something is locked."""
        pauses = PAUSES if wait else PAUSES[:1]
        return self._counted(lambda: self._again(lambda: self._store.transact("work", work), pauses, named=wait))

    def at_once(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """One statement that is not a command on a job. It may be run twice, unless `again` is False."""
        return self._counted(lambda: self._again(lambda: self._store.poke(work, again=again), PAUSES[:2]))

    def _again(self, work: Callable[[], T], pauses: Sequence[float], *, named: bool = False) -> T:
        """Run `work`, again after each pause while other transactions are in its way. `named`: the refusal says which."""
        for number, pause in enumerate(pauses, 1):
            _wait(pause)
            try:
                return work()
            except StatementFailed as error:
                raise Unavailable(f"the database refused this: {error}") from error
            except Contention as error:
                if number == len(pauses):
                    raise locked_out(error, self._store.lock_holder() if named else None) from error
        raise AssertionError("unreachable")

    def claim(self, call: Call) -> list[Any]:
        """A claim whose answer nobody will ask for again: one statement, past the door where claims have a lane of their own."""
        if "claim" not in self._doors:
            claimed: list[Any] = self.one(call)
            return claimed
        [command] = call.commands
        assert isinstance(command, ClaimNext)
        found = self.at_once(lambda session: session.claim(command), again=False)
        call.answers, call.changed = [found], bool(found)
        tally.answered(self._metrics, call)
        if found:
            self._store.wake([])
        return found

    def _carry_by(self, lane: Lane) -> Callable[[list[Call]], None]:
        return lambda calls: self._carry(lane, calls)

    def _carry(self, lane: Lane, calls: list[Call]) -> None:
        """Run a group of calls. Other calls wait meanwhile, so this never waits for a lock for long, nor twice."""
        if len(calls) == 1:
            self._try(lane, calls[0])
            return
        try:
            try:
                self._run(lane, calls)
            except Contention:
                self._run(lane, calls, careful=True)
        except Unavailable:
            raise
        except Contention as error:
            _lock_out(calls, error)
        except Exception:  # noqa: BLE001 - one call's fault: run each by itself, so that only that call fails
            for call in calls:
                self._try(lane, call, careful=True)

    def _try(self, lane: Lane, call: Call, *, careful: bool = False) -> None:
        """Run one call. Its failure is its answer; where another transaction is in the way, it is locked out."""
        try:
            self._run(lane, [call], careful=careful)
        except Contention as error:
            _lock_out([call], error)
        except StatementFailed as error:
            call.fail(Unavailable(f"the database refused this: {error}"))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            call.fail(error)

    def _run(self, lane: Lane, calls: list[Call], *, careful: bool = False) -> None:
        def work(session: Session) -> None:
            execute(session, calls, self._notary, careful=careful)
            if changed := [call.wakes for call in calls if call.changed]:
                session.wake(set().union(*changed))

        self._store.transact(lane, work)
        for call in calls:
            call.settled = True


def _lock_out(calls: Sequence[Call], error: Contention) -> None:
    """Refuse all commands of these calls as locked. Nothing of them was done."""
    for call in calls:
        refused = locked_out(error, None)
        call.answers, call.locked, call.settled = [refused] * len(call.commands), True, True


def _wait(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def _lane(call: Call) -> Lane:
    first = call.commands[0]
    if isinstance(first, ClaimNext):
        return "claim"
    if isinstance(first, Replay | ReplayMany):
        return "keyed"
    if isinstance(first, Enqueue) and any(getattr(command, "dedupe_key", None) for command in call.commands):
        return "keyed"
    return "work"
