"""Signatures of this process: what its holders sign, what it signs for the system and for operators, whose it accepts.

What holders sign in bulk is signed and checked before the transaction. Inside it, the book of keys is looked at once more, so
that a revoked key is refused from its position on; and what only turns out there to need a signature is signed there, under
the job's lock. No signature is written that was not checked, those of this process among them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.lifecycle import Outcome, decide
from holdfast.core.model import Actor, Event, EventType, Job, Micros, Policy, Role
from holdfast.core.proof.book import Book
from holdfast.core.proof.envelopes import Envelope
from holdfast.core.proof.keys import KeyRole, PublicKey, SecretKey, verify
from holdfast.core.proof.signed import Signed
from holdfast.core.proof.stated import Statement
from holdfast.core.proof.statements import encode, encode_system, message, read
from holdfast.core.signing import BARE, STATES, owes, signer_of, statement_of
from holdfast.errors import SignatureInvalid
from holdfast.ledger.counts import Counts
from holdfast.ledger.keyring import Books, Keyring
from holdfast.store.base import Session, Store

_ANEW = frozenset({"missing", "counter", "key"})
"""Why a verb's own command is signed once more under the job's lock: it was not, was overtaken, or its key was rotated."""


class Notary:
    """`wall` is the signer's own clock, by which it dates what it signs."""

    def __init__(self, store: Store, ring: Keyring, books: Books, wall: Callable[[], Micros]) -> None:
        self.ring = ring
        self.books = books
        self.ledger_id = store.ledger_id
        self._store = store
        self._wall = wall
        self._counts = Counts()

    def sit(self, session: Session) -> "Sitting":
        return Sitting(self, session)

    # Before the transaction

    def sign_many(self, commands: Sequence[Any]) -> Sequence[Any]:
        """Each hot command with its holder's signature, where its fence says that it needs one and the key is here."""
        if not self.ring or not any(map(_is_due, commands)):
            return commands
        secrets: dict[str, SecretKey | None] = {}
        return [self._signed(command, secrets) if _is_due(command) else command for command in commands]

    def _signed(self, command: Any, secrets: dict[str, SecretKey | None]) -> Any:
        """As it is where the fence does not say whose it is: the job will."""
        fence = command.fence
        if not fence.incarnation:
            return command
        if fence.worker not in secrets:
            secrets[fence.worker] = self._secret_of(fence.worker)
        secret = secrets[fence.worker]
        if secret is None:
            return command
        holder = Actor(Role.WORKER, fence.worker, fence.incarnation)
        signed = self.sign(secret, command, holder, fence.attempt, 0)
        return msgspec.structs.replace(command, signed=signed)

    def _secret_of(self, worker: str) -> SecretKey | None:
        """Looked for in the book as it was read last, and once more as it is: the key may have been enrolled since."""
        if not any(key.role is KeyRole.WORKER and key.name == worker for key in self.ring):
            return None
        found = self.ring.find(self.books.known, KeyRole.WORKER, worker)
        return found or self.ring.find(self._store.peek(self.books.latest), KeyRole.WORKER, worker)

    def admit(self, envelope: Envelope) -> Signed:
        """What somebody else has signed, if that somebody is in the book and it is so."""
        said = read(envelope.statement)
        if said.ledger != self.ledger_id:
            raise SignatureInvalid(f"this was signed for the ledger {said.ledger!r:.80}", why="ledger", ledger=said.ledger)
        book = self.books.known
        if book.find(envelope.key_id) is None:
            book = self._store.peek(self.books.latest)
        check_signer(book, envelope.key_id, said.actor)
        return _checked(book.public_key(envelope.key_id), Signed(envelope.key_id, envelope.signature, envelope.statement, said))

    # What both have in common

    def sign(self, secret: SecretKey, command: c.JobCommand, holder: Actor, attempt: int, last: int) -> Signed:
        at = self._wall()
        said = statement_of(self.ledger_id, command, holder, attempt, counter=self._counts.next(holder.name, at, last), at=at)
        return self.seal(secret, said, encode(said))

    def seal(self, secret: SecretKey, said: Statement, statement: bytes) -> Signed:
        return _checked(secret.public_key, Signed(secret.key_id, secret.sign(message(statement)), statement, said))


class Sitting:
    """The notary in one transaction."""

    def __init__(self, notary: Notary, session: Session) -> None:
        self._notary = notary
        self._session = session
        self._book: Book | None = None

    @property
    def book(self) -> Book:
        """As it stands until the transaction ends; asked for before anything that was signed is written."""
        if self._book is None:
            self._book = self._notary.books.current(self._session)
        return self._book

    def accepts(self, signed: Signed) -> bool:
        """Whether the key that signed is good now."""
        role, name = signer_of(signed.said.actor)
        return self.book.valid(signed.key_id, role, name)

    def lack(self, policy: Policy, worker: str) -> str | None:
        """Why a worker of this name could not sign here what such a policy asks of a holder; None where it could, or need not."""
        return self._notary.ring.lack(self.book, worker) if owes(policy, EventType.HEARTBEAT) else None

    def decide(self, job: Job | None, command: Any, now: Micros, *, own: bool = True) -> Outcome:
        """What `command` does, with every signature that its events need. `own` commands are this process's to sign."""
        try:
            signed: Signed | None = getattr(command, "signed", None)
            if signed is not None:
                check_signer(self.book, signed.key_id, signed.said.actor)
            outcome = decide(job, command, now)
        except SignatureInvalid as refusal:
            again = self._signed_here(job, command, refusal) if own and job is not None else None
            if job is None or again is None:
                raise (self._explained(job, refusal) if own and job is not None else refusal) from None
            outcome = decide(job, again, now)
        return outcome if job is None else self._attested(job, outcome)

    def _signed_here(self, job: Job, command: Any, refusal: SignatureInvalid) -> Any:
        """The command signed for the job's holder, where that is for us to do and its key is here."""
        if refusal.context.get("why") not in _ANEW or type(command) not in STATES:
            return None
        holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
        secret = self._notary.ring.find(self.book, KeyRole.WORKER, holder.name)
        if secret is None:
            return None
        signed = self._notary.sign(secret, command, holder, job.attempt, job.counter or 0)
        return msgspec.structs.replace(command, signed=signed)

    def _explained(self, job: Job, refusal: SignatureInvalid) -> SignatureInvalid:
        """With what this process lacks, where that is why nothing was signed."""
        lack = self._notary.ring.lack(self.book, job.owner or job.last_owner or "")
        if lack is None or refusal.context.get("why") != "missing":
            return refusal
        return SignatureInvalid(f"{refusal.message}: {lack}", **refusal.context)

    def _attested(self, job: Job, outcome: Outcome) -> Outcome:
        """Signed by the system, or by the operator who asked, where the policy of the attempt wants that."""
        if not any(_is_owed(job, event) for event in outcome.events):
            return outcome
        events = tuple(self._attest(job, event) if _is_owed(job, event) else event for event in outcome.events)
        return Outcome(outcome.job, events)

    def _attest(self, job: Job, event: Event) -> Event:
        role, name = signer_of(event.actor)
        secret = self._notary.ring.find(self.book, role, name)
        if secret is None:
            is_system = role is KeyRole.SERVER
            raise SignatureInvalid(
                f"{event.type.value} of job {job.id} has to be signed by "
                + ("a server: there is no server key here" if is_system else f"an operator: there is no key of {name!r} here"),
                retryable=is_system,
                why=f"{role.value}_key",
                event=event.type.value,
                **job.held_by,
            )
        statement = encode_system(self._notary.ledger_id, event)
        signed = self._notary.seal(secret, read(statement), statement)
        return msgspec.structs.replace(event, key_id=signed.key_id, signature=signed.signature, statement=signed.statement)


def _is_due(command: Any) -> bool:
    return command.fence.signed not in BARE[type(command)]


def _is_owed(job: Job, event: Event) -> bool:
    return event.statement is None and owes(job.policy, event.type)


def check_signer(book: Book, key_id: str, actor: Actor) -> None:
    """Refuse a key that may not sign for `actor` now."""
    role, name = signer_of(actor)
    if not book.valid(key_id, role, name):
        found = book.find(key_id)
        state = "is not enrolled" if found is None else "was revoked" if not found.valid() else "is somebody else's"
        raise SignatureInvalid(f"the key {key_id} may not sign for {actor}: it {state}", why="key", key_id=key_id)


def _checked(public: PublicKey, signed: Signed) -> Signed:
    if not verify(public, message(signed.statement), signed.signature):
        raise SignatureInvalid(f"the signature is not one by the key {signed.key_id}", why="signature", key_id=signed.key_id)
    return signed
