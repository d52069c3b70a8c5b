"""Ledger for `await`. Made of the verbs of `Ledger` by tools/async_ledger.py: do not change it by hand."""

import builtins
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from holdfast.aio.threads import AsyncLedgerBase
from holdfast.core import limits, payloads
from holdfast.core.audit import Violation
from holdfast.core.doctor import Diagnosis
from holdfast.core.explain import Explanation
from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import Actor, FailureStage, Fence, Policy, ReasonCode
from holdfast.core.policy import SourcedField
from holdfast.core.vocabulary import Dialect
from holdfast.errors import HoldfastError
from holdfast.ledger.base import JobOrFence
from holdfast.ledger.export import Progress, Write
from holdfast.ledger.public import Beat, Change, Duration, EnqueueOptions, Event, Job, JobPage, R, WorkerRecord
from holdfast.ledger.verbs.fleet import QueueRecord
from holdfast.ledger.verbs.policies import DeclarationRecord
from holdfast.ledger.verbs.proofs import Inclusion, KeyRecord, PublicLike, TreeHead
from holdfast.ledger.verbs.runs import RunState
from holdfast.ledger.verbs.sinks import SinkState
from holdfast.proof.export_format import EndLine
from holdfast.telemetry.metrics import Readings


class AsyncLedger(AsyncLedgerBase):
    """The verbs of a `Ledger`, to be awaited. Each runs in a thread.

    Made by `holdfast.aio.open`. That of an app is `app.aio.ledger`.
    """

    async def acknowledge_cancel(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """The safe exit is made: an aborting job becomes cancelled. `reason` is recorded beside the reason of the cancel."""
        return await self._call(
            lambda ledger: ledger.acknowledge_cancel(fence, reason=reason, request_id=request_id, expected_rev=expected_rev)
        )

    async def amend_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Set some fields of a kind's or a tier's policy. The other fields stay as they were set."""
        await self._call(lambda ledger: ledger.amend_policy(kind, tier=tier, request_id=request_id, actor=actor, **fields))

    async def annotate(
        self,
        job_id: int,
        note: Literal["discarded", "compensated", "compensation_failed"],
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A note on a finished job; its status stays."""
        return await self._call(
            lambda ledger: ledger.annotate(
                job_id, note, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def append(self, envelope: Mapping[str, Any] | bytes | str, *, content: Any = payloads.UNSET) -> Event:
        """Record what somebody else has signed: a statement in our shape or the seed's, with its `keyId` and `signature`.

        From a holder: heartbeat, resumed, stalled, succeeded, requeued (a release), cancelled (a cancel acknowledged). It needs
        no token: see the guide on signed events. From a server: stalled, past the limit; resumed, after a beat that came after
        the stall. A holder's statement in our shape has only the hash of what is given with it; that comes as `content` (what a
        beat tells, a result, an error). Answers the last event that it made.
        The newest envelope of a job may be sent again after a lost answer, and is answered alike; an older one is refused.
        """
        return await self._call(lambda ledger: ledger.append(envelope, content=content))

    async def assist(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """An operator helps a running job."""
        return await self._call(
            lambda ledger: ledger.assist(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def cancel(
        self,
        job_id: int,
        *,
        hard: bool = False,
        reason: str = "requested",
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Soft: a running job is asked to make its safe exit. Hard: its fence dies at once."""
        return await self._call(
            lambda ledger: ledger.cancel(
                job_id, hard=hard, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def check(self, job_id: int) -> builtins.list[Violation]:
        """Everything wrong with a job's history, its signatures and its row: an empty list."""
        return await self._call(lambda ledger: ledger.check(job_id))

    async def check_key(self, worker: str) -> None:
        """Raises SignatureInvalid, which says what is lacking, unless this process has a good key of a worker of this name."""
        await self._call(lambda ledger: ledger.check_key(worker))

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] = ("default",),
        *,
        limit: int = 1,
        start: bool = False,
        kinds: Sequence[str] | None = None,
        incarnation: str | None = None,
        request_id: str | None = None,
        keep: bool = True,
    ) -> builtins.list[Job]:
        """Up to `limit` jobs that are ready, each with its fence: queues in the order given, then priority, age, id.

        With `start`, each is also started, in the same statement. Nothing ready is an empty list. `keep=False` is quicker, and
        for workers: no request row is written. If the answer is lost, `unanswered` finds the jobs.
        """
        return await self._call(
            lambda ledger: ledger.claim(
                worker, queues, limit=limit, start=start, kinds=kinds, incarnation=incarnation, request_id=request_id, keep=keep
            )
        )

    async def claim_job(
        self,
        job_id: int,
        worker: str,
        *,
        ttl: Any = None,
        incarnation: str | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """One job by id: queued, stalled past its window, past its limits, or one's own.

        A live lease of one's own is renewed and the attempt stays. One that is over makes a new attempt. `ttl` sets the length
        of the lease, of a renewed one too.
        """
        return await self._call(
            lambda ledger: ledger.claim_job(
                job_id, worker, ttl=ttl, incarnation=incarnation, request_id=request_id, expected_rev=expected_rev
            )
        )

    async def complete(
        self,
        fence: Fence,
        result: Any = None,
        *,
        gate: bool = False,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Change:
        """Done. `result` is any JSON value. With `gate`, it is GateDenied unless the holder passes the gate at that moment.

        Where a validator or conflict detector of this ledger objects, it is RefusedByValidator, and the job stays running.
        """
        return await self._call(
            lambda ledger: ledger.complete(fence, result, gate=gate, request_id=request_id, expected_rev=expected_rev)
        )

    async def complete_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> builtins.list[Change | HoldfastError]:
        """Many completions, in chunks of 1,000. One answer each; a refused one does not hurt the others."""
        return await self._call(lambda ledger: ledger.complete_many(results, request_id=request_id))

    async def counts(self, *, max_age: float = 0) -> dict[str, dict[str, int]]:
        """How many jobs of each status there are, by queue. An answer of up to `max_age` seconds ago will do."""
        return await self._call(lambda ledger: ledger.counts(max_age=max_age))

    async def dead_letter(
        self,
        job_id: int,
        *,
        reason_code: ReasonCode | str,
        failure_stage: FailureStage | str | None = None,
        error: Any = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Take a live job out of circulation, for a person or a tool to look at.

        Without an `error`, error and stage are those of the newest attempt, if it failed. Else the stage is exec.
        """
        return await self._call(
            lambda ledger: ledger.dead_letter(
                job_id,
                reason_code=reason_code,
                failure_stage=failure_stage,
                error=error,
                request_id=request_id,
                actor=actor,
                expected_rev=expected_rev,
            )
        )

    async def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> builtins.list[Job]:
        """Dead-lettered jobs by ascending id; the next page is `after=` the last id of this one.

        `since` and `until` are about when they were dead-lettered. Those that were discarded are left out unless asked for.
        """
        return await self._call(
            lambda ledger: ledger.dead_letters(
                queue=queue,
                kind=kind,
                reason_code=reason_code,
                failure_stage=failure_stage,
                since=since,
                until=until,
                discarded=discarded,
                after=after,
                limit=limit,
            )
        )

    async def declarations(self) -> dict[str, DeclarationRecord]:
        """What handlers declare, by kind."""
        return await self._call(lambda ledger: ledger.declarations())

    async def declare_policy(
        self, kind: str, *, queue: str = "default", request_id: str | None = None, actor: str | Actor | None = None, **fields: Any
    ) -> None:
        """Declare what a kind's handler says of it: the queue of its jobs, and fields of its policy.

        It replaces the declaration before as a whole. What operators set for the kind overrides it field by field. Workers call
        this when they start, for each kind whose declaration differs.
        """
        await self._call(lambda ledger: ledger.declare_policy(kind, queue=queue, request_id=request_id, actor=actor, **fields))

    async def dependents(self, job_id: int, *, after: int = 0, limit: int = 100) -> builtins.list[Job]:
        """The jobs that wait, or have waited, for this one, by ascending id; those that follow its replay are the replay's."""
        return await self._call(lambda ledger: ledger.dependents(job_id, after=after, limit=limit))

    async def diagnose(self, *, clock: Callable[[], datetime] | None = None) -> Diagnosis:
        """Whether the ledger is well, and what to do where it is not. It changes nothing.

        With `clock`, a clock of the caller's, also how far that is from the ledger's.
        """
        return await self._call(lambda ledger: ledger.diagnose(clock=clock))

    async def discard(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Note on a finished job that nobody needs to look at it any more."""
        return await self._call(
            lambda ledger: ledger.discard(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def drop_duty(self, name: str, holder: str) -> None:
        """Others may take the duty at once. Nothing happens where another holder has it."""
        await self._call(lambda ledger: ledger.drop_duty(name, holder))

    async def drop_sink(self, name: str) -> None:
        """Forget a sink and its place. A relay that still serves it makes it anew: stop that one first."""
        await self._call(lambda ledger: ledger.drop_sink(name))

    async def enqueue(
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
        """A new job, or the live one that has its `dedupe_key`.

        Options: priority, delay or available_at, dedupe_key, dedupe ("live" or "forever"), tier, correlation_id, trace_id,
        policy (a mapping), depends_on (jobs, or their ids, that have to succeed first), on_dependency_failure ("dead_letter",
        "cancel" or "wait": what is done once one of those has failed, was cancelled or dead-lettered).
        With `connection`, inside the caller's own open transaction: visible when that commits.
        Without a trace_id, a job carries the traceparent of the current OpenTelemetry span, if there is one.
        """
        return await self._call(
            lambda ledger: ledger.enqueue(
                kind, args, queue=queue, request_id=request_id, actor=actor, connection=connection, **options
            )
        )

    async def enqueue_many(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        connection: Any = None,
    ) -> builtins.list[Job]:
        """Many new jobs in one transaction: all or none. Each item has the options of `enqueue`.

        An item may have a `ref`, a name by which others of the same call say in their `depends_on` that they wait for it.
        """
        return await self._call(
            lambda ledger: ledger.enqueue_many(items, request_id=request_id, actor=actor, connection=connection)
        )

    async def enrol_key(self, public: PublicLike, *, role: str, name: str, actor: str | Actor | None = None) -> KeyRecord:
        """From now on this key may sign for `name`.

        The first key of a ledger must be a server's whose secret this process has; later ones are vouched for by a key of a
        server that it has, or of an operator where it is not a server's key. A key that is enrolled like this already is answered
        as it is.
        """
        return await self._call(lambda ledger: ledger.enrol_key(public, role=role, name=name, actor=actor))

    async def events(
        self,
        job_id: int | None = None,
        *,
        types: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        correlation_id: str | None = None,
        after: int = 0,
        limit: int = limits.PAGE_MAX,
    ) -> builtins.list[Event]:
        """Events in the total order: of one job, of a type and time, of a correlation. `after` is a position."""
        return await self._call(
            lambda ledger: ledger.events(
                job_id, types=types, since=since, until=until, correlation_id=correlation_id, after=after, limit=limit
            )
        )

    async def explain(self, job_id: int, *, to_claim: bool = False) -> Explanation:
        """Why a job stands where it stands, what happens next and when, and what can be done about it. It changes nothing.

        With `to_claim`, for somebody who could claim it: whether workers are there, and what else they would claim first, is
        left out.
        """
        return await self._call(lambda ledger: ledger.explain(job_id, to_claim=to_claim))

    async def export(self, write: Write, *, dialect: str = Dialect.HOLDFAST, progress: Progress | None = None) -> EndLine:
        """Give `write` the whole record line by line, in bounded memory; answers how many lines of each kind there were.

        In another dialect than `holdfast` the lines are the events alone, for other readers: such a file cannot be verified.
        It is one transaction that reads: on PostgreSQL, vacuum cannot clean up behind it for as long as it takes.
        """
        return await self._call(lambda ledger: ledger.export(write, dialect=dialect, progress=progress))

    async def fail(
        self,
        fence: Fence,
        error: Any,
        *,
        retryable: bool = True,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        retry_after: Any = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """It went wrong. Retryable: tried again after a backoff (or `retry_after`) while attempts are left. Not retryable:
        failed, or dead-lettered where a `reason_code` says why no retry will mend it.

        `failure_stage` and `reason_code` are recorded with the error. Where no attempt is left, the dead letter has them.
        """
        return await self._call(
            lambda ledger: ledger.fail(
                fence,
                error,
                retryable=retryable,
                reason_code=reason_code,
                failure_stage=failure_stage,
                retry_after=retry_after,
                request_id=request_id,
                expected_rev=expected_rev,
            )
        )

    def follow(self, after: int = 0, *, timeout: float | None = None) -> AsyncGenerator[Event, None]:
        """Every event after a position, in the total order, as they come; none that commits late is missed.

        Ends when nothing has come for `timeout` seconds; never, by default. Go on later from the last event's `pos`.
        """
        return self._each(lambda ledger: ledger.follow(after, timeout=timeout))

    async def gate(self, job: JobOrFence) -> LivenessHeartbeatReceiptV1:
        """The receipt of whoever holds the job, if it is healthy, fresh and within its attempts; GateDenied otherwise.

        Asked with a fence, it is FenceLost unless that is the fence of the newest attempt. It changes nothing.
        """
        return await self._call(lambda ledger: ledger.gate(job))

    async def get(self, job_id: int) -> Job:
        return await self._call(lambda ledger: ledger.get(job_id))

    async def head(self) -> TreeHead | None:
        """The newest signed head; None where nothing was ever sealed."""
        return await self._call(lambda ledger: ledger.head())

    async def heads(self, *, after: int = 0, limit: int = limits.PAGE_MAX) -> builtins.list[TreeHead]:
        """Signed heads by size. The next page is `after=` the last size of this one."""
        return await self._call(lambda ledger: ledger.heads(after=after, limit=limit))

    async def heartbeat(
        self,
        fence: Fence,
        *,
        stage: str | None = None,
        progress: int | None = None,
        assist_requested: bool | None = None,
        checkpoint: Any = payloads.UNSET,
        undo: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Beat:
        """Proof of life: renews the lease and tells whether somebody wants the job cancelled.

        `checkpoint` is any JSON value, None among them, for whoever goes on with the job. `undo` is {"kind": …, "args": {…}}:
        what to do, newest first, if the job comes to nothing. Say it before the deed it takes back.
        """
        return await self._call(
            lambda ledger: ledger.heartbeat(
                fence,
                stage=stage,
                progress=progress,
                assist_requested=assist_requested,
                checkpoint=checkpoint,
                undo=undo,
                request_id=request_id,
                expected_rev=expected_rev,
            )
        )

    async def heartbeat_many(
        self, fences: Iterable[Fence | tuple[Fence, Mapping[str, Any]]], *, wait: bool = True
    ) -> builtins.list[Beat | HoldfastError]:
        """Beats for many leases, in chunks of 1,000. One answer each; a refused one does not hurt the others.

        A fence may come with what the beat is to tell: `(fence, {"stage": …, "progress": …})`. A job that another transaction
        has locked is tried again for some two seconds, after the others; with `wait=False` it is answered at once.
        """
        return await self._call(lambda ledger: ledger.heartbeat_many(fences, wait=wait))

    async def in_dialect(self, events: Sequence[Event], dialect: str) -> builtins.list[dict[str, Any]]:
        """Events of this ledger as JSON objects in the words and shapes of a dialect: holdfast, liveness, jobs or tasks."""
        return await self._call(lambda ledger: ledger.in_dialect(events, dialect))

    async def inclusion(self, job_id: int) -> Inclusion:
        """A job's events with proofs that they are in the tree of the newest head, all as of one moment."""
        return await self._call(lambda ledger: ledger.inclusion(job_id))

    async def keys(self) -> builtins.list[KeyRecord]:
        """Every key that was ever enrolled, in that order."""
        return await self._call(lambda ledger: ledger.keys())

    async def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        phase: str | Sequence[str] | None = None,
        queue: str | None = None,
        kind: str | None = None,
        correlation_id: str | None = None,
        replay_of: int | None = None,
        owner: str | None = None,
        incarnation: str | None = None,
        waiting: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        order: str = "oldest",
        after: int = 0,
        limit: int = 100,
    ) -> JobPage:
        """Jobs by ascending id; with `order="newest"` by descending id. The next page is `after=` the `next_after` of this one.

        `since`, `until`: only those that were enqueued from then on, or before then. One call looks at 100,000 jobs at most.
        `text`: only those with this text in their kind, queue, correlation id, last error or arguments. A to Z match in either
        case. One call looks at 10,000 jobs at most. Where a call stops early, `next_after` says where to go on.
        `waiting`: only those that wait for others.
        `phase`: only running and stalled jobs in this phase, or in one of several.
        `owner`: only those that this worker holds, whatever incarnation of it, unless `incarnation` says which.
        """
        return await self._call(
            lambda ledger: ledger.list(
                status=status,
                phase=phase,
                queue=queue,
                kind=kind,
                correlation_id=correlation_id,
                replay_of=replay_of,
                owner=owner,
                incarnation=incarnation,
                waiting=waiting,
                since=since,
                until=until,
                text=text,
                order=order,
                after=after,
                limit=limit,
            )
        )

    async def move(
        self,
        job_id: int,
        queue: str,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Put a queued job into another queue. Where it is there already, nothing changes."""
        return await self._call(
            lambda ledger: ledger.move(
                job_id, queue, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def newest_replays(self, job_ids: Iterable[int]) -> dict[int, Job]:
        """Of each of these jobs that was replayed, the newest replay."""
        return await self._call(lambda ledger: ledger.newest_replays(job_ids))

    async def now(self) -> datetime:
        """The ledger's time, which alone decides."""
        return await self._call(lambda ledger: ledger.now())

    async def pause(
        self, queue: str, *, reason: str | None = None, request_id: str | None = None, actor: str | Actor | None = None
    ) -> None:
        """Nothing more is claimed from the queue. Holders are not touched. Who did it, and why, is kept until it is unpaused."""
        await self._call(lambda ledger: ledger.pause(queue, reason=reason, request_id=request_id, actor=actor))

    async def paused(self) -> dict[str, datetime]:
        """The paused queues and since when."""
        return await self._call(lambda ledger: ledger.paused())

    async def policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What operators set: the fields of each kind and of each tier, durations in milliseconds (`lease_ttl_ms`)."""
        return await self._call(lambda ledger: ledger.policies())

    async def policy_of(self, job_id: int) -> Policy:
        """The policy that a lease on this job would have if it were issued now."""
        return await self._call(lambda ledger: ledger.policy_of(job_id))

    async def policy_sources(self, kind: str | None = None, *, tier: str | None = None) -> builtins.list[SourcedField]:
        """Every field of the policy that a job of this kind and tier would have now, with the layer that its value comes from."""
        return await self._call(lambda ledger: ledger.policy_sources(kind, tier=tier))

    async def position(self) -> int:
        """The newest position that was drawn, to follow from; whether its event is committed is another matter."""
        return await self._call(lambda ledger: ledger.position())

    async def prove(self, job_id: int, write: Write) -> EndLine:
        """Give `write` one job's record: its events with proofs that they are in the tree of the newest head, the keys, its
        row, and that head."""
        return await self._call(lambda ledger: ledger.prove(job_id, write))

    async def prune(
        self,
        *,
        jobs_before: datetime | None = None,
        failed_before: datetime | None = None,
        beats_before: datetime | None = None,
        requests_before: datetime | None = None,
        workers_before: datetime | None = None,
        agents_before: datetime | None = None,
        batch: int = 1000,
    ) -> dict[str, int]:
        """One bounded step of retention: finished jobs, contents of beats and kept answers older than the given times,
        workers not seen since, and where agents stood that were not at work since and hold nothing.

        Failed and dead-lettered jobs that are neither discarded nor replayed are kept; only `failed_before` deletes them.
        """
        return await self._call(
            lambda ledger: ledger.prune(
                jobs_before=jobs_before,
                failed_before=failed_before,
                beats_before=beats_before,
                requests_before=requests_before,
                workers_before=workers_before,
                agents_before=agents_before,
                batch=batch,
            )
        )

    async def queues(self) -> builtins.list[QueueRecord]:
        """Every queue that has jobs or is paused, by name. It counts every job: not for a program that is in a hurry."""
        return await self._call(lambda ledger: ledger.queues())

    async def release(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """Hand the job back in order: it is ready for others at once, and the attempt does not count."""
        return await self._call(
            lambda ledger: ledger.release(fence, reason=reason, request_id=request_id, expected_rev=expected_rev)
        )

    async def replay(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A new job that repeats a failed, cancelled or dead-lettered one; the same one again while it lives."""
        return await self._call(
            lambda ledger: ledger.replay(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def replay_many(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
        again: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> builtins.list[Job | HoldfastError]:
        """Replay the dead letters that `dead_letters` would give, in one transaction. One answer each, in their order.

        A dead letter that has been replayed is skipped, unless `again` is true: its answer is its newest replay, as not new. It
        has been replayed if one of its replays is live, has succeeded or was dead-lettered. A replay that failed or was cancelled
        does not count, unless it was replayed itself. With `again`, a live replay is still given back instead of a second one.

        At most `limit` are replayed, and at most 1,000 are looked at. The next page is `after=` the last `replay_of` of this one.
        `reason` says why they are replayed; `reason_code` chooses them.
        """
        return await self._call(
            lambda ledger: ledger.replay_many(
                queue=queue,
                kind=kind,
                reason_code=reason_code,
                failure_stage=failure_stage,
                since=since,
                until=until,
                discarded=discarded,
                after=after,
                limit=limit,
                again=again,
                reason=reason,
                request_id=request_id,
                actor=actor,
            )
        )

    async def reprioritise(
        self,
        job_id: int,
        priority: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Give a queued job another priority."""
        return await self._call(
            lambda ledger: ledger.reprioritise(
                job_id, priority, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def requeue(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A stalled job may be claimed again after its backoff; one without attempts left is exhausted instead."""
        return await self._call(
            lambda ledger: ledger.requeue(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def reschedule(
        self,
        job_id: int,
        *,
        available_at: datetime | None = None,
        delay: Duration | None = None,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Make a queued job available from another time: a moment, or so long from now. With neither, from now on."""
        return await self._call(
            lambda ledger: ledger.reschedule(
                job_id,
                available_at=available_at,
                delay=delay,
                reason=reason,
                request_id=request_id,
                actor=actor,
                expected_rev=expected_rev,
            )
        )

    async def reset_run(self, name: str, *, actor: str | Actor | None = None) -> RunState:
        """Let a run of this name begin again, whatever ended the last one: its restarts are forgotten.

        Conflict while it is supervised.
        """
        return await self._call(lambda ledger: ledger.reset_run(name, actor=actor))

    async def result(self, job: Job[R | None] | int, *, timeout: float | None = None) -> R:
        """The result of a job once it has succeeded. Takes a job or its id.

        ResultTimeout, which is a TimeoutError, if it has not ended after `timeout` seconds; by default it waits as long as it
        takes. NoResult, with the job's last error, if it failed, was dead-lettered or cancelled.
        """
        return await self._wait(lambda ledger: ledger.result(job, timeout=timeout))

    async def resume(
        self,
        job: JobOrFence,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """By fence: the last holder is back. By id: the system, after a beat that came after the stall."""
        return await self._call(
            lambda ledger: ledger.resume(job, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def revive_sink(self, name: str) -> SinkState:
        """Deliveries go on at once from where the sink stands, whether it was dead or waiting for its next try."""
        return await self._call(lambda ledger: ledger.revive_sink(name))

    async def revoke_key(self, key_id: str, *, actor: str | Actor | None = None) -> KeyRecord:
        """From now on nothing that this key signs is accepted; what it has signed before stays good. It is not taken back."""
        return await self._call(lambda ledger: ledger.revoke_key(key_id, actor=actor))

    async def rotate_key(self, key_id: str, public: PublicLike, *, actor: str | Actor | None = None) -> KeyRecord:
        """Enrol a key in another one's place, for the same role and name, and revoke that one: both or neither."""
        return await self._call(lambda ledger: ledger.rotate_key(key_id, public, actor=actor))

    async def runs(self, *, after: str = "", limit: int = 100) -> builtins.list[RunState]:
        """The newest run of every name that was ever supervised here, by name. The next page is `after=` the last name."""
        return await self._call(lambda ledger: ledger.runs(after=after, limit=limit))

    async def set_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Set a kind's or a tier's policy as a whole, for leases issued from now on. Durations: seconds, "30s", timedelta.

        A field that is not named is left to the layers below: what the kind's handler declares, and the defaults.
        Where keys are enrolled, less than before is to be signed only if a key of a server or an operator is here.
        """
        await self._call(lambda ledger: ledger.set_policy(kind, tier=tier, request_id=request_id, actor=actor, **fields))

    async def settle_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str, told: Iterable[tuple[Fence, Mapping[str, Any]]] = ()
    ) -> builtins.list[HoldfastError | None]:
        """`complete_many` for a worker that may have to send it again: no answer is kept, the events themselves carry the id.

        Answers None for each that is completed, also if it was by this very id before. A job that another transaction has
        locked is not waited for: its answer is Unavailable with `locked`. No validator is run: the worker has run its own.

        `told` is what some of these holders said last, in the form of `heartbeat_many`. It is recorded as a beat right before the
        completion, in the same transaction.
        """
        return await self._call(lambda ledger: ledger.settle_many(results, request_id=request_id, told=told))

    async def sign_in(self, worker: str, *, incarnation: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        """A worker is there; said again, it still is. `body` is what it tells of itself; without one, the last one stays."""
        await self._call(lambda ledger: ledger.sign_in(worker, incarnation=incarnation, body=body))

    async def sign_out(self, worker: str, incarnation: str | None = None) -> None:
        """The worker is gone, in good order."""
        await self._call(lambda ledger: ledger.sign_out(worker, incarnation))

    async def sinks(self) -> builtins.list[SinkState]:
        """Every sink that a relay has ever served here, by name."""
        return await self._call(lambda ledger: ledger.sinks())

    async def skip_sink_event(self, name: str) -> SinkState:
        """Give up on the event that a sink fails at: it is not delivered, and the sink goes on with the next."""
        return await self._call(lambda ledger: ledger.skip_sink_event(name))

    async def stall(
        self,
        job: JobOrFence,
        *,
        reason: str | None = None,
        error: Any = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """By fence: the holder cannot go on, and may say why by an `error`, with its `reason_code` and `failure_stage`. By id:
        the system calls the holder dead, past the limit only."""
        return await self._call(
            lambda ledger: ledger.stall(
                job,
                reason=reason,
                error=error,
                reason_code=reason_code,
                failure_stage=failure_stage,
                request_id=request_id,
                actor=actor,
                expected_rev=expected_rev,
            )
        )

    async def start(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Change:
        """User code begins."""
        return await self._call(lambda ledger: ledger.start(fence, request_id=request_id, expected_rev=expected_rev))

    async def sweep(self, *, limit: int = 1000) -> dict[str, int]:
        """One liveness tick: everything that is due for up to `limit` jobs. Answers how many of each event that made.

        Where events have to be signed and no server key is here, jobs are left alone; `unsigned` says how many.
        """
        return await self._call(lambda ledger: ledger.sweep(limit=limit))

    async def take_duty(self, name: str, holder: str, *, ttl: Any) -> bool:
        """Whether `holder` performs this duty from now on, for `ttl` of ledger time. Taking it again renews it.

        False while another holder has it: until that one's time is over, or it has dropped the duty.
        """
        return await self._call(lambda ledger: ledger.take_duty(name, holder, ttl=ttl))

    async def totals(self, *, max_age: float = 0) -> Readings:
        """Counts and times of the whole ledger since this process first asked, from all processes that write to it.

        An answer of up to `max_age` seconds ago will do. See the guide on observability for the names.
        """
        return await self._call(lambda ledger: ledger.totals(max_age=max_age))

    async def unanswered(self, worker: str, *, incarnation: str | None = None) -> builtins.list[Job]:
        """Jobs that `worker` holds by claims with `keep=False` whose answers were lost, each with its fence. Nothing is renewed.

        Only claims of this `Ledger` object are looked for, until their jobs are found, and for a minute at most: the server may
        still be carrying out a claim whose connection has broken. A job is returned once.
        """
        return await self._call(lambda ledger: ledger.unanswered(worker, incarnation=incarnation))

    async def unassist(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """The operator steps back."""
        return await self._call(
            lambda ledger: ledger.unassist(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def undo_steps(self, job_id: int) -> builtins.list[dict[str, Any]]:
        """The undo steps a job has registered, oldest first: each a kind and its args. They run in the opposite order."""
        return await self._call(lambda ledger: ledger.undo_steps(job_id))

    async def unpause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        await self._call(lambda ledger: ledger.unpause(queue, request_id=request_id, actor=actor))

    async def unset_policy(
        self,
        kind: str | None = None,
        fields: Sequence[str] = (),
        *,
        tier: str | None = None,
        declared: bool = False,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> None:
        """Remove these fields from what was set for a kind or a tier; without fields, everything that was set for it.

        With `declared`, remove instead what the kind's handler declared, as a whole: for a kind whose handler is gone.
        """
        await self._call(
            lambda ledger: ledger.unset_policy(kind, fields, tier=tier, declared=declared, request_id=request_id, actor=actor)
        )

    async def until_ready(self, queues: Sequence[str] = ("default",), *, kinds: Sequence[str] | None = None) -> float | None:
        """Seconds of ledger time until the first delayed job of these queues may be claimed; None where there is none.

        For whoever has just claimed and found nothing: jobs that were never delayed are not looked at, nor are paused queues, nor
        jobs that wait for others.
        0.0 where one may be claimed now; somebody else may have it by the time it is claimed.
        """
        return await self._call(lambda ledger: ledger.until_ready(queues, kinds=kinds))

    async def wait(self, job: Job[R] | int, *, timeout: float | None = None) -> Job[R]:
        """The job once it has ended: succeeded, failed, was dead-lettered or cancelled. Takes a job or its id.

        When `timeout` seconds are over, the job as it is then, unfinished: look at its `status`. `result` raises instead.
        """
        return await self._wait(lambda ledger: ledger.wait(job, timeout=timeout))

    async def wants_sweeping(self, holder: str) -> bool:
        """Whether `holder` should take the duty to sweep: there are jobs to watch, and nobody else does. One statement."""
        return await self._call(lambda ledger: ledger.wants_sweeping(holder))

    async def workers(self, *, seen_within: Any = None, limit: int = limits.PAGE_MAX) -> builtins.list[WorkerRecord]:
        """Who has signed in and not out, by name: all, or those seen lately. Beyond `limit`, those seen last."""
        return await self._call(lambda ledger: ledger.workers(seen_within=seen_within, limit=limit))
