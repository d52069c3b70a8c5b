"""Several commands in one transaction, with one answer. The verbs of agents use this."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.fence_tokens import issue_token
from holdfast.core.model import SYSTEM, TERMINAL, Actor, EventType, FailureStage, Fence, JobRecord, ReasonCode
from holdfast.errors import FenceLost, HoldfastError, NotFound, SignatureInvalid
from holdfast.ledger import metrics, validate
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.decisions import apply
from holdfast.ledger.requests import Request, Result, kept_answer, repeats
from holdfast.ledger.signing import Signer, TransactionSigner
from holdfast.ledger.sweep import Entropy
from holdfast.store.base import Store
from holdfast.store.requests import StoredRequest
from holdfast.store.session import Session
from holdfast.watch.process import Metrics


class FailureReport(NamedTuple):
    """A holder's report of a failed attempt."""

    error: bytes
    retryable: bool
    reason_code: ReasonCode | None
    failure_stage: FailureStage | None
    retry_after_us: int | None


class StepsAnswer(NamedTuple):
    """An answer as JSON. `replayed` is true if the same request was answered before, and nothing was done now."""

    answer: bytes
    replayed: bool


class JobSteps:
    """The steps of one call. Each is an ordinary command: it is decided under the job's lock and saved with its events.

    The fence of a job is found by its holder's name and incarnation. It never leaves the transaction.
    """

    def __init__(
        self, session: Session, signer: TransactionSigner, result: Result, who: Actor, request_id: str, entropy: Entropy
    ) -> None:
        self.session = session
        self._signer = signer
        self.who = who
        self._result = result
        self._request_id = request_id
        self._entropy = entropy
        self.labels: tuple[str, ...] = ()
        """What the worker has, for jobs that require it."""

    @property
    def changed(self) -> bool:
        return self._result.changed

    def job(self, job_id: int) -> JobRecord:
        """Return a job, locked until the transaction ends."""
        return self.session.load_one(job_id, lock=True)

    def holds(self, job: JobRecord) -> bool:
        """Return whether this incarnation of the worker has the newest fence of the job, also if it is stalled or finished."""
        return job.token is not None and job.is_of(self.who)

    def claim(self, job_id: int, ttl_ms: int, *, keeps_ttl: bool) -> JobRecord:
        """Claim a job. Raise SignatureInvalid if its policy requires signatures and this process has no key to make them.

        The claim itself needs no signature, but every later step does.
        """
        job = self.job(job_id)
        if job.status not in TERMINAL and (missing := self._signer.missing_key(self.session.policy_of(job), self.who.name)):
            raise SignatureInvalid(f"job {job_id} requires signatures: {missing}", why="missing", **job.held_by)
        token = issue_token(self._entropy.token(), self.who.name)
        fields = {"token": token, "ttl_ms": ttl_ms, "keeps_ttl": keeps_ttl, "labels": self.labels}
        return self._do(c.ClaimJob, job_id, actor=self.who, **fields)

    def next_in_subqueues(self, queue: str, kinds: tuple[str, ...] | None) -> JobRecord | None:
        """Return the job of a queue with subqueues that a claim would take next, locked. None if there is none."""
        token = self._entropy.token()
        command = c.ClaimNext(actor=self.who, queues=(queue,), limit=1, token=token, kinds=kinds, labels=self.labels)
        claim = self.session.begin_flow_claim(queue, command)
        if claim is None:
            return None
        picked = next(self.session.rounds(claim), {})
        return next(iter(self.session.load(list(picked), lock=False).values()), None)

    def start(self, job: JobRecord) -> JobRecord:
        return self._by_holder(c.Start, job)

    def beat(self, job: JobRecord, beat: payloads.BeatPayload = payloads.NO_BEAT) -> JobRecord:
        return self._by_holder(c.Heartbeat, job, beat=beat)

    def complete(self, job: JobRecord, payload: bytes, objection: c.Objection | None = None) -> JobRecord:
        return self._by_holder(c.Complete, job, payload=payload, objection=objection)

    def fail(self, job: JobRecord, failure: FailureReport) -> JobRecord:
        return self._by_holder(c.Fail, job, jitter=self._entropy.jitter(), **failure._asdict())

    def release(self, job: JobRecord, reason: str | None = None) -> JobRecord:
        return self._by_holder(c.Release, job, reason=reason)

    def sweep(self, job_id: int) -> tuple[EventType, ...]:
        """Do what is due for a job, and return the types of the events made."""
        before = len(self._result.outcomes)
        self._do(c.Sweep, job_id, actor=SYSTEM, jitter=self._entropy.jitter())
        return tuple(event.type for outcome in self._result.outcomes[before:] for event in outcome.events)

    def _by_holder(self, kind: type[c.JobCommand], job: JobRecord, **fields: Any) -> JobRecord:
        if not self.holds(job) or job.token is None:
            raise FenceLost(f"job {job.id} is not {self.who.name}'s: {_state_of(job)}", **job.held_by)
        fence = Fence(job.id, job.attempt, job.token, self.who.name, self.who.incarnation)
        return self._do(kind, job.id, actor=self.who, fence=fence, **fields)

    def _do(self, kind: type[c.JobCommand], job_id: int, **fields: Any) -> JobRecord:
        done = apply(self.session, self._result, kind(request_id=self._request_id, job_id=job_id, **fields), self._signer)
        if done is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        return done


def _state_of(job: JobRecord) -> str:
    return f"attempt {job.attempt} is {job.status.value}" + (f", held by {job.owner}" if job.owner else "")


class StepTransactions:
    """Runs verbs that consist of several commands, each in one transaction."""

    def __init__(self, store: Store, pipeline: CommitPipeline, signer: Signer, entropy: Entropy, metrics: Metrics) -> None:
        self._store = store
        self._pipeline = pipeline
        self._signer = signer
        self._entropy = entropy
        self._metrics = metrics

    def run(
        self,
        verb: str,
        who: Actor,
        body: tuple[Any, ...],
        work: Callable[[JobSteps], msgspec.Struct],
        *,
        request_id: str | None = None,
        labels: tuple[str, ...] = (),
    ) -> StepsAnswer:
        """Run `work` in one transaction and return its answer. A repeated request gets the same answer again.

        `labels` are what the worker has, for jobs that require them. If `work` raises an error, nothing is changed. The answer
        is kept if a job was changed.
        """
        drawn = validate.request_id(request_id) or self._entropy.nonce()
        request = Request(verb, [], request_id is not None, keep=True, body_hash=validate.body_hash(verb, *body))

        def once(session: Session) -> tuple[StepsAnswer, Result]:
            result = Result(request)
            kept = kept_answer(session, who, drawn, verb, request.body_hash) if request.repeat else None
            if kept is not None:
                return StepsAnswer(kept, replayed=True), result
            signer = self._signer.in_transaction(session)
            steps = JobSteps(session, signer, result, who, drawn, self._entropy)
            steps.labels = labels
            answer = msgspec.json.encode(work(steps))
            if result.changed:
                session.keep_requests([StoredRequest(who.name, drawn, verb, request.body_hash, answer)])
                session.wake(result.queues)
            return StepsAnswer(answer, replayed=False), result

        try:
            acted, result = self._pipeline.transact(once)
        except HoldfastError as error:
            if verb == "task_start":
                metrics.count_conflict(self._metrics, error)
            raise
        repeats.count += acted.replayed
        metrics.count_answers(self._metrics, result)
        return acted

    def read(self, verb: str, job_id: int, query: dict[str, Any], work: Callable[[Session], bytes]) -> bytes:
        """Run `work` on one snapshot and return what it reads, as JSON. `verb` and `query` say the same to a server."""
        return self._store.read(work)
