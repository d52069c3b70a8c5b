"""Who sits at the server: each session's agent, the jobs it holds, and when it last called.

A seat is kept only while it holds something. All that matters outlives it: the ledger knows the agent by name and session.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.agent import Agent, Task
from holdfast.core import limits
from holdfast.errors import LimitExceeded
from holdfast.ledger import Ledger
from holdfast.mcp.ways import Tools

BEATS_PER_LEASE = 3


class Place(NamedTuple):
    """Whose call it is: an agent's name and session, as the ledger knows them."""

    name: str
    session: str


class Hold:
    """A job that is held for a client. `attempt` fences off whoever speaks for an attempt that is over."""

    __slots__ = ("attempt", "due_at", "job_id", "lease_s", "lost")

    def __init__(self, task: Task, now: float) -> None:
        assert task.claim_expires_at is not None and task.last_heartbeat_at is not None
        self.job_id = task.id
        self.attempt = task.attempt
        self.lease_s = (task.claim_expires_at - task.last_heartbeat_at).total_seconds()
        self.due_at = now + self.lease_s / BEATS_PER_LEASE
        self.lost = False


class Seat:
    __slots__ = ("agent", "called_at", "holds")

    def __init__(self, agent: Agent, now: float) -> None:
        self.agent = agent
        self.called_at = now
        self.holds: dict[int, Hold] = {}


class Seats:
    """All sessions that hold jobs. Every method may be called from any thread."""

    def __init__(self, ledger: Ledger, monotonic: Callable[[], float]) -> None:
        self.ledger = ledger
        self.monotonic = monotonic
        self.changed = threading.Condition()
        self._seats: dict[Place, Seat] = {}

    def agent(self, place: Place) -> Agent:
        """The agent at this place, which is calling."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is None:
                return self._seated(place)
            seat.called_at = self.monotonic()
            self.changed.notify_all()
            return seat.agent

    def _seated(self, place: Place) -> Agent:
        return Agent(self.ledger, place.name, session=place.session, ways=Tools(), known=partial(self.attempt, place))

    def attempt(self, place: Place, job_id: int) -> int | None:
        """The attempt that this session holds, or held when it last heard of the job."""
        with self.changed:
            seat = self._seats.get(place)
            hold = None if seat is None else seat.holds.get(job_id)
            return None if hold is None else hold.attempt

    def check_room(self, place: Place) -> None:
        """Raises limit_exceeded where this session, or the server, holds as much as it may."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is None:
                limits.check_count("sessions that hold tasks", len(self._seats) + 1, limits.MCP_SESSIONS_MAX)
            elif len(seat.holds) >= limits.OWN_TASKS_MAX:
                most = limits.OWN_TASKS_MAX
                raise LimitExceeded(f"a session holds at most {most} tasks at once", field="tasks", limit=most)

    def heard(self, place: Place, task: Task) -> None:
        """What the ledger said of a job: from here on it is held for this session, or it is not any more."""
        if task.claim_expires_at is None or (task.claimed_by, task.session) != place:
            self.drop(place, task.id)
            return
        with self.changed:
            now = self.monotonic()
            seat = self._seats.get(place)
            if seat is None:
                seat = self._seats[place] = Seat(self._seated(place), now)
            seat.called_at = now
            seat.holds[task.id] = Hold(task, now)
            self.changed.notify_all()

    def drop(self, place: Place, job_id: int) -> None:
        """The session has ended the job, or has been told that it lost it."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is not None:
                seat.holds.pop(job_id, None)
                if not seat.holds:
                    del self._seats[place]

    def leave(self, session: str | None = None) -> Iterator[tuple[Agent, Hold]]:
        """What has been held for a session that is over, or for all of them; it is not any more."""
        with self.changed:
            places = [place for place in self._seats if session is None or place.session == session]
            seats = [self._seats.pop(place) for place in places]
        return ((seat.agent, hold) for seat in seats for hold in seat.holds.values() if not hold.lost)

    def idle(self, idle_s: float) -> list[Place]:
        """Sessions that have not called for so long; nothing is held for them any more. For the keeper, under the lock."""
        now = self.monotonic()
        found = [place for place, seat in self._seats.items() if now - seat.called_at >= idle_s]
        for place in found:
            del self._seats[place]
        return found

    def due(self) -> list[tuple[Place, Agent, Hold]]:
        """Whose beat it is time for. For the keeper, under the lock."""
        now = self.monotonic()
        return [
            (place, seat.agent, hold)
            for place, seat in self._seats.items()
            for hold in seat.holds.values()
            if not hold.lost and hold.due_at <= now
        ]

    def next_at(self, idle_s: float) -> float | None:
        """When there is something to do for the keeper. Under the lock."""
        beats = [hold.due_at for seat in self._seats.values() for hold in seat.holds.values() if not hold.lost]
        return min([*beats, *(seat.called_at + idle_s for seat in self._seats.values())], default=None)

    def is_held(self, place: Place, hold: Hold) -> bool:
        """Whether this is still what is known of the job. Under the lock."""
        seat = self._seats.get(place)
        return seat is not None and seat.holds.get(hold.job_id) is hold
