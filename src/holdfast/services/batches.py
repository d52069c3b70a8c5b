"""One sink's next events: sent in order, up to the first that fails; and what is to be kept of that."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core.model import Event, Micros
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import face
from holdfast.ledger.face import to_datetime
from holdfast.services.messages import Message, messages, open_event, topics
from holdfast.services.sinks import DeliveryFailed, Sink
from holdfast.store.places import Origin, Place

log = logging.getLogger("holdfast.relay")

BATCH_US = 5_000_000
"""A batch that takes longer ends with the event it is at: other sinks are waiting."""
ERROR_BYTES_MAX = 1_000
RETRY_US_MIN = 1_000_000
RETRY_US_MAX = 600_000_000


class Surroundings(NamedTuple):
    """What a batch needs to know of the world."""

    ledger_id: str
    origins: dict[int, Origin]
    now: Callable[[], Micros]
    """The ledger's time, as it goes on."""
    may_go_on: Callable[[], bool]
    """Whether the sink is still ours to serve, and nobody wants us to stop."""
    in_dialect: Callable[[face.Event, Dialect], dict[str, Any]]


class Outcome(NamedTuple):
    place: Place
    """As it is to be saved."""
    delivered: int
    failed: bool


def send(sink: Sink, place: Place, events: Sequence[Event], world: Surroundings, jitter: Callable[[], float]) -> Outcome:
    """Tell a sink of these events. The place that comes out is exactly before the first event that has not arrived as a whole."""
    end, pos, delivered = world.now() + BATCH_US, place.pos, 0
    for event in events:
        # Between events only: the first is told as a whole however long it takes, or a slow sink would never get past it.
        if world.now() > end:
            break
        for message in filter(sink.wants, _told(sink, event, world)):
            if not world.may_go_on():
                return Outcome(_moved(place, pos), delivered, failed=False)
            try:
                sink.deliver(message, to_datetime(world.now()))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a sink may fail in any way it likes
                return Outcome(_failed(sink, _moved(place, pos), error, world.now(), jitter()), delivered, failed=True)
            delivered += 1
        pos = event.pos
    return Outcome(_moved(place, pos), delivered, failed=False)


def _told(sink: Sink, event: Event, world: Surroundings) -> list[Message]:
    """The messages of an event, in the dialect that the sink wants."""
    told = None
    if sink.dialect is not Dialect.HOLDFAST and topics(event):
        told = world.in_dialect(open_event(event, include_payload=sink.include_payload), sink.dialect)
    origin = world.origins.get(event.job_id)
    return messages(event, world.ledger_id, origin, include_payload=sink.include_payload, told=told)


def _moved(place: Place, pos: int) -> Place:
    """What has arrived wipes out the failures before it; a place that stays keeps them."""
    return place if pos == place.pos else Place(place.name, pos)


def _failed(sink: Sink, place: Place, error: BaseException, now: Micros, jitter: float) -> Place:
    failures, cause = place.failures + 1, _cause(error)
    dead = failures >= sink.attempts_max or (isinstance(error, DeliveryFailed) and error.final)
    return msgspec.structs.replace(
        place,
        failures=failures,
        retry_at=None if dead else now + retry_us(failures, jitter),
        dead_at=now if dead else None,
        last_error=cause,
    )


def report(place: Place) -> None:
    """Say in the log what a place that was saved says of a failure."""
    if place.dead_at is None:
        log.warning("sink %s failed, %d in a row: %s", place.name, place.failures, place.last_error)
    else:
        log.error("sink %s is dead, %d failures in a row: %s", place.name, place.failures, place.last_error)


def retry_us(failures: int, jitter: float) -> int:
    """How long to wait after so many failures: doubled each time up to the maximum, then spread by `jitter`."""
    return int(min(RETRY_US_MIN * 2 ** min(failures - 1, 20), RETRY_US_MAX) * jitter)


def _cause(error: BaseException) -> str:
    """What went wrong, in a line that fits."""
    try:
        text = str(error) if isinstance(error, DeliveryFailed) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - somebody else's __str__
        text = type(error).__name__
    safe = " ".join(text.replace("\0", " ").split()).encode("utf-8", "replace")[:ERROR_BYTES_MAX]
    return safe.decode("utf-8", "ignore")
