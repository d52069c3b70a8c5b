"""What may be stuck in a ledger, and how far its clock is from another one, for whoever says whether it is well."""

from collections.abc import Callable
from datetime import datetime

from holdfast.core.doctor.shapes import COUNT_MAX, Census, History, ReadyJobs, SinkStanding, Skew
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import Micros
from holdfast.ledger import admit
from holdfast.ledger.facts import has_server_key, pauses_of, seen, sweeper_of
from holdfast.store.base import LetterFilter, Session, Store

SKEW_TRIES = 5
HISTORY_US = 24 * 3_600_000_000
"""The time over which the growth of the history is told."""


def skew_of(store: Store, clock: Callable[[], datetime]) -> Skew:
    """By the quickest of some round trips: that one leaves least room for doubt."""
    return min((_skew_once(store, clock) for _ in range(SKEW_TRIES)), key=lambda skew: skew.round_trip_us)


def _skew_once(store: Store, clock: Callable[[], datetime]) -> Skew:
    before = admit.moment("clock", clock())
    there = store.peek(lambda session: session.now())
    after = admit.moment("clock", clock())
    return Skew(there - (before + after) // 2, after - before)


def history_of(session: Session, now: Micros) -> History | None:
    """From the first and the last position, the one of a day ago, and the store's own estimates. Costs about 2 log n lookups."""
    first = session.event_from(0)
    if first is None:
        return None
    last_pos, (rows, bytes_) = session.last_pos(), session.size()
    recent_us = max(1, min(HISTORY_US, now - first.at))
    low, high = first.pos, last_pos + 1
    while low < high:
        middle = (low + high) // 2
        found = session.event_from(middle)
        if found is None or found.at >= now - recent_us:
            high = middle
        else:
            low = found.pos + 1
    drawn = last_pos - first.pos + 1
    events = drawn if rows is None else min(rows, drawn)
    return History(events=events, first_at=first.at, bytes=bytes_, recent=min(events, last_pos - low + 1), recent_us=recent_us)


def census_of(session: Session) -> Census:
    """All of one snapshot."""
    now, sealed = session.now(), session.last_head()
    letters = session.dead_letters(LetterFilter(limit=COUNT_MAX))
    signed = _signed(session)
    return Census(
        now=now,
        due=len(session.due(0, COUNT_MAX)[2]),
        owing=sum(map(len, session.left_over(COUNT_MAX, 0))),
        sweeper=sweeper_of(session, now),
        paused=pauses_of(session),
        ready=tuple(ReadyJobs(*found) for found in session.ready(PAGE_MAX)),
        workers=tuple(seen(session.workers(None, PAGE_MAX))),
        agent_at=session.last_agent(),
        sinks=tuple(
            SinkStanding(place.name, place.failures, place.dead_at is not None, place.last_error) for place in session.sinks()
        ),
        failed=session.failed_left(COUNT_MAX),
        in_vain=session.waiting_in_vain(COUNT_MAX),
        dead_letters=len(letters),
        replayed=len(session.replayed(letters)),
        signed=tuple(signed),
        server_key=has_server_key(session) if signed else False,
        last_pos=session.last_pos(),
        sealed_pos=None if sealed is None else sealed.pos,
        sealed_at=0 if sealed is None else sealed.at,
        history=history_of(session, now),
    )


def _signed(session: Session) -> list[str]:
    """The kinds and tiers whose policy wants events signed."""
    wishes = {f"kind {one.kind}": one.settings.signed for one in session.declarations()}
    wishes |= {f"{scope} {name}": layer.signed for scope, name, layer in session.all_settings() if layer.signed is not None}
    return sorted(name for name, wish in wishes.items() if wish not in (None, "none"))
