"""A finished job: how it ended, what came of it since, and whether anybody has to do something."""

from collections.abc import Iterator

from holdfast.core.deadlines import exhausted, tries
from holdfast.core.explain.shapes import Account, Facts, NextStep, Remedy, Situation
from holdfast.core.explain.sweeping import sweeper
from holdfast.core.explain.words import SWEEP, count, discard, remedy, step, told, when
from holdfast.core.model import LIVE, EventType, Job, Micros, ReasonCode, Status
from holdfast.core.undo import owes_undo

NAMED_MAX = 5
_OF_ATTEMPTS = frozenset({ReasonCode.TIMEOUT, ReasonCode.INFRASTRUCTURE_FAILURE})


def ended(job: Job, facts: Facts, now: Micros) -> Account:
    parts, outcome = [*_afterwards(job, facts)], _outcome(job)
    situation = next((part.situation for part in parts if part.situation is not outcome), outcome)
    words = (_how(job, now), *(word for part in parts for word in part.words))
    steps: tuple[NextStep, ...] = tuple(found for part in parts for found in part.next)
    commands = (*(command for part in parts for command in part.commands), *_commands(job, facts))
    return Account(situation, words, steps, commands)


def _outcome(job: Job) -> Situation:
    return Situation.EXHAUSTED if _is_exhausted(job) else Situation(job.status.value)


def _is_exhausted(job: Job) -> bool:
    """Whether it was dead-lettered because no attempt was left. The reason may be that of the last attempt."""
    if job.status is not Status.DEAD_LETTERED:
        return False
    return job.reason_code == ReasonCode.EXHAUSTED_RETRIES or (exhausted(job) and job.reason_code in _OF_ATTEMPTS)


def _how(job: Job, now: Micros) -> str:
    assert job.finished_at is not None
    at, error = when(job.finished_at, now), "" if job.last_error is None else f": {told(job.last_error)}"
    match job.status:
        case Status.SUCCEEDED:
            return f"It succeeded {at}, in attempt {job.attempt}, by {job.last_owner}."
        case Status.FAILED:
            broke = "" if job.failure_stage is None else f" ({job.reason_code or 'permanent'}, in {job.failure_stage})"
            return f"It failed {at}{broke}, in attempt {job.attempt}{_limit(job)}{error}."
        case Status.CANCELLED:
            return f"It was cancelled {at}: {job.cancel_reason}."
        case _:
            broke = f"It was dead-lettered {at} ({job.reason_code}, in {job.failure_stage})"
            return f"{broke}, after {_tried(job)}{error}."


def _tried(job: Job) -> str:
    """`1 of 1 attempts`; without the limit where it did not end the job."""
    return f"{tries(job)}{limit} attempts" if (limit := _limit(job)) else count(tries(job), "attempt")


def _limit(job: Job) -> str:
    return f" of {job.policy.attempts_max}" if job.policy is not None and exhausted(job) else ""


def _afterwards(job: Job, facts: Facts) -> Iterator[Account]:
    """The weightiest first."""
    if job.note == EventType.COMPENSATION_FAILED:
        look = () if facts.undo is None else (remedy("says what went wrong with undoing it", "explain", facts.undo.job_id),)
        yield Account(
            Situation.COMPENSATION_FAILED, ("What it had done could not be undone: somebody has to look at it.",), (), look
        )
    elif owes_undo(job):
        yield _owed(job, facts)
    elif job.note == EventType.COMPENSATED:
        yield Account(_outcome(job), ("What it had done was undone.",))
    elif facts.unmet:
        yield _unavailable(job, facts)
    if job.status is Status.DEAD_LETTERED and job.reason_code == ReasonCode.PARSE_ERROR:
        yield Account(_outcome(job), ("A replay has the same arguments: it fails again unless the handler takes them now.",))
    if facts.replays:
        newest = facts.replays[-1]
        words = f"It was replayed as job {newest.job_id}, which is {newest.status.value}."
        yield Account(Situation.REPLAYED, (words,), (), (remedy("says how its replay stands", "explain", newest.job_id),))
    if job.note == EventType.DISCARDED:
        yield Account(_outcome(job), ("Somebody noted that nobody needs to look at it.",))


def _unavailable(job: Job, facts: Facts) -> Account:
    """It never ran, because a job that it depends on ended without success."""
    broken = facts.unmet[:NAMED_MAX]
    names = ", ".join(f"{link.job_id} ({link.status.value})" for link in broken)
    one = len(facts.unmet) == 1
    words = (
        f"It depends on job{'' if one else 's'} {names}. Replay {'that job' if one else 'those jobs'} and this one, in any "
        "order: the replay of this job waits for the other replay."
    )
    commands = tuple(
        remedy(f"starts job {link.job_id} over, which it depends on", "job", "replay", link.job_id) for link in broken
    )
    return Account(_outcome(job), (words,), (), commands)


def _owed(job: Job, facts: Facts) -> Account:
    words = f"It still owes {job.undo_owed} undo step{'' if job.undo_owed == 1 else 's'}"
    look: tuple[Remedy, ...]
    if facts.undo is None:
        words, at_work = f"{words}, and no job undoes them yet.", step("a job is made that undoes it", None, sweeper(facts))
        look = (SWEEP,)
    else:
        words = f"{words}; job {facts.undo.job_id}, which undoes them, is {facts.undo.status.value}."
        at_work = step(f"job {facts.undo.job_id} ends, and its end is noted here", None, sweeper(facts))
        look = (remedy("says how the undoing stands", "explain", facts.undo.job_id),)
    return Account(Situation.COMPENSATION_OWED, (words,), (at_work,), look)


def _commands(job: Job, facts: Facts) -> Iterator[Remedy]:
    if job.status is Status.SUCCEEDED or any(replay.status in LIVE for replay in facts.replays):
        return
    if job.status is not Status.DEAD_LETTERED:
        yield _start_over(job, facts, "job")
        return
    over = _start_over(job, facts, "dlq")
    put_aside = (discard(job),) if job.note != EventType.DISCARDED else ()
    get = remedy("shows its error and its history", "dlq", "get", job.id)
    yield from (*put_aside, get, over) if job.reason_code == ReasonCode.PARSE_ERROR else (over, get, *put_aside)


def _start_over(job: Job, facts: Facts, noun: str) -> Remedy:
    """A replay that succeeded or was dead-lettered keeps `replay` from making another one, unless --again is given."""
    before = any(link.status in (Status.SUCCEEDED, Status.DEAD_LETTERED) for link in facts.replays)
    words = "starts it over once more, as a new job" if before else "starts it over, as a new job"
    return remedy(words, noun, "replay", job.id, *(("--again",) if before else ()))
