"""Verbs that create jobs and claim them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.decide import enqueued_event
from holdfast.core.evolve import evolve
from holdfast.core.fence_tokens import issue_token
from holdfast.core.model import Actor, Role
from holdfast.core.model import JobRecord as Record
from holdfast.errors import HoldfastError, Unavailable, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase, claimed_job
from holdfast.ledger.commit import only_answer
from holdfast.ledger.public import ClaimedJob, EnqueueOptions, HeldJob, Job
from holdfast.ledger.requests import Request, claim_token
from holdfast.store.jobs import JobFilter
from holdfast.store.rows import ClaimedJobs, default_correlation
from holdfast.store.session import EnqueuedRow, Session
from holdfast.telemetry import tracing

UNANSWERED_SECONDS = 60.0
"""How long to look for the jobs of a claim without an answer. Leases of the default length have expired by then."""
_BLANKS = b" \t\r\n"
UNANSWERED_MAX = 100
"""How many such claims to remember. The oldest are dropped."""


class JobVerbs(LedgerBase):
    def enqueue(
        self,
        kind: str,
        args: Mapping[str, Any] | None = None,
        *,
        queue: str = "default",
        request_id: str | None = None,
        actor: str | Actor | None = None,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Create a job and return it. If a live job has the same `dedupe_key`, return that job instead.

        The options are priority, delay or available_at, dedupe_key, dedupe ("live" or "forever"), dedupe_for (how long the key
        stays taken, also after the job's end), on_duplicate ("keep", "replace" or "postpone"), which says what happens to a job
        that has the key and was never claimed, postpone_max, tier, correlation_id, trace_id,
        policy (a mapping), depends_on (jobs that must succeed first, or their ids) and on_dependency_failure ("dead_letter",
        "cancel" or "wait"), which says what happens to the job if one of those fails, is cancelled or is dead-lettered.

        With `connection`, the job is created in the caller's own open transaction and is visible when that commits. Without a
        trace_id, the job carries the traceparent of the current OpenTelemetry span, if there is one.
        """
        item = {"kind": kind, "args": args, "queue": queue, **options}
        return self.enqueue_many([item], request_id=request_id, actor=actor, connection=connection)[0]

    def enqueue_many(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        connection: Any = None,
    ) -> list[Job]:
        """Create many jobs in one transaction, either all of them or none. Each item takes the options of `enqueue`.

        An item may have a name, its `ref`. Other items of the same call can use that name in their `depends_on`.
        """
        commands, body = self._read_enqueue(items, request_id, actor)
        if not commands:
            return []
        submit = self._pipeline.submit if connection is None else partial(self._pipeline.submit_within, connection)
        # The trace is added after the body was hashed: a repeated request runs in another span, but is the same request.
        if tracing.is_loaded():
            commands = tracing.with_correlation(commands)
        named = request_id is not None
        if tracing.current_traceparent() is None:
            answers = submit(Request("enqueue", commands, named, named, body)).answers
        else:
            with tracing.enqueue_span(commands) as commands:
                answers = submit(Request("enqueue", commands, named, named, body)).answers
        return self._enqueued_jobs(commands, answers)

    def _read_enqueue(
        self, items: Iterable[Mapping[str, Any]], request_id: str | None, actor: str | Actor | None
    ) -> tuple[list[c.Enqueue], bytes]:
        """Return the commands that create these jobs, and the hash of the request if it has an id."""
        who, request = validate.actor(actor, Role.CLIENT, self._actor), validate.request_id(request_id)
        items = validate.items("enqueue_many", items)
        limits.check_count("enqueue", len(items), limits.ENQUEUE_BATCH_MAX)
        commands = self._enqueues.commands(who, request, items)
        body = validate.body_hash([_identity(command) for command in commands]) if request else b""
        if self._limit_keys is not None and any([command.flow is not None for command in commands]):  # noqa: C419 - a list is faster
            commands = self._limit_keys.add(commands)
        return commands, body

    def _enqueued_jobs(self, commands: Sequence[Any], answers: Sequence[Any]) -> list[Job]:
        fold = self._as_enqueued
        return [
            Job(answer.job_id, None, (fold, answer, command)) if type(answer) is EnqueuedRow else self._found(answer)
            for answer, command in zip(answers, commands, strict=True)
        ]

    def _found(self, answer: Any) -> Job:
        if isinstance(answer, HoldfastError):
            raise answer
        return Job(answer.job.id, answer.job, is_new=answer.is_new)

    def _as_enqueued(self, made: EnqueuedRow, command: c.Enqueue) -> Record:
        correlation = command.correlation_id or default_correlation(self.id, made.job_id)
        return evolve(None, enqueued_event(made.job_id, command, made.at, correlation))

    def claim(
        self,
        worker: str,
        queues: Sequence[str] = ("default",),
        *,
        limit: int = 1,
        start: bool = False,
        kinds: Sequence[str] | None = None,
        labels: Sequence[str] = (),
        incarnation: str | None = None,
        request_id: str | None = None,
        keep: bool = True,
    ) -> list[HeldJob]:
        """Claim up to `limit` jobs that are ready, and return them with their fences. If none is ready, return an empty list.

        Jobs are chosen by queue in the order given, then by priority, age and id. In a queue whose jobs have partitions, limits
        or labels, jobs of the same priority take turns. `labels` are what the worker has, for jobs that require labels. With
        `start`, each job is also started, in the same statement. `keep=False` is faster and meant for workers: the answer is not
        kept under a request id. If such an answer is lost, `unanswered` finds the jobs.
        """
        if request_id is not None and not validate.switch("keep", keep):
            raise ValidationError("request_id needs keep=True: an answer that is not kept cannot be repeated", field="keep")
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        command = c.ClaimNext(
            actor=who,
            request_id=validate.request_id(request_id) or self._entropy.nonce(),
            queues=validate.names("queues", queues),
            limit=limits.check_integer("limit", limit, 1, limits.CLAIM_BATCH_MAX),
            kinds=None if kinds is None else validate.names("kinds", kinds),
            start=validate.switch("start", start),
            token=issue_token(self._entropy.token(), who.name),
            labels=validate.labels("labels", labels, limits.LABELS_PER_WORKER_MAX),
        )
        if not keep:
            return self._claim_unkept(command)
        body = validate.body_hash("claim", command.queues, limit, command.kinds, start, *filter(None, [command.labels]))
        request = Request("claim", [command], request_id is not None, keep=True, body_hash=body)
        return _claimed(only_answer(self._pipeline.submit(request)))

    def _claim_unkept(self, command: c.ClaimNext) -> list[HeldJob]:
        """Claim jobs. If the connection breaks, return the jobs of the lost answer, or claim again if there are none."""
        last = False
        while True:
            try:
                return _claimed(only_answer(self._pipeline.claim(Request("claim", [command]))))
            except BaseException as error:
                is_unknown = isinstance(error, Unavailable) and error.outcome == "unknown"
                if is_unknown or not isinstance(error, HoldfastError):
                    self._note_unanswered(command)
                if last or not is_unknown:
                    raise
                try:
                    found = self._find_unanswered(command)
                except HoldfastError:
                    raise error from None
                if found:
                    return found
            token = issue_token(self._entropy.token(), command.actor.name)
            command = msgspec.structs.replace(command, request_id=self._entropy.nonce(), token=token)
            last = True

    def _note_unanswered(self, command: c.ClaimNext) -> None:
        assert command.request_id is not None
        while len(self._unanswered) >= UNANSWERED_MAX:
            self._unanswered.pop(next(iter(self._unanswered)), None)
        self._unanswered[command.request_id] = (command, self._monotonic() + UNANSWERED_SECONDS)

    @property
    def has_unanswered(self) -> bool:
        """True if there are claims for `unanswered` to look for."""
        return bool(self._unanswered)

    def unanswered(self, worker: str, *, incarnation: str | None = None) -> list[HeldJob]:
        """Return the jobs, with their fences, that `worker` holds by claims with `keep=False` that got no answer.

        No lease is renewed. Only claims made through this `Ledger` object are looked for, for at most a minute: after the
        connection has broken, the server may still be executing the claim. Each job is returned once.
        """
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        return [
            job
            for command, _ in list(self._unanswered.values())
            if command.actor == who
            for job in self._find_unanswered(command)
        ]

    def _find_unanswered(self, command: c.ClaimNext) -> list[HeldJob]:
        assert command.request_id is not None
        _, until = self._unanswered.get(command.request_id, (command, float("inf")))
        found = self._store.read(lambda session: _held_under(session, command))
        if not found:
            if self._monotonic() > until:
                self._unanswered.pop(command.request_id, None)
            return []
        # Only the thread that removes the claim from the list returns its jobs.
        taken = self._unanswered.pop(command.request_id, None)
        return [] if taken is None else [claimed_job(job) for job in found]

    def claim_job(
        self,
        job_id: int,
        worker: str,
        *,
        ttl: Any = None,
        labels: Sequence[str] = (),
        incarnation: str | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> HeldJob:
        """Claim one job by id: a queued job, a stalled one after its resume window, one past its limits, or the worker's own.

        If the worker itself holds a live lease on the job, the lease is renewed and the attempt stays the same. If that lease
        has expired, a new attempt begins. `ttl` sets the length of the new or renewed lease. A new attempt is refused if the
        job's limits are used up, if it requires labels that are not in `labels`, or if it is for another worker.
        """
        who = validate.worker(worker, self.incarnation if incarnation is None else incarnation)
        command = c.ClaimJob(
            actor=who,
            request_id=validate.request_id(request_id) or self._entropy.nonce(),
            job_id=validate.job_id(job_id),
            expected_rev=validate.rev(expected_rev),
            token=issue_token(self._entropy.token(), who.name),
            ttl_ms=None if ttl is None else policies.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
            labels=validate.labels("labels", labels, limits.LABELS_PER_WORKER_MAX),
        )
        body = validate.body_hash("claim_job", job_id, command.ttl_ms, expected_rev)
        request = Request("claim_job", [command], request_id is not None, keep=True, body_hash=body)
        return claimed_job(only_answer(self._pipeline.submit(request)))


class EnqueueCall(NamedTuple):
    """One job to create for one caller, without a dedupe key."""

    item: Mapping[str, Any]
    request_id: str | None
    actor: Actor


class EnqueuedJob(NamedTuple):
    job: Job
    is_repeated: bool
    """The answer is that of an earlier request with the same id."""


def enqueue_together(ledger: JobVerbs, calls: Sequence[EnqueueCall]) -> list[EnqueuedJob | HoldfastError | None]:
    """Create jobs of several callers in one transaction. Return an answer for each: one that fails does not affect the others.

    It is for a server: one thread runs the calls of many connections. The answer is None if another transaction uses the
    request id. `enqueue_many` then waits for that one.
    """
    answers: list[Any] = [None] * len(calls)
    requests: dict[int, Request] = {}
    for place, call in enumerate(calls):
        try:
            commands, body = ledger._read_enqueue([call.item], call.request_id, call.actor)  # noqa: SLF001 - the same module
        except HoldfastError as error:
            answers[place] = error
        else:
            named = call.request_id is not None
            requests[place] = Request("enqueue", commands, named, named, body)
    if not requests:
        return answers
    outcomes = ledger._pipeline.submit_all(list(requests.values()))  # noqa: SLF001 - the same module
    for (place, request), outcome in zip(requests.items(), outcomes, strict=True):
        answers[place] = _answer_of(ledger, request, outcome)
    return answers


def _answer_of(ledger: JobVerbs, request: Request, outcome: Any) -> EnqueuedJob | HoldfastError | None:
    if isinstance(outcome, HoldfastError):
        return outcome
    if isinstance(outcome, Exception):
        raise outcome
    if outcome.locked:
        return None
    try:
        [job] = ledger._enqueued_jobs(request.commands, outcome.answers)  # noqa: SLF001 - the same module
    except HoldfastError as error:
        return error
    return EnqueuedJob(job, outcome.repeated)


def _claimed(found: ClaimedJobs | list[Record]) -> list[HeldJob]:
    """Return the jobs of a claim, or those that a repeated claim still holds."""
    if isinstance(found, ClaimedJobs):
        return [ClaimedJob(found, row) for row in found.rows]
    return [claimed_job(job) for job in found]


def _held_under(session: Session, command: c.ClaimNext) -> list[Record]:
    """Return the jobs with a live lease from this claim. No two claims have the same token."""
    now, after, found = session.now(), 0, []
    while True:
        chosen = JobFilter(owner=command.actor.name, incarnation=command.actor.incarnation, after=after, limit=limits.PAGE_MAX)
        page = session.jobs(chosen)
        found += [job for job in page if claim_token(job) == command.token and (job.lease_expires_at or 0) >= now]
        if len(page) < limits.PAGE_MAX:
            return found
        after = page[-1].id


def _identity(command: c.Enqueue) -> tuple[Any, ...]:
    """Return the fields by which two enqueue commands differ, for the hash of the request. White space is none."""
    after = (command.after,) if isinstance(command, c.EnqueueLinked) and command.after else ()
    payload = command.payload
    if payload.translate(None, _BLANKS) != payload:
        payload = msgspec.json.encode(msgspec.json.decode(payload))
    return payload, command.correlation_id, command.trace_id, *after
