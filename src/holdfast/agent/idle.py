"""Why there is nothing for an agent to do, and whether to come back."""

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.model import NEVER
from holdfast.ledger.acting import Acts
from holdfast.ledger.face import to_datetime


class Wish(NamedTuple):
    """What an agent is willing to take up."""

    ttl_ms: int | None
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """Live tasks of the queues and kinds asked for that could not be had, each counted up to 1,000: `held` by others, or stalled;
    `waiting` for other tasks; `scheduled` for later, or in a backoff; in `paused` queues.

    `then` is "wait" while there are any, and "done" where no live task is left.
    """

    held: int
    waiting: int
    scheduled: int
    paused: int
    then: Literal["wait", "done"]


class Idleness(NamedTuple):
    nothing: Nothing
    until: datetime | None


def idleness(acts: Acts, wish: Wish) -> Idleness:
    """What an agent is told that got no task. `until` is when the next becomes available, if that is a matter of time alone."""
    found = acts.session.idle(wish.queues, wish.kinds, limits.IDLE_COUNT_MAX)
    firsts = [first.available_at for first in acts.session.first_tasks(wish.queues, wish.kinds)]
    now = acts.session.now()
    being_taken = sum(at <= now for at in firsts)  # available, and yet not to be had: somebody else is at them just now
    held = min(found.held + being_taken, limits.IDLE_COUNT_MAX)
    soon = min((at for at in firsts if at < NEVER), default=None)
    counts = found._replace(held=held)
    nothing = Nothing(**counts._asdict(), then="wait" if any(counts) else "done")
    return Idleness(nothing, None if soon is None else to_datetime(soon))


def in_words(nothing: Nothing | None, until: datetime | None) -> str:
    """Why there is nothing, and whether to come back."""
    if nothing is None or nothing.then == "done":
        return "There is nothing to do, and no task is left to wait for."
    due = (
        "in a minute" if until is None else f"at {until.isoformat().replace('+00:00', 'Z')}, when the next one is due, or before"
    )
    return f"There is nothing to do now: {left_in_words(nothing)}. Resume again {due}."


def left_in_words(nothing: Nothing) -> str:
    """How many tasks could not be had, by what is in the way."""
    parts = [
        (nothing.held, "held by others"),
        (nothing.waiting, "waiting for other tasks"),
        (nothing.scheduled, "scheduled for later"),
        (nothing.paused, "in paused queues"),
    ]
    return ", ".join(f"{_count(number)} {what}" for number, what in parts if number)


def _count(number: int) -> str:
    return f"{number:,} or more" if number >= limits.IDLE_COUNT_MAX else f"{number:,}"
