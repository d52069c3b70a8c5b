"""A queued job: everything that keeps it from being claimed, the weightiest first."""

from collections.abc import Iterator

from holdfast.core.explain.shapes import (
    AGENT_SEEN_US,
    AHEAD_MAX,
    WORKER_SEEN_US,
    Account,
    Facts,
    NextStep,
    SeenWorker,
    Situation,
)
from holdfast.core.explain.words import (
    cancel,
    count,
    move,
    paused,
    remedy,
    run_a_worker,
    span,
    stalled,
    step,
    take_it_up,
    told,
    unpause,
    when,
)
from holdfast.core.model import TERMINAL, Job, Micros, StallReason

NAMED_MAX = 5


def waiting(job: Job, facts: Facts, now: Micros) -> Account:
    """Its situation is the first obstacle; further ones are told after it."""
    found = [*_obstacles(job, facts, now)] or [_ready(job, facts, now)]
    first, rest = found[0], found[1:]
    return Account(
        first.situation,
        (*first.words, *_past(job), *(f"Besides: {word[0].lower()}{word[1:]}" for account in rest for word in account.words)),
        tuple(step for account in found for step in account.next),
        (*(command for account in found for command in account.commands), cancel(job)),
    )


def _obstacles(job: Job, facts: Facts, now: Micros) -> Iterator[Account]:
    if facts.unmet:
        yield _dependencies(job, facts, now)
    if facts.pause is not None:
        yield Account(
            Situation.QUEUE_PAUSED,
            (f"Nothing is claimed from its queue {job.queue}, which was {paused(facts.pause, now)}.",),
            (step("it may be claimed", None, "whoever unpauses the queue"),),
            (unpause(job.queue),),
        )
    if facts.unmet:
        yield from _not_before(job, now)
    elif job.available_at > now:
        yield _later(job, now)
    if facts.is_asked_to_claim:
        return
    serving = lately_seen(job, facts, now)
    if not serving:
        yield _no_worker(job, facts, now)
    elif facts.ahead and job.available_at <= now:
        yield _behind(job, facts, serving)


def lately_seen(job: Job, facts: Facts, now: Micros) -> list[SeenWorker]:
    """Workers that would claim it, as far as they have said what they serve."""
    return [w for w in facts.workers if w.serves(job.queue, job.kind) and now - w.seen_at <= WORKER_SEEN_US]


def _dependencies(job: Job, facts: Facts, now: Micros) -> Account:
    broken = [link for link in facts.unmet if link.status in TERMINAL]
    names = _named([f"{link.job_id} ({link.status.value})" for link in facts.unmet])
    commands = tuple(
        remedy(f"starts job {link.job_id} over; this job then waits for that one", "job", "replay", link.job_id)
        for link in broken[:NAMED_MAX]
    )
    if broken:
        words = f"It waits for {_jobs(facts)} {names}, and {_named([str(link.job_id) for link in broken])} will not succeed."
        return Account(
            Situation.DEPENDENCY_FAILED, (words,), (step("it goes on waiting", None, "whoever replays the job"),), commands
        )
    met = step("it may be claimed once they have succeeded", _wanted_at(job, now), "whoever completes them")
    return Account(
        Situation.WAITS_FOR_DEPENDENCY,
        (f"It waits for {_jobs(facts)} {names}.",),
        (met, *_in_vain(job)),
        tuple(remedy(f"says how job {link.job_id} stands", "explain", link.job_id) for link in facts.unmet[:NAMED_MAX]),
    )


def _in_vain(job: Job) -> Iterator[NextStep]:
    """What becomes of it without further ado once one of them comes to nothing."""
    if job.on_dependency_failure != "wait":
        ends = "cancelled" if job.on_dependency_failure == "cancel" else "dead-lettered"
        yield step(f"it is {ends} if one of them ends otherwise", None, "whoever ends that one")


def _wanted_at(job: Job, now: Micros) -> Micros | None:
    """When it was to be available had it nobody to wait for; None where that is past."""
    return job.wanted_at if job.wanted_at is not None and job.wanted_at > now else None


def _not_before(job: Job, now: Micros) -> Iterator[Account]:
    """Of a job that waits for others, whose row knows of its own time only once they have succeeded."""
    at = _wanted_at(job, now)
    if at is not None:
        words = f"It was enqueued for later, and may not be claimed before its time either: {when(at, now)}."
        yield Account(Situation.SCHEDULED, (words,))


def _jobs(facts: Facts) -> str:
    return "job" if len(facts.unmet) == 1 else f"{len(facts.unmet):,} jobs:"


def _named(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _later(job: Job, now: Micros) -> Account:
    situation, words = Situation.SCHEDULED, "It was enqueued for later"
    if job.attempt:
        situation, words = Situation.BACKOFF, "It waits before it is tried again"
    return Account(
        situation,
        (f"{words}, and may be claimed {when(job.available_at, now)}.",),
        (step("it may be claimed", job.available_at, "the next worker with room"),),
    )


def _no_worker(job: Job, facts: Facts, now: Micros) -> Account:
    once = [worker for worker in facts.workers if worker.serves(job.queue, job.kind)]
    elsewhere = _served_in(job, facts, now)
    if elsewhere:
        words = f"No worker serves {job.kind} in {job.queue}. It is served in {_named(elsewhere)}."
    elif once:
        last = max(once, key=lambda worker: worker.seen_at)
        words = (
            f"No worker that serves {job.kind} is there now. {last.name}, which served it, fell silent {when(last.seen_at, now)}."
        )
    elif any(now - worker.seen_at <= WORKER_SEEN_US for worker in facts.workers):
        words = f"No worker for it is there: the workers that are signed in do not serve {job.kind} in {job.queue}."
    else:
        words = f"No worker for it is there: none that serves {job.kind} in {job.queue} is signed in to this ledger."
    by, commands = f"a worker that serves {job.kind}", [*(move(job, queue) for queue in elsewhere[:1]), run_a_worker(job.queue)]
    if facts.agent_at is not None and now - facts.agent_at <= AGENT_SEEN_US:
        words = f"{words} Agents are at work, the last of them {when(facts.agent_at, now)}, and may take it up."
        by, commands = f"an agent, or {by}", [take_it_up(job), *commands]
    return Account(Situation.NO_WORKER, (words,), (step("it is claimed", None, by),), tuple(commands))


def _served_in(job: Job, facts: Facts, now: Micros) -> list[str]:
    """The queues in which workers that are there serve jobs of its kind, by name. Workers that did not say what they serve are
    left out."""
    there = [worker for worker in facts.workers if now - worker.seen_at <= WORKER_SEEN_US]
    return sorted({queue for w in there for queue in w.queues or () if w.kinds is not None and job.kind in w.kinds})


def _behind(job: Job, facts: Facts, serving: list[SeenWorker]) -> Account:
    ahead = f"{AHEAD_MAX:,} jobs or more" if facts.ahead >= AHEAD_MAX else count(facts.ahead, "job")
    return Account(
        Situation.QUEUED_BEHIND,
        (f"It may be claimed, but {ahead} of its queue {'come' if facts.ahead > 1 else 'comes'} first.",),
        (step(f"it is claimed after {ahead}", None, _whoever(serving)),),
        (run_a_worker(job.queue),),
    )


def _ready(job: Job, facts: Facts, now: Micros) -> Account:
    asked = facts.is_asked_to_claim
    by = "whoever claims it first" if asked else _whoever(lately_seen(job, facts, now))
    ready_for = span(now - max(job.available_at, job.created_at))
    words = f"It may be claimed{'' if asked else ', and is the next of its queue'}; it has been ready for {ready_for}."
    situation = Situation.REQUEUED if job.attempt else Situation.READY
    return Account(situation, (words,), (step("it is claimed", None, by),))


def _whoever(serving: list[SeenWorker]) -> str:
    return f"the first with room of {_named([worker.name for worker in serving])}" if len(serving) > 1 else serving[0].name


def _past(job: Job) -> Iterator[str]:
    """What became of the attempt before."""
    if not job.attempt:
        return
    who = job.last_owner or "its holder"
    match job.stall_reason:
        case StallReason.RELEASED:
            yield f"{who} handed it back from attempt {job.attempt}; that does not count."
        case StallReason.TRANSIENT_ERROR | StallReason.WORKER_ERROR if job.last_error is not None:
            yield f"Attempt {job.attempt}, by {who}, failed: {told(job.last_error)}."
        case reason:
            yield f"Attempt {job.attempt}, by {who}, was given up: {stalled(reason)}."
