"""The relay: delivers every event to each sink, in order and at least once."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import msgspec

from holdfast.core.model import EventRecord, EventType, Micros
from holdfast.core.vocabulary import Dialect
from holdfast.errors import Unavailable, ValidationError
from holdfast.ledger import Ledger, public, validate
from holdfast.ledger.public import to_datetime
from holdfast.ledger.verbs.sinks import Outbox
from holdfast.services.duties import TTL_SECONDS, Duties, DutyLeases
from holdfast.services.messages import Message, messages, redacted_event, topics
from holdfast.services.sinks import DeliveryFailed, Sink
from holdfast.services.ticker import Outage
from holdfast.store.base import Waiter
from holdfast.store.outbox import JobOrigin, SinkPosition

log = logging.getLogger("holdfast.relay")

BATCH_US = 5_000_000
"""A batch that takes longer ends with the event it is at: other sinks are waiting."""
ERROR_BYTES_MAX = 1_000
RETRY_US_MIN = 1_000_000
RETRY_US_MAX = 600_000_000


class DeliveryScope(NamedTuple):
    """What a batch needs to know of the world."""

    ledger_id: str
    origins: dict[int, JobOrigin]
    now: Callable[[], Micros]
    """The ledger's time, as it goes on."""
    may_continue: Callable[[], bool]
    """Whether the sink is still ours to serve, and nobody wants us to stop."""
    in_dialect: Callable[[public.Event, Dialect], dict[str, Any]]


class BatchOutcome(NamedTuple):
    place: SinkPosition
    """As it is to be saved."""
    delivered: int
    failed: bool


def send_batch(
    sink: Sink, place: SinkPosition, events: Sequence[EventRecord], scope: DeliveryScope, jitter: Callable[[], float]
) -> BatchOutcome:
    """Tell a sink of these events. The place that comes out is exactly before the first event that has not arrived as a whole."""
    end, pos, delivered = scope.now() + BATCH_US, place.pos, 0
    for event in events:
        # Between events only: the first is told as a whole however long it takes, or a slow sink would never get past it.
        if scope.now() > end:
            break
        for message in filter(sink.wants, _messages_of(sink, event, scope)):
            if not scope.may_continue():
                return BatchOutcome(_advanced(place, pos), delivered, failed=False)
            try:
                sink.deliver(message, to_datetime(scope.now()))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a sink may fail in any way it likes
                return BatchOutcome(
                    _after_failure(sink, _advanced(place, pos), error, scope.now(), jitter()), delivered, failed=True
                )
            delivered += 1
        pos = event.pos
    return BatchOutcome(_advanced(place, pos), delivered, failed=False)


def _messages_of(sink: Sink, event: EventRecord, scope: DeliveryScope) -> list[Message]:
    """The messages of an event, in the dialect that the sink wants."""
    dialect_data = None
    if sink.dialect is not Dialect.HOLDFAST and topics(event):
        dialect_data = scope.in_dialect(redacted_event(event, include_payload=sink.include_payload), sink.dialect)
    origin = scope.origins.get(event.job_id)
    return messages(event, scope.ledger_id, origin, include_payload=sink.include_payload, dialect_data=dialect_data)


def _advanced(place: SinkPosition, pos: int) -> SinkPosition:
    """What has arrived wipes out the failures before it; a place that stays keeps them."""
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
    """Say in the log what a place that was saved says of a failure."""
    if place.dead_at is None:
        log.warning("sink %s failed, %d in a row: %s", place.name, place.failures, place.last_error)
    else:
        log.error("sink %s is dead, %d failures in a row: %s", place.name, place.failures, place.last_error)


def retry_us(failures: int, jitter: float) -> int:
    """How long to wait after so many failures: doubled each time up to the maximum, then spread by `jitter`."""
    return int(min(RETRY_US_MIN * 2 ** min(failures - 1, 20), RETRY_US_MAX) * jitter)


def _error_text(error: BaseException) -> str:
    """What went wrong, in a line that fits."""
    try:
        text = str(error) if isinstance(error, DeliveryFailed) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - somebody else's __str__
        text = type(error).__name__
    safe = " ".join(text.replace("\0", " ").split()).encode("utf-8", "replace")[:ERROR_BYTES_MAX]
    return safe.decode("utf-8", "ignore")


BATCH_EVENTS = 100
WAIT_SECONDS_MIN = 0.5
"""How soon to look again after something was to be seen: what was rung for may not have settled yet."""
WAIT_SECONDS_MAX = 30.0
"""How seldom when nothing happens: the bell makes up for it."""
OUTAGE_SECONDS = 5.0
"""How long to leave a store alone that cannot be reached."""
WAIT_SLICE_SECONDS = 1.0
"""How long a wish to stop may go unnoticed while waiting."""


class _EventPage(NamedTuple):
    events: list[EventRecord]
    origins: dict[int, JobOrigin]


class _RelayRound:
    """One look at the ledger, and what came of it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._read: tuple[Micros, float] | None = None
        self.pages: dict[int, _EventPage] = {}
        """By the place they come after: sinks that stand at the same place share a read."""
        self.counts: Counter[str] = Counter()
        self.more = False
        """Something is left to be done at once."""
        self.wait_us: int | None = None
        """Until the next try of a sink that has failed."""

    def now(self) -> Micros:
        """The ledger's time, asked for once and only where it matters; it goes on from there."""
        if self._read is None:
            self._read = self._outbox.now(), self._outbox.monotonic()
        at, then = self._read
        return at + int((self._outbox.monotonic() - then) * 1_000_000)

    def must_wait(self, at: Micros | None) -> bool:
        """Whether a next try lies ahead; it is then not forgotten."""
        left = 0 if at is None else at - self.now()
        if left > 0:
            self.wait_us = left if self.wait_us is None else min(left, self.wait_us)
        return left > 0


class Relay:
    """Tells each sink of every event, starting from its durable place.

    Any number of relays may serve the same sinks: `duties` (the ledger's, unless others are given) see to it that one does so
    at a time. One that dies is replaced when its duty has run out, `duty_ttl` after it was last renewed. A sink that fails
    holds up nobody but itself; one that is slow holds up the others of its relay: give it its own.
    """

    def __init__(
        self, ledger: Ledger, sinks: Iterable[Sink], *, duties: Duties | None = None, duty_ttl: Any = TTL_SECONDS
    ) -> None:
        self._sinks = validate.items("sinks", sinks)
        if not all(isinstance(sink, Sink) for sink in self._sinks):
            raise ValidationError("sinks takes a list of Sink", field="sinks")
        if len({sink.name for sink in self._sinks}) != len(self._sinks):
            raise ValidationError("two sinks have the same name, and so would share a place", field="sinks")
        self._outbox = ledger.outbox
        names = {sink.name: f"relay:{sink.name}" for sink in self._sinks}
        self._duties = DutyLeases(duties or ledger, names, self._outbox.nonce(), duty_ttl, self._outbox.monotonic)
        self._stop = threading.Event()
        self._outage = Outage(log, "relay")
        self._locked = {name: Outage(log, f"relay to {name}") for name in names}

    def tick(self) -> dict[str, int]:
        """At most one batch for each sink. How many messages arrived and failed: `name.delivered`, `name.failed`."""
        return dict(self._run_round().counts)

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set; an outage of the store is waited out. Sleeps while there is nothing to tell."""
        self._stop = stop
        waiter = self._outbox.waiter()
        try:
            while not stop.is_set():
                self._serve(waiter, stop)
        finally:
            self._stop = threading.Event()
            waiter.close()
            self.close()

    def close(self) -> None:
        """Let other relays take over at once. `run` ends with it; a later `tick` takes the duties again, if they are free."""
        self._duties.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, waiter: Waiter, stop: threading.Event) -> None:
        """Rounds until the store is out of reach or somebody wants an end."""
        wait_seconds = WAIT_SECONDS_MIN
        try:
            while not stop.is_set():
                done = self._run_round()
                self._outage.over()
                if done.more:
                    wait_seconds = WAIT_SECONDS_MIN
                    continue
                seconds = wait_seconds if done.wait_us is None else min(wait_seconds, done.wait_us / 1_000_000)
                woken = self._wait(waiter, stop, seconds)
                wait_seconds = WAIT_SECONDS_MIN if woken else min(2 * wait_seconds, WAIT_SECONDS_MAX)
        except Unavailable as error:
            if not error.retryable:
                raise
            self._outage.began(error)
            stop.wait(OUTAGE_SECONDS)

    def _wait(self, waiter: Waiter, stop: threading.Event, seconds: float) -> bool:
        """True as soon as the bell rings or a sink becomes ours; False after so many seconds, or when somebody wants an end."""
        while seconds > 0 and not stop.is_set():
            slice_seconds = min(seconds, WAIT_SLICE_SECONDS, self._duties.renew_seconds)
            if waiter.wait(slice_seconds) or self._duties.renew():
                return True
            seconds -= slice_seconds
        return False

    def _run_round(self) -> _RelayRound:
        done = _RelayRound(self._outbox)
        served = [sink for sink in self._sinks if self._duties.holds(sink.name)]
        places = self._places(served) if served else {}
        for sink in served:
            place = places.get(sink.name)
            if place is not None and place.dead_at is None and not done.must_wait(place.retry_at):
                self._deliver_unless_locked(sink, place, done)
        return done

    def _deliver_unless_locked(self, sink: Sink, place: SinkPosition, done: _RelayRound) -> None:
        """A place that another transaction has locked holds up its own sink alone."""
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
        if place.pos not in done.pages:
            done.pages[place.pos] = self._page(place.pos)
        page = done.pages[place.pos]
        if not page.events:
            return
        outbox = self._outbox
        scope = DeliveryScope(outbox.ledger_id, page.origins, done.now, lambda: self._may_continue(sink), outbox.in_dialect)
        outcome = send_batch(sink, place, page.events, scope, self._outbox.jitter)
        if outcome.delivered:
            done.counts[f"{sink.name}.delivered"] = outcome.delivered
        saved = outcome.place == place or self._outbox.save(outcome.place, place.pos)
        if outcome.failed:
            done.counts[f"{sink.name}.failed"] = 1
            done.must_wait(outcome.place.retry_at)
            if saved:
                log_failure(outcome.place)
        # A short page is no sign of the end: it may stop where the store had last made sure of the order.
        done.more |= not (saved and outcome.failed)

    def _may_continue(self, sink: Sink) -> bool:
        return not self._stop.is_set() and self._duties.holds(sink.name)

    def _places(self, served: list[Sink]) -> dict[str, SinkPosition]:
        """Where the sinks stand; new ones are added. One that somebody drops at this very moment is missing."""
        places = self._outbox.places()
        missing = [sink for sink in served if sink.name not in places]
        for sink in missing:
            self._outbox.add(sink.name, from_beginning=sink.from_beginning)
        return self._outbox.places() if missing else places

    def _page(self, after: int) -> _EventPage:
        """The next events after a place, and what kind of jobs those belong to that something is told of."""
        events = self._outbox.page(after, BATCH_EVENTS)
        unknown = {event.job_id for event in events if event.type is not EventType.ENQUEUED and topics(event)}
        return _EventPage(events, self._outbox.origins(unknown) if unknown else {})
