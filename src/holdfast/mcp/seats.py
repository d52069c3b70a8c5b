"""Who sits at the server: each session's agent, the jobs it holds, and when it last called.

A seat is kept only while it holds something. All that matters outlives it: the ledger knows the agent by name and session.
One whose client does not call any more is asleep: nobody beats for it, until its client calls or its leases are over.
"""

import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.agent import Agent, Task
from holdfast.agent.ways import Ways
from holdfast.core import limits
from holdfast.ledger import Ledger
from holdfast.mcp.crew import Crew
from holdfast.mcp.holds import HeldTooMany, Hold, Place, Seat, ServedTooMany

CALLS_AT_ONCE = 4
"""Of one session; further ones wait for those."""
CALLS_AT_ONCE_MAX = 256
"""Of all."""
ENDED_MAX = 10_000
"""Sessions that are remembered to be over, for what still comes in for them."""


class Due(NamedTuple):
    """A job that wants a beat; or, where one has been under way for as long as its lease, somebody's attention."""

    place: Place
    agent: Agent
    hold: Hold
    is_late: bool


class Seats:
    """All sessions that hold jobs. Every method may be called from any thread."""

    def __init__(self, ledger: Ledger, monotonic: Callable[[], float], clients: int = 1) -> None:
        self.ledger = ledger
        self.clients = clients
        """How many share the server, each with a token of its own."""
        self.monotonic = monotonic
        self.changed = threading.Condition()
        self.calls = Crew("holdfast-mcp-call", most=CALLS_AT_ONCE_MAX, each=CALLS_AT_ONCE)
        self.orphaned: Callable[[Agent, Hold], None] = lambda agent, hold: None
        """Told of a job that came in for a session that is over."""
        self._seats: dict[Place, Seat] = {}
        self._ended: dict[str, None] = {}
        self._over = False

    def agent(self, place: Place, ways: Ways | None = None) -> Agent:
        """The agent at this place, which is calling."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is None:
                return Agent(self.ledger, place.name, session=place.session, ways=ways, known=partial(self.attempt, place))
            seat.called(self.monotonic())
            self.changed.notify_all()
            return seat.agent

    def called(self, place: Place) -> None:
        """It has asked for something, whatever it was: so it is there."""
        with self.changed:
            if place in self._seats:
                self.agent(place)

    def attempt(self, place: Place, job_id: int) -> int | None:
        """The attempt that this session holds, or held when it last heard of the job."""
        with self.changed:
            seat = self._seats.get(place)
            hold = None if seat is None else seat.holds.get(job_id)
            return None if hold is None else hold.attempt

    def check_room(self, place: Place, job_id: int | None, client: int = 0) -> None:
        """Raises limit_exceeded where this session, or the server, holds as much as it may. `job_id` is what it asks for: with
        what it has it may go on, and so may who asks for none, who is given one of its own before any other."""
        with self.changed:
            seat = self._seats.get(place)
            if seat is None or seat.asleep_until is not None:
                self._check_sessions(client)
            elif job_id is not None and job_id not in seat.holds:
                most = limits.OWN_TASKS_MAX
                if sum(not hold.lost for hold in seat.holds.values()) >= most:
                    raise HeldTooMany(f"a session holds at most {most} tasks at once", field="tasks", limit=most)

    def _check_sessions(self, client: int) -> None:
        most = max(1, limits.MCP_SESSIONS_MAX // self.clients)
        if sum(seat.asleep_until is None and seat.client == client for seat in self._seats.values()) >= most:
            raise ServedTooMany(f"tasks are held for at most {most} sessions at once", field="sessions", limit=most)

    def heard(self, agent: Agent, task: Task, client: int = 0) -> None:
        """What the ledger said of a job: from here on it is held for this session, or it is not any more.

        What was said of an attempt before the one that is held is old. What comes for a session that has ended meanwhile is
        nobody's, and is handed back.
        """
        place = Place(agent.name, agent.session)
        if task.attempt < (self.attempt(place, task.id) or 0):
            return
        if task.claim_expires_at is None or (task.claimed_by, task.session) != place:
            self.drop(place, task.id)
            return
        with self.changed:
            now = self.monotonic()
            if self._over or place.session in self._ended:
                self.orphaned(agent, Hold(task, now))
                return
            seat = self._seats.get(place)
            if seat is None:
                seat = self._seats[place] = Seat(agent, now, client)
            seat.called(now)
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
            if session is None:
                self._over = True
            else:
                self._ended[session] = None
                if len(self._ended) > ENDED_MAX:
                    del self._ended[next(iter(self._ended))]
            places = [place for place in self._seats if session is None or place.session == session]
            seats = [self._seats.pop(place) for place in places]
        return ((seat.agent, hold) for seat in seats for hold in seat.holds.values() if not hold.lost)

    def idle(self, idle_s: float) -> list[Place]:
        """Sessions that have not called for so long, from now on asleep. For the keeper, under the lock."""
        now, found = self.monotonic(), []
        for place, seat in list(self._seats.items()):
            if seat.asleep_until is None and now - seat.called_at >= idle_s:
                seat.asleep_until = now + max(hold.lease_s for hold in seat.holds.values())
                found.append(place)
            elif seat.asleep_until is not None and now >= seat.asleep_until:
                del self._seats[place]
        return found

    def due(self) -> list[Due]:
        """Whose beat it is time for, from now on under way. For the keeper, under the lock."""
        now, found = self.monotonic(), []
        for place, seat, hold in self._kept():
            if hold.due_at <= now:
                found.append(Due(place, seat.agent, hold, hold.is_beating))
                hold.due_at = math.inf if hold.is_beating else now + hold.lease_s
                hold.is_beating = True
        return found

    def _kept(self) -> Iterator[tuple[Place, Seat, Hold]]:
        for place, seat in self._seats.items():
            if seat.asleep_until is None:
                yield from ((place, seat, hold) for hold in seat.holds.values() if not hold.lost)

    def next_at(self, idle_s: float) -> float | None:
        """When there is something to do for the keeper. Under the lock."""
        ends = [seat.called_at + idle_s if seat.asleep_until is None else seat.asleep_until for seat in self._seats.values()]
        return min([*ends, *(hold.due_at for _, _, hold in self._kept())], default=None)

    def is_held(self, place: Place, hold: Hold) -> bool:
        """Whether this is still what is known of the job. Under the lock."""
        seat = self._seats.get(place)
        return seat is not None and seat.holds.get(hold.job_id) is hold
