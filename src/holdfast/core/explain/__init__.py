"""Explain why a job is in its current state, what happens next, and what can be done about it.

`explain(job, facts, now)` is pure, like `decide`. The modules of this package each explain some statuses. This one adds what
all explanations have in common.
"""

import msgspec

from holdfast.core.explain.attempts import explain_finished, explain_held, explain_stalled
from holdfast.core.explain.formatting import decode_error, format_when, to_datetime
from holdfast.core.explain.model import Explanation, ExplanationPart, JobFacts, ProofOfLife, Situation, WhyNotRunning
from holdfast.core.explain.queued import explain_queued
from holdfast.core.model import HELD, TERMINAL, UNDO_KIND, JobRecord, Micros, Status
from holdfast.core.undo import UndoArgs

__all__ = ["Explanation", "JobFacts", "Situation", "explain"]


def explain(job: JobRecord, facts: JobFacts, now: Micros) -> Explanation:
    """Return the explanation of `job` at ledger time `now`. `facts` must have been read together with the job."""
    now = max(now, job.updated_at)
    part = _explain_status(job, facts, now)
    policy = facts.policy if job.status is Status.QUEUED or job.policy is None else job.policy
    return Explanation(
        job_id=job.id,
        kind=job.kind,
        queue=job.queue,
        text=" ".join((_headline(job), *part.words, *_kept_key(job, facts, now), *_locked(facts))),
        situation=part.situation,
        status=job.status,
        phase=job.phase,
        since=to_datetime(facts.since),
        now=to_datetime(now),
        attempt=job.attempt,
        attempts_max=policy.attempts_max,
        holder=job.owner,
        incarnation=job.incarnation if job.owner else None,
        last_holder=job.last_owner,
        last_proof_of_life=_proof_of_life(job, now),
        stage=job.stage,
        progress=job.progress,
        why_not_running=_why_not_running(job, part),
        next=list(part.next),
        policy=policy,
        last_error=decode_error(job.last_error),
        commands=list(part.commands),
    )


def _explain_status(job: JobRecord, facts: JobFacts, now: Micros) -> ExplanationPart:
    if job.status is Status.QUEUED:
        return explain_queued(job, facts, now)
    if job.status in HELD:
        return _with_key_warning(explain_held(job, facts, now), job, facts)
    if job.status is Status.STALLED:
        return explain_stalled(job, facts, now)
    return explain_finished(job, facts, now)


def _with_key_warning(part: ExplanationPart, job: JobRecord, facts: JobFacts) -> ExplanationPart:
    """Add a warning if no sweep could stall the job in case its holder becomes silent."""
    assert job.policy is not None
    if job.policy.signed == "none" or facts.server_key or part.situation is Situation.NO_SERVER_KEY:
        return part
    warning = "If its holder falls silent, no sweep can stall it: its policy requires a signature, and no server key is valid."
    return msgspec.structs.replace(part, words=(*part.words, warning))


def _headline(job: JobRecord) -> str:
    status = "over" if job.status in TERMINAL else job.status.value
    named = f"Job {job.id} ({job.kind}, in queue {job.queue}) is {status}."
    if job.kind != UNDO_KIND:
        return named
    return f"{named} It undoes job {msgspec.json.decode(job.args, type=UndoArgs).job_id}."


def _kept_key(job: JobRecord, facts: JobFacts, now: Micros) -> tuple[str, ...]:
    """Say until when a finished job has its dedupe key. A replay of it has taken the key."""
    if job.finished_at is None or job.dedupe_until is None or job.dedupe_until <= now or facts.replays:
        return ()
    return (f"Its dedupe key {job.dedupe_key!r} stays taken until its window ends, {format_when(job.dedupe_until, now)}.",)


def _locked(facts: JobFacts) -> tuple[str, ...]:
    if facts.locked_by is None:
        return ()
    return (f"Its row is locked by {facts.locked_by}: nothing can be written to it before that transaction ends.",)


def _proof_of_life(job: JobRecord, now: Micros) -> ProofOfLife | None:
    at = job.last_beat_at
    return None if at is None else ProofOfLife(to_datetime(at), (now - at) // 1_000)


def _why_not_running(job: JobRecord, part: ExplanationPart) -> WhyNotRunning | None:
    """Return None for a running job. For a finished one, the reason is only that it has ended."""
    if job.status is Status.RUNNING:
        return None
    return WhyNotRunning(part.situation, part.words[0] if job.status in TERMINAL else " ".join(part.words))
