"""The outbox and the records of supervised runs, for relays and supervisors, and the verbs of operators for sinks and runs."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.model import Actor, Role
from holdfast.core.model import EventRecord as Record
from holdfast.core.payloads import UNSET, OptionalJson
from holdfast.core.restart import TerminalReason
from holdfast.core.vocabulary import Dialect
from holdfast.errors import Conflict, LimitExceeded, NotFound
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase, ServiceAccess
from holdfast.ledger.dialects import in_dialect
from holdfast.ledger.public import Event, public_record, to_datetime
from holdfast.store.fleet import RunRow
from holdfast.store.outbox import JobOrigin, SinkPosition
from holdfast.store.sealing import HeadRow
from holdfast.store.session import Session

SEAL_DUTY, HISTORY_DUTY = "seal", "history"
"""The duties of the sealer, and of the service that counts events."""


def relay_duty(sink: str) -> str:
    return f"relay:{sink}"


# Sinks


class SinkState(msgspec.Struct, frozen=True):
    """How far the deliveries to a sink have come, and the error that stops them, if any."""

    name: str
    pos: int
    """The last position that was delivered or skipped. For a sink of heads, the size of the last head."""
    behind: int
    """The number of positions assigned since, some of which may never have an event, or of heads, up to a page."""
    failures: int
    """Failed deliveries of the next event, since the last successful delivery."""
    retry_at: datetime | None
    dead_at: datetime | None
    last_error: str | None
    updated_at: datetime


class Outbox(ServiceAccess):
    """The interface of the ledger for relays. Safe to use from many threads."""

    def places(self) -> dict[str, SinkPosition]:
        """Return the position of every sink."""
        return {place.name: place for place in self._store.read_statement(lambda session: session.sinks())}

    def add(self, name: str, *, from_beginning: bool, of_heads: bool = False) -> None:
        """Add a sink unless it exists, at the beginning of the total order, or of the heads, or at the present end."""

        def work(session: Session) -> None:
            head = session.last_head() if of_heads else None
            end = session.last_pos() if not of_heads else 0 if head is None else head.size
            session.add_sink(name, 0 if from_beginning else end, of_heads=of_heads)

        self._pipeline.transact(work)

    def save(self, place: SinkPosition, from_pos: int) -> bool:
        """Save the position of a sink. Return False if another process has moved the sink from `from_pos`."""
        return self._pipeline.transact(lambda session: session.save_sink(place, from_pos))

    def page(self, after: int, limit: int) -> list[Record]:
        """Return the next events in the total order. No later commit can add an event before them."""
        return self._store.stable_events(after, limit)

    def heads(self, after: int, limit: int) -> list[HeadRow]:
        """Return the next heads of the sealed log, by size."""
        return self._store.read(lambda session: session.heads(after, limit))

    def origins(self, job_ids: Iterable[int]) -> dict[int, JobOrigin]:
        """Return the queue, kind and tier of each job that still exists."""
        return self._store.read(lambda session: session.origins(job_ids))

    def in_dialect(self, event: Event, dialect: Dialect) -> dict[str, Any]:
        """Return an event as a JSON object in the dialect."""
        [translated] = in_dialect(self._store, [event], dialect, self.ledger_id)
        return translated


class SinkVerbs(LedgerBase):
    """The verbs for sinks, for operators."""

    @property
    def outbox(self) -> Outbox:
        """The interface for relays."""
        return Outbox(self._store, self._pipeline, self._entropy, self._monotonic)

    def sinks(self) -> list[SinkState]:
        """Return every sink that a relay has ever served, by name."""

        def work(session: Session) -> list[SinkState]:
            return [_public_sink(place, session) for place in session.sinks()]

        return self._store.read(work)

    def revive_sink(self, name: str) -> SinkState:
        """Continue deliveries to a sink at once, from its position, also if it was dead or was waiting for a retry."""
        return self._change_sink(name, lambda place: _cleared(place, place.pos))

    def skip_sink_event(self, name: str) -> SinkState:
        """Skip the event that a sink fails at. It is not delivered, and deliveries continue with the next event."""
        limits.check_name("sink", name)
        found = self.outbox.places().get(name)
        seen = 0 if found is None else found.pos
        if found is not None and found.of_heads:
            following = [head.size for head in self.outbox.heads(seen, 1)]
        else:
            following = [event.pos for event in self._store.stable_events(seen, 1)]

        def skip(place: SinkPosition) -> SinkPosition:
            if place.failures == 0 or not following:
                raise Conflict(f"sink {name!r} does not fail at any event", sink=name, pos=place.pos)
            if place.pos != seen:
                raise Conflict(f"sink {name!r} has moved to another event", sink=name, pos=place.pos)
            return _cleared(place, following[0])

        return self._change_sink(name, skip)

    def drop_sink(self, name: str) -> None:
        """Delete a sink and its position. A relay that still serves it creates it again, so stop the relay first."""
        limits.check_name("sink", name)
        if not self._pipeline.transact(lambda session: session.drop_sink(name)):
            raise _unknown_sink(name)

    def _change_sink(self, name: str, decide: Callable[[SinkPosition], SinkPosition]) -> SinkState:
        limits.check_name("sink", name)

        def work(session: Session) -> SinkState:
            place = session.find_sink(name)
            if place is None:
                raise _unknown_sink(name)
            session.save_sink(decide(place), place.pos)
            saved = session.find_sink(name)
            assert saved is not None
            return _public_sink(saved, session)

        state = self._pipeline.transact(work)
        self._store.wake([])
        return state


def _cleared(place: SinkPosition, pos: int) -> SinkPosition:
    return msgspec.structs.replace(place, pos=pos, failures=0, retry_at=None, dead_at=None)


def _unknown_sink(name: str) -> NotFound:
    return NotFound(f"there is no sink {name!r}", sink=name)


def _public_sink(place: SinkPosition, session: Session) -> SinkState:
    behind = len(session.heads(place.pos, limits.PAGE_MAX)) if place.of_heads else session.events_after(place.pos)
    return public_record(SinkState, place, behind=behind)


# Supervised runs


NEEDS_RESET = frozenset(
    {TerminalReason.RESTART_LIMIT_EXCEEDED, TerminalReason.CIRCUIT_BREAKER_OPEN, TerminalReason.STALL_TIMEOUT}
)
"""After these, no run of that name begins until an operator resets it."""


class RunBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of the newest run of a name."""

    run: int
    """The number of this run among those of its name."""
    holder: str
    """The supervisor that wrote it."""
    incarnation: str
    """The run's incarnation as a worker. It stays the same through all restarts, also those of its supervisor."""
    program: str
    controller: OptionalJson = UNSET
    """The state of its restart controller. Unset if an operator has reset it."""
    restarts: int = 0
    """Restarts since the run began. The controller counts only those in its window."""
    terminal_reason: TerminalReason | None = None
    exit_code: int | None = None
    """How the command last ended. Negative for a signal."""
    job_id: int | None = None
    receipt: OptionalJson = UNSET
    reset_by: str | None = None

    @property
    def is_over(self) -> bool:
        return self.terminal_reason is not None or self.controller is UNSET


class RunState(msgspec.Struct, frozen=True):
    """The newest run of a name, as operators see it."""

    name: str
    run: int
    program: str
    restarts: int
    terminal_reason: TerminalReason | None
    needs_reset: bool
    exit_code: int | None
    job_id: int | None
    receipt: dict[str, Any] | None
    """The newest `LivenessHeartbeatReceiptV1`, decoded from JSON."""
    reset_by: str | None
    updated_at: datetime


_bodies = msgspec.json.Decoder(RunBody)
_encode = msgspec.json.Encoder().encode


def run_duty(name: str) -> str:
    return f"supervise:{name}"


class Supervision(ServiceAccess):
    """The interface of the ledger for supervisors. Safe to use from many threads."""

    def tick(self) -> int:
        """Return the ledger's time in milliseconds."""
        return self.now() // 1_000

    def find(self, name: str) -> RunBody | None:
        found = self._store.read_statement(lambda session: session.find_run(name))
        return None if found is None else _bodies.decode(found.body)

    def take(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take the duty to supervise this name, and return whether `holder` has it. Return False while another holder has it."""
        return self._pipeline.run_statement(lambda session: session.take_duty(run_duty(name), holder, round(ttl_s * 1_000_000)))

    def drop(self, name: str, holder: str) -> None:
        self._pipeline.run_statement(lambda session: session.drop_duty(run_duty(name), holder))

    def was_left(self, name: str) -> bool:
        """Return whether a holder took this duty and has not dropped it: it is running, was killed, or is frozen."""
        return self._store.read_statement(lambda session: session.watch(name, "-").expires_at) is not None

    def keep(self, name: str, body: RunBody, ttl_s: float) -> None:
        """Save the run and renew the duty. If another supervisor has the duty, raise Conflict and write nothing."""
        text = _encode(body).decode()
        if len(text) > limits.RUN_BYTES_MAX:
            raise LimitExceeded(f"a run has {len(text)} bytes; the limit is {limits.RUN_BYTES_MAX}", limit=limits.RUN_BYTES_MAX)

        def work(session: Session) -> None:
            if not session.take_duty(run_duty(name), body.holder, round(ttl_s * 1_000_000)):
                raise _run_in_use(name)
            session.save_run(name, text)

        self._pipeline.transact(work)


class RunVerbs(LedgerBase):
    """The verbs for runs, for operators."""

    @property
    def supervision(self) -> Supervision:
        """The interface for supervisors."""
        return Supervision(self._store, self._pipeline, self._entropy, self._monotonic)

    def runs(self, *, after: str = "", limit: int = 100) -> list[RunState]:
        """Return the newest run of every name that was ever supervised, by name.

        For the next page, pass the last name as `after`.
        """
        validate.page_by_name(after, limit)
        return [_public_run(row) for row in self._store.read_statement(lambda session: session.runs(after, limit))]

    def reset_run(self, name: str, *, actor: str | Actor | None = None) -> RunState:
        """Allow a run of this name to begin again, for any reason that ended the last one. Its restarts no longer count.

        Raise Conflict while the name is supervised.
        """
        limits.check_name("name", name)
        who = validate.actor(actor, Role.OPERATOR, self._actor)

        def work(session: Session) -> RunState:
            found = session.find_run(name)
            if found is None:
                raise NotFound(f"nothing was ever supervised as {name!r}", run=name)
            if not session.watch(run_duty(name), "-").is_free:
                raise _run_in_use(name)
            body = msgspec.structs.replace(_bodies.decode(found.body), controller=UNSET, terminal_reason=None, reset_by=who.name)
            session.save_run(name, _encode(body).decode())
            saved = session.find_run(name)
            assert saved is not None
            return _public_run(saved)

        return self._pipeline.transact(work)


def _run_in_use(name: str) -> Conflict:
    return Conflict(f"{name!r} is supervised by another process", run=name)


def _public_run(row: RunRow) -> RunState:
    body = _bodies.decode(row.body)
    receipt = None if isinstance(body.receipt, msgspec.UnsetType) else msgspec.json.decode(body.receipt)
    needs_reset, updated_at = body.terminal_reason in NEEDS_RESET, to_datetime(row.updated_at)
    return public_record(RunState, body, name=row.name, needs_reset=needs_reset, receipt=receipt, updated_at=updated_at)
