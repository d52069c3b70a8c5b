"""What a dashboard shows: jobs that wait for a person, sessions of agents, dead letters to group, graphs and timelines."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.core.model import Micros, Policy
from holdfast.store.policies import SqlPolicies
from holdfast.watch.timeline.rows import PREFIX_BYTES, TimelineBeat, TimelineEvent


class AttentionJob(NamedTuple):
    """A held or stalled job that may wait for a person."""

    id: int
    queue: str
    kind: str
    status: str
    phase: str | None
    worker: str | None
    stall_reason: str | None
    stalled_at: Micros | None
    assist_requested: bool
    policy_id: int | None
    requested_at: Micros | None
    assisted_at: Micros | None
    assisted_by: str | None


class FailedCompensation(NamedTuple):
    id: int
    queue: str
    kind: str
    status: str
    at: Micros
    actor: str
    reason: str | None


class AgentSessionRow(NamedTuple):
    name: str
    session: str
    focus: int | None
    since_at: Micros | None
    seen_at: Micros
    holding: int
    last: int | None
    cursor: int


class LetterRow(NamedTuple):
    """A dead letter that is not discarded."""

    id: int
    rev: int
    queue: str
    kind: str
    reason_code: str | None
    failure_stage: str | None
    last_error: bytes | None
    finished_at: Micros


class LetterCount(NamedTuple):
    """Dead letters of a queue and kind that are not discarded, and how many of them were replayed."""

    queue: str
    kind: str
    n: int
    replayed: int


class ErrorRow(NamedTuple):
    """An event that records an error, or a stall without one."""

    kind: str
    type: str
    payload: bytes | None


class Edge(NamedTuple):
    """`job_id` waits, or has waited, for `on_id`."""

    on_id: int
    job_id: int


class JobHead(NamedTuple):
    id: int
    queue: str
    kind: str
    status: str


class SqlReadings(SqlPolicies):
    """The part of a transaction that a dashboard reads with."""

    def attention_jobs(self, limit: int) -> list[AttentionJob]:
        return self.records(AttentionJob, "attention_jobs", limit=limit)

    def failed_compensations(self, limit: int) -> list[FailedCompensation]:
        """Return the newest jobs whose last note says that their compensation failed."""
        return self.records(FailedCompensation, "failed_compensations", limit=limit)

    def agent_sessions(self, limit: int) -> list[AgentSessionRow]:
        """Return the sessions of agents that were active last, latest first."""
        return self.records(AgentSessionRow, "agent_sessions", limit=limit)

    def letters(self, queue: str | None, kind: str | None, limit: int) -> list[LetterRow]:
        """Return the newest dead letters that are not discarded."""
        return self.records(LetterRow, "letters", queue=queue, kind=kind, limit=limit)

    def count_letters(self, limit: int) -> list[LetterCount]:
        """Count the newest dead letters that are not discarded, by queue and kind."""
        return self.records(LetterCount, "count_letters", limit=limit)

    def recent_errors(self, since: Micros, limit: int) -> list[ErrorRow]:
        return self.records(ErrorRow, "recent_errors", since_at=since, limit=limit)

    def dependency_edges(self, ids: Sequence[int], limit: int) -> list[Edge]:
        """Return what these jobs wait for."""
        return self.records(Edge, "dependency_edges", ids=self._list(ids), limit=limit)

    def dependent_edges(self, ids: Sequence[int], limit: int) -> list[Edge]:
        """Return what waits for these jobs."""
        return self.records(Edge, "dependent_edges", ids=self._list(ids), limit=limit)

    def count_left_out(self, waiting: Sequence[int], awaited: Sequence[int], shown: Sequence[int]) -> int:
        """Return how many jobs are not in `shown` that `waiting` wait for, or that wait for `awaited`."""
        above = self.value("count_dependencies_left_out", ids=self._list(waiting), shown=self._list(shown))
        below = self.value("count_dependents_left_out", ids=self._list(awaited), shown=self._list(shown))
        return int(above + below)

    def job_heads(self, ids: Sequence[int]) -> list[JobHead]:
        return self.records(JobHead, "job_heads", ids=self._list(ids))

    def timeline_events(self, job_id: int) -> list[TimelineEvent]:
        """Return the events of a job by revision, without heartbeats."""
        return self.records(TimelineEvent, "timeline_events", job_id=job_id)

    def timeline_beats(self, job_id: int) -> list[TimelineBeat]:
        """Return the heartbeats of a job by revision. The rows stay plain tuples, because there may be thousands."""
        return self.rows("timeline_beats", job_id=job_id, prefix=PREFIX_BYTES)

    def policies_of(self, ids: Iterable[int]) -> dict[int, Policy]:
        return {id_: self._policy(id_) for id_ in ids}
