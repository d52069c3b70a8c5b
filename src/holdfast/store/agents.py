"""Agents: one row for each session of an agent, and the queries that find tasks for it."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.core.model import NEVER, UNDO_KIND, Micros
from holdfast.store.statement_session import StatementSession


class AgentState(NamedTuple):
    """The state of an agent's session. The cursor is the position of the newest event shown to it. It never decreases."""

    focus: int | None = None
    last: int | None = None
    cursor: int = 0


class Candidate(NamedTuple):
    """The first task of one priority in one queue."""

    queue: str
    priority: int
    available_at: Micros
    id: int
    is_chosen: bool = False
    """Whether no other task of this priority may be taken instead."""


class IdleCounts(NamedTuple):
    """Counts of live tasks that an agent cannot claim: held by others, waiting for a dependency, scheduled for later, in a
    paused queue, or for another worker or behind a limit. Each count stops at a limit."""

    held: int
    waiting: int
    scheduled: int
    paused: int
    limited: int = 0


class CheckpointBeat(NamedTuple):
    """A heartbeat that may carry a checkpoint."""

    attempt: int
    at: Micros
    actor: str
    payload: bytes


class RelatedTaskRow(NamedTuple):
    """A dependency or a dependent of a task. `waits_for` is the number of its own open dependencies."""

    id: int
    kind: str
    status: str
    waits_for: int


class SqlAgents(StatementSession):
    @abstractmethod
    def _lock_agent(self, name: str, session: str) -> None:
        """Block other processes of this agent until the transaction ends."""

    def _names(self, names: Sequence[str] | None) -> Any:
        return None if names is None else self._list(names)

    def find_agent(self, name: str, session: str) -> AgentState:
        """Lock and return the state of an agent. Only for a writing transaction that has not locked a job yet."""
        self._lock_agent(name, session)
        return self.record(AgentState, "find_agent", name=name, session=session) or AgentState()

    def save_agent(self, name: str, session: str, state: AgentState) -> None:
        self.rows("save_agent", name=name, session=session, now_at=self.stamp(), **state._asdict())

    def last_agent(self) -> Micros | None:
        """Return when any agent was last active, or None if there is no agent."""
        found: Micros | None = self.value("last_agent")
        return found

    def prune_agents(self, before: Micros, limit: int) -> int:
        """Delete sessions that were last updated before `before` and that hold no job."""
        return len(self.rows("prune_agents", before_at=before, limit=limit))

    def own_tasks(self, name: str, session: str, limit: int) -> list[int]:
        """Return the tasks that this session of an agent holds: running ones first, then by id."""
        return self.values("own_tasks", name=name, session=session, limit=limit)

    def first_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Candidate]:
        """Return the first queued task of each priority in each queue that is not paused, available or not."""
        return [Candidate(*row) for row in self.rows("first_tasks", **self._filter_params(queues, kinds))]

    def take_task(self, queue: str, priority: int, kinds: Sequence[str] | None, passed: Sequence[int] = ()) -> int | None:
        """Lock and return the first available task of this priority. Skip `passed` ones and those locked by others."""
        params = {"queue": queue, "priority": priority, "kinds": self._names(kinds), "undo_kind": UNDO_KIND}
        params["passed"] = self._list(passed)
        found: int | None = self.value("take_task", now_at=self.stamp(), **params)
        return found

    def expired_tasks(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> list[int]:
        """Return tasks of any holder with an expired claim, by expiry, not in paused queues. `decide` checks them again."""
        return self.values("expired_tasks", now_at=self.stamp(), limit=limit, **self._filter_params(queues, kinds))

    def lock_task(self, id_: int) -> bool:
        """Lock the task. Return False if another transaction has locked it."""
        return bool(self.rows("lock_task", id=id_))

    def idle(self, queues: Sequence[str] | None, kinds: Sequence[str] | None, limit: int) -> IdleCounts:
        """Count the tasks that the agent cannot claim, by reason."""
        params = {"now_at": self.stamp(), "never_at": NEVER, "limit": limit, **self._filter_params(queues, kinds)}
        [found] = self.records(IdleCounts, "idle", **params)
        return found

    def _filter_params(self, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> dict[str, Any]:
        return {"queues": self._names(queues), "kinds": self._names(kinds), "undo_kind": UNDO_KIND}

    def blockers(self, job_id: int, limit: int) -> list[RelatedTaskRow]:
        """Return the tasks that a task waits for, by id."""
        return self.records(RelatedTaskRow, "blockers", job_id=job_id, limit=limit)

    def unlocks(self, job_id: int, limit: int) -> list[RelatedTaskRow]:
        """Return the tasks that wait for a task, by id."""
        return self.records(RelatedTaskRow, "unlocks", on_id=job_id, limit=limit)

    def checkpoint_beats(self, job_id: int, attempt: int, rev_above: int, attempts: int, beats: int) -> list[CheckpointBeat]:
        """Return heartbeats that may carry a checkpoint, newest first: `beats` at most from each of the `attempts` before."""
        params = {"job_id": job_id, "attempt": attempt, "rev_above": rev_above, "attempts": attempts, "beats": beats}
        return self.records(CheckpointBeat, "checkpoint_beats", **params)
