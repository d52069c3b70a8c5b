"""The base class of the ledger's verbs: the store, the commit pipeline, and the conversion of answers."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import SYSTEM, Actor, Fence, Micros, Role
from holdfast.core.model import JobRecord as Record
from holdfast.errors import HoldfastError
from holdfast.ledger import validate
from holdfast.ledger.commit import CommitPipeline, only_answer
from holdfast.ledger.counted import HistoryWriter
from holdfast.ledger.keyring import KeyBookCache, Keyring
from holdfast.ledger.limit_keys import LimitKeys
from holdfast.ledger.public import Beat, Change, HeldJob, Job, to_datetime
from holdfast.ledger.requests import Request, is_repeated, repeats
from holdfast.ledger.signing import Signer
from holdfast.ledger.sweep import Entropy, Sweeper
from holdfast.ledger.transaction import StepTransactions
from holdfast.ledger.validators import HookSource, Validation
from holdfast.store.base import Schema, Store, Waiter
from holdfast.store.callers import stop_if_abandoned
from holdfast.store.rows import chunks
from holdfast.store.session import AppliedCommand as StoreChange
from holdfast.store.session import Session
from holdfast.watch.process import Metrics

if TYPE_CHECKING:
    from holdfast.ledger.schedules import ScheduleFirer

JobOrFence = int | Fence
T = TypeVar("T")


class LedgerBase:
    """The state and the methods that all verbs share. `Ledger` adds the verbs."""

    def __init__(
        self,
        store: Store,
        entropy: Entropy,
        monotonic: Callable[[], float],
        *,
        actor: str,
        incarnation: str,
        metrics: Metrics | None = None,
        ring: Keyring,
        wall: Callable[[], Micros],
        validators: HookSource | None = None,
    ) -> None:
        self._store = store
        self._entropy = entropy
        self._actor = actor
        self._monotonic = monotonic
        self.metrics = metrics or Metrics()
        """Counts of this ledger, and of other ledgers that share the object, since the process began."""
        self.ring = ring
        """The keys that this process signs with."""
        self._books = KeyBookCache()
        self._signer = Signer(store, ring, self._books, wall)
        self._pipeline = CommitPipeline(store, self.metrics, self._signer)
        self._sweeper = Sweeper(store, self._pipeline, entropy, monotonic, self._fire_schedules, self._realign_schedules)
        self.step_transactions = StepTransactions(store, self._pipeline, self._signer, entropy, self.metrics)
        """Runs several commands in one transaction, for the verbs of agents."""
        self._history = HistoryWriter(store, self._pipeline, monotonic)
        self._enqueues = validate.EnqueueReader()
        self.validation = None if validators is None else Validation(store, validators)
        """Runs validators on results before they are recorded. None if there are no validators."""
        self._limit_keys: LimitKeys | None = LimitKeys(store, monotonic)
        """None if a server adds the keys."""
        self.incarnation = incarnation
        """Drawn when the ledger is opened. It distinguishes the workers of this process from others of the same name."""
        self.token_worker: str | None = None
        """The worker that this ledger's token is for, if it is opened on a server with the token of one worker."""
        self._unanswered: dict[str, tuple[c.ClaimNext, float]] = {}
        """Claims that may have been committed without an answer, by request id, each with the time until which to look for its
        jobs."""

    @property
    def id(self) -> str:
        """The random name that the ledger got when it was created."""
        return self._store.ledger_id

    @property
    def schema(self) -> Schema:
        """The version of the ledger's tables, and what was found and migrated when it was opened."""
        return self._store.schema

    @property
    def patience(self) -> float:
        """How many seconds a call that writes waits for one answer of the store. After that, its connection is dropped."""
        return self._store.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._store.patience = seconds

    def close(self) -> None:
        """Close the ledger's connections."""
        self._store.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.id}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Steps that verbs share

    def _holder(self, fence: Any, request_id: Any, expected_rev: Any, *, draw: bool = True) -> dict[str, Any]:
        fence = validate.fence(fence)
        request = validate.request_id(request_id)
        return {
            "actor": Actor(Role.WORKER, fence.worker),
            "request_id": request if request is not None or not draw else self._entropy.nonce(),
            "job_id": fence.job_id,
            "fence": fence,
            "expected_rev": validate.rev(expected_rev),
        }

    def _outside(self, job_id: Any, request_id: Any, expected_rev: Any, actor: Any, role: Role) -> dict[str, Any]:
        fallback = SYSTEM.name if role is Role.SYSTEM else self._actor
        return {
            "actor": validate.actor(actor, role, fallback),
            "request_id": validate.request_id(request_id) or self._entropy.nonce(),
            "job_id": validate.job_id(job_id),
            "expected_rev": validate.rev(expected_rev),
        }

    def _target(self, job: JobOrFence, request_id: Any, expected_rev: Any, actor: Any) -> dict[str, Any]:
        if isinstance(job, Fence):
            return self._holder(job, request_id, expected_rev)
        return self._outside(job, request_id, expected_rev, actor, Role.SYSTEM)

    def _set(
        self,
        verb: str,
        body: tuple[Any, ...],
        request_id: str | None,
        actor: str | Actor | None,
        work: Callable[[Session], None],
    ) -> None:
        """Change the ledger's own settings. This makes no event. A repeated request id is still recognised."""
        who, request = validate.actor(actor, Role.OPERATOR, self._actor), validate.request_id(request_id)

        def once(session: Session) -> bool:
            if request is not None and is_repeated(session, who, request, verb, validate.body_hash(verb, *body)):
                return True
            work(session)
            return False

        repeats.count += self._pipeline.transact(once)

    def _firer(self) -> "ScheduleFirer":
        from holdfast.ledger.schedules import ScheduleFirer

        return ScheduleFirer(self._store, self._pipeline, self._signer, self.metrics)

    def _fire_schedules(self, made: Counter[str]) -> None:
        self._firer().fire(made)

    def _realign_schedules(self, names: Sequence[str]) -> None:
        self._firer().realign(names)

    def _wait(self, waiter: Waiter, look: Callable[[], T], is_over: Callable[[T], bool], timeout: float | None) -> T:
        """Call `look` after each change, until `is_over` of its answer, or for `timeout` seconds. Return the last answer."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = look()
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if is_over(found) or left <= 0:
                return found
            stop_if_abandoned()
            waiter.wait(left)

    def _validated(self, commands: Sequence[c.Complete]) -> Sequence[c.Complete]:
        """Return the completions, each with the objection of its validators, if any."""
        return commands if self.validation is None else self.validation.validated(commands)

    def _hot_request(
        self,
        verb: str,
        commands: Sequence[Any],
        request_id: str | None,
        *,
        keep: bool = False,
        chunk: int = 0,
        waits: bool = True,
        beats: Sequence[c.Heartbeat] = (),
    ) -> Request:
        """Return a request of a hot verb. Its answer is kept if the caller chose the request id, or with `keep`."""
        named = request_id is not None
        body = validate.body_hash(verb, [body_of(command) for command in commands]) if named or keep else b""
        signed = self._signer.sign_many(commands)
        return Request(verb, signed, named, named or keep, body, chunk, waits, self._signer.sign_many(beats) if beats else ())

    def _many(
        self,
        verb: str,
        commands: Sequence[Any],
        request_id: str | None,
        convert: Callable[[Any], Any],
        *,
        waits: bool = True,
        beats: Sequence[c.Heartbeat] = (),
    ) -> list[Any]:
        limits.check_count(verb, len(commands), limits.WRITE_BATCH_MAX)
        admitted, refused = self._signer.admit_proofs(commands)
        beats, _ = self._signer.admit_proofs(beats)
        answers: list[Any] = []
        for number, part in enumerate(chunks(admitted, limits.WRITE_CHUNK)):
            request = self._hot_request(verb, part, request_id, chunk=number, waits=waits, beats=beats if number == 0 else ())
            answers += self._pipeline.submit(request).answers
        for place in sorted(refused):
            answers.insert(place, refused[place])
        return [answer if isinstance(answer, HoldfastError) else convert(answer) for answer in answers]

    def _on_job(self, verb: str, command: c.JobCommand, request_id: str | None, body: tuple[Any, ...] = ()) -> Job:
        fence = getattr(command, "fence", None)
        hashed = validate.body_hash(verb, command.job_id, command.expected_rev, fence and (fence.attempt, fence.token), body)
        request = Request(verb, [self._signer.admit_proof(command)], request_id is not None, keep=True, body_hash=hashed)
        return public_job(only_answer(self._pipeline.submit(request)))


D = TypeVar("D", bound=LedgerBase)


def without_validators(ledger: D) -> D:
    """Return a copy of the ledger for a worker, which runs the validators of its handlers itself."""
    copied = copy(ledger)
    copied.validation = None
    return copied


def sign_as_server(ledger: LedgerBase) -> None:
    """Let the ledger sign only for the system from now on, with the server's own keys. Workers sign in their own processes."""
    ledger.ring = ledger._signer.ring = ledger.ring.of_server()  # noqa: SLF001 - a part of the same class


class ServiceAccess:
    """The methods of a ledger that every service uses. Safe to use from many threads."""

    def __init__(self, store: Store, pipeline: CommitPipeline, entropy: Entropy, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._pipeline = pipeline
        self._entropy = entropy
        self.ledger_id = store.ledger_id
        self.monotonic = monotonic

    def nonce(self) -> str:
        return self._entropy.nonce()

    def jitter(self) -> float:
        return self._entropy.jitter()

    def now(self) -> Micros:
        """Return the ledger's time."""
        return self._store.read_statement(lambda session: session.now())

    def waiter(self) -> Waiter:
        """Return a waiter for new events. Create it before reading, so that no event in between is missed."""
        return self._store.waiter(events=True)


class WorkerActors(dict[str, Actor]):
    """Actors for workers, by name. Each is made once for a batch."""

    def __missing__(self, name: str) -> Actor:
        actor = self[name] = Actor(Role.WORKER, name)
        return actor


def body_of(command: Any) -> Any:
    rest = getattr(command, "payload", None) or getattr(command, "beat", None)
    return command.job_id, command.fence.attempt, command.fence.token, command.expected_rev, rest


def public_job(record: Record) -> Job:
    """Return the job without the token of its fence. Only the claim itself returns the token."""
    return Job(record.id, msgspec.structs.replace(record, token=None) if record.token is not None else record)


def claimed_job(record: Record) -> HeldJob:
    """Return the job of a claim, with its fence instead of the token in its record."""
    assert record.token is not None and record.owner is not None
    fence = Fence(record.id, record.attempt, record.token, record.owner, record.incarnation or "")
    return HeldJob(msgspec.structs.replace(record, token=None), fence)


def public_change(change: StoreChange) -> Change:
    return Change(change.job_id, change.rev, change.status, to_datetime(change.at))


def public_beat(change: StoreChange) -> Beat:
    lease = None if change.lease_expires_at is None else to_datetime(change.lease_expires_at)
    return Beat(change.job_id, change.rev, change.status, lease, change.cancel_requested, to_datetime(change.at))
