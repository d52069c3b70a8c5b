"""The checks of flow control: jobs that no worker may have, and limits that do not fit."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.core.doctor.model import COUNT_MAX, HealthFinding, LedgerHealth, LimitTrouble, RoutedJobs, note, warning
from holdfast.core.explain.flow import missing_labels, show_limit
from holdfast.core.explain.formatting import format_when, run_a_worker
from holdfast.core.explain.model import AGENT_SEEN_US, SeenWorker
from holdfast.core.model import Micros, only_worker
from holdfast.core.text import format_duration, join_some, pluralize

NAMED_MAX = 5


class UnroutableJobs(NamedTuple):
    """Jobs that no running worker may have."""

    found: RoutedJobs
    missing: list[str]
    """The labels that are missing. Empty if their worker is gone."""


def find_unroutable(routed: Sequence[RoutedJobs], running: Sequence[SeenWorker]) -> Iterator[UnroutableJobs]:
    """Yield the jobs that no running worker may have, although some serve their queue and kind, or would have to.

    Jobs that no worker serves at all are another problem, unless they are for one worker.
    """
    for found in routed:
        serving = [worker for worker in running if worker.serves(found.queue, found.kind)]
        only = only_worker(found.requires)
        if only and not any(worker.name == only for worker in running):
            yield UnroutableJobs(found, [])
            continue
        own = [worker for worker in serving if only in ("", worker.name)]
        if own and (missing := missing_labels(found.requires[1:] if only else found.requires, own)):
            yield UnroutableJobs(found, missing)


def check_flow(health: LedgerHealth, running: Sequence[SeenWorker], waited_us: int) -> Iterator[HealthFinding]:
    """Report jobs that no worker may have for longer than `waited_us`, and limits that do not fit their jobs."""
    for one in find_unroutable(health.routed, running):
        if health.now - one.found.since > waited_us and one.found.queue not in health.paused:
            yield _unroutable(one, health.now, health.agent_at)
    for limit in health.limits:
        yield _removed(limit) if not limit.units else _too_small(limit)


def _unroutable(one: UnroutableJobs, now: Micros, agent_at: Micros | None) -> HealthFinding:
    found = one.found
    only = only_worker(found.requires)
    waits, them = ("waits", "it") if found.jobs == 1 else ("wait", "them")
    jobs = f"{_count(found.jobs)} of kind {found.kind} in queue {found.queue} {waits}"
    waited = f"the first for {format_duration(now - found.since)}"
    if one.missing:
        code, names = "label_missing", join_some(one.missing, NAMED_MAX)
        word = "label" if len(one.missing) == 1 else "labels"
        words = f"{jobs}, {waited}: no running worker that serves {them} has the {word} {names}"
    else:
        code = "worker_missing"
        words = f"{jobs}, {waited}: only the worker {only} may have {them}, and it is not running"
    action = f"Start one: {run_a_worker(found.queue, found.requires[1:] if only else found.requires, only).command}."
    if not one.missing:
        action = f"{action} Or let any worker have {them}: holdfast job move ID --any-worker."
    if agent_at is not None and now - agent_at <= AGENT_SEEN_US:
        words = f"{words}; agents are active, the last of them {format_when(agent_at, now)}"
        return note(code, words, f"Unless it is for agents: {action[0].lower()}{action[1:]}")
    return warning(code, words, action)


def _removed(limit: LimitTrouble) -> HealthFinding:
    words = f"{_count(limit.jobs)} {_draw(limit)} on the limit {limit.limit}, which was removed: they go on without it"
    return note("limit_removed", words, "If they should be limited, set the limit again.")


def _too_small(limit: LimitTrouble) -> HealthFinding:
    words = f"{_count(limit.jobs)} {_draw(limit)} {limit.units:,} units of the limit {limit.limit}, which has fewer"
    action = f"They can never start. Raise the limit or cancel the jobs: {show_limit(limit.limit.partition(' for ')[0]).command}."
    return warning("limit_too_small", words, action)


def _draw(limit: LimitTrouble) -> str:
    return "draws" if limit.jobs == 1 else "draw"


def _count(jobs: int) -> str:
    return f"{COUNT_MAX:,} jobs or more" if jobs >= COUNT_MAX else pluralize(jobs, "job")
