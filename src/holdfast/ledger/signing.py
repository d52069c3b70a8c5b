"""Signatures: the keys of this process, what it signs, and which signatures it accepts.

Hot commands of holders are signed and verified before the transaction. Inside the transaction the key book is read again, so that
a revoked key is refused from its position on. If it turns out only there that a signature is needed, it is made there, under the
job's lock. Every signature is verified before it is written.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.core import commands as c
from holdfast.core.decide import Decision, decide
from holdfast.core.model import Actor, EventRecord, EventType, Fence, JobRecord, Micros, Policy, Role
from holdfast.core.policy import must_be_signed
from holdfast.errors import HoldfastError, SignatureInvalid
from holdfast.ledger.keyring import KeyBookCache, Keyring, StatementCounters
from holdfast.proof.envelopes import Envelope
from holdfast.proof.key_book import KeyBook
from holdfast.proof.keys import KeyRole, PublicKey, SecretKey, verify
from holdfast.proof.signing import STATED_TYPES, UNSIGNED_UNDER, Signed, check_stated, holder_statement, signer_of
from holdfast.proof.statements import (
    Statement,
    encode_ledger_statement,
    encode_statement,
    read_statement,
    statement_message,
)
from holdfast.store.base import Store
from holdfast.store.session import Session


class SignedFence(Fence, frozen=True, gc=False, kw_only=True):
    """A fence with a statement that its holder has signed, in another process, for one command."""

    envelope: Envelope


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

    def in_transaction(self, session: Session) -> "TransactionSigner":
        return TransactionSigner(self, session)

    # Before the transaction

    def sign_many(self, commands: Sequence[Any]) -> Sequence[Any]:
        """Return the hot commands, signed for their holders if the fence requires that and this process has the key.

        A statement that came with a fence is verified instead.
        """
        if any(map(_has_proof, commands)):
            commands = [self.admit_proof(command) for command in commands]
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

    def admit_proof(self, command: Any) -> Any:
        """Return the command with the statement of its fence, if that has one. Raise if it is not of this command."""
        if not _has_proof(command):
            return command
        given: SignedFence = command.fence
        signed = self.admit(given.envelope)
        check_stated(signed, command, Actor(Role.WORKER, given.worker, given.incarnation), given.attempt)
        fence = Fence(given.job_id, given.attempt, given.token, given.worker, given.incarnation)
        return msgspec.structs.replace(command, fence=fence, signed=signed)

    def admit_proofs(self, commands: Sequence[Any]) -> tuple[Sequence[Any], dict[int, HoldfastError]]:
        """Return the commands whose proofs are valid or that have none, and the refusals of the others, by their place."""
        if not any(map(_has_proof, commands)):
            return commands, {}
        admitted: list[Any] = []
        refused: dict[int, HoldfastError] = {}
        for place, command in enumerate(commands):
            try:
                admitted.append(self.admit_proof(command))
            except HoldfastError as error:
                refused[place] = error
        return admitted, refused

    def admit(self, envelope: Envelope) -> Signed:
        """Verify a statement that another process has signed, and that its key is enrolled for its actor."""
        content = read_statement(envelope.statement)
        if content.ledger != self.ledger_id:
            raise SignatureInvalid(f"this was signed for the ledger {content.ledger!r:.80}", why="ledger", ledger=content.ledger)
        book = self.books.known
        if book.find(envelope.key_id) is None:
            book = self._store.read_statement(self.books.latest)
        check_signer(book, envelope.key_id, content.actor)
        signed = Signed(envelope.key_id, envelope.signature, envelope.statement, content, is_given=True)
        return _verified(book.public_key(envelope.key_id), signed)

    def sign_again(self, command: Any, refusal: HoldfastError) -> Any:
        """Return a command that the server has refused with a signature that it accepts, or None if that does not help.

        Raise the refusal with the missing key in its message, if that is why the command was not signed.
        """
        is_kept = isinstance(refusal, SignatureInvalid) and not refusal.context  # the kept answer of a repeated batch
        if not is_kept and not _can_sign_again(command, refusal):
            return None
        fence: Fence | None = getattr(command, "fence", None)
        holder = command.actor if fence is None else Actor(Role.WORKER, fence.worker, fence.incarnation)
        book = self._store.read_statement(self.books.latest)
        secret = self.ring.find(book, KeyRole.WORKER, holder.name)
        if secret is None or not holder.incarnation:
            raise explained(refusal, self.ring.missing_key(book, holder.name)) from None
        attempt = refusal.context["attempt"] if fence is None else fence.attempt
        signed = self.sign(secret, command, holder, attempt, refusal.context.get("last") or 0)
        return msgspec.structs.replace(command, signed=signed)

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

    def __init__(self, signer: Signer, session: Session) -> None:
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

    def decide(self, job: JobRecord | None, command: Any, now: Micros) -> Decision:
        """Decide what `command` does, with every signature that its events need.

        This process signs its own commands, not those that another process has signed.
        """
        signed: Signed | None = getattr(command, "signed", None)
        own = signed is None or not signed.is_given
        if signed is None and (job is None or job.policy is None or job.policy.signed == "none"):
            return decide(job, command, now)
        try:
            if signed is not None:
                check_signer(self.book, signed.key_id, signed.content.actor)
            outcome = decide(job, command, now)
        except SignatureInvalid as refusal:
            again = self._signed_here(job, command, refusal) if own and job is not None else None
            if job is None or again is None:
                missing = self._signer.ring.missing_key(self.book, _holder_name(job)) if own and job is not None else None
                raise explained(refusal, missing) from None
            outcome = decide(job, again, now)
        return outcome if job is None else self._attested(job, outcome)

    def _signed_here(self, job: JobRecord, command: Any, refusal: SignatureInvalid) -> Any:
        """Return the command signed for the job's holder, or None if signing again does not help or the key is missing."""
        if not _can_sign_again(command, refusal):
            return None
        holder = Actor(Role.WORKER, _holder_name(job), job.incarnation or "")
        secret = self._signer.ring.find(self.book, KeyRole.WORKER, holder.name)
        if secret is None:
            return None
        signed = self._signer.sign(secret, command, holder, job.attempt, job.counter or 0)
        return msgspec.structs.replace(command, signed=signed)

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


def explained(refusal: HoldfastError, missing: str | None) -> HoldfastError:
    """Return the refusal, with the missing key in its message if that is why the command was not signed."""
    if missing is None or refusal.context.get("why") != "missing":
        return refusal
    return SignatureInvalid(f"{refusal.message}: {missing}", **refusal.context)


def _holder_name(job: JobRecord) -> str:
    return job.owner or job.last_owner or ""


def _can_sign_again(command: Any, refusal: HoldfastError) -> bool:
    return isinstance(refusal, SignatureInvalid) and refusal.context.get("why") in _SIGN_AGAIN and type(command) in STATED_TYPES


def _has_proof(command: Any) -> bool:
    return type(getattr(command, "fence", None)) is SignedFence


def _needs_signature(command: Any) -> bool:
    return command.signed is None and command.fence.signed not in UNSIGNED_UNDER[type(command)]


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
