"""The relay: delivers every event to each sink, in order and at least once."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core.model import EventRecord, EventType, Micros
from holdfast.core.text import safe_str, truncate_bytes
from holdfast.core.vocabulary import Dialect
from holdfast.errors import Unavailable, ValidationError
from holdfast.keeping.duty import TTL_SECONDS, Duties, Duty
from holdfast.keeping.outage import Outage
from holdfast.keeping.service import Service
from holdfast.ledger import Ledger, public, validate
from holdfast.ledger.public import to_datetime
from holdfast.ledger.verbs.services import Outbox, relay_duty
from holdfast.services.messages import Message, head_message, messages, redacted_event, topics
from holdfast.services.sinks import DeliveryFailed, Sink
from holdfast.store.base import Waiter
from holdfast.store.outbox import JobOrigin, SinkPosition
from holdfast.store.sealing import HeadRow

log = logging.getLogger("holdfast.relay")

BATCH_US = 5_000_000
"""A batch that takes longer ends after its current event, because other sinks are waiting."""
ERROR_BYTES_MAX = 1_000
RETRY_US_MIN = 1_000_000
RETRY_US_MAX = 600_000_000


class DeliveryScope(NamedTuple):
    """The environment of one batch."""

    ledger_id: str
    origins: dict[int, JobOrigin]
    now: Callable[[], Micros]
    """Returns the ledger's current time."""
    may_continue: Callable[[], bool]
    """Whether this relay still has the sink's duty and was not asked to stop."""
    in_dialect: Callable[[public.Event, Dialect], dict[str, Any]]


class BatchOutcome(NamedTuple):
    place: SinkPosition
    """The position to save."""
    delivered: int
    failed: bool


def send_batch(
    sink: Sink,
    place: SinkPosition,
    events: Sequence[EventRecord | HeadRow],
    scope: DeliveryScope,
    jitter: Callable[[], float],
) -> BatchOutcome:
    """Deliver these events, or heads, to a sink. The new position is that of the last one whose messages have all arrived."""
    end, pos, delivered = scope.now() + BATCH_US, place.pos, 0
    for event in events:
        # Checked between events only: all messages of the first event are sent, or a slow sink would never get past it.
        if scope.now() > end:
            break
        for message in _messages_of(sink, event, scope):
            if not scope.may_continue():
                return BatchOutcome(_advanced(place, pos), delivered, failed=False)
            try:
                sink.deliver(message, to_datetime(scope.now()))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a sink may raise anything
                return BatchOutcome(
                    _after_failure(sink, _advanced(place, pos), error, scope.now(), jitter()), delivered, failed=True
                )
            delivered += 1
        pos = event.size if isinstance(event, HeadRow) else event.pos
    return BatchOutcome(_advanced(place, pos), delivered, failed=False)


def _messages_of(sink: Sink, event: EventRecord | HeadRow, scope: DeliveryScope) -> list[Message]:
    """Return the messages of an event that the sink wants, in its dialect, or that of a head."""
    if isinstance(event, HeadRow):
        return [head_message(event, scope.ledger_id)]
    dialect_data = None
    if sink.dialect is not Dialect.HOLDFAST and topics(event):
        dialect_data = scope.in_dialect(redacted_event(event, include_payload=sink.include_payload), sink.dialect)
    origin = scope.origins.get(event.job_id)
    made = messages(event, scope.ledger_id, origin, include_payload=sink.include_payload, dialect_data=dialect_data)
    return list(filter(sink.wants, made))


def _advanced(place: SinkPosition, pos: int) -> SinkPosition:
    """Return the position after a delivery. An advance clears the earlier failures; an unchanged position keeps them."""
    return place if pos == place.pos else SinkPosition(place.name, pos)


def _after_failure(sink: Sink, place: SinkPosition, error: BaseException, now: Micros, jitter: float) -> SinkPosition:
    failures, cause = place.failures + 1, _error_text(error)
    dead = failures >= sink.attempts_max or (isinstance(error, DeliveryFailed) and error.final)
    return msgspec.structs.replace(
        place,
        failures=failures,
        retry_at=None if dead else now + retry_us(failures, jitter),
        dead_at=now if dead else None,
        last_error=cause,
    )


def log_failure(place: SinkPosition) -> None:
    """Log the failure that was saved with a sink's position."""
    if place.dead_at is None:
        log.warning("sink %s failed, %d in a row: %s", place.name, place.failures, place.last_error)
    else:
        log.error("sink %s is dead, %d failures in a row: %s", place.name, place.failures, place.last_error)


def retry_us(failures: int, jitter: float) -> int:
    """Return the wait after this many failures: doubled each time up to the maximum, then multiplied by `jitter`."""
    return int(min(RETRY_US_MIN * 2 ** min(failures - 1, 20), RETRY_US_MAX) * jitter)


def _error_text(error: BaseException) -> str:
    """Return the error in one line of at most ERROR_BYTES_MAX bytes."""
    text = safe_str(error)
    if not isinstance(error, DeliveryFailed) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return truncate_bytes(" ".join(text.replace("\0", " ").split()), ERROR_BYTES_MAX)


BATCH_EVENTS = 100


class _EventPage(NamedTuple):
    events: list[EventRecord] | list[HeadRow]
    origins: dict[int, JobOrigin]


class _RelayRound:
    """The state and the results of one round over all sinks."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._clock: tuple[Micros, float] | None = None
        """The ledger's time, and the monotonic time at which it was read."""
        self.pages: dict[tuple[bool, int], _EventPage] = {}
        """Pages of events, or of heads, by the position before them. Sinks at the same position share a page."""
        self.counts: Counter[str] = Counter()
        self.more = False
        """Whether there is more to deliver at once."""
        self.wait_us: int | None = None
        """The time until the next try of a sink that has failed."""

    def now(self) -> Micros:
        """Return the ledger's time. It is read at most once, and advanced by the monotonic clock."""
        if self._clock is None:
            self._clock = self._outbox.now(), self._outbox.monotonic()
        at, read_at = self._clock
        return at + int((self._outbox.monotonic() - read_at) * 1_000_000)

    def must_wait(self, at: Micros | None) -> bool:
        """Return whether the next try, at `at`, is in the future; if so, note it in `wait_us`."""
        left = 0 if at is None else at - self.now()
        if left > 0:
            self.wait_us = left if self.wait_us is None else min(left, self.wait_us)
        return left > 0


class Relay(Service):
    """Deliver every event to each sink, starting from the sink's saved position.

    Any number of relays may serve the same sinks: `duties` (by default the ledger's) make one of them serve a sink at a time. If
    a relay dies, another one takes over when the duty runs out, `duty_ttl` after its last renewal. A sink that fails delays only
    itself. A slow sink delays the others of its relay: give it a relay of its own.
    """

    name = "relay"
    log = log
    duty: Duty

    def __init__(
        self, ledger: Ledger, sinks: Iterable[Sink], *, duties: Duties | None = None, duty_ttl: Any = TTL_SECONDS
    ) -> None:
        self._sinks = validate.items("sinks", sinks)
        if not all(isinstance(sink, Sink) for sink in self._sinks):
            raise ValidationError("sinks takes a list of Sink", field="sinks")
        if len({sink.name for sink in self._sinks}) != len(self._sinks):
            raise ValidationError("two sinks have the same name and would share a position", field="sinks")
        self._outbox = ledger.outbox
        names = [relay_duty(sink.name) for sink in self._sinks]
        self.duty = Duty(duties or ledger, names, self._outbox.nonce(), duty_ttl, self._outbox.monotonic)
        self._locked = {sink.name: Outage(log, f"relay to {sink.name}") for sink in self._sinks}

    def tick(self) -> dict[str, int]:
        """Deliver at most one batch to each sink. Return the numbers of messages as `name.delivered` and `name.failed`."""
        done = self._deliver_all()
        self.every_s = 0.0 if done.more else math.inf if done.wait_us is None else done.wait_us / 1_000_000
        return dict(done.counts)

    def begin(self) -> Waiter:
        return self._outbox.waiter()

    def _deliver_all(self) -> _RelayRound:
        """Deliver at most one batch to each sink."""
        done = _RelayRound(self._outbox)
        served = [sink for sink in self._sinks if self.duty.holds(relay_duty(sink.name))]
        places = self._places(served) if served else {}
        for sink in served:
            place = places.get(sink.name)
            if place is not None and place.dead_at is None and not done.must_wait(place.retry_at):
                self._deliver_unless_locked(sink, place, done)
        return done

    def _deliver_unless_locked(self, sink: Sink, place: SinkPosition, done: _RelayRound) -> None:
        """Deliver to one sink. If another transaction has locked its position, only this sink waits."""
        outage = self._locked[sink.name]
        try:
            self._deliver(sink, place, done)
        except Unavailable as error:
            if not error.locked:
                raise
            outage.began(error)
        else:
            outage.over()

    def _deliver(self, sink: Sink, place: SinkPosition, done: _RelayRound) -> None:
        outcome = self._send(sink, place, done)
        if outcome is None:
            return
        if outcome.delivered:
            done.counts[f"{sink.name}.delivered"] = outcome.delivered
        saved = outcome.place == place or self._outbox.save(outcome.place, place.pos)
        if outcome.failed:
            done.counts[f"{sink.name}.failed"] = 1
            done.must_wait(outcome.place.retry_at)
            if saved:
                log_failure(outcome.place)
        # A short page does not mean the end: it may stop at the last event whose order is final.
        done.more |= not (saved and outcome.failed)

    def _send(self, sink: Sink, place: SinkPosition, done: _RelayRound) -> BatchOutcome | None:
        """Send the next batch, or return None if there is nothing to send.

        A position of events cannot be read as one of heads: a sink that changes between them fails for good.
        """
        outbox = self._outbox
        if place.of_heads != sink.of_heads:
            was = "heads" if place.of_heads else "events"
            error = DeliveryFailed(f"{sink.name} was a sink of {was}: give it another name, or drop it", final=True)
            return BatchOutcome(_after_failure(sink, place, error, done.now(), outbox.jitter()), 0, failed=True)
        key = place.of_heads, place.pos
        if key not in done.pages:
            done.pages[key] = self._page(place)
        page = done.pages[key]
        if not page.events:
            return None
        scope = DeliveryScope(outbox.ledger_id, page.origins, done.now, lambda: self._may_continue(sink), outbox.in_dialect)
        return send_batch(sink, place, page.events, scope, outbox.jitter)

    def _may_continue(self, sink: Sink) -> bool:
        return not self.stopping.is_set() and self.duty.holds(relay_duty(sink.name))

    def _places(self, served: list[Sink]) -> dict[str, SinkPosition]:
        """Return the sinks' positions and add those of new sinks. A sink that is dropped at this moment is missing."""
        places = self._outbox.places()
        missing = [sink for sink in served if sink.name not in places]
        for sink in missing:
            self._outbox.add(sink.name, from_beginning=sink.from_beginning, of_heads=sink.of_heads)
        return self._outbox.places() if missing else places

    def _page(self, place: SinkPosition) -> _EventPage:
        """Return the next events or heads of a sink, and the origins of their jobs for those events that give messages."""
        if place.of_heads:
            return _EventPage(self._outbox.heads(place.pos, BATCH_EVENTS), {})
        events = self._outbox.page(place.pos, BATCH_EVENTS)
        job_ids = {event.job_id for event in events if event.type is not EventType.ENQUEUED and topics(event)}
        return _EventPage(events, self._outbox.origins(job_ids) if job_ids else {})
