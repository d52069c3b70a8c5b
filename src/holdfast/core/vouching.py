"""Reading the signatures of a history: that each event which needs one has it, and that it is what it should be."""

from collections.abc import Iterator

from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Event, EventType, Job, Micros, Role
from holdfast.core.proof.book import Book
from holdfast.core.proof.covers import matches
from holdfast.core.proof.keys import verify
from holdfast.core.proof.stated import Statement
from holdfast.core.proof.statements import message, read
from holdfast.core.signing import owes, signer_of
from holdfast.errors import HoldfastError

Problem = tuple[str, str]
"""A rule, and how it is broken."""


class Signatures:
    """The signatures of one job's events, looked at one after another."""

    def __init__(self, book: Book, ledger_id: str) -> None:
        self._book = book
        self._ledger_id = ledger_id
        self._last: bytes | None = None
        """The newest statement of the attempt's holder."""
        self._on: frozenset[EventType] = frozenset()
        """The events that it stands on: one command causes one of each type."""

    def check(self, job: Job | None, event: Event) -> Iterator[Problem]:
        """What is wrong with an event's signature, given the job before it."""
        if event.type is EventType.CLAIMED:
            self._last = None
        policy = None if job is None else job.policy
        if event.key_id is None or event.signature is None or event.statement is None:
            if owes(policy, event.type):
                yield "unsigned", f"{event.type.value} has to be signed"
            elif (event.key_id, event.signature, event.statement) != (None, None, None):
                yield "signature", f"{event.type.value} carries a part of a signature"
            elif event.at not in (None, event.received_at):
                yield "time", f"{event.type.value} has a signer's time, and no signer"
            return
        try:
            said = read(event.statement)
        except HoldfastError as error:
            yield "statement", error.message
            return
        yield from self._check_key(event, event.key_id, event.signature, event.statement)
        yield from self._check_said(job, event, said)
        if event.actor.role is Role.WORKER:
            self._on = (self._on if event.statement == self._last else frozenset()) | {event.type}
            self._last = event.statement

    def _check_key(self, event: Event, key_id: str, signature: bytes, statement: bytes) -> Iterator[Problem]:
        role, name = signer_of(event.actor)
        if not self._book.valid(key_id, role, name, event.pos or None):
            yield "key", f"{key_id} may not sign for {event.actor} at {event.pos}"
        if self._book.find(key_id) is None or not verify(self._book.public_key(key_id), message(statement), signature):
            yield "signature", f"the signature of {event.type.value} is not one by {key_id}"

    def _check_said(self, job: Job | None, event: Event, said: Statement) -> Iterator[Problem]:
        what = matches(said, event, self._ledger_id)
        if what is not None:
            yield "statement", f"{event.type.value} is not what was signed: its {what}"
        if said.robot not in (None, None if job is None else job.owner or job.last_owner):
            yield "statement", f"{event.type.value} is about {said.robot}"
        if _is_far(job, event, said.at):
            yield "skew", f"signed at {said.at}, received at {event.received_at}"
        last = None if job is None else job.counter
        is_same = event.statement == self._last and event.type not in self._on
        if said.counter is not None and last is not None and not is_same and said.counter <= last:
            yield "counter", f"{said.counter} after {last}: it was seen before"


def _is_far(job: Job | None, event: Event, said_at: Micros) -> bool:
    """Where the job's own time stood still, its clock may have been set back, nobody knows how far, and signers' with it."""
    stood = job is not None and event.received_at == job.updated_at
    return said_at - event.received_at > SKEW_US_MAX or (not stood and event.received_at - said_at > SKEW_US_MAX)
