"""Several commands as one transaction with one answer: what the verbs of agents are made of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.model import SYSTEM, TERMINAL, Actor, EventType, FailureStage, Fence, Job, ReasonCode
from holdfast.errors import FenceLost, HoldfastError, NotFound, SignatureInvalid
from holdfast.ledger import admit, tally
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.deciding import apply
from holdfast.ledger.notary import Notary, Sitting
from holdfast.ledger.repeating import kept_answer
from holdfast.ledger.requests import Request, Result
from holdfast.ledger.sweep import Entropy
from holdfast.store.base import Kept, Session, Store
from holdfast.telemetry.metrics import Metrics


class Failure(NamedTuple):
    """How a holder says that its work went wrong."""

    error: bytes
    retryable: bool
    reason_code: ReasonCode | None
    failure_stage: FailureStage | None
    retry_after_us: int | None


class Acted(NamedTuple):
    """An answer as JSON; `replayed` where the same request was answered before, and nothing was done for it now."""

    answer: bytes
    replayed: bool


class Acts:
    """The steps of one call. Each is a command like any other: decided under the job's lock, saved with its events.

    Fences are found here, by who holds the job, and never leave the transaction.
    """

    def __init__(self, session: Session, sitting: Sitting, result: Result, who: Actor, request_id: str, entropy: Entropy) -> None:
        self.session = session
        self._sitting = sitting
        self.who = who
        self._result = result
        self._request_id = request_id
        self._entropy = entropy

    @property
    def changed(self) -> bool:
        return self._result.changed

    def job(self, job_id: int) -> Job:
        """Locked until the transaction ends."""
        found = self.session.load([job_id], lock=True).get(job_id)
        if found is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        return found

    def holds(self, job: Job) -> bool:
        """Whether this worker, in this incarnation, has the newest fence of the job, be it stalled or finished."""
        return job.token is not None and job.is_of(self.who)

    def claim(self, job_id: int, ttl_ms: int, *, keeps_ttl: bool) -> Job:
        """Refused where nothing here could sign for it afterwards: a claim alone needs no signature, all that follows does."""
        job = self.job(job_id)
        if job.status not in TERMINAL and (lack := self._sitting.lack(self.session.policy_of(job), self.who.name)) is not None:
            raise SignatureInvalid(f"job {job_id} has to be signed for: {lack}", why="missing", **job.held_by)
        return self._do(c.ClaimJob, job_id, actor=self.who, token=self._entropy.token(), ttl_ms=ttl_ms, keeps_ttl=keeps_ttl)

    def start(self, job: Job) -> Job:
        return self._by_holder(c.Start, job)

    def beat(self, job: Job, beat: payloads.Beat = payloads.NO_BEAT) -> Job:
        return self._by_holder(c.Heartbeat, job, beat=beat)

    def complete(self, job: Job, payload: bytes, objection: c.Objection | None = None) -> Job:
        return self._by_holder(c.Complete, job, payload=payload, objection=objection)

    def fail(self, job: Job, failure: Failure) -> Job:
        return self._by_holder(c.Fail, job, jitter=self._entropy.jitter(), **failure._asdict())

    def release(self, job: Job, reason: str | None = None) -> Job:
        return self._by_holder(c.Release, job, reason=reason)

    def sweep(self, job_id: int) -> tuple[EventType, ...]:
        """Whatever is due for a job; the events that made."""
        before = len(self._result.outcomes)
        self._do(c.Sweep, job_id, actor=SYSTEM, jitter=self._entropy.jitter())
        return tuple(event.type for outcome in self._result.outcomes[before:] for event in outcome.events)

    def _by_holder(self, kind: type[c.JobCommand], job: Job, **fields: Any) -> Job:
        if not self.holds(job) or job.token is None:
            raise FenceLost(f"job {job.id} is not {self.who.name}'s: {_standing(job)}", **job.held_by)
        fence = Fence(job.id, job.attempt, job.token, self.who.name, self.who.incarnation)
        return self._do(kind, job.id, actor=self.who, fence=fence, **fields)

    def _do(self, kind: type[c.JobCommand], job_id: int, **fields: Any) -> Job:
        done = apply(self.session, self._result, kind(request_id=self._request_id, job_id=job_id, **fields), self._sitting)
        if done is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        return done


def _standing(job: Job) -> str:
    return f"attempt {job.attempt} is {job.status.value}" + (f", held by {job.owner}" if job.owner else "")


class Acting:
    """The way to the door for verbs that take several commands."""

    def __init__(self, store: Store, pipeline: CommitPipeline, notary: Notary, entropy: Entropy, metrics: Metrics) -> None:
        self._store = store
        self._pipeline = pipeline
        self._notary = notary
        self._entropy = entropy
        self._metrics = metrics

    def act(
        self,
        verb: str,
        who: Actor,
        body: tuple[Any, ...],
        work: Callable[[Acts], msgspec.Struct],
        *,
        request_id: str | None = None,
    ) -> Acted:
        """One transaction of several steps and its answer, which is what the same request gets again.

        What `work` refuses leaves no trace. An answer is kept where a job was changed.
        """
        drawn = admit.request_id(request_id) or self._entropy.nonce()
        request = Request(verb, [], request_id is not None, keep=True, body_hash=admit.body_hash(verb, *body))

        def once(session: Session) -> tuple[Acted, Result]:
            result = Result(request)
            kept = kept_answer(session, who, drawn, verb, request.body_hash) if request.repeat else None
            if kept is not None:
                return Acted(kept, replayed=True), result
            sitting = self._notary.sit(session)
            answer = msgspec.json.encode(work(Acts(session, sitting, result, who, drawn, self._entropy)))
            if result.changed:
                session.keep_requests([Kept(who.name, drawn, verb, request.body_hash, answer)])
                session.wake(result.queues)
            return Acted(answer, replayed=False), result

        try:
            acted, result = self._pipeline.transact(once)
        except HoldfastError as error:
            if verb == "task_start":
                tally.conflict(self._metrics, error)
            raise
        tally.answered(self._metrics, result)
        return acted

    def look(self, work: Callable[[Session], Any]) -> Any:
        """What `work` reads on one snapshot."""
        return self._store.read(work)
