"""Which jobs of a queue a claim takes before another one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.core.explain.model import WORKER_SEEN_US, SeenWorker
from holdfast.core.flow import Ageing, LimitKey
from holdfast.core.model import JobRecord, Micros


class Rival(NamedTuple):
    """Another subqueue of a job's queue: which workers may have its jobs, and what they draw on."""

    id: int
    priority: int
    kind: str
    for_worker: str
    requires: frozenset[str]
    draws: tuple[tuple[int, int], ...]
    """Ids of keys, and units."""
    first_at: Micros
    """Since when its first job has been available, or when it will be."""


def latest_before(job: JobRecord, priorities: Iterable[int], ageing: Ageing | None, now: Micros) -> dict[int, Micros]:
    """Return the latest time of the jobs of each other priority that come before this job.

    With ageing, the priority after ageing decides, and of two jobs that have the same, the older one precedes.
    """
    others = [priority for priority in priorities if priority != job.priority]
    if ageing is None:
        return {priority: now for priority in others if priority > job.priority}
    own = ageing.effective(job.priority, now - job.available_at)
    found = {}
    for priority in others:
        higher = now - ageing.waited_for(own + 1 - priority)
        as_high = min(now - ageing.waited_for(own - priority), job.available_at - 1)
        found[priority] = max(0, higher, as_high)
    return found


def serving_workers(job: JobRecord, workers: Iterable[SeenWorker], reserved_for: str, now: Micros) -> list[SeenWorker]:
    """Return the workers that were seen lately and serve the job's queue and kind. Only one may, if the job is for one."""
    there = [worker for worker in workers if worker.serves(job.queue, job.kind) and now - worker.seen_at <= WORKER_SEEN_US]
    return [worker for worker in there if reserved_for in ("", worker.name)]


def able_workers(job: JobRecord, workers: Iterable[SeenWorker], reserved_for: str, now: Micros) -> list[SeenWorker]:
    """Return the workers that serve the job and have the labels that it requires."""
    requires = frozenset(() if job.flow is None else job.flow.requires)
    return [worker for worker in serving_workers(job, workers, reserved_for, now) if worker.labels >= requires]


def may_be_taken_by(rival: Rival, job: JobRecord, reserved_for: str, able: Sequence[SeenWorker]) -> bool:
    """Return whether every worker that may have the job may have those of a rival too.

    Without such a worker, it is enough that the rival's jobs are for the same worker, or for any.
    """
    if not able:
        return rival.for_worker in ("", reserved_for)
    return all(
        worker.serves(job.queue, rival.kind) and rival.for_worker in ("", worker.name) and worker.labels >= rival.requires
        for worker in able
    )


def may_start(rival: Rival, keys: Mapping[int, LimitKey], own: Collection[int]) -> bool:
    """Return whether the jobs of a rival may start, or wait only for keys of limits that are the job's `own` too."""
    for key, units in rival.draws:
        state = keys[key]
        if (state.body is not None and state.body.refuses(units)) or (key not in own and not state.fits(units)):
            return False
    return True
