"""Explain a claimed, running, stalled or finished job."""

from collections.abc import Iterator

import msgspec

from holdfast.core.deadlines import (
    US_PER_MS,
    attempts_exhausted,
    counted_attempts,
    progress_limit,
    resume_window_ends_at,
    stall_limit,
)
from holdfast.core.explain.formatting import (
    SWEEP,
    assist,
    cancel,
    cancel_hard,
    discard,
    format_error_json,
    format_hidden,
    format_stall,
    format_until,
    format_when,
    next_step,
    remedy,
)
from holdfast.core.explain.model import ExplanationPart, JobFacts, NextStep, Remedy, Situation
from holdfast.core.model import LIVE, EventType, JobRecord, Micros, Phase, Policy, ReasonCode, Status
from holdfast.core.policy import must_be_signed
from holdfast.core.text import format_duration, pluralize
from holdfast.core.undo import has_undo_due


def sweeper_name(facts: JobFacts) -> str:
    return "the next sweeper" if facts.sweeper is None else f"the sweeper, {facts.sweeper}"


def explain_overdue(facts: JobFacts, due: Micros, now: Micros, *, signed: bool) -> ExplanationPart | None:
    """Return why a sweep that was due at `due` has not happened, or None while it is not due."""
    if now <= due:
        return None
    since = f"A sweep was due {format_when(due, now)}"
    if signed and not facts.server_key:
        unsigned = f"{since}, but its policy requires the system to sign, and no server key is valid: every sweep skips it."
        enrol = remedy("makes and enrols a server key for the sweeper", "key", "new", "main", "--role", "server")
        return ExplanationPart(Situation.NO_SERVER_KEY, (unsigned,), commands=(enrol,))
    if facts.sweeper is None:
        return ExplanationPart(Situation.NO_SWEEPER, (f"{since}, but no worker sweeps.",), commands=(SWEEP,))
    if signed:
        words = f"{since}. Unless the sweeper, {facts.sweeper}, has a server key, it skips this job."
    else:
        words = f"{since}: {facts.sweeper} does it with its next tick."
    return ExplanationPart(Situation.STALL_DUE, (words,), commands=(SWEEP,))


def explain_held(job: JobRecord, facts: JobFacts, now: Micros) -> ExplanationPart:
    assert job.policy is not None and job.last_beat_at is not None
    grace = _grace_ends_at(job, job.policy)
    stall, moved = stall_limit(job), progress_limit(job)
    due = min(at for at in (stall, moved, grace) if at is not None)
    makes = EventType.CANCELLED if due == grace else EventType.STALLED
    late = explain_overdue(facts, due, now, signed=must_be_signed(job.policy, makes))
    if late is not None:
        return ExplanationPart(
            late.situation,
            (_last_beat(job, now), *late.words),
            (_next_sweep(job, facts, due, grace, moved),),
            (*late.commands, cancel_hard(job)),
        )
    situation, words = _situation_of_held(job, now, stall, moved, grace)
    assistance = (assist(job),) if job.assist_requested and job.phase is Phase.EXECUTING else ()
    commands = (cancel_hard(job),) if job.phase is Phase.ABORTING else (*assistance, cancel(job))
    gated = remedy("checks whether its holder may take a step that cannot be undone", "gate", job.id)
    return ExplanationPart(
        situation, words, (_next_beat(job, job.policy), _next_sweep(job, facts, due, grace, moved)), (*commands, gated)
    )


def _situation_of_held(
    job: JobRecord, now: Micros, stall: Micros, moved: Micros | None, grace: Micros | None
) -> tuple[Situation, tuple[str, ...]]:
    """Return the situation of a held job and its text. The most urgent situation is checked first."""
    assert job.policy is not None and job.last_beat_at is not None
    beat = _last_beat(job, now)
    if grace is not None:
        until = format_until(grace, now)
        why = f"It is being cancelled ({job.cancel_reason}): {job.owner} is asked to stop, and may continue {until}."
        return Situation.ABORTING, (why, beat)
    if now > job.last_beat_at + job.policy.heartbeat_interval_ms * US_PER_MS:
        missed = f"{job.owner} is late: a beat is due every {format_duration(job.policy.heartbeat_interval_ms * US_PER_MS)}."
        return Situation.BEATS_LATE, (missed, beat, f"Without another beat it stalls {format_when(stall, now)}.")
    if moved is not None and 2 * (moved - now) < (job.policy.progress_timeout_ms or 0) * US_PER_MS:
        quiet = format_duration(now - (job.progressed_at or now))
        return Situation.NO_PROGRESS, (
            f"{job.owner} beats, but its stage and progress have not changed for {quiet}.",
            f"Without progress it stalls {format_when(moved, now)}.",
        )
    if job.status is Status.CLAIMED:
        return Situation.CLAIMED, (f"{job.owner} has claimed it and has not started it yet.", beat)
    if job.phase is Phase.ASSISTED:
        return Situation.ASSISTED, (f"{job.owner} runs it, and an operator helps.", beat)
    request = (f"{job.owner} asks for assistance.",) if job.assist_requested else ()
    return Situation.RUNNING, (f"{job.owner} runs it.", beat, *request)


def _last_beat(job: JobRecord, now: Micros) -> str:
    assert job.last_beat_at is not None
    return f"Its last heartbeat came {format_when(job.last_beat_at, now)}."


def _grace_ends_at(job: JobRecord, policy: Policy) -> Micros | None:
    if job.phase is not Phase.ABORTING or job.cancel_requested_at is None:
        return None
    return job.cancel_requested_at + policy.cancel_grace_ms * US_PER_MS


def _next_beat(job: JobRecord, policy: Policy) -> NextStep:
    assert job.last_beat_at is not None and job.owner is not None
    what = "a beat renews the lease" if job.status is Status.RUNNING else "it starts, or a beat renews the lease"
    return next_step(what, job.last_beat_at + policy.heartbeat_interval_ms * US_PER_MS, job.owner)


def _next_sweep(job: JobRecord, facts: JobFacts, due: Micros, grace: Micros | None, moved: Micros | None) -> NextStep:
    """Return what the sweeper does if no further beat or progress comes."""
    if due == grace:
        return next_step("it is cancelled, even if its holder continues", due, sweeper_name(facts))
    silent = "without progress" if due == moved else "without another beat"
    if job.phase is Phase.ABORTING:
        after = "cancelled"
    elif job.policy is not None and job.policy.resume_window_ms:
        after = "requeued after its resume window"
    else:
        after = "out of attempts" if attempts_exhausted(job) else "requeued"
    return next_step(f"{silent} it is stalled, and {after}", due, sweeper_name(facts))


def explain_stalled(job: JobRecord, facts: JobFacts, now: Micros) -> ExplanationPart:
    assert job.policy is not None and job.stalled_at is not None
    due = _sweep_due_at(job, job.policy)
    situation, words, what = _situation_of_stalled(job, job.policy, now)
    error = () if job.last_error is None else (f"Its last error: {format_error_json(job.last_error)}.",)
    stalled = f"It stalled {format_when(job.stalled_at, now)} while {job.last_owner} held it: {format_stall(job.stall_reason)}."
    part = ExplanationPart(situation, (stalled, *error, words), (next_step(what, due, sweeper_name(facts)),), (cancel(job),))
    makes = EventType.RESUMED if situation is Situation.RESUME_DUE else EventType.REQUEUED
    late = explain_overdue(facts, due, now, signed=must_be_signed(job.policy, makes))
    if late is None:
        return part
    blocked = late.situation in (Situation.NO_SWEEPER, Situation.NO_SERVER_KEY)
    return msgspec.structs.replace(
        part,
        situation=late.situation if blocked else situation,
        words=(*part.words, *late.words),
        commands=(*late.commands, *part.commands),
    )


def _sweep_due_at(job: JobRecord, policy: Policy) -> Micros:
    assert job.stalled_at is not None
    if job.revived_at is not None and job.started_at is not None:
        return job.revived_at
    over = resume_window_ends_at(job)
    if job.phase is Phase.ABORTING and job.cancel_requested_at is not None:
        return min(over, job.cancel_requested_at + policy.cancel_grace_ms * US_PER_MS)
    return over


def _situation_of_stalled(job: JobRecord, policy: Policy, now: Micros) -> tuple[Situation, str, str]:
    """Return the situation of a stalled job, its text, and what a sweep does."""
    over = resume_window_ends_at(job)
    if job.phase is Phase.ABORTING:
        return Situation.CANCEL_DUE, f"It was being cancelled ({job.cancel_reason}), and will not run again.", "it is cancelled"
    if job.revived_at is not None and job.started_at is not None:
        back = f"{job.last_owner} sent a heartbeat again {format_when(job.revived_at, now)}, and gets it back."
        return Situation.RESUME_DUE, back, "it is resumed"
    if attempts_exhausted(job):
        spent = f"It has used {counted_attempts(job)} of {policy.attempts_max} attempts, and ends unless its holder returns."
        ends = "it fails" if policy.on_exhausted == "fail" else "it is dead-lettered"
        return Situation.EXHAUSTED, spent, ends
    if now < over:
        return (
            Situation.RESUME_WINDOW,
            f"{job.last_owner} may still return and continue, {format_until(over, now)}.",
            "it is requeued",
        )
    return Situation.REQUEUE_DUE, "Its holder did not return in time: it is due to be requeued.", "it is requeued"


NAMED_MAX = 5
_ATTEMPT_REASONS = frozenset({ReasonCode.TIMEOUT, ReasonCode.INFRASTRUCTURE_FAILURE})


def explain_finished(job: JobRecord, facts: JobFacts, now: Micros) -> ExplanationPart:
    parts, outcome = [*_follow_ups(job, facts)], _outcome(job)
    situation = next((part.situation for part in parts if part.situation is not outcome), outcome)
    words = (_describe_end(job, now), *(word for part in parts for word in part.words))
    steps: tuple[NextStep, ...] = tuple(found for part in parts for found in part.next)
    commands = (*(command for part in parts for command in part.commands), *_commands(job, facts))
    return ExplanationPart(situation, words, steps, commands)


def _outcome(job: JobRecord) -> Situation:
    return Situation.EXHAUSTED if _is_exhausted(job) else Situation(job.status.value)


def _is_exhausted(job: JobRecord) -> bool:
    """Return whether it was dead-lettered because no attempt was left. The reason code may be that of the last attempt."""
    if job.status is not Status.DEAD_LETTERED:
        return False
    return job.reason_code == ReasonCode.EXHAUSTED_RETRIES or (attempts_exhausted(job) and job.reason_code in _ATTEMPT_REASONS)


def _describe_end(job: JobRecord, now: Micros) -> str:
    assert job.finished_at is not None
    at, error = format_when(job.finished_at, now), "" if job.last_error is None else f": {format_error_json(job.last_error)}"
    match job.status:
        case Status.SUCCEEDED:
            return f"It succeeded {at}, in attempt {job.attempt}, by {job.last_owner}."
        case Status.FAILED:
            broke = "" if job.failure_stage is None else f" ({job.reason_code or 'permanent'}, in {job.failure_stage})"
            return f"It failed {at}{broke}, in attempt {job.attempt}{_format_limit(job)}{error}."
        case Status.CANCELLED:
            return f"It was cancelled {at}: {job.cancel_reason}."
        case _:
            broke = f"It was dead-lettered {at} ({job.reason_code}, in {job.failure_stage})"
            return f"{broke}, after {_format_attempts(job)}{error}."


def _format_attempts(job: JobRecord) -> str:
    """Return `1 of 1 attempts`, without the limit if that did not end the job."""
    return (
        f"{counted_attempts(job)}{limit} attempts"
        if (limit := _format_limit(job))
        else pluralize(counted_attempts(job), "attempt")
    )


def _format_limit(job: JobRecord) -> str:
    return f" of {job.policy.attempts_max}" if job.policy is not None and attempts_exhausted(job) else ""


def _follow_ups(job: JobRecord, facts: JobFacts) -> Iterator[ExplanationPart]:
    """Yield what follows from the end of a job, the most important first."""
    if job.note == EventType.COMPENSATION_FAILED:
        look = () if facts.undo is None else (remedy("explains why its undo steps failed", "explain", facts.undo.job_id),)
        yield ExplanationPart(Situation.COMPENSATION_FAILED, ("Its undo steps failed: an operator has to look at it.",), (), look)
    elif has_undo_due(job):
        yield _undo_due(job, facts)
    elif job.note == EventType.COMPENSATED:
        yield ExplanationPart(_outcome(job), ("Its undo steps have run.",))
    elif facts.unmet or facts.hidden:
        yield _dependency_unavailable(job, facts)
    if job.status is Status.DEAD_LETTERED and job.reason_code == ReasonCode.PARSE_ERROR:
        yield ExplanationPart(
            _outcome(job), ("A replay has the same arguments: it fails again unless the handler now accepts them.",)
        )
    if facts.replays:
        newest = facts.replays[-1]
        words = f"It was replayed as job {newest.job_id}, which is {newest.status.value}."
        yield ExplanationPart(Situation.REPLAYED, (words,), (), (remedy("explains its replay", "explain", newest.job_id),))
    if job.note == EventType.DISCARDED:
        yield ExplanationPart(_outcome(job), ("It was discarded: no further action is needed.",))


def _dependency_unavailable(job: JobRecord, facts: JobFacts) -> ExplanationPart:
    """Explain a job that never ran because a job that it depends on ended without success."""
    broken = facts.unmet[:NAMED_MAX]
    if not broken:
        return ExplanationPart(_outcome(job), (f"It depends on {format_hidden(facts.hidden)}, without success.",))
    names = ", ".join(f"{link.job_id} ({link.status.value})" for link in broken)
    one = len(facts.unmet) == 1
    words = (
        f"It depends on job{'' if one else 's'} {names}. Replay {'that job' if one else 'those jobs'} and this one, in any "
        "order: the replay of this job waits for the other replay."
    )
    commands = tuple(remedy(f"replays job {link.job_id}, which it depends on", "job", "replay", link.job_id) for link in broken)
    return ExplanationPart(_outcome(job), (words,), (), commands)


def _undo_due(job: JobRecord, facts: JobFacts) -> ExplanationPart:
    words = f"It has {pluralize(job.undo_owed, 'undo step')} left to run"
    look: tuple[Remedy, ...]
    if facts.undo is None:
        words, step = (
            f"{words}, and there is no undo job yet.",
            next_step("its undo job is made", None, sweeper_name(facts)),
        )
        look = (SWEEP,)
    else:
        words = f"{words}; its undo job {facts.undo.job_id} is {facts.undo.status.value}."
        step = next_step(f"job {facts.undo.job_id} ends, and its end is noted here", None, sweeper_name(facts))
        look = (remedy("explains its undo job", "explain", facts.undo.job_id),)
    return ExplanationPart(Situation.COMPENSATION_OWED, (words,), (step,), look)


def _commands(job: JobRecord, facts: JobFacts) -> Iterator[Remedy]:
    if job.status is Status.SUCCEEDED or any(replay.status in LIVE for replay in facts.replays):
        return
    if job.status is not Status.DEAD_LETTERED:
        yield _replay_remedy(job, facts, "job")
        return
    over = _replay_remedy(job, facts, "dlq")
    put_aside = (discard(job),) if job.note != EventType.DISCARDED else ()
    get = remedy("shows its error and its history", "dlq", "get", job.id)
    yield from (*put_aside, get, over) if job.reason_code == ReasonCode.PARSE_ERROR else (over, get, *put_aside)


def _replay_remedy(job: JobRecord, facts: JobFacts, noun: str) -> Remedy:
    """Return the replay command. If an earlier replay succeeded or was dead-lettered, another one needs --again."""
    before = any(link.status in (Status.SUCCEEDED, Status.DEAD_LETTERED) for link in facts.replays)
    words = "replays it once more, as a new job" if before else "replays it, as a new job"
    return remedy(words, noun, "replay", job.id, *(("--again",) if before else ()))
