"""explain(job, facts, now): why a job stands where it stands, and what can be done about it. Pure, like decide.

Each room below speaks of some statuses; what all have in common is put together here.
"""

import msgspec

from holdfast.core.explain.ended import ended
from holdfast.core.explain.holding import holding
from holdfast.core.explain.shapes import Account, Explanation, Facts, ProofOfLife, Situation, WhyNotRunning
from holdfast.core.explain.stalling import stalling
from holdfast.core.explain.waiting import waiting
from holdfast.core.explain.words import decoded, moment
from holdfast.core.model import HELD, TERMINAL, UNDO_KIND, Job, Micros, Status
from holdfast.core.undo import UndoArgs

__all__ = ["Explanation", "Facts", "Situation", "explain"]


def explain(job: Job, facts: Facts, now: Micros) -> Explanation:
    """As of ledger time `now`. The facts are of the same moment as the job."""
    now = max(now, job.updated_at)
    account = _account(job, facts, now)
    policy = facts.policy if job.status is Status.QUEUED or job.policy is None else job.policy
    return Explanation(
        job_id=job.id,
        kind=job.kind,
        queue=job.queue,
        text=" ".join((_which(job), *account.words, *_locked(facts))),
        situation=account.situation,
        status=job.status,
        phase=job.phase,
        since=moment(facts.since),
        now=moment(now),
        attempt=job.attempt,
        attempts_max=policy.attempts_max,
        holder=job.owner,
        incarnation=job.incarnation if job.owner else None,
        last_holder=job.last_owner,
        last_proof_of_life=_proof(job, now),
        stage=job.stage,
        progress=job.progress,
        why_not_running=_why_not(job, account),
        next=list(account.next),
        policy=policy,
        last_error=decoded(job.last_error),
        commands=list(account.commands),
    )


def _account(job: Job, facts: Facts, now: Micros) -> Account:
    if job.status is Status.QUEUED:
        return waiting(job, facts, now)
    if job.status in HELD:
        return _cautioned(holding(job, facts, now), job, facts)
    if job.status is Status.STALLED:
        return stalling(job, facts, now)
    return ended(job, facts, now)


def _cautioned(account: Account, job: Job, facts: Facts) -> Account:
    """Of a holder that is well, what would happen if it were not."""
    assert job.policy is not None
    if job.policy.signed == "none" or facts.server_key or account.situation is Situation.NO_SERVER_KEY:
        return account
    caution = "Should it fall silent, no sweep can stall it: its policy wants that signed, and no server key is good."
    return msgspec.structs.replace(account, words=(*account.words, caution))


def _which(job: Job) -> str:
    status = "over" if job.status in TERMINAL else job.status.value
    named = f"Job {job.id} ({job.kind}, in queue {job.queue}) is {status}."
    if job.kind != UNDO_KIND:
        return named
    return f"{named} It undoes job {msgspec.json.decode(job.args, type=UndoArgs).job_id}."


def _locked(facts: Facts) -> tuple[str, ...]:
    if facts.locked_by is None:
        return ()
    return (f"Its row is locked by {facts.locked_by}: nothing can be written to it before that transaction ends.",)


def _proof(job: Job, now: Micros) -> ProofOfLife | None:
    at = job.last_beat_at
    return None if at is None else ProofOfLife(moment(at), (now - at) // 1_000)


def _why_not(job: Job, account: Account) -> WhyNotRunning | None:
    """None for a job that runs. A finished one does not run because it is over, however that came about."""
    if job.status is Status.RUNNING:
        return None
    return WhyNotRunning(account.situation, account.words[0] if job.status in TERMINAL else " ".join(account.words))
