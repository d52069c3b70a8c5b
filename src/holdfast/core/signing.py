"""Which events have to be signed, and whether what a holder has signed is about what it asks for.

Nothing here looks at a key: that a signature is one, by a key that may sign for that name, is checked by whoever has the keys.
"""

from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, Event, EventType, Job, Micros, Policy, Role, StallReason
from holdfast.core.proof.covers import COVERS, matches
from holdfast.core.proof.keys import KeyRole
from holdfast.core.proof.signed import Signed
from holdfast.core.proof.stated import Statement
from holdfast.errors import SignatureInvalid

LIVENESS = frozenset({EventType.HEARTBEAT, EventType.STALLED, EventType.RESUMED})
NEVER = frozenset({EventType.ENQUEUED, EventType.CLAIMED, EventType.STARTED})
"""Made by the ledger in bulk: the sealed log vouches for them."""

STATES: dict[type[c.JobCommand], EventType] = {
    c.ClaimJob: EventType.HEARTBEAT,
    c.Start: EventType.RESUMED,
    c.Heartbeat: EventType.HEARTBEAT,
    c.Complete: EventType.SUCCEEDED,
    c.Settle: EventType.SUCCEEDED,
    c.CompleteGated: EventType.SUCCEEDED,
    c.Fail: EventType.FAILED,
    c.Release: EventType.REQUEUED,
    c.AcknowledgeCancel: EventType.CANCELLED,
    c.Stall: EventType.STALLED,
    c.Resume: EventType.RESUMED,
}
"""What a holder states when it gives a command. A start is not signed; where it brings a stalled attempt back, that is."""


_END = frozenset({"none", "liveness"})
BARE: dict[type[c.JobCommand], frozenset[str]] = {
    c.Heartbeat: frozenset({"none"}),
    c.Start: frozenset({"none", "liveness", "all"}),
    c.Complete: _END,
    c.Settle: _END,
    c.CompleteGated: _END,
}
"""Under which wishes of a policy the plain case of a hot command goes unsigned."""


def owes(policy: Policy | None, kind: EventType) -> bool:
    """Whether an event of this type has to be signed under the policy of its attempt; before the first there is none."""
    if policy is None or policy.signed == "none":
        return False
    return kind in LIVENESS if policy.signed == "liveness" else kind not in NEVER


def content_of(command: c.JobCommand) -> bytes | None:
    """What a holder gives with a command, in the form whose hash it signs."""
    match command:
        case c.Heartbeat():
            return payloads.beat_payload(command.beat)
        case c.Complete():
            return command.payload
        case c.Fail() | c.Stall() if command.error is not None:
            return payloads.Failed(error=msgspec.Raw(command.error)).encode()
        case c.AcknowledgeCancel() if command.reason is not None:
            return payloads.Cancelled(comment=command.reason).encode()
    return None


def reason_of(command: c.JobCommand) -> str | None:
    """The reason that a holder signs: only where the ledger cannot come to another one."""
    match command:
        case c.Stall():
            return (command.reason or StallReason.WORKER_ERROR).value
        case c.Fail() if command.reason_code is not None and not command.retryable:
            return command.reason_code.value
        case c.Release() | c.Resume():
            return command.reason
    return None


def statement_of(ledger_id: str, command: c.JobCommand, holder: Actor, attempt: int, *, counter: int, at: Micros) -> Statement:
    """What `holder` has to sign for `command` on this attempt."""
    return Statement(
        ledger=ledger_id,
        job_id=command.job_id,
        attempt=attempt,
        type=STATES[type(command)],
        actor=holder,
        at=at,
        counter=counter,
        payload_sha256=sha256(content_of(command) or b"").hexdigest(),
        reason=reason_of(command),
    )


def check_stated(job: Job, command: Any, holder: Actor, now: Micros) -> None:
    """Refuse a holder's statement that is not about this command on this attempt, was seen before, or is of another time.

    `now` is what the ledger's clock says, which a job's own time may be ahead of. What the events must have in common with it
    is checked when they are made.
    """
    said = command.signed.said
    fits = {
        "job": said.job_id == job.id,
        "attempt": said.attempt == job.attempt,
        "actor": said.actor == holder,
        "type": said.type is STATES[type(command)],
        "reason": said.shape == "seed" or said.reason == reason_of(command),
        "policy": said.policy is None,
        "rev": said.rev is None,
    }
    for what, fit in fits.items():
        if not fit:
            raise misfit(job, what)
    _check_counter(job, said)
    check_skew(job, said.at, now)


def _check_counter(job: Job, said: Statement) -> None:
    last, counter = job.counter, said.counter or 0
    if last is not None and counter <= last:
        problem = f"is not above the last one of job {job.id}, {last}: it was seen before, or overtaken"
    elif is_rushed(said) and (last is None or counter != last + 1):
        problem = f"is too far ahead of the time it was signed at, {said.at}"
    else:
        return
    raise SignatureInvalid(f"counter {counter} {problem}", why="counter", counter=counter, last=last, **job.held_by)


def is_rushed(said: Statement) -> bool:
    """Whether a holder counts far ahead of its time: those who come after it would soon have no number left to count to.

    Whoever counts on from the last one of its job by one is let, whatever its clock says: it may have been set back.
    """
    return said.counter is not None and said.counter > said.at + SKEW_US_MAX


def is_plain(said: Statement) -> bool:
    """Whether a holder's beat states nothing that the store's statement for beats does not look at."""
    return said.reason is None and said.policy is None and said.rev is None and not is_rushed(said)


def check_verdict(job: Job, said: Statement, now: Micros) -> None:
    """Refuse a server's statement about another holder, or of another time; what else it says is held against the event."""
    if said.robot not in (None, job.owner or job.last_owner):
        raise misfit(job, "robot")
    check_skew(job, said.at, now)


def check_skew(job: Job, said_at: Micros, now: Micros) -> None:
    """Refuse what was signed far from `now`. Clocks are set right again, so whoever signs anew may be accepted later."""
    apart, limit = abs(said_at - now), SKEW_US_MAX
    if apart > limit:
        raise SignatureInvalid(
            f"the signer's clock is {apart / 1_000_000:g} s from the ledger's; the limit is {limit / 1_000_000:g} s",
            retryable=True,
            why="skew",
            at=said_at,
            received_at=now,
            limit=limit,
            **job.held_by,
        )


def speaks_of(signed: Signed | None, event: Event) -> bool:
    """Whether a command's statement is to stand on an event of it: its own signer's, of a type that it covers."""
    return signed is not None and signed.said.actor == event.actor and event.type in COVERS[signed.said.type]


def attach(job: Job, event: Event, signed: Signed) -> Event:
    """`event` with the statement on it, if that says nothing else than the event does."""
    event = msgspec.structs.replace(
        event, at=signed.said.at, key_id=signed.key_id, signature=signed.signature, statement=signed.statement
    )
    what = matches(signed.said, event, signed.said.ledger)
    if what is not None:
        raise misfit(job, what)
    return event


def misfit(job: Job, what: str) -> SignatureInvalid:
    return SignatureInvalid(f"what was signed does not fit what is asked of job {job.id}: its {what}", why=what, **job.held_by)


def missing(job: Job, kind: EventType) -> SignatureInvalid:
    assert job.policy is not None
    return SignatureInvalid(
        f"{kind.value} of job {job.id} has to be signed by its holder (its policy: signed={job.policy.signed})",
        why="missing",
        event=kind.value,
        **job.held_by,
    )


def signer_of(actor: Actor) -> tuple[KeyRole, str | None]:
    """Whose key signs for an actor: a worker's own, a server's for the system, an operator's of that name for all others."""
    if actor.role is Role.WORKER:
        return KeyRole.WORKER, actor.name
    return (KeyRole.SERVER, None) if actor.role is Role.SYSTEM else (KeyRole.OPERATOR, actor.name)
