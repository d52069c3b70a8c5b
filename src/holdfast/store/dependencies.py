"""Dependencies between jobs. The caller must hold the locks that each method needs."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.dependencies import DependencyState
from holdfast.core.limits import DEPENDENTS_MAX
from holdfast.core.model import TERMINAL, EventRecord, JobRecord, Status
from holdfast.errors import LimitExceeded
from holdfast.store.flow import SqlFlow
from holdfast.store.groups import SqlGroups
from holdfast.store.rows import STATUSES

JOB_COLUMNS = (
    "id", "status", "rev", "available_at", "updated_at", "finished_at", "cancel_reason", "reason_code", "failure_stage",
    "last_error",
)  # fmt: skip
EVENT_COLUMNS = (
    "job_id", "rev", "type", "received_at", "actor", "attempt", "from_status", "to_status", "reason", "request_id", "cause",
    "payload",
)  # fmt: skip


class SqlDependencies(SqlFlow, SqlGroups):
    """The part of a transaction that handles dependencies."""

    @abstractmethod
    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> dict[str, Any]:
        """Return pairs of numbers as statement parameters."""

    def draw_ids(self, count: int) -> list[int]:
        """Return ids for `count` new jobs, ascending."""
        return sorted(self.values("draw_ids", numbers=self._list(range(1, count + 1))))

    def dependency_states(self, ids: Iterable[int]) -> dict[int, DependencyState]:
        """Return the state of each of these jobs that exists."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        found = self.rows("dependency_states", ids=self._list(wanted))
        return {id_: DependencyState(id_, STATUSES[status], rev, replay) for id_, status, rev, replay in found}

    def link(self, edges: Mapping[int, Sequence[int]], unmet: Mapping[int, Sequence[int]], open_ids: Collection[int]) -> None:
        """Store the dependencies of each new job, and that it waits for the `unmet` ones.

        Jobs in `open_ids` may end before this transaction does, so their rows are not changed. The sweeper links their
        dependents later.
        """
        self.rows("insert_dependencies", **self._pairs((job_id, on_id) for job_id, on in edges.items() for on_id in on))
        if unmet:
            self.set_waits(unmet, open_ids)
        unlinked = [job_id for job_id, on in unmet.items() if any(on_id in open_ids for on_id in on)]
        if unlinked:
            self.rows("note_links", ids=self._list(unlinked))

    def set_waits(self, unmet: Mapping[int, Sequence[int]], open_ids: Collection[int] = (), *, limited: bool = True) -> None:
        """Make each of these jobs wait for its `unmet` ones, and count it as a dependent of those not in `open_ids`.

        If `limited`, raise LimitExceeded when a job would get more than DEPENDENTS_MAX dependents.
        """
        self.rows("set_waits", **self._pairs((job_id, len(on)) for job_id, on in unmet.items()))
        counted = Counter(on_id for on in unmet.values() for on_id in on)
        closed = sorted((on_id, count) for on_id, count in counted.items() if on_id not in open_ids)
        found = self.rows("add_dependents", **self._pairs(closed)) if closed else []
        if len(closed) < len(counted):
            found += [
                (on_id, number + counted[on_id]) for on_id, number in self.rows("count_dependents", ids=self._list(open_ids))
            ]
        for on_id, dependents in found:
            if limited and dependents > DEPENDENTS_MAX:
                raise LimitExceeded(
                    f"more than {DEPENDENTS_MAX} jobs would depend on job {on_id}: let some depend on an intermediate job",
                    field="depends_on",
                    limit=DEPENDENTS_MAX,
                    job_id=on_id,
                )

    def depends_on(self, job_ids: Sequence[int]) -> dict[int, list[int]]:
        """Return the stored dependencies of each of these jobs."""
        found: dict[int, list[int]] = {job_id: [] for job_id in job_ids}
        for job_id, on_id in self.rows("depends_on", ids=self._list(job_ids)):
            found[job_id].append(on_id)
        return found

    def clear_links(self, job_ids: Iterable[int]) -> None:
        """Remove these jobs from the list of jobs to link. Their dependencies count them now."""
        self.rows("clear_links", names=self._list(f"link/{job_id}" for job_id in job_ids))

    def lock_waiting(self, on_ids: Sequence[int]) -> dict[int, int]:
        """Lock the jobs that wait for any of these, ascending. Return how many dependencies each of them waits for."""
        return dict(self.rows("lock_waiting", on_ids=self._list(on_ids)))

    def decrement_waits(self, ids: Sequence[int]) -> None:
        """Decrement the number of open dependencies of each of these jobs. Each must have at least one left afterwards."""
        self.rows("decrement_waits", ids=self._list(ids))

    def save_dependents(self, jobs: Sequence[JobRecord], events: Sequence[EventRecord]) -> None:
        """Save many jobs that stopped waiting, with their events. They were never claimed, and none of their events is signed."""
        self._save_dependents([_job_row(job) for job in jobs], [event_row(event) for event in events])
        placed = [self.subqueue_of(job) for job in jobs if job.flow is not None and job.status is Status.QUEUED]
        self.note_subqueues([id_ for id_ in placed if id_ is not None])
        if ended := [job.id for job in jobs if job.group is not None and job.status in TERMINAL]:
            self.note_ended(ended)

    @abstractmethod
    def _save_dependents(self, jobs: Sequence[Sequence[Any]], events: Sequence[Sequence[Any]]) -> None:
        """Write rows of jobs and events, with the columns JOB_COLUMNS and EVENT_COLUMNS, in newly drawn positions."""

    def failing_dependents(self, ids: Iterable[int], limit: int) -> list[int]:
        """Return the direct and indirect dependents of these jobs that end when a dependency fails, nearest first.

        They are not locked.
        """
        return self.values("failing_dependents", ids=self._list(ids), limit=limit)

    def note_open_cascades(self, ids: Iterable[int]) -> None:
        """Note which of these ended jobs have dependents that have to end with them. The sweeper continues the cascade there."""
        self.rows("note_open_cascades", ids=self._list(ids))

    def clear_open_cascades(self, ids: Iterable[int]) -> None:
        self.rows("clear_open_cascades", ids=self._list(ids))

    def downstream(self, ids: Iterable[int]) -> list[int]:
        """Return these jobs and all jobs that a cascade from them may reach."""
        return self.values("downstream", ids=self._list(ids))

    def move_dependents(self, from_id: int, to_id: int) -> None:
        """Make the jobs that wait for `from_id` wait for `to_id` instead."""
        moved = self.rows("move_dependents", from_id=from_id, to_id=to_id)
        if moved:
            self.rows("add_dependents", **self._pairs([(to_id, len(moved))]))

    def dependents(self, job_id: int, after: int, limit: int) -> list[int]:
        """Return the jobs that wait, or have waited, for a job."""
        return self.values("dependents", on_id=job_id, after=after, limit=limit)

    def _without_dependents(self, ids: Sequence[int]) -> list[int]:
        """Return those of these finished jobs that no job waits for. The caller has locked their rows, so no job can start to."""
        if not ids:
            return []
        waited = set(self.values("waited_for", ids=self._list(ids)))
        return [id_ for id_ in ids if id_ not in waited]


def _job_row(job: JobRecord) -> tuple[Any, ...]:
    return (
        job.id, job.status.value, job.rev, job.available_at, job.updated_at, job.finished_at, job.cancel_reason, job.reason_code,
        job.failure_stage, job.last_error,
    )  # fmt: skip


def event_row(event: EventRecord) -> tuple[Any, ...]:
    return (
        event.job_id, event.rev, event.type.value, event.received_at, str(event.actor), event.attempt,
        None if event.from_status is None else event.from_status.value, event.to_status.value, event.reason, event.request_id,
        event.cause, event.payload,
    )  # fmt: skip
