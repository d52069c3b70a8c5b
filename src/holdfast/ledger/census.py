"""What may be stuck in a ledger, and how far its clock is from another one, for whoever says whether it is well."""

from collections.abc import Callable
from datetime import datetime

from holdfast.core.doctor.shapes import COUNT_MAX, Census, ReadyJobs, SinkStanding, Skew
from holdfast.core.limits import PAGE_MAX
from holdfast.ledger import admit
from holdfast.ledger.facts import has_server_key, pauses_of, seen, sweeper_of
from holdfast.store.base import LetterFilter, Session, Store

SKEW_TRIES = 5


def skew_of(store: Store, clock: Callable[[], datetime]) -> Skew:
    """By the quickest of some round trips: that one leaves least room for doubt."""
    return min((_skew_once(store, clock) for _ in range(SKEW_TRIES)), key=lambda skew: skew.round_trip_us)


def _skew_once(store: Store, clock: Callable[[], datetime]) -> Skew:
    before = admit.moment("clock", clock())
    there = store.peek(lambda session: session.now())
    after = admit.moment("clock", clock())
    return Skew(there - (before + after) // 2, after - before)


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
    )


def _signed(session: Session) -> list[str]:
    """The kinds and tiers whose policy wants events signed."""
    wishes = {f"kind {one.kind}": one.settings.signed for one in session.declarations()}
    wishes |= {f"{scope} {name}": layer.signed for scope, name, layer in session.all_settings() if layer.signed is not None}
    return sorted(name for name, wish in wishes.items() if wish not in (None, "none"))
