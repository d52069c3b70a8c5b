"""Beats for what clients hold, so that a long thought or a long tool call costs no lease."""

import logging
import threading
from functools import partial
from types import TracebackType
from typing import Self

from holdfast.agent import Agent
from holdfast.errors import HoldfastError
from holdfast.mcp.crew import Crew
from holdfast.mcp.holds import BEATS_PER_LEASE, Hold
from holdfast.mcp.seats import Due, Seats

log = logging.getLogger("holdfast.mcp")

RETRY_PART = 10
"""Of a lease: how long to wait after the ledger was out of reach."""
BEATS_AT_ONCE = 16
"""One that is held up, by a row that somebody has locked, takes up one of them."""
FAREWELLS_AT_ONCE = 16
END_S = 5.0
"""How long handing back may take at the end; what is left then is left to its leases."""


class Keeper:
    """A thread that sees to a beat at a third of each lease, until the job's client has not called for `idle_s`.

    After that the leases are left to end by themselves. Leaving the block ends the beats, and hands back what is held unless
    `keep` is set. That takes END_S at most; whether something is under way even then, `is_stuck` tells.
    """

    def __init__(self, seats: Seats, idle_s: float, *, keep: bool) -> None:
        self._seats = seats
        self._idle_s = idle_s
        self._keep = keep
        self._over = False
        self._beats = Crew("holdfast-mcp-beat", most=BEATS_AT_ONCE, each=1)
        self._farewells = Crew("holdfast-mcp-farewell", most=FAREWELLS_AT_ONCE, each=1)
        self._thread = threading.Thread(target=self._run, name="holdfast-mcp-keeper", daemon=True)
        self.is_stuck = False
        seats.orphaned = self._hand_back

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._seats.changed:
            self._over = True
            self._seats.changed.notify_all()
        self._thread.join()
        self.end()
        until = self._seats.monotonic() + END_S
        # A call that is under way may still bring in a job to hand back: so calls come first.
        calls, beats, held = (
            crew.left(until - self._seats.monotonic()) for crew in (self._seats.calls, self._beats, self._farewells)
        )
        self.is_stuck = bool(calls or beats or held)
        if self.is_stuck:
            log.warning("the ledger does not answer: what is held is left to its leases", extra={"jobs": held, "calls": calls})

    def end(self, session: str | None = None) -> None:
        """A session, or every one, is over in order: others may have its jobs as soon as they are handed back."""
        for agent, hold in self._seats.leave(session):
            self._hand_back(agent, hold)

    def _hand_back(self, agent: Agent, hold: Hold) -> None:
        if not self._keep:
            self._farewells.do(hold.job_id, partial(_release, agent, hold))

    def _run(self) -> None:
        changed = self._seats.changed
        while True:
            with changed:
                if self._over:
                    return
                idle, due = self._seats.idle(self._idle_s), self._seats.due()
                if not due and not idle:
                    next_at = self._seats.next_at(self._idle_s)
                    changed.wait(None if next_at is None else max(0.0, next_at - self._seats.monotonic()))
            for place in idle:
                log.info("idle: its leases are left to end", extra={"agent": place.name, "session": place.session})
            for one in due:
                if one.is_late:
                    said = {"job_id": one.hold.job_id, "attempt": one.hold.attempt}
                    log.warning("a beat has been under way for longer than its lease", extra=said)
                else:
                    self._beats.do(one.hold.job_id, partial(self._beat, one))

    def _beat(self, due: Due) -> None:
        place, agent, hold, _ = due
        with self._seats.changed:
            if self._over or not self._seats.is_held(place, hold):
                return
            sent = self._seats.monotonic()
        lost, said, part = False, "", BEATS_PER_LEASE
        try:
            agent.heartbeat(hold.job_id, attempt=hold.attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
            lost, said, part = isinstance(error, HoldfastError) and not error.retryable, str(error), RETRY_PART
        with self._seats.changed:
            hold.lost, hold.is_beating = lost, False
            hold.due_at = sent + hold.lease_s / part
            ended = not self._seats.is_held(place, hold)
            self._seats.changed.notify_all()
        if said and not ended:
            extra = {"job_id": hold.job_id, "attempt": hold.attempt, "error": said}
            log.warning("the job is lost" if lost else "a beat failed", extra=extra)


def _release(agent: Agent, hold: Hold) -> None:
    try:
        agent.release(hold.job_id, attempt=hold.attempt)
    except HoldfastError as error:
        log.warning("could not hand a job back", extra={"job_id": hold.job_id, "error": str(error)})
    else:
        log.info("handed back", extra={"job_id": hold.job_id, "attempt": hold.attempt})
