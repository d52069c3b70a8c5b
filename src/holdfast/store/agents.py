"""What agents are at: one row for each session of an agent, and the statements that find it work."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.core.model import NEVER, UNDO_KIND, EventRecord, Micros


class AgentState(NamedTuple):
    """Where an agent stands. The cursor is the position of the newest event it was told of, and never goes back."""

    focus: int | None = None
    last: int | None = None
    cursor: int = 0


class Candidate(NamedTuple):
    """The first task of one priority in one queue."""

    queue: str
    priority: int
    available_at: Micros
    id: int


class IdleCounts(NamedTuple):
    """How many live tasks an agent cannot have: others hold them, they wait for others, for their time, in a paused queue. Each
    is counted up to a limit."""

    held: int
    waiting: int
    scheduled: int
    paused: int


class CheckpointBeat(NamedTuple):
    """A beat that may carry a checkpoint."""

    attempt: int
    at: Micros
    actor: str
    payload: bytes


class RelatedTaskRow(NamedTuple):
    """A task that another one waits for, or the other way round; `waits_for` is how many it waits for itself."""

    id: int
    kind: str
    status: str
    waits_for: int


class AgentSession(ABC):
    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def stamp(self) -> Micros | None: ...

    @abstractmethod
    def event(self, row: Sequence[Any]) -> EventRecord: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    @abstractmethod
    def _lock_agent(self, name: str, session: str) -> None:
        """Hold off this agent's other processes until the transaction ends."""

    def _names(self, given: Sequence[str] | None) -> Any:
        return None if given is None else self._list(given)

    def find_agent(self, name: str, session: str) -> AgentState:
        """For a writing transaction only, before it locks any job: nobody else moves this agent before it ends."""
        self._lock_agent(name, session)
        rows = self.rows("find_agent", name=name, session=session)
        return AgentState(*rows[0]) if rows else AgentState()

    def save_agent(self, name: str, session: str, place: AgentState) -> None:
        self.rows("save_agent", name=name, session=session, now_at=self.stamp(), **place._asdict())

    def last_agent(self) -> Micros | None:
        """When any agent was last at work; None where none is known."""
        found: Micros | None = self.rows("last_agent")[0][0]
        return found

    def prune_agents(self, before: Micros, limit: int) -> int:
        """Forgets sessions that nobody has moved since, and that hold nothing."""
        return len(self.rows("prune_agents", before_at=before, limit=limit))

    def own_tasks(self, name: str, session: str, limit: int) -> list[int]:
        """What this session of an agent holds: running ones first, then by id."""
        return [row[0] for row in self.rows("own_tasks", name=name, session=session, limit=limit)]

    def first_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Candidate]:
        """The first queued task of each priority in each queue that is not paused, available or not."""
        return [Candidate(*row) for row in self.rows("first_tasks", **self._filter_params(queues, kinds))]

    def take_task(self, queue: str, priority: int, kinds: Sequence[str] | None, passed: Sequence[int] = ()) -> int | None:
        """The first available task of this priority but `passed` ones, locked; what somebody else is just taking is left out."""
        params = {"queue": queue, "priority": priority, "kinds": self._names(kinds), "undo_kind": UNDO_KIND}
        params["passed"] = self._list(passed)
        rows = self.rows("take_task", now_at=self.stamp(), **params)
        return int(rows[0][0]) if rows else None

    def expired_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> list[int]:
        """Tasks whose claims are over, whoever had them, by when that was; `decide` has the last word. None in paused queues."""
        return [
            row[0] for row in self.rows("expired_tasks", now_at=self.stamp(), limit=limit, **self._filter_params(queues, kinds))
        ]

    def lock_task(self, id_: int) -> bool:
        """Whether the task is this transaction's now; False where somebody else is just at it."""
        return bool(self.rows("lock_task", id=id_))

    def idle(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> IdleCounts:
        """What lies between an agent and its next task."""
        params = {"now_at": self.stamp(), "never_at": NEVER, "limit": limit, **self._filter_params(queues, kinds)}
        return IdleCounts(*self.rows("idle", **params)[0])

    def _filter_params(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> dict[str, Any]:
        return {"queues": self._names(queues), "kinds": self._names(kinds), "undo_kind": UNDO_KIND}

    def has_event(self, job_id: int, cursor: int) -> bool:
        """Whether what stands at this position is an event of this job."""
        return bool(self.rows("has_event", job_id=job_id, cursor=cursor))

    def newest_events(self, job_id: int, after: int, limit: int) -> list[EventRecord]:
        """The last `limit` events of a job after a position, oldest first."""
        return [self.event(row) for row in reversed(self.rows("newest_events", job_id=job_id, after=after, limit=limit))]

    def count_events(self, job_id: int, after: int, rev_below: int, limit: int) -> int:
        """How many events of a job lie after a position and below a revision; `limit` stands for that many or more."""
        [(count,)] = self.rows("count_events", job_id=job_id, after=after, rev_below=rev_below, limit=limit)
        return int(count)

    def blockers(self, job_id: int, limit: int) -> list[RelatedTaskRow]:
        """What a task waits for, by id."""
        return [RelatedTaskRow(*row) for row in self.rows("blockers", job_id=job_id, limit=limit)]

    def unlocks(self, job_id: int, limit: int) -> list[RelatedTaskRow]:
        """What waits for a task, by id."""
        return [RelatedTaskRow(*row) for row in self.rows("unlocks", on_id=job_id, limit=limit)]

    def checkpoint_beats(self, job_id: int, attempt: int, rev_above: int, attempts: int, beats: int) -> list[CheckpointBeat]:
        """Beats that may carry a checkpoint, newest first: so many of each of so many attempts before this one."""
        params = {"job_id": job_id, "attempt": attempt, "rev_above": rev_above, "attempts": attempts, "beats": beats}
        return [CheckpointBeat(*row) for row in self.rows("checkpoint_beats", **params)]
