"""Beats for what clients hold, so that a long thought or a long tool call costs no lease."""

import logging
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from holdfast.agent import Agent
from holdfast.errors import HoldfastError
from holdfast.mcp.holds import BEATS_PER_LEASE, Hold, Place
from holdfast.mcp.seats import Seats

log = logging.getLogger("holdfast.mcp")

RETRY_PART = 10
"""Of a lease: how long to wait after the ledger was out of reach."""
BEATS_AT_ONCE = 32
"""A beat may have to wait for somebody's lock on its job; meanwhile others want theirs."""
END_S = 3.0
"""How long handing back may take before the rest is left to its leases."""


class Keeper:
    """A thread that has beats sent at a third of each lease, until the job's client has not called for `idle_s`.

    After that the leases are left to end by themselves. Each beat has a thread of its own, so that none waits for another.
    Leaving the block ends it, and hands back what is held unless `keep` is set.
    """

    def __init__(self, seats: Seats, idle_s: float, *, keep: bool) -> None:
        self._seats = seats
        self._idle_s = idle_s
        self._keep = keep
        self._over = False
        self._under_way = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-mcp-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        changed = self._seats.changed
        with changed:
            self._over = True
            changed.notify_all()
        self._thread.join()
        with changed:
            changed.wait_for(lambda: not self._under_way, END_S)
        self.end()

    def end(self, session: str | None = None) -> None:
        """A session, or every one, is over in order: others may have its jobs at once."""
        held = [*self._seats.leave(session)]
        handing = threading.Thread(target=self._hand_back, args=(held,), daemon=True)
        handing.start()
        handing.join(END_S)
        if handing.is_alive():
            log.warning("handing back takes long: what is left ends with its lease", extra={"jobs": len(held)})

    def _hand_back(self, held: Iterable[tuple[Agent, Hold]]) -> None:
        for agent, hold in () if self._keep else held:
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
                idle, late = self._seats.idle(self._idle_s), self._seats.late()
                due = self._seats.due()[: BEATS_AT_ONCE - self._under_way]
                for _, _, hold in due:
                    hold.beating = True
                self._under_way += len(due)
                if not (due or idle or late):
                    changed.wait(self._pause_s())
            for place in idle:
                log.info("idle: its leases are left to end", extra={"agent": place.name, "session": place.session})
            for beat in due:
                threading.Thread(target=self._beat, args=beat, name="holdfast-mcp-beat", daemon=True).start()
            if late:
                threading.Thread(target=self._hand_back, args=(late,), daemon=True).start()

    def _pause_s(self) -> float | None:
        """Until something is due; with as many beats under way as there may be, until one of them has ended."""
        next_at = None if self._under_way >= BEATS_AT_ONCE else self._seats.next_at(self._idle_s)
        return None if next_at is None else max(0.0, next_at - self._seats.monotonic())

    def _beat(self, place: Place, agent: Agent, hold: Hold) -> None:
        sent = self._seats.monotonic()
        failed: Exception | None = None
        try:
            agent.heartbeat(hold.job_id, attempt=hold.attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told below
            failed = error
        with self._seats.changed:
            hold.lost = isinstance(failed, HoldfastError) and not failed.retryable
            hold.due_at = sent + hold.lease_s / (BEATS_PER_LEASE if failed is None else RETRY_PART)
            hold.beating = False
            self._under_way -= 1
            self._seats.changed.notify_all()
            told = failed is not None and self._seats.is_held(place, hold)
        if told:
            said = "the job is lost" if hold.lost else "a beat failed"
            log.warning(said, extra={"job_id": hold.job_id, "attempt": hold.attempt, "error": str(failed)})
