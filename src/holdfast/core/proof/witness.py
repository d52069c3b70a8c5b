"""Checking what events are signed with, long after: against the keys that were good at their position, and the policy that
wanted them signed."""

from collections.abc import Iterator

from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, Event, Job, Role
from holdfast.core.proof import statements
from holdfast.core.proof.book import Book
from holdfast.core.proof.covers import matches
from holdfast.core.proof.keys import KeyRole, verify
from holdfast.core.signing import owes
from holdfast.errors import HoldfastError

Problem = tuple[str, str]
_SIGNERS = {
    Role.WORKER: KeyRole.WORKER,
    Role.OPERATOR: KeyRole.OPERATOR,
    Role.CLIENT: KeyRole.OPERATOR,
    Role.SYSTEM: KeyRole.SERVER,
}


class Said:
    """The statement that stands on a job's newest events, and on which types of them: one command causes one of each."""

    __slots__ = ("signed", "types")

    def __init__(self, event: Event) -> None:
        self.signed = (event.key_id, event.signature, event.statement)
        self.types = {event.type}

    def covers(self, event: Event) -> bool:
        """Whether the same statement stands on `event`."""
        return self.signed == (event.key_id, event.signature, event.statement)


class Witness:
    """Knows the keys of one ledger, as far as its record has been read."""

    def __init__(self, ledger_id: str, book: Book) -> None:
        self.ledger_id = ledger_id
        self.book = book
        self.checked = 0
        """Signatures that were verified."""

    def problems(self, job: Job | None, event: Event, said: Said | None) -> Iterator[Problem]:
        """What is wrong with how `event` is signed, the job being as it was before it. `said` is what its last event said."""
        if event.key_id is None and event.signature is None and event.statement is None:
            yield from _unsigned(job, event)
            return
        if event.key_id is None or event.signature is None or event.statement is None:
            yield "signature", "of key, signature and statement, something is missing"
            return
        repeated = said if said is not None and said.covers(event) else None
        if repeated is None:
            yield from self._unsound(event, event.key_id, event.signature, event.statement)
        yield from self._misfits(job, event, event.key_id, event.statement, repeated)

    def _unsound(self, event: Event, key_id: str, signature: bytes, statement: bytes) -> Iterator[Problem]:
        """Whether the key has signed it at all."""
        if self.book.find(key_id) is None:
            yield "key", f"the key {key_id} was not enrolled here"
            return
        self.checked += 1
        if not verify(self.book.public_key(key_id), statements.message(statement), signature):
            yield "signature", f"the signature on {event.type.value} is not that of key {key_id}"

    def _misfits(self, job: Job | None, event: Event, key_id: str, statement: bytes, said: Said | None) -> Iterator[Problem]:
        """Whether the key may sign for that actor there, and what it has signed is this event."""
        if not self._may_sign(key_id, event.actor, event.pos):
            yield "key", f"the key {key_id} may not sign for {event.actor} at position {event.pos}"
        try:
            stated = statements.read(statement)
        except HoldfastError as error:
            yield "statement", f"what was signed cannot be read: {error.message}"
            return
        what = matches(stated, event, self.ledger_id)
        if what is not None:
            yield "statement", f"what was signed says something else of its {what} than the event does"
        if abs(stated.at - event.received_at) > SKEW_US_MAX:
            yield "skew", f"signed at {stated.at}, received at {event.received_at}"
        if stated.counter is None or job is None:
            return
        if said is not None:
            if event.type in said.types:
                yield "counter", f"the same statement stands on {event.type.value} twice"
        elif job.counter is not None and stated.counter <= job.counter:
            yield "counter", f"counter {stated.counter} follows {job.counter}: it was seen before"

    def _may_sign(self, key_id: str, actor: Actor, pos: int) -> bool:
        role = _SIGNERS[actor.role]
        return self.book.valid(key_id, role.value, None if role is KeyRole.SERVER else actor.name, pos)


def _unsigned(job: Job | None, event: Event) -> Iterator[Problem]:
    if event.at not in (None, event.received_at):
        yield "time", "an event that nobody signed has a signer's time"
    if job is not None and owes(job.policy, event.type):
        assert job.policy is not None
        yield "unsigned", f"{event.type.value} is not signed, its policy being signed={job.policy.signed}"
