"""Signatures: the keys of this process, what it signs, and which signatures it accepts.

Hot commands of holders are signed and verified before the transaction. Inside the transaction the key book is read again, so that
a revoked key is refused from its position on. If it turns out only there that a signature is needed, it is made there, under the
job's lock. Every signature is verified before it is written.
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
from holdfast.store.base import Keys, Store


class Keyring:
    """Secret keys, each with its role and name. One role and name may have several keys during a rotation."""

    def __init__(self, keys: Iterable[KeyFile] = ()) -> None:
        self._keys: dict[str, KeyFile] = {}
        for key in keys:
            if key.secret is None:
                raise ValidationError(f"the key {key.key_id} has no secret to sign with", field="keys", key_id=key.key_id)
            self._keys[key.key_id] = key

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[KeyFile]:
        """Iterate in the order in which the keys were given."""
        return iter(self._keys.values())

    def __repr__(self) -> str:
        return f"Keyring({', '.join(f'{key.role.value} {key.name!r} {key.key_id}' for key in self)})"

    def secret(self, key_id: str) -> SecretKey | None:
        found = self._keys.get(key_id)
        return None if found is None else found.secret

    def find(self, book: KeyBook, role: KeyRole, name: str | None = None) -> SecretKey | None:
        """Return the last key that is valid in the book for this role, and for this name if one is given."""
        valid = [key.secret for key in self if key.role is role and book.valid(key.key_id, role, name)]
        return valid[-1] if valid else None

    def missing_key(self, book: KeyBook, worker: str) -> str | None:
        """Return why no key of this ring may sign for the worker of this name, or None if one may."""
        if self.find(book, KeyRole.WORKER, worker) is not None:
            return None
        own = [key.key_id for key in self if (key.role, key.name) == (KeyRole.WORKER, worker)]
        if own:
            state = "is not enrolled" if book.find(own[-1]) is None else "was revoked"
            return f"the key {own[-1]} of worker {worker!r}, which this process has, {state}"
        loaded = ", ".join(f"{key.role.value} {key.name}" for key in self)
        return f"this process has no key of worker {worker!r} (loaded: {loaded or 'none'})"

    @property
    def worker(self) -> str | None:
        """The name of its worker keys, if they all have the same one."""
        names = {key.name for key in self if key.role is KeyRole.WORKER}
        return names.pop() if len(names) == 1 else None

    def server(self, book: KeyBook) -> SecretKey | None:
        """Return the key that signs for the system, and that signs heads."""
        return self.find(book, KeyRole.SERVER)

    def voucher(self, book: KeyBook, name: str, role: str) -> SecretKey | None:
        """Return the key that vouches for a change of a key of this role.

        It is the key of the operator `name`, else a server's, else any operator's. For a server's key, only a server's vouches.
        """
        if role == KeyRole.SERVER:
            return self.server(book)
        return self.find(book, KeyRole.OPERATOR, name) or self.server(book) or self.find(book, KeyRole.OPERATOR)


class KeyBookCache:
    """The key book as this process has last read it."""

    def __init__(self) -> None:
        self._book = KeyBook()

    @property
    def known(self) -> KeyBook:
        """The book as it was last read. It may have changed since."""
        return self._book

    def current(self, session: Keys) -> KeyBook:
        """Return the book, locked against changes until the transaction ends.

        Call this before the transaction draws positions for signed events.
        """
        book = self._book
        if book.last_change_pos != session.last_key_change():
            book = self._book = KeyBook(session.key_log())
        return book

    def latest(self, session: Keys) -> KeyBook:
        """Read the book. It is not locked: another transaction may change it at any time."""
        book = self._book = KeyBook(session.key_log())
        return book


class StatementCounters:
    """The counters of the statements that this process signs. They increase, for each worker."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._newest: dict[str, int] = {}
        """The newest counter of each worker, by name."""

    def next(self, worker: str, at: Micros, last: int) -> int:
        """Return a counter above all that this process has signed for `worker`, and above `last`, the newest of the job.

        It is at least the time `at`, so that it also increases over a restart. A counter that is too far ahead of the time to be
        accepted is continued only for the job whose `last` it is.
        """
        ahead_max = at + SKEW_US_MAX
        with self._mutex:
            own = self._newest.get(worker, 0) + 1
            count = max(own if own <= ahead_max else 0, last + 1, at)
            if count <= ahead_max:
                self._newest[worker] = count
            return count


_SIGN_AGAIN = frozenset({"missing", "counter", "key"})
"""Refusals after which a verb's own command is signed again under the job's lock: it was not signed, its counter is no longer
the newest, or its key was rotated."""


class Signer:
    """Signs commands with the keys of this process. `wall` is the clock for the time in its statements."""

    def __init__(self, store: Store, ring: Keyring, books: KeyBookCache, wall: Callable[[], Micros]) -> None:
        self.ring = ring
        self.books = books
        self.ledger_id = store.ledger_id
        self._store = store
        self._wall = wall
        self._counts = StatementCounters()

    def in_transaction(self, session: Keys) -> "TransactionSigner":
        return TransactionSigner(self, session)

    # Before the transaction

    def sign_many(self, commands: Sequence[Any]) -> Sequence[Any]:
        """Return the hot commands, signed for their holders if the fence requires that and this process has the key."""
        if not self.ring or not any(map(_needs_signature, commands)):
            return commands
        secrets: dict[str, SecretKey | None] = {}
        return [self._signed(command, secrets) if _needs_signature(command) else command for command in commands]

    def _signed(self, command: Any, secrets: dict[str, SecretKey | None]) -> Any:
        """Return the command with a signature. Without an incarnation in the fence, it is signed later, under the job's lock."""
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
        """Return the key of a worker, by the book as last read, or else by the book read again: the key may be new."""
        if not any(key.role is KeyRole.WORKER and key.name == worker for key in self.ring):
            return None
        found = self.ring.find(self.books.known, KeyRole.WORKER, worker)
        return found or self.ring.find(self._store.read_statement(self.books.latest), KeyRole.WORKER, worker)

    def admit(self, envelope: Envelope) -> Signed:
        """Verify a statement that another process has signed, and that its key is enrolled for its actor."""
        content = read_statement(envelope.statement)
        if content.ledger != self.ledger_id:
            raise SignatureInvalid(f"this was signed for the ledger {content.ledger!r:.80}", why="ledger", ledger=content.ledger)
        book = self.books.known
        if book.find(envelope.key_id) is None:
            book = self._store.read_statement(self.books.latest)
        check_signer(book, envelope.key_id, content.actor)
        return _verified(
            book.public_key(envelope.key_id), Signed(envelope.key_id, envelope.signature, envelope.statement, content)
        )

    # Before and inside the transaction

    def sign(self, secret: SecretKey, command: c.JobCommand, holder: Actor, attempt: int, last: int) -> Signed:
        at = self._wall()
        content = holder_statement(
            self.ledger_id, command, holder, attempt, counter=self._counts.next(holder.name, at, last), at=at
        )
        return self.seal(secret, content, encode_statement(content))

    def seal(self, secret: SecretKey, content: Statement, statement: bytes) -> Signed:
        return _verified(secret.public_key, Signed(secret.key_id, secret.sign(statement_message(statement)), statement, content))


class TransactionSigner:
    """The signer inside one transaction."""

    def __init__(self, signer: Signer, session: Keys) -> None:
        self._signer = signer
        self._session = session
        self._book: KeyBook | None = None

    @property
    def book(self) -> KeyBook:
        """The key book, locked until the transaction ends. It is read before any signed event is written."""
        if self._book is None:
            self._book = self._signer.books.current(self._session)
        return self._book

    def accepts(self, signed: Signed) -> bool:
        """Return whether the key of the signature is valid now."""
        role, name = signer_of(signed.content.actor)
        return self.book.valid(signed.key_id, role, name)

    def missing_key(self, policy: Policy, worker: str) -> str | None:
        """Return why this process cannot sign for the worker what the policy requires, or None if it can or need not."""
        return self._signer.ring.missing_key(self.book, worker) if must_be_signed(policy, EventType.HEARTBEAT) else None

    def decide(self, job: JobRecord | None, command: Any, now: Micros, *, own: bool = True) -> Decision:
        """Decide what `command` does, with every signature that its events need. This process signs its `own` commands."""
        signed: Signed | None = getattr(command, "signed", None)
        if signed is None and (job is None or job.policy is None or job.policy.signed == "none"):
            return decide(job, command, now)
        try:
            if signed is not None:
                check_signer(self.book, signed.key_id, signed.content.actor)
            outcome = decide(job, command, now)
        except SignatureInvalid as refusal:
            again = self._signed_here(job, command, refusal) if own and job is not None else None
            if job is None or again is None:
                raise (self._explained(job, refusal) if own and job is not None else refusal) from None
            outcome = decide(job, again, now)
        return outcome if job is None else self._attested(job, outcome)

    def _signed_here(self, job: JobRecord, command: Any, refusal: SignatureInvalid) -> Any:
        """Return the command signed for the job's holder, or None if signing again does not help or the key is missing."""
        if refusal.context.get("why") not in _SIGN_AGAIN or type(command) not in STATED_TYPES:
            return None
        holder = Actor(Role.WORKER, job.owner or job.last_owner or "", job.incarnation or "")
        secret = self._signer.ring.find(self.book, KeyRole.WORKER, holder.name)
        if secret is None:
            return None
        signed = self._signer.sign(secret, command, holder, job.attempt, job.counter or 0)
        return msgspec.structs.replace(command, signed=signed)

    def _explained(self, job: JobRecord, refusal: SignatureInvalid) -> SignatureInvalid:
        """Return the refusal, with the missing key in its message if that is why the command was not signed."""
        missing = self._signer.ring.missing_key(self.book, job.owner or job.last_owner or "")
        if missing is None or refusal.context.get("why") != "missing":
            return refusal
        return SignatureInvalid(f"{refusal.message}: {missing}", **refusal.context)

    def _attested(self, job: JobRecord, outcome: Decision) -> Decision:
        """Sign the events for the system, or for the operator who acts, if the policy of the attempt requires it."""
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
                + (
                    "a server: this process has no server key"
                    if is_system
                    else f"an operator: this process has no key of {name!r}"
                ),
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
    """Raise SignatureInvalid if the key may not sign for `actor` now."""
    role, name = signer_of(actor)
    if not book.valid(key_id, role, name):
        found = book.find(key_id)
        state = "is not enrolled" if found is None else "was revoked" if not found.valid() else "belongs to another name or role"
        raise SignatureInvalid(f"the key {key_id} may not sign for {actor}: it {state}", why="key", key_id=key_id)


def _verified(public: PublicKey, signed: Signed) -> Signed:
    if not verify(public, statement_message(signed.statement), signed.signature):
        raise SignatureInvalid(f"the signature is not one by the key {signed.key_id}", why="signature", key_id=signed.key_id)
    return signed
