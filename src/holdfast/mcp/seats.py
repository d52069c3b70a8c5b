"""Who sits at the server: each session's agent, the jobs it holds, and when it last called.

A seat is kept only while it holds something. All that matters outlives it: the ledger knows the agent by name and session.
A session that does not call is dormant after a while: nothing is beaten for it, until it calls again or its leases are over.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial

from holdfast.agent import Agent, Task
from holdfast.agent.ways import Ways
from holdfast.core import limits
from holdfast.errors import LimitExceeded
from holdfast.ledger import Ledger
from holdfast.mcp.holds import Hold, Place, Seat


class Seats:
    """All sessions that hold jobs. Every method may be called from any thread."""

    def __init__(self, ledger: Ledger, monotonic: Callable[[], float]) -> None:
        self.ledger = ledger
        self.monotonic = monotonic
        self.changed = threading.Condition()
        self._seats: dict[Place, Seat] = {}
        self._ended: dict[str, None] = {}
        self._late: list[tuple[Agent, Hold]] = []

    def agent(self, place: Place, ways: Ways | None = None) -> Agent:
        """The agent at this place, which is calling."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is None:
                return Agent(self.ledger, place.name, session=place.session, ways=ways, known=partial(self.attempt, place))
            seat.calls(self.monotonic())
            self.changed.notify_all()
            return seat.agent

    def attempt(self, place: Place, job_id: int) -> int | None:
        """The attempt that this session holds, or held when it last heard of the job."""
        with self.changed:
            seat = self._seats.get(place)
            hold = None if seat is None else seat.holds.get(job_id)
            return None if hold is None else hold.attempt

    def check_room(self, place: Place, job_id: int | None = None) -> None:
        """Raises limit_exceeded where this session, or the server, holds as much as it may. One that holds so much gets one of
        its own from a resume, and may claim its own."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is None:
                limits.check_count("sessions that hold tasks", len(self._seats) + 1, limits.MCP_SESSIONS_MAX)
            elif job_id is not None and job_id not in seat.holds:
                most, held = limits.OWN_TASKS_MAX, sum(not hold.lost for hold in seat.holds.values())
                if held >= most:
                    refused = LimitExceeded(f"a session holds at most {most} tasks at once", field="tasks", limit=most)
                    refused.action = "Complete or release one of yours first: list_jobs with mine true has them."
                    raise refused

    def heard(self, agent: Agent, task: Task) -> None:
        """What the ledger said of a job: from here on it is held for this session, or it is not any more.

        What was said of an attempt before the one that is held is old. What comes for a session that has ended meanwhile is
        nobody's, and is for the keeper to hand back.
        """
        place = Place(agent.name, agent.session)
        if task.attempt < (self.attempt(place, task.id) or 0):
            return
        if task.claim_expires_at is None or (task.claimed_by, task.session) != place:
            self.drop(place, task.id)
            return
        with self.changed:
            now = self.monotonic()
            self.changed.notify_all()
            if place.session in self._ended:
                self._late.append((agent, Hold(task, now)))
                return
            seat = self._seats.get(place)
            if seat is None:
                seat = self._seats[place] = Seat(agent, now)
            seat.calls(now)
            seat.holds[task.id] = Hold(task, now)

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
            if session is not None:
                self._ended[session] = None
                if len(self._ended) > limits.MCP_SESSIONS_MAX:
                    del self._ended[next(iter(self._ended))]
            places = [place for place in self._seats if session is None or place.session == session]
            seats = [self._seats.pop(place) for place in places]
        return ((seat.agent, hold) for seat in seats for hold in seat.holds.values() if not hold.lost)

    def late(self) -> list[tuple[Agent, Hold]]:
        """What has come for sessions that had ended. For the keeper, under the lock."""
        late, self._late = self._late, []
        return late

    def idle(self, idle_s: float) -> list[Place]:
        """Sessions that have not called for so long, and are dormant from here on; those that have slept for longer than their
        leases last are forgotten. For the keeper, under the lock."""
        now = self.monotonic()
        for place in [place for place, seat in self._seats.items() if seat.dormant and now >= seat.over_at(idle_s)]:
            del self._seats[place]
        found = [place for place, seat in self._seats.items() if not seat.dormant and now - seat.called_at >= idle_s]
        for place in found:
            self._seats[place].dormant = True
        return found

    def due(self) -> list[tuple[Place, Agent, Hold]]:
        """Whose beat it is time for. For the keeper, under the lock."""
        now = self.monotonic()
        return [(place, seat.agent, hold) for place, seat in self._seats.items() for hold in seat.beaten() if hold.due_at <= now]

    def next_at(self, idle_s: float) -> float | None:
        """When there is something to do for the keeper. Under the lock."""
        beats = [hold.due_at for seat in self._seats.values() for hold in seat.beaten()]
        ends = [seat.over_at(idle_s) if seat.dormant else seat.called_at + idle_s for seat in self._seats.values()]
        return min([*beats, *ends], default=None)

    def is_held(self, place: Place, hold: Hold) -> bool:
        """Whether this is still what is known of the job. Under the lock."""
        seat = self._seats.get(place)
        return seat is not None and seat.holds.get(hold.job_id) is hold
