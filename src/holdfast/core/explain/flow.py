"""Explain what flow control has to do with a queued job: its limits, its labels, its worker, and its partition's turn."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.core.explain.formatting import format_when, let_any_worker, next_step, quote_argument, run_a_worker
from holdfast.core.explain.model import (
    AHEAD_MAX,
    WORKER_SEEN_US,
    ExplanationPart,
    FlowFacts,
    LimitState,
    QueuedFacts,
    Remedy,
    SeenWorker,
    Situation,
)
from holdfast.core.model import JobRecord, Micros
from holdfast.core.text import join_some, pluralize

NAMED_MAX = 5


def missing_labels(requires: Iterable[str], workers: Sequence[SeenWorker]) -> list[str]:
    """Return the required labels that no worker has. If each is there, but no worker has all of them, return all."""
    wanted = sorted(set(requires))
    if any(worker.labels.issuperset(wanted) for worker in workers):
        return []
    return [label for label in wanted if not any(label in worker.labels for worker in workers)] or wanted


def explain_labels(job: JobRecord, serving: Sequence[SeenWorker]) -> ExplanationPart | None:
    """Return why no worker that serves the job may have it, or None if one may."""
    requires = labels_of(job)
    missing = missing_labels(requires, serving)
    if not missing:
        return None
    names = join_some(missing, NAMED_MAX)
    if any(label in worker.labels for worker in serving for label in missing):
        words = f"It requires the labels {names}, and no running worker that serves {job.kind} in {job.queue} has all of them."
    else:
        words = (
            f"It requires the {'label' if len(missing) == 1 else 'labels'} {names}, "
            f"which no running worker that serves {job.kind} in {job.queue} has."
        )
    labels = join_some(sorted(set(requires)), NAMED_MAX)
    claims = next_step("it is claimed", None, f"a worker with {'the label' if len(requires) == 1 else 'the labels'} {labels}")
    return ExplanationPart(Situation.NO_WORKER_WITH_LABELS, (words,), (claims,), (run_a_worker(job.queue, requires),))


def explain_worker(job: JobRecord, workers: Sequence[SeenWorker], now: Micros) -> ExplanationPart | None:
    """Return which worker a job is for, if that one is not there. None if it is there, or if the job is for any."""
    name = only_worker_of(job)
    seen = max((worker.seen_at for worker in workers if worker.name == name), default=None)
    if not name or (seen is not None and now - seen <= WORKER_SEEN_US):
        return None
    gone = f"{name} is not signed in to this ledger" if seen is None else f"{name} fell silent {format_when(seen, now)}"
    return ExplanationPart(
        Situation.NO_WORKER_WITH_LABELS,
        (f"It is for the worker {name} only. {gone}.",),
        (next_step("it is claimed", None, name),),
        (let_any_worker(job), run_a_worker(job.queue, labels_of(job), name=name)),
    )


def only_worker_of(job: JobRecord) -> str:
    return "" if job.flow is None else job.flow.for_worker


def labels_of(job: JobRecord) -> tuple[str, ...]:
    return () if job.flow is None else job.flow.labels


def explain_limits(facts: FlowFacts, now: Micros) -> Iterator[ExplanationPart]:
    """Yield the limits that keep the job from starting. One that is too small for the job comes first."""
    for limit in sorted(facts.limits, key=lambda one: not one.is_too_small):
        if limit.is_too_small:
            yield _too_small(limit)
        elif limit.is_used_up:
            yield _used_up(limit, now)


def _too_small(limit: LimitState) -> ExplanationPart:
    most = min(found for found in (limit.concurrent, limit.tokens_max) if found)
    words = f"It can never start: it draws {_units(limit.units)} of the limit {limit.name}, which has {most:,} at most."
    step = next_step("it may be claimed", None, "the operator who raises the limit")
    return ExplanationPart(Situation.LIMIT_TOO_SMALL, (words,), (step,), (show_limit(limit.limit),))


def _used_up(limit: LimitState, now: Micros) -> ExplanationPart:
    draws = "" if limit.units == 1 else f" It draws {_units(limit.units)}."
    if limit.concurrent == 0:
        words = f"The limit {limit.name} is stopped: it has concurrent 0."
        step = next_step("it may be claimed", None, "the operator who sets the limit to another number")
    elif limit.concurrent is not None and limit.used + limit.units > limit.concurrent:
        words = f"The limit {limit.name} is used up: {limit.used:,} of {limit.concurrent:,} are in use.{draws}"
        step = next_step(f"it may be claimed when enough of the limit {limit.name} is free", None, "the jobs that use it")
    else:
        assert limit.turn_at is not None
        at = f"{format_when(limit.turn_at, now)} at the earliest"
        words = f"The rate of the limit {limit.name} is used up: it may start {at}.{draws}"
        step = next_step("it may be claimed", limit.turn_at, f"the rate of the limit {limit.name}")
    return ExplanationPart(Situation.LIMIT_USED_UP, (words,), (step,), (show_limit(limit.limit),))


def _units(units: int) -> str:
    return pluralize(units, "unit")


def show_limit(name: str) -> Remedy:
    return Remedy(f"holdfast limit get {quote_argument(name)}", "shows the limit and what is in use of it")


def serving_workers(job: JobRecord, workers: Iterable[SeenWorker], now: Micros) -> list[SeenWorker]:
    """Return the workers that were seen lately and serve the job's queue and kind. Only one may, if the job is for one."""
    there = [worker for worker in workers if worker.serves(job.queue, job.kind) and now - worker.seen_at <= WORKER_SEEN_US]
    return [worker for worker in there if only_worker_of(job) in ("", worker.name)]


def format_claimable(job: JobRecord) -> str:
    """Return that a job may be claimed, and by which worker, if it is for one."""
    name = only_worker_of(job)
    return f"It may be claimed by the worker {name} only" if name else "It may be claimed"


def format_first(facts: QueuedFacts, like: str) -> str:
    """Return which jobs come first: those of a higher priority, and those `like` the job that are older."""
    higher = "jobs of a higher priority wait in this queue" if facts.has_higher else ""
    alike = f"{_format_ahead(facts)} {like} {'come' if facts.ahead > 1 else 'comes'} first" if facts.ahead else ""
    return ", and ".join(filter(None, (higher, alike)))


def claimed_after(facts: QueuedFacts) -> str:
    """Return after which jobs a job is claimed."""
    higher = "the jobs of a higher priority that may start" if facts.has_higher else ""
    return f"it is claimed after {' and '.join(filter(None, (higher, _format_ahead(facts) if facts.ahead else '')))}"


def _format_ahead(facts: QueuedFacts) -> str:
    return f"{facts.ahead:,} jobs or more" if facts.ahead >= AHEAD_MAX else pluralize(facts.ahead, "job")


def add_turns(words: str, job: JobRecord, facts: QueuedFacts) -> str:
    """Add how a job shares the workers with others of its priority."""
    if job.flow is not None and job.flow.partition:
        return f"{words} The partitions of a queue take turns."
    return f"{words} It takes turns with other jobs of its priority." if facts.takes_turns else words


def add_turns_to(part: ExplanationPart, job: JobRecord, facts: QueuedFacts) -> ExplanationPart:
    """Add to a limit that is used up how the job shares it with others of its priority."""
    if part.situation is not Situation.LIMIT_USED_UP:
        return part
    *others, last = part.words
    return msgspec.structs.replace(part, words=(*others, add_turns(last, job, facts)))


def explain_turn(job: JobRecord, facts: QueuedFacts, flow: FlowFacts, claimants: str, now: Micros) -> ExplanationPart:
    """Explain a job that is not the first of its subqueue, or not of the highest priority."""
    assert job.flow is not None
    like = f"of its partition {job.flow.partition}" if job.flow.partition else "like it"
    words = f"{format_first(facts, like)}."
    at = None
    if not any(limit.is_used_up or limit.is_too_small for limit in flow.limits):
        words = f"{format_claimable(job)}, but {words}"
        if rates := [(limit.turn_at, limit.name) for limit in flow.limits if limit.turn_at is not None]:
            at, slowest = max(rates)
            words = f"{words} The rate of the limit {slowest} lets it start {format_when(at, now)} at the earliest."
    step = next_step(claimed_after(facts), at, claimants)
    run = run_a_worker(job.queue, job.flow.labels, name=job.flow.for_worker)
    return ExplanationPart(Situation.QUEUED_BEHIND, (add_turns(words, job, facts),), (step,), (run,))
