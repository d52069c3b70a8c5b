"""Beats for what clients hold, so that a long thought or a long tool call costs no lease."""

import logging
import threading
from types import TracebackType
from typing import Self

from holdfast.agent import Agent
from holdfast.errors import HoldfastError
from holdfast.mcp.seats import BEATS_PER_LEASE, Hold, Place, Seats

log = logging.getLogger("holdfast.mcp")

RETRY_PART = 10
"""Of a lease: how long to wait after the ledger was out of reach."""


class Keeper:
    """A thread that beats at a third of each lease, until the job's client has not called for `idle_s`.

    After that the leases are left to end by themselves. Leaving the block ends the thread, and hands back what is held unless
    `keep` is set.
    """

    def __init__(self, seats: Seats, idle_s: float, *, keep: bool) -> None:
        self._seats = seats
        self._idle_s = idle_s
        self._keep = keep
        self._over = False
        self._thread = threading.Thread(target=self._run, name="holdfast-mcp-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._seats.changed:
            self._over = True
            self._seats.changed.notify_all()
        self._thread.join()
        self.end()

    def end(self, session: str | None = None) -> None:
        """A session, or every one, is over in order: others may have its jobs at once."""
        for agent, hold in self._seats.leave(session):
            if self._keep:
                continue
            try:
                agent.release(hold.job_id, attempt=hold.attempt)
            except HoldfastError as error:
                log.warning("could not hand a job back", extra={"job_id": hold.job_id, "error": str(error)})
            else:
                log.info("handed back", extra={"job_id": hold.job_id, "attempt": hold.attempt})

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
            for place, agent, hold in due:
                self._beat(place, agent, hold)

    def _beat(self, place: Place, agent: Agent, hold: Hold) -> None:
        sent = self._seats.monotonic()
        try:
            agent.heartbeat(hold.job_id, attempt=hold.attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, other jobs want their beats
            refused = isinstance(error, HoldfastError) and not error.retryable
            with self._seats.changed:
                ended = not self._seats.is_held(place, hold)
                hold.lost = refused
                hold.due_at = sent + hold.lease_s / RETRY_PART
            if not ended:
                said = "the job is lost" if refused else "a beat failed"
                log.warning(said, extra={"job_id": hold.job_id, "attempt": hold.attempt, "error": str(error)})
        else:
            hold.due_at = sent + hold.lease_s / BEATS_PER_LEASE
