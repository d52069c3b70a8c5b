"""The outbox, which relays read, and the verbs for its sinks."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.model import EventRecord as Record
from holdfast.core.vocabulary import Dialect
from holdfast.errors import Conflict, NotFound
from holdfast.ledger.base import LedgerBase, ServiceAccess
from holdfast.ledger.dialects import in_dialect
from holdfast.ledger.public import Event, to_datetime
from holdfast.store.base import Session
from holdfast.store.outbox import JobOrigin, SinkPosition


class SinkState(msgspec.Struct, frozen=True):
    """How far the deliveries to a sink have come, and the error that stops them, if any."""

    name: str
    pos: int
    """The last position that was delivered or skipped."""
    behind: int
    """The number of positions assigned since. Some of them may never have an event."""
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

    def add(self, name: str, *, from_beginning: bool) -> None:
        """Add a sink unless it exists, at the beginning of the total order or at its present end."""
        self._pipeline.transact(lambda session: session.add_sink(name, 0 if from_beginning else session.last_pos()))

    def save(self, place: SinkPosition, from_pos: int) -> bool:
        """Save the position of a sink. Return False if another process has moved the sink from `from_pos`."""
        return self._pipeline.transact(lambda session: session.save_sink(place, from_pos))

    def page(self, after: int, limit: int) -> list[Record]:
        """Return the next events in the total order. No later commit can add an event before them."""
        return self._store.stable_events(after, limit)

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
            return [_public_state(place, session.events_after(place.pos)) for place in session.sinks()]

        return self._store.read(work)

    def revive_sink(self, name: str) -> SinkState:
        """Continue deliveries to a sink at once, from its position, also if it was dead or was waiting for a retry."""
        return self._change_sink(name, lambda place: _cleared(place, place.pos))

    def skip_sink_event(self, name: str) -> SinkState:
        """Skip the event that a sink fails at. It is not delivered, and deliveries continue with the next event."""
        limits.check_name("sink", name)
        found = self.outbox.places().get(name)
        seen = 0 if found is None else found.pos
        following = self._store.stable_events(seen, 1)

        def skip(place: SinkPosition) -> SinkPosition:
            if place.failures == 0 or not following:
                raise Conflict(f"sink {name!r} does not fail at any event", sink=name, pos=place.pos)
            if place.pos != seen:
                raise Conflict(f"sink {name!r} has moved to another event", sink=name, pos=place.pos)
            return _cleared(place, following[0].pos)

        return self._change_sink(name, skip)

    def drop_sink(self, name: str) -> None:
        """Delete a sink and its position. A relay that still serves it creates it again, so stop the relay first."""
        limits.check_name("sink", name)
        if not self._pipeline.transact(lambda session: session.drop_sink(name)):
            raise _unknown(name)

    def _change_sink(self, name: str, decide: Callable[[SinkPosition], SinkPosition]) -> SinkState:
        limits.check_name("sink", name)

        def work(session: Session) -> SinkState:
            place = session.find_sink(name)
            if place is None:
                raise _unknown(name)
            session.save_sink(decide(place), place.pos)
            saved = session.find_sink(name)
            assert saved is not None
            return _public_state(saved, session.events_after(saved.pos))

        state = self._pipeline.transact(work)
        self._store.wake([])
        return state


def _cleared(place: SinkPosition, pos: int) -> SinkPosition:
    return msgspec.structs.replace(place, pos=pos, failures=0, retry_at=None, dead_at=None)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no sink {name!r}", sink=name)


def _public_state(place: SinkPosition, behind: int) -> SinkState:
    return SinkState(
        name=place.name,
        pos=place.pos,
        behind=behind,
        failures=place.failures,
        retry_at=None if place.retry_at is None else to_datetime(place.retry_at),
        dead_at=None if place.dead_at is None else to_datetime(place.dead_at),
        last_error=place.last_error,
        updated_at=to_datetime(place.updated_at),
    )
