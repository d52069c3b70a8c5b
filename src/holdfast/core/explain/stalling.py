"""A stalled job: for how long it is left to its last holder, and what becomes of it then."""

import msgspec

from holdfast.core.deadlines import MS, exhausted, tries, window_over_at
from holdfast.core.explain.shapes import Account, Facts, Situation
from holdfast.core.explain.sweeping import overdue, sweeper
from holdfast.core.explain.words import cancel, stalled, step, told, until, when
from holdfast.core.model import EventType, Job, Micros, Phase, Policy
from holdfast.core.signing import owes


def stalling(job: Job, facts: Facts, now: Micros) -> Account:
    assert job.policy is not None and job.stalled_at is not None
    due = _due_at(job, job.policy)
    situation, words, what = _outlook(job, job.policy, now)
    error = () if job.last_error is None else (f"Its last error: {told(job.last_error)}.",)
    fell = f"It stalled {when(job.stalled_at, now)} in the hands of {job.last_owner}: {stalled(job.stall_reason)}."
    account = Account(situation, (fell, *error, words), (step(what, due, sweeper(facts)),), (cancel(job),))
    makes = EventType.RESUMED if situation is Situation.RESUME_DUE else EventType.REQUEUED
    late = overdue(facts, due, now, signed=owes(job.policy, makes))
    if late is None:
        return account
    blocked = late.situation in (Situation.NOBODY_SWEEPS, Situation.NO_SERVER_KEY)
    return msgspec.structs.replace(
        account,
        situation=late.situation if blocked else situation,
        words=(*account.words, *late.words),
        commands=(*late.commands, *account.commands),
    )


def _due_at(job: Job, policy: Policy) -> Micros:
    assert job.stalled_at is not None
    if job.revived_at is not None and job.started_at is not None:
        return job.revived_at
    over = window_over_at(job)
    if job.phase is Phase.ABORTING and job.cancel_requested_at is not None:
        return min(over, job.cancel_requested_at + policy.cancel_grace_ms * MS)
    return over


def _outlook(job: Job, policy: Policy, now: Micros) -> tuple[Situation, str, str]:
    """The situation, in words, and what a sweep does."""
    over = window_over_at(job)
    if job.phase is Phase.ABORTING:
        return Situation.CANCEL_DUE, f"It was being cancelled ({job.cancel_reason}), and will not run again.", "it is cancelled"
    if job.revived_at is not None and job.started_at is not None:
        back = f"{job.last_owner} was heard of again {when(job.revived_at, now)}, and gets it back."
        return Situation.RESUME_DUE, back, "it is resumed"
    if exhausted(job):
        spent = f"It has used {tries(job)} of {policy.attempts_max} attempts, and ends unless its holder comes back."
        ends = "it fails" if policy.on_exhausted == "fail" else "it is dead-lettered"
        return Situation.EXHAUSTED, spent, ends
    if now < over:
        return (
            Situation.RESUME_WINDOW,
            f"{job.last_owner} may still come back and go on, {until(over, now)}.",
            "it is requeued",
        )
    return Situation.REQUEUE_DUE, "Its holder did not come back in time: it is to be requeued.", "it is requeued"
