"""Ledger for `await`. Made of the verbs of `Ledger` by tools/async_ledger.py: do not change it by hand."""

import builtins
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from msgspec import UNSET, UnsetType

from holdfast.aio.threads import AsyncLedgerBase
from holdfast.core import access, payloads
from holdfast.core import limits as core_limits
from holdfast.core.audit import Violation
from holdfast.core.doctor import Diagnosis
from holdfast.core.explain import Explanation
from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import Actor, FailureStage, Fence, Policy, ReasonCode
from holdfast.core.policy import SourcedField
from holdfast.errors import HoldfastError
from holdfast.ledger.base import JobOrFence
from holdfast.ledger.charts import JobTotals, LedgerHistory
from holdfast.ledger.export import Progress, Write
from holdfast.ledger.overview import AgentSession, AttentionItem, KindRecord, Overview
from holdfast.ledger.public import Beat, Change, Duration, EnqueueOptions, Event, HeldJob, Job, JobPage, R, WorkerRecord
from holdfast.ledger.verbs.access import NewToken, SessionRecord, TokenRecord
from holdfast.ledger.verbs.declarations import DeclarationRecord
from holdfast.ledger.verbs.fleet import QueueRecord
from holdfast.ledger.verbs.flow import FlowStatus, LimitKeyRecord, LimitRecord, QueueSettingsRecord
from holdfast.ledger.verbs.groups import GroupChange, GroupRecord
from holdfast.ledger.verbs.letters import LetterGroups
from holdfast.ledger.verbs.on_jobs import ChosenJob, VerbOnJobs
from holdfast.ledger.verbs.proofs import Inclusion, KeyRecord, PublicLike, TreeHead
from holdfast.ledger.verbs.schedules import ScheduleRecord
from holdfast.ledger.verbs.services import RunState, SinkState
from holdfast.ledger.verbs.timeline import JobGraph
from holdfast.proof.export_format import EndLine
from holdfast.watch.timeline.model import Timeline


class AsyncLedger(AsyncLedgerBase):
    """The verbs of a `Ledger`, to be awaited. Each runs in a thread.

    Made by `holdfast.aio.open`. That of an app is `app.aio.ledger`.
    """

    async def acknowledge_cancel(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """Acknowledge a soft cancel: the holder has stopped, and the job becomes cancelled.

        `reason` is recorded beside the reason of the cancel.
        """
        return await self._call(
            lambda ledger: ledger.acknowledge_cancel(fence, reason=reason, request_id=request_id, expected_rev=expected_rev)
        )

    async def agents(self, *, limit: int = core_limits.PAGE_MAX) -> builtins.list[AgentSession]:
        """Return the sessions of agents, the most recently active first."""
        return await self._call(lambda ledger: ledger.agents(limit=limit))

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
        """Add a note to a finished job. Its status does not change."""
        return await self._call(
            lambda ledger: ledger.annotate(
                job_id, note, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def append(self, envelope: Mapping[str, Any] | bytes | str, *, content: Any = payloads.UNSET) -> Event:
        """Record a statement that another process has signed, and return the last event that it made.

        The envelope is a statement in Holdfast's own form or in that for robots, with `keyId` and `signature`. A holder may sign
        heartbeat, resumed, stalled, succeeded, requeued (a release) and cancelled (an acknowledged cancel). No token is needed:
        see the guide on signed events. A server may sign stalled, past the limit, and resumed, after a heartbeat that came after
        the stall.

        A holder's statement in Holdfast's shape has only the hash of its content. Pass the content itself as `content`: the
        fields of a heartbeat, a result, or an error. The newest envelope of a job may be sent again after a lost answer, and gets
        the same answer. An older one is refused.
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
        """Record that an operator assists a running job."""
        return await self._call(
            lambda ledger: ledger.assist(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def attention(self, *, limit: int = core_limits.ATTENTION_MAX) -> builtins.list[AttentionItem]:
        """Return what waits for a person, oldest first. If it is more than `limit`, requests for assistance stay in the list.

        That is: holders that request assistance, stalls under a policy that requires operator coverage, jobs that an operator
        assists, failed compensations, and sinks to which deliveries were given up.
        """
        return await self._call(lambda ledger: ledger.attention(limit=limit))

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
        """Cancel a job.

        A soft cancel requests the holder of a running job to stop. The holder learns of it with its next heartbeat. A hard
        cancel ends the job at once: its fence is no longer valid. A job that is not running is cancelled at once either way.
        """
        return await self._call(
            lambda ledger: ledger.cancel(
                job_id, hard=hard, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def cancel_group(
        self, name: str, *, reason: str = "requested", hard: bool = False, actor: str | Actor | None = None
    ) -> GroupChange:
        """Close a group and cancel its jobs that have not ended. It does not make `then` unless it is replayed.

        Jobs that run end when their holders notice, as after `cancel`. 200 jobs at a time share a transaction. If this is
        interrupted, call it again: it goes on with the jobs that are left.
        """
        return await self._call(lambda ledger: ledger.cancel_group(name, reason=reason, hard=hard, actor=actor))

    async def check(self, job_id: int) -> builtins.list[Violation]:
        """Check a job's history, its signatures and its row. Return the violations: an empty list if there are none."""
        return await self._call(lambda ledger: ledger.check(job_id))

    async def check_key(self, worker: str) -> None:
        """Raise SignatureInvalid unless this process has a valid key of the worker. The message says what is missing."""
        await self._call(lambda ledger: ledger.check_key(worker))

    async def claim(
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
    ) -> builtins.list[HeldJob]:
        """Claim up to `limit` jobs that are ready, and return them with their fences. If none is ready, return an empty list.

        Jobs are chosen by queue in the order given, then by priority, age and id. In a queue whose jobs have partitions, limits
        or labels, jobs of the same priority take turns. `labels` are what the worker has, for jobs that require labels. With
        `start`, each job is also started, in the same statement. `keep=False` is faster and meant for workers: the answer is not
        kept under a request id. If such an answer is lost, `unanswered` finds the jobs.
        """
        return await self._call(
            lambda ledger: ledger.claim(
                worker,
                queues,
                limit=limit,
                start=start,
                kinds=kinds,
                labels=labels,
                incarnation=incarnation,
                request_id=request_id,
                keep=keep,
            )
        )

    async def claim_job(
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
        return await self._call(
            lambda ledger: ledger.claim_job(
                job_id, worker, ttl=ttl, labels=labels, incarnation=incarnation, request_id=request_id, expected_rev=expected_rev
            )
        )

    async def close_group(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> GroupRecord:
        """Let no more jobs join a group. If all have succeeded, its follow-up job is made.

        A closed group stays closed. If its follow-up job was refused, this tries again. If jobs join it in an open transaction,
        this waits some seconds for that one to end. While follow-up jobs of other groups may still join it, that is a Conflict.
        """
        return await self._call(lambda ledger: ledger.close_group(name, request_id=request_id, actor=actor))

    async def complete(
        self,
        fence: Fence,
        result: Any = None,
        *,
        gate: bool = False,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Change:
        """Complete the job with `result`, which is any JSON value.

        With `gate`, raise GateDenied unless the holder passes the liveness gate in the same transaction. If a validator or a
        conflict detector of this ledger objects, raise RefusedByValidator. The job stays running in both cases.
        """
        return await self._call(
            lambda ledger: ledger.complete(fence, result, gate=gate, request_id=request_id, expected_rev=expected_rev)
        )

    async def complete_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> builtins.list[Change | HoldfastError]:
        """Complete many jobs, in chunks of 1,000. Return one answer each. A refusal does not affect the others."""
        return await self._call(lambda ledger: ledger.complete_many(results, request_id=request_id))

    async def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of jobs of each status, by queue.

        The numbers are those of `job_totals`, so the time that it takes does not depend on the number of jobs.
        """
        return await self._call(lambda ledger: ledger.counts())

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
        """Dead-letter a live job, for a person or a tool to examine.

        Without an `error`, the error and the stage are those of the newest attempt, if it failed. Otherwise the stage is exec.
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

    async def dead_letter_groups(
        self, by: str | Sequence[str] = "cause", *, queue: str | None = None, kind: str | None = None, letters: bool = False
    ) -> LetterGroups:
        """Group the dead letters that are neither discarded nor replayed, by one or several fields.

        The fields are cause, reason_code, failure_stage, error_text, kind and queue. In an error's text, quoted parts, hosts and
        numbers are masked, so that errors of the same cause have the same text. The cause of a letter without an error is its
        reason and stage. With `letters`, each group has its letters.
        """
        return await self._call(lambda ledger: ledger.dead_letter_groups(by, queue=queue, kind=kind, letters=letters))

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
        """Return dead-lettered jobs by ascending id. For the next page, pass the last id of this one as `after`.

        `since` and `until` refer to the time at which the jobs were dead-lettered. Discarded ones are included only with
        `discarded`.
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
        """Return the declarations of handlers, by kind."""
        return await self._call(lambda ledger: ledger.declarations())

    async def declare_policy(
        self,
        kind: str,
        *,
        queue: str = "default",
        limits: Mapping[str, int] | Sequence[str] = (),
        requires: Sequence[str] = (),
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Declare the queue, the policy fields, and the limits and labels of jobs that a kind's handler has.

        This replaces the whole previous declaration. Fields that operators set for the kind override declared ones. The limits
        need not exist. Workers call this when they start, for each kind whose declaration differs.
        """
        await self._call(
            lambda ledger: ledger.declare_policy(
                kind, queue=queue, limits=limits, requires=requires, request_id=request_id, actor=actor, **fields
            )
        )

    async def declare_schedules(
        self, kind: str, schedules: Mapping[str, Mapping[str, Any]], *, actor: str | Actor | None = None
    ) -> builtins.list[str]:
        """Declare the schedules of a kind's handler: by name, the arguments of `set_schedule` without name and kind.

        Schedules that the handler has declared before and does not declare now are removed. One that an operator has set under
        the same name stays as it is. Return the names that are not declared for that reason. Limits that the jobs draw on need
        not exist: until they do, jobs are made without them. Workers call this when they start.
        """
        return await self._call(lambda ledger: ledger.declare_schedules(kind, schedules, actor=actor))

    async def dependents(self, job_id: int, *, after: int = 0, limit: int = 100) -> builtins.list[Job]:
        """Return the jobs that wait, or have waited, for this one, by ascending id.

        Jobs that wait for its replay instead are dependents of the replay.
        """
        return await self._call(lambda ledger: ledger.dependents(job_id, after=after, limit=limit))

    async def diagnose(self, *, clock: Callable[[], datetime] | None = None) -> Diagnosis:
        """Report whether the ledger is healthy, and what to do about each problem. Nothing is changed.

        With `clock`, a clock of the caller's, also report how far it is from the ledger's.
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
        """Note on a finished job that it needs no more attention. The same as `annotate` with "discarded"."""
        return await self._call(
            lambda ledger: ledger.discard(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def drop_duty(self, name: str, holder: str) -> None:
        """Drop a duty, so that another holder can take it at once. If another holder has the duty, nothing happens."""
        await self._call(lambda ledger: ledger.drop_duty(name, holder))

    async def drop_sink(self, name: str) -> None:
        """Delete a sink and its position. A relay that still serves it creates it again, so stop the relay first."""
        await self._call(lambda ledger: ledger.drop_sink(name))

    async def end_session(self, secret: str) -> None:
        """End a session. Nothing happens if it is over."""
        await self._call(lambda ledger: ledger.end_session(secret))

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
        """Create a job and return it. If a live job has the same `dedupe_key`, return that job instead.

        The options are priority, delay or available_at, dedupe_key, dedupe ("live" or "forever"), dedupe_for (how long the key
        stays taken, also after the job's end), on_duplicate ("keep", "replace" or "postpone"), which says what happens to a job
        that has the key and was never claimed, postpone_max, tier, correlation_id, trace_id,
        policy (a mapping), depends_on (jobs that must succeed first, or their ids) and on_dependency_failure ("dead_letter",
        "cancel" or "wait"), which says what happens to the job if one of those fails, is cancelled or is dead-lettered.

        With `connection`, the job is created in the caller's own open transaction and is visible when that commits. Without a
        trace_id, the job carries the traceparent of the current OpenTelemetry span, if there is one.
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
        """Create many jobs in one transaction, either all of them or none. Each item takes the options of `enqueue`.

        An item may have a name, its `ref`. Other items of the same call can use that name in their `depends_on`.
        """
        return await self._call(
            lambda ledger: ledger.enqueue_many(items, request_id=request_id, actor=actor, connection=connection)
        )

    async def enrol_key(self, public: PublicLike, *, role: str, name: str, actor: str | Actor | None = None) -> KeyRecord:
        """Enrol a key, so that it may sign for `name` from now on.

        The first key of a ledger must be a server's key, and this process must have its secret. For every later key, a server's
        key of this process vouches by its signature. Unless the new key is a server's, an operator's key can vouch as well. If
        the key is already enrolled for this role and name, its record is returned.
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
        limit: int = core_limits.PAGE_MAX,
    ) -> builtins.list[Event]:
        """Return events in the total order, filtered by job, type, time or correlation id. `after` is a position."""
        return await self._call(
            lambda ledger: ledger.events(
                job_id, types=types, since=since, until=until, correlation_id=correlation_id, after=after, limit=limit
            )
        )

    async def explain(self, job_id: int, *, to_claim: bool = False) -> Explanation:
        """Explain why a job is in its state, what happens next and when, and what can be done about it. Nothing is changed.

        `to_claim` is for a caller that wants to claim the job itself. The explanation then leaves out whether there are workers,
        and which jobs they would claim first.
        """
        return await self._call(lambda ledger: ledger.explain(job_id, to_claim=to_claim))

    async def export(self, write: Write, *, progress: Progress | None = None) -> EndLine:
        """Export the whole ledger: call `write` with each line. Return how many lines of each kind there were.

        Memory use is bounded. `progress` is called with the current position and the last one. On PostgreSQL the export is one
        read transaction: vacuum cannot remove dead rows until it ends. On SQLite it reads a copy of the file, which is made first
        if its disk has room.
        """
        return await self._call(lambda ledger: ledger.export(write, progress=progress))

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
        """Report that the attempt failed with `error`: an exception, a text or a JSON object.

        If `retryable` is true and attempts are left, the job is queued again after a backoff, or after `retry_after`. If it is
        false, the job is failed, or dead-lettered if `reason_code` says why a retry cannot help.

        `failure_stage` and `reason_code` are recorded with the error. If no attempt is left, they are in the dead letter.
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

    async def find_session(self, secret: str) -> SessionRecord | None:
        """Return the session with this secret, or None if it is over or unknown, or its token is no longer valid."""
        return await self._call(lambda ledger: ledger.find_session(secret))

    async def find_token(self, text: str) -> TokenRecord | None:
        """Return the token with this text if it is valid. Return None for any other text.

        A text without the form of a token is not looked up: the form is no secret. For all others the time does not depend on
        whether the id exists or how much of the secret is right.
        """
        return await self._call(lambda ledger: ledger.find_token(text))

    async def flow_status(self, *, max_age: float = 0) -> FlowStatus:
        """Return what is in use of every limit, how many jobs wait for it, and how many jobs no running worker may have.

        The answer may be up to `max_age` seconds old.
        """
        return await self._call(lambda ledger: ledger.flow_status(max_age=max_age))

    def follow(self, after: int = 0, *, timeout: float | None = None) -> AsyncGenerator[Event, None]:
        """Yield every event after a position, in the total order, as they are committed. No event is missed.

        The generator ends when there was no event for `timeout` seconds. By default it never ends. To continue later, pass the
        last event's `pos` as `after`.
        """
        return self._each(lambda ledger: ledger.follow(after, timeout=timeout))

    async def gate(self, job: JobOrFence) -> LivenessHeartbeatReceiptV1:
        """Return the holder's heartbeat receipt if it is healthy, fresh and within its attempts. Raise GateDenied otherwise.

        Given a fence instead of an id, raise FenceLost if it is not the fence of the newest attempt. Nothing is changed.
        """
        return await self._call(lambda ledger: ledger.gate(job))

    async def get(self, job_id: int) -> Job:
        """Return a job by its id. Raise NotFound if there is none."""
        return await self._call(lambda ledger: ledger.get(job_id))

    async def get_group(self, name: str) -> GroupRecord:
        """Return a group with its counts."""
        return await self._call(lambda ledger: ledger.get_group(name))

    async def graph(self, job_id: int, *, depth: int = 3) -> JobGraph:
        """Return the jobs that a job waits for and those that wait for it, over up to `depth` steps in each direction."""
        return await self._call(lambda ledger: ledger.graph(job_id, depth=depth))

    async def group(
        self,
        name: str,
        *,
        then: Mapping[str, Any] | None = None,
        on_dead: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> GroupRecord:
        """Make a group that jobs can join with `enqueue(…, group=name)` until `close_group`.

        `then` is the job to make when the group is closed and all its jobs have succeeded. `on_dead` is the job to make when
        the first of them fails, is cancelled or is dead-lettered. Both are items as for `enqueue_many`, and each is made once.
        Without a queue, they have the queue, limits and labels that the handler of their kind declares. If there is a group of
        this name with the same follow-up jobs, it is returned. With other ones, that is a Conflict.
        """
        return await self._call(lambda ledger: ledger.group(name, then=then, on_dead=on_dead, request_id=request_id, actor=actor))

    async def group_jobs(
        self, name: str, *, status: str | Sequence[str] | None = None, after: int = 0, limit: int = core_limits.PAGE_MAX
    ) -> builtins.list[Job]:
        """Return the jobs of a group by id, those after the id `after`, all or only those in some statuses.

        A replay is here in the place of the job that it repeats.
        """
        return await self._call(lambda ledger: ledger.group_jobs(name, status=status, after=after, limit=limit))

    async def groups(
        self, *, after: str = "", limit: int = core_limits.PAGE_MAX, unfinished: bool = False
    ) -> builtins.list[GroupRecord]:
        """Return groups by name, those after the name `after`. With `unfinished`, leave out those that are done."""
        return await self._call(lambda ledger: ledger.groups(after=after, limit=limit, unfinished=unfinished))

    async def has_tokens(self) -> bool:
        """Return whether there is a valid token that a person or program created. Tokens of servers themselves do not count."""
        return await self._call(lambda ledger: ledger.has_tokens())

    async def head(self) -> TreeHead | None:
        """Return the newest signed head, or None if nothing was ever sealed."""
        return await self._call(lambda ledger: ledger.head())

    async def heads(self, *, after: int = 0, limit: int = core_limits.PAGE_MAX) -> builtins.list[TreeHead]:
        """Return signed heads by size. For the next page, pass the last size of this one as `after`."""
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
        """Renew the lease. The answer says whether a cancel was requested.

        `checkpoint` is any JSON value, including None. The next holder of the job can read it. `undo` registers an undo step,
        {"kind": …, "args": {…}}. If the job does not succeed, its undo steps run, the newest first. Register a step before
        the action that it reverses.
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
        """Send heartbeats for many leases, in chunks of 1,000. Return one answer each. A refusal does not affect the others.

        An item is a fence, or a fence with the heartbeat's fields: `(fence, {"stage": …, "progress": …})`. A job that another
        transaction has locked is retried for about two seconds, after the others. With `wait=False` it is refused at once.
        """
        return await self._call(lambda ledger: ledger.heartbeat_many(fences, wait=wait))

    async def history(
        self,
        *,
        metric: str = "throughput",
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> LedgerHistory:
        """Return what happened over time, to all jobs or to those of one queue or kind. The default is the last hour.

        `metric` is throughput, errors, depth (queued jobs at the end), wait (from available to claimed) or run (from the start
        to the end). `step` is the distance between two points: 1, 2, 5, 10, 15 or 30 min, 1, 2, 3, 6 or 12 h, or 1 d. Without
        it, the shortest one that gives at most 400 points is used. Minutes are kept for 48 h and hours for 90 d.
        """
        return await self._call(
            lambda ledger: ledger.history(metric=metric, queue=queue, kind=kind, since=since, until=until, step=step)
        )

    async def in_dialect(self, events: Sequence[Event], dialect: str) -> builtins.list[dict[str, Any]]:
        """Return events of this ledger as JSON objects in a dialect: holdfast, liveness, jobs or tasks."""
        return await self._call(lambda ledger: ledger.in_dialect(events, dialect))

    async def inclusion(self, job_id: int) -> Inclusion:
        """Return a job's events with proofs that they are in the tree of the newest head, read from one snapshot."""
        return await self._call(lambda ledger: ledger.inclusion(job_id))

    async def job_totals(self) -> JobTotals:
        """Return the number of jobs by queue, kind and status, with every change that was committed before.

        These numbers are kept. What happened since they were written is added. If that is more than 10,000 events, they are
        counted first. A process that may not write then returns what is counted: `as_of` says up to where.
        """
        return await self._call(lambda ledger: ledger.job_totals())

    async def keys(self) -> builtins.list[KeyRecord]:
        """Return every key that was ever enrolled, in the order of enrolment."""
        return await self._call(lambda ledger: ledger.keys())

    async def kinds(self) -> builtins.list[KindRecord]:
        """Return every kind that has jobs, by name, with its events, errors, waits and runs of the last hour."""
        return await self._call(lambda ledger: ledger.kinds())

    async def limit(self, name: str) -> LimitRecord:
        """Return one limit."""
        return await self._call(lambda ledger: ledger.limit(name))

    async def limit_keys(
        self, name: str, *, key: str | None = None, after: str | None = None, limit: int = 100
    ) -> builtins.list[LimitKeyRecord]:
        """Return the keys of a limit that jobs have drawn on, or that have their own numbers, by key.

        Each has what is in use of it, and how many jobs wait for it. With `key`, return that key only, if it is there.
        """
        return await self._call(lambda ledger: ledger.limit_keys(name, key=key, after=after, limit=limit))

    async def limits(self) -> builtins.list[LimitRecord]:
        """Return all limits, by name."""
        return await self._call(lambda ledger: ledger.limits())

    async def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        phase: str | Sequence[str] | None = None,
        queue: str | None = None,
        kind: str | None = None,
        correlation_id: str | None = None,
        dedupe_key: str | None = None,
        replay_of: int | None = None,
        owner: str | None = None,
        incarnation: str | None = None,
        waiting: bool = False,
        assist_requested: bool | None = None,
        time: str = "created",
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        order: str = "oldest",
        after: int = 0,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """Return jobs by ascending id, or by descending id with `order="newest"`.

        For the next page, pass the `next_cursor` of this one as `cursor`, with the same filters. The orders are oldest or id,
        newest or -id, -updated (last changed first), -finished (last ended first) and available (queued jobs by the time from
        which they can be claimed). For -updated and -finished, the newest 10,000 jobs are sorted, and all that are held or
        stalled. The filters are:

        `since`, `until`: only jobs with a time at or after `since`, and before `until`: that of the enqueue, or with `time` that
        of the last change (updated) or of the end (finished). One call examines at most 100,000 jobs.
        `text`: only jobs with this text in their kind, queue, correlation id, dedupe key, last error or arguments. The case of A
        to Z is ignored. One call examines at most 50,000 jobs. If a call stops early, `stopped` is true, and the next page goes
        on there.
        `dedupe_key`: only jobs that have this dedupe key, in any queue. A job without a window gives up its key when it ends.
        `assist_requested`: only jobs whose holder requests assistance.
        `waiting`: only jobs that wait for dependencies.
        `phase`: only running and stalled jobs in this phase, or in one of several.
        `owner`: only jobs that this worker holds, in any incarnation unless `incarnation` is given.
        """
        return await self._call(
            lambda ledger: ledger.list(
                status=status,
                phase=phase,
                queue=queue,
                kind=kind,
                correlation_id=correlation_id,
                dedupe_key=dedupe_key,
                replay_of=replay_of,
                owner=owner,
                incarnation=incarnation,
                waiting=waiting,
                assist_requested=assist_requested,
                time=time,
                since=since,
                until=until,
                text=text,
                order=order,
                after=after,
                cursor=cursor,
                limit=limit,
            )
        )

    async def local_login_code(self) -> str:
        """Return a login code for the server's own admin token, which is created if there is no valid one.

        The text of that token is dropped. It can only be used by login codes and the sessions that they begin.
        """
        return await self._call(lambda ledger: ledger.local_login_code())

    async def log_in(self, code: str) -> str | None:
        """Use a login code. Return the secret of a new session, or None if the code is unknown, used or too old."""
        return await self._call(lambda ledger: ledger.log_in(code))

    async def move(
        self,
        job_id: int,
        queue: str | None = None,
        *,
        for_worker: str | UnsetType | None = UNSET,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Move a queued job to another queue, to another worker, or both. Where it is already, nothing changes.

        With `for_worker`, only that worker may have it from now on; with None, any worker.
        """
        return await self._call(
            lambda ledger: ledger.move(
                job_id, queue, for_worker=for_worker, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev
            )
        )

    async def new_login_code(self, token_id: str) -> str:
        """Return a code that begins one session of a valid token. It can be used once, within 10 minutes.

        Raise NotFound if there is no such token.
        """
        return await self._call(lambda ledger: ledger.new_login_code(token_id))

    async def new_person_session(
        self, name: str, role: str, *, queues: tuple[str, ...] | builtins.list[str] = (access.ANY,)
    ) -> str:
        """Begin a browser session of a person whom an identity provider has signed in, and return its secret."""
        return await self._call(lambda ledger: ledger.new_person_session(name, role, queues=queues))

    async def new_session(self, token_id: str) -> str:
        """Begin a browser session of a valid token, and return its secret. Raise NotFound if there is no such token."""
        return await self._call(lambda ledger: ledger.new_session(token_id))

    async def new_token(
        self,
        role: str,
        name: str,
        *,
        queues: tuple[str, ...] | builtins.list[str] = (access.ANY,),
        act_as: tuple[str, ...] | builtins.list[str] = (),
        expires: Any = None,
        actor: str | Actor | None = None,
    ) -> NewToken:
        """Create a token. Its text is in the answer only: the ledger keeps a hash of its secret.

        `role` is reader, client, worker, operator or admin. `name` is the name of the actor in events. `queues` are patterns of
        the queues that it may use. `act_as` are patterns of other actors, such as `worker:crawl-*`. In patterns, `*` stands for
        any number of characters. `expires` is how long the token is valid; without it, until it is revoked.
        """
        return await self._call(
            lambda ledger: ledger.new_token(role, name, queues=queues, act_as=act_as, expires=expires, actor=actor)
        )

    async def newest_replays(self, job_ids: Iterable[int]) -> dict[int, Job]:
        """Return the newest replay of each of these jobs. Jobs that were not replayed are left out."""
        return await self._call(lambda ledger: ledger.newest_replays(job_ids))

    async def next_firings(
        self,
        name: str | None = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        end: datetime | None = None,
        count: int = 10,
    ) -> builtins.list[datetime]:
        """Return the next planned times of a schedule, also if it is paused, or of one with these times, without jitter."""
        return await self._call(
            lambda ledger: ledger.next_firings(name, cron=cron, every=every, tz=tz, start=start, end=end, count=count)
        )

    async def now(self) -> datetime:
        """Return the ledger's time. Every deadline is measured by it."""
        return await self._call(lambda ledger: ledger.now())

    async def on_jobs(
        self,
        verb: VerbOnJobs,
        jobs: Iterable[ChosenJob],
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **options: Any,
    ) -> builtins.list[Job | HoldfastError]:
        """Use a verb on jobs, each given by its id or as (id, revision), 1,000 at most. Return one answer each, in order.

        The options are those of the verb. The answer is the job, or the error that the verb would raise. A job that is no longer
        at its revision is a Conflict and is not changed. 200 jobs at a time share a transaction, in the given order.

        The answer to "replay" is the replay. A job that was replayed before is not replayed, unless `again` is true: its answer
        is that replay, with `is_new` false. It was replayed before if one of its replays is live, has succeeded or was
        dead-lettered. A replay that failed or was cancelled does not count, but its own replays do. With `again`, a live replay
        is still returned instead of a second one.
        """
        return await self._call(lambda ledger: ledger.on_jobs(verb, jobs, request_id=request_id, actor=actor, **options))

    async def overview(self) -> Overview:
        """Return everything that the first page of a dashboard shows, in one answer.

        The time that it takes depends on the number of queues, workers and held jobs, not on the number of jobs.
        """
        return await self._call(lambda ledger: ledger.overview())

    async def pause(
        self, queue: str, *, reason: str | None = None, request_id: str | None = None, actor: str | Actor | None = None
    ) -> None:
        """Pause a queue: no more jobs are claimed from it. Jobs that are held are not affected.

        The actor and the reason are kept until the queue is unpaused.
        """
        await self._call(lambda ledger: ledger.pause(queue, reason=reason, request_id=request_id, actor=actor))

    async def pause_schedule(
        self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None
    ) -> ScheduleRecord:
        """Let a schedule make no jobs. What it would have made meanwhile is not missed."""
        return await self._call(lambda ledger: ledger.pause_schedule(name, request_id=request_id, actor=actor))

    async def paused(self) -> dict[str, datetime]:
        """Return the paused queues, each with the time at which it was paused."""
        return await self._call(lambda ledger: ledger.paused())

    async def policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the fields that operators set for each kind and each tier, durations in milliseconds (`lease_ttl_ms`)."""
        return await self._call(lambda ledger: ledger.policies())

    async def policy_of(self, job_id: int) -> Policy:
        """Return the policy that a lease on this job would have if it were issued now."""
        return await self._call(lambda ledger: ledger.policy_of(job_id))

    async def policy_sources(self, kind: str | None = None, *, tier: str | None = None) -> builtins.list[SourcedField]:
        """Return every field of the policy of a job of this kind and tier, each with the layer that its value comes from."""
        return await self._call(lambda ledger: ledger.policy_sources(kind, tier=tier))

    async def position(self) -> int:
        """Return the newest position that was assigned, to follow from. Its event may not be committed yet."""
        return await self._call(lambda ledger: ledger.position())

    async def prove(self, job_id: int, write: Write) -> EndLine:
        """Export one job: call `write` with each line. Return how many lines of each kind there were.

        The lines are the job's events with proofs that they are in the tree of the newest head, the keys, the job's row, and
        that head.
        """
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
        sessions_before: datetime | None = None,
        subqueues_before: datetime | None = None,
        batch: int = 1000,
    ) -> dict[str, int]:
        """Delete old records in one bounded step, and return how many of each kind were deleted.

        Finished jobs, contents of heartbeats and kept answers are deleted if they are older than the given times. Workers are
        deleted if they were not seen since. Agents' sessions are deleted if they were not active since and hold no job.
        Browser sessions and login codes are deleted if they expired before. Subqueues without jobs are deleted if no job was
        enqueued there since, nor in the last day. With them go slots, which are records of claims that use no limit any more.
        Once an hour, keys of limits go that no subqueue draws on and whose rate allows all again. They are not counted.

        Failed and dead-lettered jobs that are neither discarded nor replayed are kept. Only `failed_before` deletes them.
        `jobs_before` also deletes groups that were done before and of which no job is left. They are not counted.
        """
        return await self._call(
            lambda ledger: ledger.prune(
                jobs_before=jobs_before,
                failed_before=failed_before,
                beats_before=beats_before,
                requests_before=requests_before,
                workers_before=workers_before,
                agents_before=agents_before,
                sessions_before=sessions_before,
                subqueues_before=subqueues_before,
                batch=batch,
            )
        )

    async def queue_settings(self) -> builtins.list[QueueSettingsRecord]:
        """Return the settings of all queues that have any, by queue."""
        return await self._call(lambda ledger: ledger.queue_settings())

    async def queues(self) -> builtins.list[QueueRecord]:
        """Return every queue that has jobs or is paused, by name.

        The numbers are those of `job_totals`, so the time that it takes does not depend on the number of jobs.
        """
        return await self._call(lambda ledger: ledger.queues())

    async def release(
        self, fence: Fence, *, reason: str | None = None, request_id: str | None = None, expected_rev: int | None = None
    ) -> Job:
        """Return the job to its queue. It can be claimed at once, and the attempt does not count against `attempts_max`."""
        return await self._call(
            lambda ledger: ledger.release(fence, reason=reason, request_id=request_id, expected_rev=expected_rev)
        )

    async def remove_limit(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Remove a limit. Jobs that draw on it go on without it."""
        await self._call(lambda ledger: ledger.remove_limit(name, request_id=request_id, actor=actor))

    async def remove_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Remove a schedule. Its jobs stay. One that a handler declares comes back when a worker starts: pause that one."""
        await self._call(lambda ledger: ledger.remove_schedule(name, request_id=request_id, actor=actor))

    async def replay(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Create a job that repeats a failed, cancelled or dead-lettered one. If a replay of it is live, return that one."""
        return await self._call(
            lambda ledger: ledger.replay(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def replay_group(self, name: str, *, reason: str | None = None, actor: str | Actor | None = None) -> GroupChange:
        """Replay the jobs of a group that failed, were cancelled or were dead-lettered. Each replay takes its job's place.

        Jobs that were discarded are not replayed. A group that was cancelled makes `then` again when all have succeeded. If
        this is interrupted, call it again: it goes on with the jobs that are left.
        """
        return await self._call(lambda ledger: ledger.replay_group(name, reason=reason, actor=actor))

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
        """Change the priority of a queued job."""
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
        """Queue a stalled job again, to be claimed after its backoff. A job without attempts left is exhausted instead."""
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
        """Change when a queued job becomes available: at `available_at`, or after `delay`. With neither, it is available now."""
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
        """Allow a run of this name to begin again, for any reason that ended the last one. Its restarts no longer count.

        Raise Conflict while the name is supervised.
        """
        return await self._call(lambda ledger: ledger.reset_run(name, actor=actor))

    async def result(self, job: Job[R | None] | int, *, timeout: float | None = None) -> R:
        """Wait until a job has succeeded, and return its result. The job is given as an object or by its id.

        Raise ResultTimeout, which is a TimeoutError, if the job has not ended after `timeout` seconds. Its message ends with what
        `explain` says. By default, wait without a limit.
        Raise NoResult, with the job's last error, if the job failed, was dead-lettered or was cancelled.
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
        """Resume a stalled job. Given a fence, its last holder resumes it. Given an id, the system resumes it.

        The system can only resume a job after a heartbeat that came after the stall.
        """
        return await self._call(
            lambda ledger: ledger.resume(job, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def resume_schedule(
        self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None
    ) -> ScheduleRecord:
        """Let a paused schedule make jobs again, from its next time on."""
        return await self._call(lambda ledger: ledger.resume_schedule(name, request_id=request_id, actor=actor))

    async def revive_sink(self, name: str) -> SinkState:
        """Continue deliveries to a sink at once, from its position, also if it was dead or was waiting for a retry."""
        return await self._call(lambda ledger: ledger.revive_sink(name))

    async def revoke_key(self, key_id: str, *, actor: str | Actor | None = None) -> KeyRecord:
        """Revoke a key: nothing that it signs from now on is accepted. Earlier signatures stay valid.

        A revocation cannot be undone.
        """
        return await self._call(lambda ledger: ledger.revoke_key(key_id, actor=actor))

    async def revoke_token(self, token_id: str, *, actor: str | Actor | None = None) -> TokenRecord:
        """Revoke a token, and end its sessions. A revocation cannot be undone. A second one changes nothing.

        Servers remember a token for 5 s at most.
        """
        return await self._call(lambda ledger: ledger.revoke_token(token_id, actor=actor))

    async def rotate_key(self, key_id: str, public: PublicLike, *, actor: str | Actor | None = None) -> KeyRecord:
        """Enrol a new key for the role and name of another one, and revoke that one, in one transaction."""
        return await self._call(lambda ledger: ledger.rotate_key(key_id, public, actor=actor))

    async def run_schedule(self, name: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> Job:
        """Make a job of a schedule now, also if it is paused. Its times and its rule for overlaps are not affected."""
        return await self._call(lambda ledger: ledger.run_schedule(name, request_id=request_id, actor=actor))

    async def runs(self, *, after: str = "", limit: int = 100) -> builtins.list[RunState]:
        """Return the newest run of every name that was ever supervised, by name.

        For the next page, pass the last name as `after`.
        """
        return await self._call(lambda ledger: ledger.runs(after=after, limit=limit))

    async def schedule(self, name: str) -> ScheduleRecord:
        """Return one schedule."""
        return await self._call(lambda ledger: ledger.schedule(name))

    async def schedules(self, *, after: str = "", limit: int = core_limits.PAGE_MAX) -> builtins.list[ScheduleRecord]:
        """Return schedules by name, those after the name `after`."""
        return await self._call(lambda ledger: ledger.schedules(after=after, limit=limit))

    async def set_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        by: str | None = None,
        key: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> LimitRecord:
        """Make a limit, or replace the one of this name. Jobs draw on it with the option `limits` of `enqueue`.

        At most `concurrent` units are held at once, over all workers; with 0, no job starts. `rate`, such as "600/1m", is how
        many units may start, on average; `burst` is how many may start at once after a pause. In any time t, at most
        burst + rate * t start. Without `burst`, it is what the rate gives in a second. With `by`, such as "args.tenant", each
        value of that argument has the limit for itself. With `key`, the numbers are for that value alone, and replace those of
        the limit.

        The numbers hold from the next claim on. Jobs that are held already go on, also if they are more than the new number.
        """
        return await self._call(
            lambda ledger: ledger.set_limit(
                name, concurrent=concurrent, rate=rate, burst=burst, by=by, key=key, request_id=request_id, actor=actor
            )
        )

    async def set_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Set fields of the policy of a kind or a tier, for leases issued from now on. Other fields stay as they were set.

        A duration is a number of seconds, a text such as "30s", or a timedelta. None unsets a field: its value then comes from
        the layers below, which are the declaration of the kind's handler, and the defaults. If keys are enrolled, only a process
        with a server's or an operator's key can lower `signed`.
        """
        await self._call(lambda ledger: ledger.set_policy(kind, tier=tier, request_id=request_id, actor=actor, **fields))

    async def set_queue(
        self,
        queue: str,
        *,
        weights: Mapping[str, int] | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> QueueSettingsRecord:
        """Set how a queue serves its partitions. What is not given is unset.

        `weights` are by partition: one with the weight 3 gets three times the jobs of one without a weight.
        """
        return await self._call(lambda ledger: ledger.set_queue(queue, weights=weights, request_id=request_id, actor=actor))

    async def set_schedule(
        self,
        name: str,
        kind: str,
        args: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        missed: str = "one",
        overlap: str = "allow",
        jitter: Duration = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        queue: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> ScheduleRecord:
        """Make a schedule, or replace the one of this name. It makes jobs of the kind from now on, until it is paused or removed.

        `cron` has five fields and follows the clock of the time zone `tz`. `every` is a duration, counted from `start` or from
        midnight UTC of 1970-01-01. `missed` says what happens to firings that were due while no process swept: "skip", "one" job
        for all of them, or "all". `overlap` says what a firing does while the job before has not ended: "allow" both, "skip" the
        firing, or "cancel" that job. `jitter` delays each firing by up to so much. Without a `queue`, its jobs have the queue,
        limits and labels that the handler of the kind declares. The other options are those of `enqueue`.
        """
        return await self._call(
            lambda ledger: ledger.set_schedule(
                name,
                kind,
                args,
                cron=cron,
                every=every,
                tz=tz,
                missed=missed,
                overlap=overlap,
                jitter=jitter,
                start=start,
                end=end,
                queue=queue,
                request_id=request_id,
                actor=actor,
                **options,
            )
        )

    async def settle_alike(self, jobs: Sequence[HeldJob], result: Any, *, request_id: str) -> Container[int] | None:
        """Complete jobs of one claim with the same result, in one statement. It is for workers, like `settle_many`.

        The jobs are from one answer of `claim`, all in their first attempt or all in the same later one, and none of them has to
        be signed. Return None if all jobs are completed, else the ids of those that are. Pass the others to `settle_many`
        with the same request id: its answers say why a job is not completed, or that it is after all.
        """
        return await self._call(lambda ledger: ledger.settle_alike(jobs, result, request_id=request_id))

    async def settle_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str, heartbeats: Iterable[tuple[Fence, Mapping[str, Any]]] = ()
    ) -> builtins.list[HoldfastError | None]:
        """Complete many jobs for a worker that may have to repeat the call.

        No answer is kept: the events carry the request id. The answer is None for each job that is completed, also if an
        earlier call with this id completed it. A job that another transaction has locked is not waited for: its answer is
        Unavailable with `locked`. No validator is run, because the worker has run its own.

        `heartbeats` has the last heartbeats of some of these jobs, in the form of `heartbeat_many`. Each is recorded right before
        the completion, in the same transaction.
        """
        return await self._call(lambda ledger: ledger.settle_many(results, request_id=request_id, heartbeats=heartbeats))

    async def sign_in(self, worker: str, *, incarnation: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        """Record that a worker is present. Call this again to renew the record.

        `body` is the worker's description of itself. Without one, the last one is kept.
        """
        await self._call(lambda ledger: ledger.sign_in(worker, incarnation=incarnation, body=body))

    async def sign_out(self, worker: str, incarnation: str | None = None) -> None:
        """Remove the record of a worker that has shut down."""
        await self._call(lambda ledger: ledger.sign_out(worker, incarnation))

    async def sinks(self) -> builtins.list[SinkState]:
        """Return every sink that a relay has ever served, by name."""
        return await self._call(lambda ledger: ledger.sinks())

    async def skip_sink_event(self, name: str) -> SinkState:
        """Skip the event that a sink fails at. It is not delivered, and deliveries continue with the next event."""
        return await self._call(lambda ledger: ledger.skip_sink_event(name))

    async def stable_events(self, after: int, *, limit: int = 1000) -> builtins.list[Event]:
        """Return the next events of the total order, up to the stable position. `follow` yields the same events as they come."""
        return await self._call(lambda ledger: ledger.stable_events(after, limit=limit))

    async def stable_position(self) -> int:
        """Return the position up to which all events are visible: none can be committed at or before it any more."""
        return await self._call(lambda ledger: ledger.stable_position())

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
        """Stall a job. Given a fence, the holder itself reports that it cannot go on. Given an id, the system stalls the job.

        The holder may give an `error` with its `reason_code` and `failure_stage`. The system can only stall a job that is past
        its heartbeat or lease limit.
        """
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
        """Record that user code begins: the job is running, and its lease is renewed."""
        return await self._call(lambda ledger: ledger.start(fence, request_id=request_id, expected_rev=expected_rev))

    async def sweep(self, *, limit: int = 1000) -> dict[str, int]:
        """Run one liveness tick: do what is due for up to `limit` jobs. Return how many events of each type that made.

        If an event must be signed and this process has no server key, its job is skipped. `unsigned` is the number of such jobs.
        """
        return await self._call(lambda ledger: ledger.sweep(limit=limit))

    async def take_duty(self, name: str, holder: str, *, ttl: Any) -> bool:
        """Take a duty for `ttl` of ledger time, and return whether `holder` has it. Taking it again renews it.

        Return False while another holder has the duty. That ends when its time is over or when it drops the duty.
        """
        return await self._call(lambda ledger: ledger.take_duty(name, holder, ttl=ttl))

    async def timeline(
        self, job_id: int, *, since: datetime | None = None, until: datetime | None = None, width: int = 1200
    ) -> Timeline:
        """Return what a drawing of a job's history needs, bounded however long the history is.

        `since` and `until` choose a part of it. Up to 2,000 heartbeats are given one by one. More are counted by bins, at most
        `width`.
        """
        return await self._call(lambda ledger: ledger.timeline(job_id, since=since, until=until, width=width))

    async def tokens(self, *, after: str = "", limit: int = core_limits.PAGE_MAX) -> builtins.list[TokenRecord]:
        """Return tokens by id, also revoked and expired ones. For the next page, pass the last id of this one as `after`."""
        return await self._call(lambda ledger: ledger.tokens(after=after, limit=limit))

    async def touch_session(self, secret: str) -> None:
        """Record that a session is used, which moves its end. This writes at most once a minute for each session."""
        await self._call(lambda ledger: ledger.touch_session(secret))

    async def touch_token(self, token_id: str) -> None:
        """Record that a token is used. This writes at most once an hour for each token."""
        await self._call(lambda ledger: ledger.touch_token(token_id))

    async def unanswered(self, worker: str, *, incarnation: str | None = None) -> builtins.list[HeldJob]:
        """Return the jobs, with their fences, that `worker` holds by claims with `keep=False` that got no answer.

        No lease is renewed. Only claims made through this `Ledger` object are looked for, for at most a minute: after the
        connection has broken, the server may still be executing the claim. Each job is returned once.
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
        """Record that the operator no longer assists the job."""
        return await self._call(
            lambda ledger: ledger.unassist(job_id, reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)
        )

    async def undo_steps(self, job_id: int) -> builtins.list[dict[str, Any]]:
        """Return the undo steps that a job has registered, oldest first, each with its kind and args. They run newest first."""
        return await self._call(lambda ledger: ledger.undo_steps(job_id))

    async def unpause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Let jobs be claimed from a paused queue again."""
        await self._call(lambda ledger: ledger.unpause(queue, request_id=request_id, actor=actor))

    async def unset_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        declared: bool = False,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> None:
        """Remove all fields that were set for a kind or a tier.

        With `declared`, remove instead the declaration of the kind's handler. Use this for a kind that has no handler any more.
        """
        await self._call(
            lambda ledger: ledger.unset_policy(kind, tier=tier, declared=declared, request_id=request_id, actor=actor)
        )

    async def until_ready(
        self,
        queues: Sequence[str] = ("default",),
        *,
        kinds: Sequence[str] | None = None,
        worker: str | None = None,
        labels: Sequence[str] = (),
    ) -> float | None:
        """Return the seconds of ledger time until the first delayed job of these queues can be claimed, or None if there is none.

        This is for a worker that has just claimed and got nothing. Jobs that were never delayed, paused queues and jobs that wait
        for dependencies are not considered. 0.0 means that a job can be claimed now. Another worker may claim it first. `worker`
        and `labels` are those of the claim. They matter in queues with limits, partitions or labels.
        """
        return await self._call(lambda ledger: ledger.until_ready(queues, kinds=kinds, worker=worker, labels=labels))

    async def wait(self, job: Job[R] | int, *, timeout: float | None = None) -> Job[R]:
        """Wait until a job has succeeded, failed, or was dead-lettered or cancelled, and return it.

        The job is given as an object or by its id. After `timeout` seconds, return the job unfinished: check its `status`.
        `result` raises an error instead.
        """
        return await self._wait(lambda ledger: ledger.wait(job, timeout=timeout))

    async def wait_group(self, name: str, *, timeout: float | None = None) -> GroupRecord:
        """Wait until a group is closed, all its jobs have ended and its follow-up job is made, and return it.

        A follow-up job that is not due, or was refused, is not waited for: see `then_job` and `last_error`.
        After `timeout` seconds, return it as it is: check its `done`. By default, wait without a limit.
        """
        return await self._wait(lambda ledger: ledger.wait_group(name, timeout=timeout))

    async def wants_sweeping(self, holder: str) -> bool:
        """Return whether `holder` should take the sweep duty: there are jobs to watch, and no other holder has the duty.

        This costs one statement.
        """
        return await self._call(lambda ledger: ledger.wants_sweeping(holder))

    async def workers(self, *, seen_within: Any = None, limit: int = core_limits.PAGE_MAX) -> builtins.list[WorkerRecord]:
        """Return the workers that have signed in and not out, by name.

        `seen_within` restricts them to those seen recently. If there are more than `limit`, the most recently seen are returned.
        """
        return await self._call(lambda ledger: ledger.workers(seen_within=seen_within, limit=limit))
