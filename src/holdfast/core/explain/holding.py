"""A claimed or running job: whether its holder is heard of, and what happens when it is not."""

from holdfast.core.deadlines import MS, exhausted, progress_limit, stall_limit
from holdfast.core.explain.shapes import Account, Facts, NextStep, Situation
from holdfast.core.explain.sweeping import overdue, sweeper
from holdfast.core.explain.words import assist, cancel, cancel_hard, remedy, span, step, until, when
from holdfast.core.model import EventType, Job, Micros, Phase, Policy, Status
from holdfast.core.signing import owes


def holding(job: Job, facts: Facts, now: Micros) -> Account:
    assert job.policy is not None and job.last_beat_at is not None
    grace = _grace_over_at(job, job.policy)
    stall, moved = stall_limit(job), progress_limit(job)
    due = min(at for at in (stall, moved, grace) if at is not None)
    makes = EventType.CANCELLED if due == grace else EventType.STALLED
    late = overdue(facts, due, now, signed=owes(job.policy, makes))
    if late is not None:
        return Account(
            late.situation,
            (_last_beat(job, now), *late.words),
            (_end(job, facts, due, grace, moved),),
            (*late.commands, cancel_hard(job)),
        )
    situation, words = _standing(job, now, stall, moved, grace)
    wished = (assist(job),) if job.assist_requested and job.phase is Phase.EXECUTING else ()
    commands = (cancel_hard(job),) if job.phase is Phase.ABORTING else (*wished, cancel(job))
    gated = remedy("says whether its holder may take a step that cannot be taken back", "gate", job.id)
    return Account(situation, words, (_expected(job, job.policy), _end(job, facts, due, grace, moved)), (*commands, gated))


def _standing(
    job: Job, now: Micros, stall: Micros, moved: Micros | None, grace: Micros | None
) -> tuple[Situation, tuple[str, ...]]:
    """In the order of what wants to be known first."""
    assert job.policy is not None and job.last_beat_at is not None
    beat = _last_beat(job, now)
    if grace is not None:
        why = f"It is being cancelled ({job.cancel_reason}): {job.owner} is asked to stop, and may go on {until(grace, now)}."
        return Situation.ABORTING, (why, beat)
    if now > job.last_beat_at + job.policy.heartbeat_interval_ms * MS:
        missed = f"{job.owner} is late: it means to beat every {span(job.policy.heartbeat_interval_ms * MS)}."
        return Situation.BEATS_LATE, (missed, beat, f"Without another beat it stalls {when(stall, now)}.")
    if moved is not None and 2 * (moved - now) < (job.policy.progress_timeout_ms or 0) * MS:
        quiet = span(now - (job.progressed_at or now))
        return Situation.NO_PROGRESS, (
            f"{job.owner} beats, but its stage and progress have not changed for {quiet}.",
            f"Without progress it stalls {when(moved, now)}.",
        )
    if job.status is Status.CLAIMED:
        return Situation.CLAIMED, (f"{job.owner} has claimed it and not begun yet.", beat)
    if job.phase is Phase.ASSISTED:
        return Situation.ASSISTED, (f"{job.owner} runs it, and an operator helps.", beat)
    wish = (f"{job.owner} wishes for assistance.",) if job.assist_requested else ()
    return Situation.RUNNING, (f"{job.owner} runs it.", beat, *wish)


def _last_beat(job: Job, now: Micros) -> str:
    assert job.last_beat_at is not None
    return f"{job.owner} was last heard of {when(job.last_beat_at, now)}."


def _grace_over_at(job: Job, policy: Policy) -> Micros | None:
    if job.phase is not Phase.ABORTING or job.cancel_requested_at is None:
        return None
    return job.cancel_requested_at + policy.cancel_grace_ms * MS


def _expected(job: Job, policy: Policy) -> NextStep:
    assert job.last_beat_at is not None and job.owner is not None
    what = "a beat renews the lease" if job.status is Status.RUNNING else "it begins, or a beat renews the lease"
    return step(what, job.last_beat_at + policy.heartbeat_interval_ms * MS, job.owner)


def _end(job: Job, facts: Facts, due: Micros, grace: Micros | None, moved: Micros | None) -> NextStep:
    """What the sweeper does if nothing is heard."""
    if due == grace:
        return step("it is cancelled, whatever its holder does", due, sweeper(facts))
    silent = "without progress" if due == moved else "without another beat"
    if job.phase is Phase.ABORTING:
        after = "cancelled"
    elif job.policy is not None and job.policy.resume_window_ms:
        after = "left to its holder for a while, then requeued"
    else:
        after = "out of attempts" if exhausted(job) else "requeued"
    return step(f"{silent} it is stalled, and {after}", due, sweeper(facts))
