"""Explain a queued job: everything that keeps it from being claimed, the most important first."""

from collections.abc import Iterable, Iterator

from holdfast.core.explain.flow import (
    add_turns,
    add_turns_to,
    claimed_after,
    explain_labels,
    explain_limits,
    explain_turn,
    explain_worker,
    format_claimable,
    format_first,
    serving_workers,
)
from holdfast.core.explain.formatting import (
    cancel,
    format_error_json,
    format_hidden,
    format_pause,
    format_stall,
    format_when,
    move,
    next_step,
    remedy,
    run_a_worker,
    start_as_agent,
    unpause,
)
from holdfast.core.explain.model import (
    AGENT_SEEN_US,
    WORKER_SEEN_US,
    ExplanationPart,
    FlowFacts,
    NextStep,
    Postponement,
    QueuedFacts,
    SeenWorker,
    Situation,
    WhyNotRunning,
)
from holdfast.core.model import TERMINAL, JobRecord, Micros, StallReason
from holdfast.core.text import format_duration, join_some

NAMED_MAX = 5


def explain_queued(job: JobRecord, facts: QueuedFacts, now: Micros) -> ExplanationPart:
    """Explain a queued job. Its situation is the first obstacle. The text names the others after it."""
    found = [*_obstacles(job, facts, now)] or [_ready(job, facts, now)]
    first, rest = found[0], found[1:]
    return ExplanationPart(
        first.situation,
        (*first.words, *_last_attempt(job), *_besides(rest)),
        tuple(step for part in found for step in part.next),
        (*(command for part in found for command in part.commands), cancel(job)),
    )


def explain_waiting(job: JobRecord, facts: QueuedFacts, now: Micros) -> WhyNotRunning:
    """Say what keeps a queued job from being claimed, as its explanation does, without how its last attempt ended."""
    now = max(now, job.updated_at)
    found = [*_obstacles(job, facts, now)] or [_ready(job, facts, now)]
    return WhyNotRunning(found[0].situation, " ".join((*found[0].words, *_besides(found[1:]))))


def _besides(rest: Iterable[ExplanationPart]) -> Iterator[str]:
    return (f"Besides: {word[0].lower()}{word[1:]}" for part in rest for word in part.words)


def _obstacles(job: JobRecord, facts: QueuedFacts, now: Micros) -> Iterator[ExplanationPart]:
    waits = bool(facts.unmet or facts.hidden)
    if waits:
        yield _dependencies(job, facts, now)
    if facts.pause is not None:
        yield ExplanationPart(
            Situation.QUEUE_PAUSED,
            (f"Nothing is claimed from its queue {job.queue}, which was {format_pause(facts.pause, now)}.",),
            (next_step("it may be claimed", None, "the operator who unpauses the queue"),),
            (unpause(job.queue),),
        )
    if waits:
        yield from _scheduled_besides(job, facts, now)
    elif job.available_at > now:
        yield _not_available_yet(job, facts, now)
    if facts.flow is not None:
        yield from _flow(job, facts, facts.flow, now)
    elif not facts.is_asked_to_claim:
        yield from _claims(job, facts, serving_workers(job, facts.workers, now), now)


def _claims(job: JobRecord, facts: QueuedFacts, serving: list[SeenWorker], now: Micros) -> Iterator[ExplanationPart]:
    if not serving:
        yield _no_worker(job, facts, now)
    elif (facts.ahead or facts.has_higher) and job.available_at <= now:
        yield _behind(job, facts, serving)


def _flow(job: JobRecord, facts: QueuedFacts, flow: FlowFacts, now: Micros) -> Iterator[ExplanationPart]:
    """Yield what keeps a job with flow control from being claimed: missing workers, then limits, then other jobs."""
    serving = serving_workers(job, facts.workers, now)
    unserved = explain_worker(job, facts.workers, now)
    if unserved is None and not facts.is_asked_to_claim:
        unserved = explain_labels(job, serving) if serving else _no_worker(job, facts, now)
    if unserved is not None:
        yield unserved
    competes = not facts.is_asked_to_claim and unserved is None and job.available_at <= now
    comes_later = competes and (facts.has_higher or facts.ahead > 0)
    for limit in explain_limits(flow, now):
        yield add_turns_to(limit, job, facts) if competes and not comes_later else limit
    if comes_later:
        yield explain_turn(job, facts, flow, _format_claimants(serving), now)


def _dependencies(job: JobRecord, facts: QueuedFacts, now: Micros) -> ExplanationPart:
    broken = [link for link in facts.unmet if link.status in TERMINAL]
    commands = tuple(
        remedy(f"replays job {link.job_id}; this job then waits for the replay", "job", "replay", link.job_id)
        for link in broken[:NAMED_MAX]
    )
    if broken:
        failed = join_some([link.job_id for link in broken], NAMED_MAX)
        words = f"It waits for {_format_unmet(facts)}, and {failed} will not succeed."
        return ExplanationPart(
            Situation.DEPENDENCY_FAILED, (words,), (next_step("it waits for a replay", None, "an operator"),), commands
        )
    met = next_step("it may be claimed once they have succeeded", _wanted_at(job, now), "the workers that complete them")
    return ExplanationPart(
        Situation.WAITS_FOR_DEPENDENCY,
        (f"It waits for {_format_unmet(facts)}.",),
        (met, *_if_dependency_fails(job)),
        tuple(remedy(f"explains job {link.job_id}", "explain", link.job_id) for link in facts.unmet[:NAMED_MAX]),
    )


def _if_dependency_fails(job: JobRecord) -> Iterator[NextStep]:
    """Yield what happens to the job if one of its dependencies ends without success."""
    if job.on_dependency_failure != "wait":
        ends = "cancelled" if job.on_dependency_failure == "cancel" else "dead-lettered"
        yield next_step(f"it is {ends} if one of them ends without success", None, "the ledger")


def _wanted_at(job: JobRecord, now: Micros) -> Micros | None:
    """Return when it would be available without its dependencies, or None if that time is past."""
    return job.wanted_at if job.wanted_at is not None and job.wanted_at > now else None


def _scheduled_besides(job: JobRecord, facts: QueuedFacts, now: Micros) -> Iterator[ExplanationPart]:
    """Explain the own start time of a job with dependencies. `available_at` does not have it while the job waits."""
    at = _wanted_at(job, now)
    if at is not None and facts.postponed is not None:
        yield ExplanationPart(Situation.POSTPONED, (_format_postponed(job, facts.postponed, now),))
    elif at is not None:
        words = f"It was enqueued for later, and may not be claimed before its time: {format_when(at, now)}."
        yield ExplanationPart(Situation.SCHEDULED, (words,))


def _format_unmet(facts: QueuedFacts) -> str:
    names = join_some([f"{link.job_id} ({link.status.value})" for link in facts.unmet], NAMED_MAX)
    shown = f"job {names}" if len(facts.unmet) == 1 else f"{len(facts.unmet):,} jobs: {names}"
    if not facts.hidden:
        return shown
    others = format_hidden(facts.hidden)
    return f"{shown}, and for {others}" if facts.unmet else others


def _format_postponed(job: JobRecord, last: Postponement, now: Micros) -> str:
    called, latest = format_when(last.at, now), format_when(last.latest_at, now)
    words = f"The last call with its dedupe key {job.dedupe_key!r}, {called}, postponed it: it may be claimed"
    words = f"{words} {format_when(last.available_at, now)}."
    if last.available_at == last.latest_at:
        return f"{words} Such calls cannot postpone it further."
    return f"{words} Such calls can postpone it further: {latest} at the latest."


def _not_available_yet(job: JobRecord, facts: QueuedFacts, now: Micros) -> ExplanationPart:
    situation = Situation.SCHEDULED
    words = f"It was enqueued for later, and may be claimed {format_when(job.available_at, now)}."
    if job.attempt:
        situation = Situation.BACKOFF
        words = f"It waits before it is tried again, and may be claimed {format_when(job.available_at, now)}."
    elif facts.postponed is not None and facts.postponed.available_at == job.available_at:
        situation, words = Situation.POSTPONED, _format_postponed(job, facts.postponed, now)
    return ExplanationPart(
        situation,
        (words,),
        (next_step("it may be claimed", job.available_at, "the next worker with free capacity"),),
    )


def _no_worker(job: JobRecord, facts: QueuedFacts, now: Micros) -> ExplanationPart:
    once = [worker for worker in facts.workers if worker.serves(job.queue, job.kind)]
    elsewhere = _queues_serving_kind(job, facts, now)
    if elsewhere:
        words = f"No worker serves {job.kind} in {job.queue}. It is served in {join_some(elsewhere, NAMED_MAX)}."
    elif once:
        last = max(once, key=lambda worker: worker.seen_at)
        silent_since = format_when(last.seen_at, now)
        words = f"No worker serves {job.kind} now. {last.name}, which served it, fell silent {silent_since}."
    elif any(now - worker.seen_at <= WORKER_SEEN_US for worker in facts.workers):
        words = f"No worker serves it: the workers that are signed in do not serve {job.kind} in {job.queue}."
    else:
        words = f"No worker serves it: none that serves {job.kind} in {job.queue} is signed in to this ledger."
    if not elsewhere and not once and facts.declared_queue not in (None, job.queue):
        words = f"{words} Its handler is declared for {facts.declared_queue}."
        elsewhere = [facts.declared_queue]
    by, commands = f"a worker that serves {job.kind}", [*(move(job, queue) for queue in elsewhere[:1]), run_a_worker(job.queue)]
    if facts.agent_at is not None and now - facts.agent_at <= AGENT_SEEN_US:
        words = f"{words} Agents are active, the last of them {format_when(facts.agent_at, now)}, and may claim it."
        by, commands = f"an agent, or {by}", [start_as_agent(job), *commands]
    return ExplanationPart(Situation.NO_WORKER, (words,), (next_step("it is claimed", None, by),), tuple(commands))


def _queues_serving_kind(job: JobRecord, facts: QueuedFacts, now: Micros) -> list[str]:
    """Return the names of the queues in which live workers serve jobs of its kind, first the one that its handler declares.

    Workers that did not say what they serve are left out.
    """
    there = [worker for worker in facts.workers if now - worker.seen_at <= WORKER_SEEN_US]
    found = {queue for w in there for queue in w.queues or () if w.kinds is not None and job.kind in w.kinds}
    return sorted(found, key=lambda queue: (queue != facts.declared_queue, queue))


def _behind(job: JobRecord, facts: QueuedFacts, serving: list[SeenWorker]) -> ExplanationPart:
    words = f"It may be claimed, but {format_first(facts, 'of its queue')}."
    return ExplanationPart(
        Situation.QUEUED_BEHIND,
        (add_turns(words, job, facts),),
        (next_step(claimed_after(facts), None, _format_claimants(serving)),),
        (run_a_worker(job.queue),),
    )


def _ready(job: JobRecord, facts: QueuedFacts, now: Micros) -> ExplanationPart:
    asked = facts.is_asked_to_claim
    by = "the first worker to claim it" if asked else _format_claimants(serving_workers(job, facts.workers, now))
    ready_for = format_duration(now - max(job.available_at, job.created_at))
    is_next = "" if asked else f", and is the next of {_place(job, facts)}"
    words = f"{format_claimable(job)}{is_next}; it has been ready for {ready_for}."
    situation = Situation.REQUEUED if job.attempt else Situation.READY
    return ExplanationPart(
        situation, (words if asked else add_turns(words, job, facts),), (next_step("it is claimed", None, by),)
    )


def _place(job: JobRecord, facts: QueuedFacts) -> str:
    """Return where a job is the next: a job with flow control competes with the jobs like it only."""
    if job.flow is None:
        return "the jobs without a partition, limits and labels" if facts.takes_turns else "its queue"
    return f"its partition {job.flow.partition}" if job.flow.partition else "its kind with its limits and labels"


def _format_claimants(serving: list[SeenWorker]) -> str:
    names = [worker.name for worker in serving]
    return f"the first of {join_some(names, NAMED_MAX)} with free capacity" if len(names) > 1 else names[0]


def _last_attempt(job: JobRecord) -> Iterator[str]:
    """Yield how the last attempt ended."""
    if not job.attempt:
        return
    who = job.last_owner or "its holder"
    match job.stall_reason:
        case StallReason.RELEASED:
            yield f"{who} released attempt {job.attempt}; it does not count."
        case StallReason.TRANSIENT_ERROR | StallReason.WORKER_ERROR if job.last_error is not None:
            yield f"Attempt {job.attempt}, by {who}, failed: {format_error_json(job.last_error)}."
        case reason:
            yield f"Attempt {job.attempt}, by {who}, ended: {format_stall(reason)}."
