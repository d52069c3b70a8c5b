"""Signing rules: which events must be signed, which events a statement covers, and the check of a history's signatures."""

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, EventRecord, EventType, JobRecord, Micros, Role, StallReason
from holdfast.core.policy import must_be_signed
from holdfast.errors import HoldfastError, SignatureInvalid
from holdfast.proof.key_book import KeyBook
from holdfast.proof.keys import KeyRole, verify
from holdfast.proof.leaves import payload_sha256
from holdfast.proof.statements import EMPTY_SHA256, Statement, read_statement, statement_message

E = EventType

COVERED_TYPES: dict[EventType, frozenset[EventType]] = {kind: frozenset({kind}) for kind in EventType} | {
    E.HEARTBEAT: frozenset({E.HEARTBEAT, E.RESUMED}),
    E.SUCCEEDED: frozenset({E.SUCCEEDED, E.RESUMED}),
    E.FAILED: frozenset({E.FAILED, E.DEAD_LETTERED, E.STALLED, E.REQUEUED, E.CANCELLED, E.RESUMED}),
    E.REQUEUED: frozenset({E.STALLED, E.REQUEUED, E.CANCELLED, E.RESUMED}),
    E.CANCELLED: frozenset({E.CANCELLED, E.RESUMED}),
    E.CANCEL_REQUESTED: frozenset({E.CANCEL_REQUESTED, E.CANCELLED}),
}
"""The events that one command may cause, by the type in its signer's statement. All of them carry that statement.

If the ledger signs, for the system or for another actor, it makes a statement for each event. Such a statement has a rev and no
counter."""


def find_mismatch(statement: Statement, event: EventRecord, ledger_id: str) -> str | None:
    """Return the name of the first field in which `event` and `statement` differ, or None if they agree."""
    exact = statement.counter is None
    covered = frozenset({statement.type}) if exact else COVERED_TYPES[statement.type]
    own = exact or event.type in (statement.type, E.DEAD_LETTERED)
    fits = {
        "ledger": statement.ledger == ledger_id,
        "job": statement.job_id == event.job_id,
        "attempt": statement.attempt == event.attempt,
        "actor": statement.actor == event.actor,
        "type": event.type in covered,
        "at": statement.at == (event.received_at if event.at is None else event.at),
        "rev": statement.rev in (event.rev, None),
        "reason": statement.reason == event.reason or (not exact and _reason_allowed(event, statement.reason if own else None)),
        "policy": _policy_matches(statement, event) or (not exact and statement.policy is None),
    }
    for what, fit in fits.items():
        if not fit:
            return what
    try:
        matches = _payload_matches(statement, event)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        matches = False
    return None if matches else "payload"


def _reason_allowed(event: EventRecord, stated: str | None) -> bool:
    """Return whether the event may have its reason. `stated` is the holder's reason. The ledger may have added another one."""
    match event.type:
        case E.RESUMED:
            return event.reason == stated
        case E.REQUEUED:
            return event.reason == (stated or (StallReason.RELEASED if payloads.is_release(event) else None))
        case _:
            return stated is None


def _payload_sha256(event: EventRecord) -> str:
    return payload_sha256(event.type, event.payload) or EMPTY_SHA256


def _payload_matches(statement: Statement, event: EventRecord) -> bool:
    """Return whether the event has the content that the signer gave.

    The signer hashes an error as the payload of `failed`, but other events store it in other payloads. Times in payloads are
    the ledger's and are not compared.
    """
    given = statement.payload_sha256
    if statement.shape == "seed":
        return _robot_payload_matches(statement, event)
    if statement.counter is None:
        return given == _payload_sha256(event)
    if event.type is E.STALLED and statement.type in (E.FAILED, E.STALLED):
        return given == _error_sha256(payloads.json_bytes(payloads.decode(payloads.StalledPayload, event.payload).error))
    if event.type is E.DEAD_LETTERED:
        last_error = bytes(payloads.decode(payloads.DeadLetteredPayload, event.payload).last_error)
        return given == _error_sha256(last_error) or (given == EMPTY_SHA256 and statement.type is E.DEAD_LETTERED)
    if event.type is E.FAILED:
        return given == _error_sha256(bytes(payloads.decode(payloads.FailedPayload, event.payload).error))
    if event.type is E.CANCELLED and event.payload is not None and statement.type is not E.CANCELLED:
        return _exit_matches(statement, payloads.decode(payloads.CancelledPayload, event.payload))
    if event.type is not statement.type or event.type is E.REQUEUED:
        return True
    return given == _payload_sha256(event)


def _exit_matches(statement: Statement, body: payloads.CancelledPayload) -> bool:
    """Return whether a job that was cancelled at its holder's exit has the content of the holder's release or failure."""
    if statement.type is E.FAILED:
        return statement.payload_sha256 == _error_sha256(payloads.json_bytes(body.error))
    return body.comment == statement.reason


def _error_sha256(error: bytes | None) -> str:
    return EMPTY_SHA256 if error is None else sha256(_error_content(error)).hexdigest()


def _error_content(error: bytes) -> bytes:
    """Return an error in the form whose hash a holder signs."""
    return b'{"error":' + error + b"}"


def _policy_matches(statement: Statement, event: EventRecord) -> bool:
    """Return whether the event's policy is the stated one. The form for robots states only two numbers of it."""
    if statement.thresholds_ms is None or event.policy is None:
        return statement.policy == event.policy
    return statement.thresholds_ms == (event.policy.heartbeat_interval_ms, event.policy.stall_after_ms)


def _robot_payload_matches(statement: Statement, event: EventRecord) -> bool:
    if event.type is E.STALLED:
        return payloads.decode(payloads.StalledPayload, event.payload).last_beat_at == statement.last_beat_at
    if event.type is not E.HEARTBEAT:
        return True
    stated = payloads.BeatPayload(stage=statement.stage, progress=statement.progress, assist_requested=statement.assist_requested)
    pruned = payloads.pruned_sha256(event.payload or b"")
    if pruned is not None:
        return pruned == sha256(stated.encode()).hexdigest()
    return stated == payloads.decode(payloads.BeatPayload, event.payload)


STATED_TYPES: dict[type[c.JobCommand], EventType] = {
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
"""The event type that a holder states with each command. A start is signed only if it resumes a stalled attempt."""


_UNSIGNED_END = frozenset({"none", "liveness"})
UNSIGNED_UNDER: dict[type[c.JobCommand], frozenset[str]] = {
    c.Heartbeat: frozenset({"none"}),
    c.Start: frozenset({"none", "liveness", "all"}),
    c.Complete: _UNSIGNED_END,
    c.Settle: _UNSIGNED_END,
    c.CompleteGated: _UNSIGNED_END,
}
"""The policy's `signed` settings under which the plain case of a hot command is not signed."""


def signed_payload(command: c.JobCommand) -> bytes | None:
    """Return the content of a holder's command in the form whose hash it signs."""
    match command:
        case c.Heartbeat():
            return payloads.beat_payload(command.beat)
        case c.Complete():
            return command.payload
        case c.Fail() | c.Stall() if command.error is not None:
            return _error_content(command.error)
        case c.AcknowledgeCancel() if command.reason is not None:
            return payloads.CancelledPayload(comment=command.reason).encode()
    return None


def signed_reason(command: c.JobCommand) -> str | None:
    """Return the reason that a holder signs. It signs one only if the ledger cannot choose another."""
    match command:
        case c.Stall():
            return (command.reason or StallReason.WORKER_ERROR).value
        case c.Fail() if command.reason_code is not None and not command.retryable:
            return command.reason_code.value
        case c.Release() | c.Resume():
            return command.reason
    return None


class Signed(msgspec.Struct, frozen=True):
    """A statement, byte for byte as it was signed, with its key and signature. The maker of one has verified the signature.

    This is the `SignedStatement` that a command carries. The core asks it what it needs to know.
    """

    key_id: str
    signature: bytes
    statement: bytes
    content: Statement
    """The fields that are encoded in `statement`."""
    is_given: bool = False
    """Another process has made it. This process then does not sign the command again."""

    @property
    def signer(self) -> Actor:
        return self.content.actor

    @property
    def signed_at(self) -> Micros:
        return self.content.at

    @property
    def attempt(self) -> int:
        return self.content.attempt

    @property
    def counter(self) -> int | None:
        return self.content.counter

    def check_holder(self, job: JobRecord, command: c.JobCommand, holder: Actor, now: Micros) -> None:
        """Raise SignatureInvalid if the statement is about another command or attempt, was used before, or is too far in time.

        `now` is the ledger's clock. The job's own time may be ahead of it. That the events agree with the statement is checked
        when they are made.
        """
        content = self.content
        fits = {
            "job": content.job_id == job.id,
            "attempt": content.attempt == job.attempt,
            "actor": content.actor == holder,
            "type": content.type is STATED_TYPES[type(command)],
            "reason": content.shape == "seed" or content.reason == signed_reason(command),
            "policy": content.policy is None,
            "rev": content.rev is None,
        }
        for what, fit in fits.items():
            if not fit:
                raise mismatch_error(job, what)
        _check_counter(job, content)
        check_skew(job, content.at, now)

    def check_server(self, job: JobRecord, now: Micros) -> None:
        """Raise SignatureInvalid if the statement is about another holder, or too far in time."""
        if self.content.robot not in (None, job.owner or job.last_owner):
            raise mismatch_error(job, "robot")
        check_skew(job, self.content.at, now)

    def covers(self, event: EventRecord) -> bool:
        """Return whether an event carries the statement: the signer is its actor, and the statement covers its type."""
        return self.content.actor == event.actor and event.type in COVERED_TYPES[self.content.type]

    def attach(self, job: JobRecord, event: EventRecord) -> EventRecord:
        """Return `event` with the statement attached. Raise SignatureInvalid if the two do not agree."""
        event = msgspec.structs.replace(
            event, at=self.content.at, key_id=self.key_id, signature=self.signature, statement=self.statement
        )
        what = find_mismatch(self.content, event, self.content.ledger)
        if what is not None:
            raise mismatch_error(job, what)
        return event


def holder_statement(
    ledger_id: str, command: c.JobCommand, holder: Actor, attempt: int, *, counter: int, at: Micros
) -> Statement:
    """Return the statement that `holder` has to sign for `command` on this attempt."""
    return Statement(
        ledger=ledger_id,
        job_id=command.job_id,
        attempt=attempt,
        type=STATED_TYPES[type(command)],
        actor=holder,
        at=at,
        counter=counter,
        payload_sha256=sha256(signed_payload(command) or b"").hexdigest(),
        reason=signed_reason(command),
    )


def check_stated(signed: Signed, command: c.JobCommand, holder: Actor, attempt: int) -> None:
    """Raise SignatureInvalid unless the holder would sign this statement for this command. `decide` checks the rest."""
    found = signed.content
    wanted = holder_statement(found.ledger, command, holder, attempt, counter=found.counter or 0, at=found.at)
    for name in Statement.__struct_fields__:
        if name != "counter" and getattr(found, name) != getattr(wanted, name):
            what = _STATED_NAMES.get(name, name)
            raise SignatureInvalid(
                f"the signed statement does not match the request for job {command.job_id}: its {what}",
                why=what,
                job_id=command.job_id,
            )


_STATED_NAMES = {"job_id": "job", "payload_sha256": "payload"}
"""Names of fields in refusals that differ from those of a statement."""


def _check_counter(job: JobRecord, statement: Statement) -> None:
    last, counter = job.counter, statement.counter or 0
    if last is not None and counter <= last:
        problem = f"is not above the last one of job {job.id}, {last}: it was seen before, or overtaken"
    elif is_counter_ahead(statement) and (last is None or counter != last + 1):
        problem = f"is too far ahead of the time it was signed at, {statement.at}"
    else:
        return
    raise SignatureInvalid(f"counter {counter} {problem}", why="counter", counter=counter, last=last, **job.held_by)


def is_counter_ahead(statement: Statement) -> bool:
    """Return whether a holder's counter is far ahead of its time. Later holders might then run out of numbers.

    A counter that is exactly one above the job's last one is still accepted, because the clock may have been set back.
    """
    return statement.counter is not None and statement.counter > statement.at + SKEW_US_MAX


def is_plain_beat(statement: Statement) -> bool:
    """Return whether the store's SQL for plain beats checks everything that this statement has."""
    return statement.reason is None and statement.policy is None and statement.rev is None and not is_counter_ahead(statement)


def check_skew(job: JobRecord, signed_at: Micros, now: Micros) -> None:
    """Raise SignatureInvalid if a statement was signed too far from `now`. It is retryable, because clocks get corrected."""
    apart, limit = abs(signed_at - now), SKEW_US_MAX
    if apart > limit:
        raise SignatureInvalid(
            f"the signer's clock is {apart / 1_000_000:g} s from the ledger's; the limit is {limit / 1_000_000:g} s",
            retryable=True,
            why="skew",
            at=signed_at,
            received_at=now,
            limit=limit,
            **job.held_by,
        )


def mismatch_error(job: JobRecord, what: str) -> SignatureInvalid:
    return SignatureInvalid(
        f"the signed statement does not match the request for job {job.id}: its {what}", why=what, **job.held_by
    )


def signer_of(actor: Actor) -> tuple[KeyRole, str | None]:
    """Return role and name of the key that signs for an actor.

    A worker signs with its own key. Any server key signs for the system. An operator key of the actor's name signs for others.
    """
    if actor.role is Role.WORKER:
        return KeyRole.WORKER, actor.name
    return (KeyRole.SERVER, None) if actor.role is Role.SYSTEM else (KeyRole.OPERATOR, actor.name)


Problem = tuple[str, str]
"""The name of a broken rule, and the details."""


class SignatureCheck:
    """Check the signatures of one job's events, one after another."""

    def __init__(self, book: KeyBook, ledger_id: str) -> None:
        self._book = book
        self._ledger_id = ledger_id
        self._last: bytes | None = None
        """The newest statement of the attempt's holder."""
        self._on: frozenset[EventType] = frozenset()
        """The types of the events that carry it. One command causes at most one event of each type."""

    def check(self, job: JobRecord | None, event: EventRecord) -> Iterator[Problem]:
        """Yield the problems of an event's signature, given the job before it."""
        if event.type is EventType.CLAIMED:
            self._last = None
        policy = None if job is None else job.policy
        if event.key_id is None or event.signature is None or event.statement is None:
            if must_be_signed(policy, event.type):
                yield "unsigned", f"{event.type.value} has to be signed"
            elif (event.key_id, event.signature, event.statement) != (None, None, None):
                yield "signature", f"{event.type.value} carries a part of a signature"
            elif event.at not in (None, event.received_at):
                yield "time", f"{event.type.value} has a signer's time, but no signer"
            return
        try:
            statement = read_statement(event.statement)
        except HoldfastError as error:
            yield "statement", error.message
            return
        yield from self._check_key(event, event.key_id, event.signature, event.statement)
        yield from self._check_statement(job, event, statement)
        if event.actor.role is Role.WORKER:
            self._on = (self._on if event.statement == self._last else frozenset()) | {event.type}
            self._last = event.statement

    def _check_key(self, event: EventRecord, key_id: str, signature: bytes, statement: bytes) -> Iterator[Problem]:
        role, name = signer_of(event.actor)
        if not self._book.valid(key_id, role, name, event.pos or None):
            yield "key", f"{key_id} may not sign for {event.actor} at {event.pos}"
        if self._book.find(key_id) is None or not verify(self._book.public_key(key_id), statement_message(statement), signature):
            yield "signature", f"the signature of {event.type.value} is not by {key_id}"

    def _check_statement(self, job: JobRecord | None, event: EventRecord, statement: Statement) -> Iterator[Problem]:
        what = find_mismatch(statement, event, self._ledger_id)
        if what is not None:
            yield "statement", f"{event.type.value} does not match the signed statement: its {what}"
        if statement.robot not in (None, None if job is None else job.owner or job.last_owner):
            yield "statement", f"{event.type.value} is about {statement.robot}"
        if _is_skewed(job, event, statement.at):
            yield "skew", f"signed at {statement.at}, received at {event.received_at}"
        last = None if job is None else job.counter
        is_same = event.statement == self._last and event.type not in self._on
        if statement.counter is not None and last is not None and not is_same and statement.counter <= last:
            yield "counter", f"{statement.counter} after {last}: it was used before"


def _is_skewed(job: JobRecord | None, event: EventRecord, signed_at: Micros) -> bool:
    """Return whether the signer's time is too far from the event's.

    If the event has the same time as the one before it, the ledger's clock may have been set back by an unknown amount, and the
    signer's clock too. A signer's time in the past is then accepted.
    """
    is_same_time = job is not None and event.received_at == job.updated_at
    return signed_at - event.received_at > SKEW_US_MAX or (not is_same_time and event.received_at - signed_at > SKEW_US_MAX)
