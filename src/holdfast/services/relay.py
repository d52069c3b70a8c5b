"""The relay: follows the ledger's total order for each sink, in order and at least once."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from holdfast.core.model import Event, EventType, Micros
from holdfast.errors import Unavailable, ValidationError
from holdfast.ledger import Ledger, admit
from holdfast.ledger.outbox import Outbox
from holdfast.services.batches import Surroundings, report, send
from holdfast.services.duties import TTL_SECONDS, Duties, Watch
from holdfast.services.messages import topics
from holdfast.services.outage import Outage
from holdfast.services.sinks import Sink
from holdfast.store.base import Waiter
from holdfast.store.places import Origin, Place

log = logging.getLogger("holdfast.relay")

BATCH_EVENTS = 100
WAIT_SECONDS_MIN = 0.5
"""How soon to look again after something was to be seen: what was rung for may not have settled yet."""
WAIT_SECONDS_MAX = 30.0
"""How seldom when nothing happens: the bell makes up for it."""
OUTAGE_SECONDS = 5.0
"""How long to leave a store alone that cannot be reached."""
SLICE_SECONDS = 1.0
"""How long a wish to stop may go unnoticed while waiting."""


class _Page(NamedTuple):
    events: list[Event]
    origins: dict[int, Origin]


class _Round:
    """One look at the ledger, and what came of it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._read: tuple[Micros, float] | None = None
        self.pages: dict[int, _Page] = {}
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
        self._sinks = admit.items("sinks", sinks)
        if not all(isinstance(sink, Sink) for sink in self._sinks):
            raise ValidationError("sinks takes a list of Sink", field="sinks")
        if len({sink.name for sink in self._sinks}) != len(self._sinks):
            raise ValidationError("two sinks have the same name, and so would share a place", field="sinks")
        self._outbox = ledger.outbox
        names = {sink.name: f"relay:{sink.name}" for sink in self._sinks}
        self._watch = Watch(duties or ledger, names, self._outbox.nonce(), duty_ttl, self._outbox.monotonic)
        self._stop = threading.Event()
        self._outage = Outage(log, "relay")
        self._locked = {name: Outage(log, f"relay to {name}") for name in names}

    def tick(self) -> dict[str, int]:
        """At most one batch for each sink. How many messages arrived and failed: `name.delivered`, `name.failed`."""
        return dict(self._round().counts)

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
        self._watch.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, waiter: Waiter, stop: threading.Event) -> None:
        """Rounds until the store is out of reach or somebody wants an end."""
        patience = WAIT_SECONDS_MIN
        try:
            while not stop.is_set():
                done = self._round()
                self._outage.over()
                if done.more:
                    patience = WAIT_SECONDS_MIN
                    continue
                seconds = patience if done.wait_us is None else min(patience, done.wait_us / 1_000_000)
                rung = self._wait(waiter, stop, seconds)
                patience = WAIT_SECONDS_MIN if rung else min(2 * patience, WAIT_SECONDS_MAX)
        except Unavailable as error:
            if not error.retryable:
                raise
            self._outage.began(error)
            stop.wait(OUTAGE_SECONDS)

    def _wait(self, waiter: Waiter, stop: threading.Event, seconds: float) -> bool:
        """True as soon as the bell rings or a sink becomes ours; False after so many seconds, or when somebody wants an end."""
        while seconds > 0 and not stop.is_set():
            slice_seconds = min(seconds, SLICE_SECONDS, self._watch.renew_seconds)
            if waiter.wait(slice_seconds) or self._watch.ask():
                return True
            seconds -= slice_seconds
        return False

    def _round(self) -> _Round:
        done = _Round(self._outbox)
        served = [sink for sink in self._sinks if self._watch.holds(sink.name)]
        places = self._places(served) if served else {}
        for sink in served:
            place = places.get(sink.name)
            if place is not None and place.dead_at is None and not done.must_wait(place.retry_at):
                self._tell_unless_locked(sink, place, done)
        return done

    def _tell_unless_locked(self, sink: Sink, place: Place, done: _Round) -> None:
        """A place that another transaction has locked holds up its own sink alone."""
        outage = self._locked[sink.name]
        try:
            self._tell(sink, place, done)
        except Unavailable as error:
            if not error.locked:
                raise
            outage.began(error)
        else:
            outage.over()

    def _tell(self, sink: Sink, place: Place, done: _Round) -> None:
        if place.pos not in done.pages:
            done.pages[place.pos] = self._page(place.pos)
        page = done.pages[place.pos]
        if not page.events:
            return
        outbox = self._outbox
        world = Surroundings(outbox.ledger_id, page.origins, done.now, lambda: self._may_go_on(sink), outbox.in_dialect)
        outcome = send(sink, place, page.events, world, self._outbox.jitter)
        if outcome.delivered:
            done.counts[f"{sink.name}.delivered"] = outcome.delivered
        saved = outcome.place == place or self._outbox.save(outcome.place, place.pos)
        if outcome.failed:
            done.counts[f"{sink.name}.failed"] = 1
            done.must_wait(outcome.place.retry_at)
            if saved:
                report(outcome.place)
        # A short page is no sign of the end: it may stop where the store had last made sure of the order.
        done.more |= not (saved and outcome.failed)

    def _may_go_on(self, sink: Sink) -> bool:
        return not self._stop.is_set() and self._watch.holds(sink.name)

    def _places(self, served: list[Sink]) -> dict[str, Place]:
        """Where the sinks stand; new ones are added. One that somebody drops at this very moment is missing."""
        places = self._outbox.places()
        missing = [sink for sink in served if sink.name not in places]
        for sink in missing:
            self._outbox.add(sink.name, from_beginning=sink.from_beginning)
        return self._outbox.places() if missing else places

    def _page(self, after: int) -> _Page:
        """The next events after a place, and what kind of jobs those belong to that something is told of."""
        events = self._outbox.page(after, BATCH_EVENTS)
        unknown = {event.job_id for event in events if event.type is not EventType.ENQUEUED and topics(event)}
        return _Page(events, self._outbox.origins(unknown) if unknown else {})
