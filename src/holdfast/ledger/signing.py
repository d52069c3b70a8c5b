"""Signatures: the keys of this process, what it signs, and whose signatures it accepts.

What holders sign in bulk is signed and checked before the transaction. Inside the transaction the key book is read again, so
that a revoked key is refused from its position on. What turns out to need a signature only there is signed there, under the
job's lock. No signature is written that was not checked.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.decide import Decision, decide
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, EventRecord, EventType, JobRecord, Micros, Policy, Role
from holdfast.core.policy import must_be_signed
from holdfast.errors import SignatureInvalid, ValidationError
from holdfast.proof.envelopes import Envelope
from holdfast.proof.key_book import KeyBook
from holdfast.proof.keys import KeyFile, KeyRole, PublicKey, SecretKey, verify
from holdfast.proof.signing import STATED_TYPES, UNSIGNED_UNDER, Signed, holder_statement, signer_of
from holdfast.proof.statements import (
    Statement,
    encode_ledger_statement,
    encode_statement,
    read_statement,
    statement_message,
)
from holdfast.store.base import Session, Store


class Keyring:
    """Secret keys by whose they are. One role and name may have several, while they are being rotated."""

    def __init__(self, keys: Iterable[KeyFile] = ()) -> None:
        self._keys: dict[str, KeyFile] = {}
        for key in keys:
            if key.secret is None:
                raise ValidationError(f"the key {key.key_id} has no secret to sign with", field="keys", key_id=key.key_id)
            self._keys[key.key_id] = key

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[KeyFile]:
        """In the order they were given."""
        return iter(self._keys.values())

    def __repr__(self) -> str:
        return f"Keyring({', '.join(f'{key.role.value} {key.name!r} {key.key_id}' for key in self)})"

    def secret(self, key_id: str) -> SecretKey | None:
        found = self._keys.get(key_id)
        return None if found is None else found.secret

    def find(self, book: KeyBook, role: KeyRole, name: str | None = None) -> SecretKey | None:
        """A key that may sign for this role, and for this name where one is given: the last one that the book has good."""
        good = [key.secret for key in self if key.role is role and book.valid(key.key_id, role, name)]
        return good[-1] if good else None

    def lack(self, book: KeyBook, worker: str) -> str | None:
        """Why nothing here may sign for a worker of this name; None where something may."""
        if self.find(book, KeyRole.WORKER, worker) is not None:
            return None
        own = [key.key_id for key in self if (key.role, key.name) == (KeyRole.WORKER, worker)]
        if own:
            state = "is not enrolled" if book.find(own[-1]) is None else "was revoked"
            return f"the key {own[-1]} of worker {worker!r} that is here {state}"
        loaded = ", ".join(f"{key.role.value} {key.name}" for key in self)
        return f"there is no key of worker {worker!r} here (loaded: {loaded or 'none'})"

    @property
    def worker(self) -> str | None:
        """The name that its keys of workers have, if they all have one."""
        names = {key.name for key in self if key.role is KeyRole.WORKER}
        return names.pop() if len(names) == 1 else None

    def server(self, book: KeyBook) -> SecretKey | None:
        """What signs for the system, and heads."""
        return self.find(book, KeyRole.SERVER)

    def voucher(self, book: KeyBook, name: str, role: str) -> SecretKey | None:
        """What vouches for a change of a key of this role: the operator's own key, else a server's, else any operator's.

        For a server's key, only a server's.
        """
        if role == KeyRole.SERVER:
            return self.server(book)
        return self.find(book, KeyRole.OPERATOR, name) or self.server(book) or self.find(book, KeyRole.OPERATOR)


class KeyBookCache:
    """The book as this process has read it last."""

    def __init__(self) -> None:
        self._book = KeyBook()

    @property
    def known(self) -> KeyBook:
        """As it was read last: it may have changed since."""
        return self._book

    def current(self, session: Session) -> KeyBook:
        """The book as it stands, and will until the transaction ends. Ask before positions are drawn for what was signed."""
        book, stand = self._book, session.keys_stand()
        if book.stand != stand:
            book = self._book = KeyBook(session.key_log())
        return book

    def latest(self, session: Session) -> KeyBook:
        """The book as it is now: somebody may change it at any time."""
        book = self._book = KeyBook(session.key_log())
        return book


class StatementCounters:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._newest: dict[str, int] = {}
        """Of each worker, by name."""

    def next(self, worker: str, at: Micros, last: int) -> int:
        """Above everything signed for `worker` here, and over a restart as well: it is the time wherever that is more.

        What is too far ahead of the time to be accepted is not counted on from, but for the one job whose `last` it is.
        """
        ahead_max = at + SKEW_US_MAX
        with self._mutex:
            own = self._newest.get(worker, 0) + 1
            count = max(own if own <= ahead_max else 0, last + 1, at)
            if count <= ahead_max:
                self._newest[worker] = count
            return count


_SIGN_AGAIN = frozenset({"missing", "counter", "key"})
"""Why a verb's own command is signed once more under the job's lock: it was not, was overtaken, or its key was rotated."""


class Signer:
    """`wall` is the signer's own clock, by which it dates what it signs."""

    def __init__(self, store: Store, ring: Keyring, books: KeyBookCache, wall: Callable[[], Micros]) -> None:
        self.ring = ring
        self.books = books
        self.ledger_id = store.ledger_id
        self._store = store
        self._wall = wall
        self._counts = StatementCounters()

    def sit(self, session: Session) -> "TransactionSigner":
        return TransactionSigner(self, session)

    # Before the transaction

    def sign_many(self, commands: Sequence[Any]) -> Sequence[Any]:
        """Each hot command with its holder's signature, where its fence says that it needs one and the key is here."""
        if not self.ring or not any(map(_needs_signature, commands)):
            return commands
        secrets: dict[str, SecretKey | None] = {}
        return [self._signed(command, secrets) if _needs_signature(command) else command for command in commands]

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
        return found or self.ring.find(self._store.read_statement(self.books.latest), KeyRole.WORKER, worker)

    def admit(self, envelope: Envelope) -> Signed:
        """What somebody else has signed, if that somebody is in the book and it is so."""
        said = read_statement(envelope.statement)
        if said.ledger != self.ledger_id:
            raise SignatureInvalid(f"this was signed for the ledger {said.ledger!r:.80}", why="ledger", ledger=said.ledger)
        book = self.books.known
        if book.find(envelope.key_id) is None:
            book = self._store.read_statement(self.books.latest)
        check_signer(book, envelope.key_id, said.actor)
        return _verified(book.public_key(envelope.key_id), Signed(envelope.key_id, envelope.signature, envelope.statement, said))

    # What both have in common

    def sign(self, secret: SecretKey, command: c.JobCommand, holder: Actor, attempt: int, last: int) -> Signed:
        at = self._wall()
        said = holder_statement(self.ledger_id, command, holder, attempt, counter=self._counts.next(holder.name, at, last), at=at)
        return self.seal(secret, said, encode_statement(said))

    def seal(self, secret: SecretKey, said: Statement, statement: bytes) -> Signed:
        return _verified(secret.public_key, Signed(secret.key_id, secret.sign(statement_message(statement)), statement, said))


class TransactionSigner:
    """The notary in one transaction."""

    def __init__(self, notary: Signer, session: Session) -> None:
        self._signer = notary
        self._session = session
        self._book: KeyBook | None = None

    @property
    def book(self) -> KeyBook:
        """As it stands until the transaction ends; asked for before anything that was signed is written."""
        if self._book is None:
            self._book = self._signer.books.current(self._session)
        return self._book

    def accepts(self, signed: Signed) -> bool:
        """Whether the key that signed is good now."""
        role, name = signer_of(signed.said.actor)
        return self.book.valid(signed.key_id, role, name)

    def lack(self, policy: Policy, worker: str) -> str | None:
        """Why a worker of this name could not sign here what such a policy asks of a holder; None where it could, or need not."""
        return self._signer.ring.lack(self.book, worker) if must_be_signed(policy, EventType.HEARTBEAT) else None

    def decide(self, job: JobRecord | None, command: Any, now: Micros, *, own: bool = True) -> Decision:
        """What `command` does, with every signature that its events need. `own` commands are this process's to sign."""
        signed: Signed | None = getattr(command, "signed", None)
        if signed is None and (job is None or job.policy is None or job.policy.signed == "none"):
            return decide(job, command, now)
        try:
            if signed is not None:
                check_signer(self.book, signed.key_id, signed.said.actor)
            outcome = decide(job, command, now)
        except SignatureInvalid as refusal:
            again = self._signed_here(job, command, refusal) if own and job is not None else None
            if job is None or again is None:
                raise (self._explained(job, refusal) if own and job is not None else refusal) from None
            outcome = decide(job, again, now)
        return outcome if job is None else self._attested(job, outcome)

    def _signed_here(self, job: JobRecord, command: Any, refusal: SignatureInvalid) -> Any:
        """The command signed for the job's holder, where that is for us to do and its key is here."""
        if refusal.context.get("why") not in _SIGN_AGAIN or type(command) not in STATED_TYPES:
            return None
        holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
        secret = self._signer.ring.find(self.book, KeyRole.WORKER, holder.name)
        if secret is None:
            return None
        signed = self._signer.sign(secret, command, holder, job.attempt, job.counter or 0)
        return msgspec.structs.replace(command, signed=signed)

    def _explained(self, job: JobRecord, refusal: SignatureInvalid) -> SignatureInvalid:
        """With what this process lacks, where that is why nothing was signed."""
        lack = self._signer.ring.lack(self.book, job.owner or job.last_owner or "")
        if lack is None or refusal.context.get("why") != "missing":
            return refusal
        return SignatureInvalid(f"{refusal.message}: {lack}", **refusal.context)

    def _attested(self, job: JobRecord, outcome: Decision) -> Decision:
        """Signed by the system, or by the operator who asked, where the policy of the attempt wants that."""
        if not any(_lacks_statement(job, event) for event in outcome.events):
            return outcome
        events = tuple(self._attest(job, event) if _lacks_statement(job, event) else event for event in outcome.events)
        return Decision(outcome.job, events)

    def _attest(self, job: JobRecord, event: EventRecord) -> EventRecord:
        role, name = signer_of(event.actor)
        secret = self._signer.ring.find(self.book, role, name)
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
        statement = encode_ledger_statement(self._signer.ledger_id, event)
        signed = self._signer.seal(secret, read_statement(statement), statement)
        return msgspec.structs.replace(event, key_id=signed.key_id, signature=signed.signature, statement=signed.statement)


def _needs_signature(command: Any) -> bool:
    return command.fence.signed not in UNSIGNED_UNDER[type(command)]


def _lacks_statement(job: JobRecord, event: EventRecord) -> bool:
    return event.statement is None and must_be_signed(job.policy, event.type)


def check_signer(book: KeyBook, key_id: str, actor: Actor) -> None:
    """Refuse a key that may not sign for `actor` now."""
    role, name = signer_of(actor)
    if not book.valid(key_id, role, name):
        found = book.find(key_id)
        state = "is not enrolled" if found is None else "was revoked" if not found.valid() else "is somebody else's"
        raise SignatureInvalid(f"the key {key_id} may not sign for {actor}: it {state}", why="key", key_id=key_id)


def _verified(public: PublicKey, signed: Signed) -> Signed:
    if not verify(public, statement_message(signed.statement), signed.signature):
        raise SignatureInvalid(f"the signature is not one by the key {signed.key_id}", why="signature", key_id=signed.key_id)
    return signed
