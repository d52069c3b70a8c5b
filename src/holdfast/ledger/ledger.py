"""Ledger: the verbs. Each admits its input, sends one call through the door and dresses the answer."""

import builtins
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits, payloads, vocabulary
from holdfast.core import policy as policies
from holdfast.core.audit import Violation, check_history
from holdfast.core.evolve import evolve
from holdfast.core.lifecycle import enqueued
from holdfast.core.model import SYSTEM, Actor, EventType, FailureStage, Fence, Micros, ReasonCode, Role
from holdfast.core.model import Job as Record
from holdfast.errors import HoldfastError, NotFound, ValidationError
from holdfast.ledger import admit
from holdfast.ledger.carry import Carrier
from holdfast.ledger.door import Call
from holdfast.ledger.execute import repeats
from holdfast.ledger.face import Beat, Change, Event, Job, public_event, to_datetime
from holdfast.ledger.sweep import Entropy, Sweeper
from holdfast.store.base import Change as StoreChange
from holdfast.store.base import EventFilter, JobFilter, Made, Session, Store, Waiter, chunks, default_correlation

JobOrFence = int | Fence


class Ledger:
    """The durable record of jobs and events, and the only thing that changes them. Safe to use from many threads.

    Made by `holdfast.open`. Verbs that change something take `request_id=` (send the same one again after a lost answer) and
    `actor=` (who is asking); verbs on one job take `expected_rev=`.
    """

    def __init__(self, store: Store, entropy: Entropy, monotonic: Callable[[], float], *, actor: str, incarnation: str) -> None:
        self._store = store
        self._entropy = entropy
        self._actor = actor
        self._carrier = Carrier(store)
        self._sweeper = Sweeper(store, self._carrier, entropy, monotonic)
        self._enqueues = admit.Enqueues()
        self.incarnation = incarnation
        """Drawn when the ledger was opened: workers of this process are told apart from their namesakes by it."""

    @property
    def id(self) -> str:
        """The name drawn for this ledger when it was created."""
        return self._store.ledger_id

    def close(self) -> None:
        self._store.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.id}>"

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Making jobs

    def enqueue(
        self,
        kind: str,
        args: Mapping[str, Any] | None = None,
        *,
        queue: str = "default",
        request_id: str | None = None,
        actor: str | Actor | None = None,
        connection: Any = None,
        **options: Any,
    ) -> Job:
        """A new job, or the live one that has its `dedupe_key`.

        Options: priority, delay or available_at, dedupe_key, dedupe ("live" or "forever"), tier, correlation_id, trace_id,
        policy (a mapping). With `connection`, inside the caller's own open transaction: visible when that commits.
        """
        item = {"kind": kind, "args": args, "queue": queue, **options}
        return self._enqueue([item], request_id, actor, connection)[0]

    def enqueue_many(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        connection: Any = None,
    ) -> list[Job]:
        """Many new jobs in one transaction: all or none. Each item has the options of `enqueue`."""
        return self._enqueue(items, request_id, actor, connection)

    def _enqueue(
        self, items: Iterable[Mapping[str, Any]], request_id: str | None, actor: str | Actor | None, connection: Any
    ) -> list[Job]:
        who, request = admit.actor(actor, Role.CLIENT, self._actor), admit.request_id(request_id)
        items = admit.items("enqueue_many", items)
        limits.check_count("enqueue", len(items), limits.ENQUEUE_BATCH_MAX)
        commands = self._enqueues.commands(who, request, items)
        if not commands:
            return []
        body = admit.body_hash([(c.payload, c.correlation_id, c.trace_id) for c in commands]) if request else b""
        call = Call("enqueue", commands, repeat=request is not None, keep=request is not None, body_hash=body)
        answers = self._carrier.go(call) if connection is None else self._carrier.within(connection, call)
        fold = self._as_enqueued
        return [
            Job(answer.job_id, None, (fold, answer, command)) if type(answer) is Made else self._found(answer)
            for answer, command in zip(answers, commands, strict=True)
        ]

    def _found(self, answer: Any) -> Job:
        if isinstance(answer, HoldfastError):
            raise answer
        return Job(answer.job.id, answer.job, is_new=answer.is_new)

    def _as_enqueued(self, made: Made, command: c.Enqueue) -> Record:
        correlation = command.correlation_id or default_correlation(self.id, made.job_id)
        return evolve(None, enqueued(made.job_id, command, made.at, correlation))

    def replay(
        self,
        job_id: int,
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A new job that repeats a failed, cancelled or dead-lettered one; the same one again while it lives."""
        command = c.Replay(
            actor=admit.actor(actor, Role.OPERATOR, self._actor),
            request_id=admit.request_id(request_id) or self._entropy.nonce(),
            job_id=admit.job_id(job_id),
            expected_rev=admit.rev(expected_rev),
        )
        body = admit.body_hash("replay", job_id, expected_rev)
        found = self._carrier.one(Call("replay", [command], repeat=request_id is not None, keep=True, body_hash=body))
        return Job(found.job.id, found.job, is_new=found.is_new)

    # Claiming

    def claim(
        self,
        worker: str,
        queues: Sequence[str] = ("default",),
        *,
        limit: int = 1,
        start: bool = False,
        kinds: Sequence[str] | None = None,
        incarnation: str | None = None,
        request_id: str | None = None,
    ) -> list[Job]:
        """Up to `limit` jobs that are ready, each with its fence: queues in the order given, then priority, age, id.

        With `start`, each is also started, in the same statement. Nothing ready is an empty list.
        """
        command = c.ClaimNext(
            actor=admit.worker(worker, self.incarnation if incarnation is None else incarnation),
            request_id=admit.request_id(request_id) or self._entropy.nonce(),
            queues=admit.names("queues", queues),
            limit=limits.check_integer("limit", limit, 1, limits.CLAIM_BATCH_MAX),
            kinds=None if kinds is None else admit.names("kinds", kinds),
            start=admit.switch("start", start),
            token=self._entropy.token(),
        )
        body = admit.body_hash("claim", command.queues, limit, command.kinds, start)
        found = self._carrier.one(Call("claim", [command], repeat=request_id is not None, keep=True, body_hash=body))
        return [_held(job) for job in found]

    def claim_job(
        self,
        job_id: int,
        worker: str,
        *,
        ttl: Any = None,
        incarnation: str | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """One job by id: queued, stalled past its window, or one's own (then the lease is renewed). `ttl` sets its length."""
        command = c.ClaimJob(
            actor=admit.worker(worker, self.incarnation if incarnation is None else incarnation),
            request_id=admit.request_id(request_id) or self._entropy.nonce(),
            job_id=admit.job_id(job_id),
            expected_rev=admit.rev(expected_rev),
            token=self._entropy.token(),
            fresh_since=self._sweeper.fresh_since,
            ttl_ms=None if ttl is None else policies.duration_ms("ttl", ttl, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
        )
        body = admit.body_hash("claim_job", job_id, command.ttl_ms, expected_rev)
        record = self._carrier.one(Call("claim_job", [command], repeat=request_id is not None, keep=True, body_hash=body))
        return _held(record)

    # A holder's verbs

    def start(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Change:
        """User code begins."""
        command = c.Start(**self._holder(fence, request_id, expected_rev))
        return _changed(self._carrier.one(self._quick("start", [command], request_id)))

    def heartbeat(
        self,
        fence: Fence,
        *,
        stage: str | None = None,
        progress: int | None = None,
        assist_requested: bool | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Beat:
        """Proof of life: renews the lease and tells whether somebody wants the job cancelled."""
        beat = admit.beat(stage, progress, assist_requested)
        command = c.Heartbeat(beat=beat, **self._holder(fence, request_id, expected_rev, draw=False))
        return _beat(self._carrier.one(self._quick("heartbeat", [command], request_id)))

    def heartbeat_many(self, fences: Iterable[Fence]) -> list[Beat | HoldfastError]:
        """Beats for many leases, in chunks of 1,000. One answer each; a refused one does not hurt the others."""
        actors = _Actors()
        commands = [
            c.Heartbeat(actor=actors[fence.worker], job_id=fence.job_id, fence=fence, beat=payloads.NO_BEAT)
            for fence in map(admit.fence, admit.items("heartbeat_many", fences))
        ]
        return self._many("heartbeat", commands, None, _beat)

    def complete(
        self, fence: Fence, result: Any = None, *, request_id: str | None = None, expected_rev: int | None = None
    ) -> Change:
        """Done. `result` is any JSON value."""
        body = payloads.result_payload(admit.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        command = c.Complete(payload=body, **self._holder(fence, request_id, expected_rev))
        return _changed(self._carrier.one(self._quick("complete", [command], request_id)))

    def complete_many(
        self, results: Iterable[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> list[Change | HoldfastError]:
        """Many completions, in chunks of 1,000. One answer each; a refused one does not hurt the others."""
        drawn = admit.request_id(request_id) or self._entropy.nonce()
        commands, actors = [], _Actors()
        for fence, result in admit.pairs("complete_many", results):
            body = admit.json_value("result", result, limits.PAYLOAD_BYTES_MAX)
            commands.append(
                c.Complete(
                    actor=actors[fence.worker],
                    request_id=drawn,
                    job_id=fence.job_id,
                    fence=fence,
                    payload=payloads.result_payload(body),
                )
            )
        return self._many("complete", commands, request_id, _changed)

    def fail(
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
        failed, or dead-lettered where a `reason_code` says why no retry will mend it."""
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, admit.DELAY_MS_MAX)
        command = c.Fail(
            error=admit.error_value(error),
            retryable=admit.switch("retryable", retryable),
            reason_code=None if reason_code is None else admit.choice("reason_code", ReasonCode, reason_code),
            failure_stage=None if failure_stage is None else admit.choice("failure_stage", FailureStage, failure_stage),
            retry_after_us=None if after is None else after * 1_000,
            jitter=self._entropy.jitter(),
            **self._holder(fence, request_id, expected_rev),
        )
        body = (command.error, retryable, reason_code, failure_stage, after)
        return self._on_job("fail", command, request_id, body)

    def release(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Job:
        """Hand the job back in order: it is ready for others at once, and the attempt does not count."""
        return self._on_job("release", c.Release(**self._holder(fence, request_id, expected_rev)), request_id)

    def acknowledge_cancel(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Job:
        """The safe exit is made: an aborting job becomes cancelled."""
        command = c.AcknowledgeCancel(**self._holder(fence, request_id, expected_rev))
        return self._on_job("acknowledge_cancel", command, request_id)

    # Liveness

    def stall(
        self,
        job: JobOrFence,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """By fence: the holder cannot go on. By id: the system calls the holder dead, past the limit only."""
        who = self._target(job, request_id, expected_rev, actor)
        command = c.Stall(reason=admit.stall_reason(reason), fresh_since=self._sweeper.fresh_since, **who)
        return self._on_job("stall", command, request_id, (reason,))

    def resume(
        self,
        job: JobOrFence,
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """By fence: the last holder is back. By id: the system, after a beat that came after the stall."""
        return self._on_job("resume", c.Resume(**self._target(job, request_id, expected_rev, actor)), request_id)

    def requeue(
        self,
        job_id: int,
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A stalled job may be claimed again after its backoff; one without attempts left is exhausted instead."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.SYSTEM)
        return self._on_job("requeue", c.Requeue(jitter=self._entropy.jitter(), **who), request_id)

    def assist(
        self,
        job_id: int,
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """An operator helps a running job."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR)
        return self._on_job("assist", c.Assist(on=True, **who), request_id)

    def unassist(
        self,
        job_id: int,
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """The operator steps back."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR)
        return self._on_job("unassist", c.Assist(on=False, **who), request_id)

    # Ending jobs from outside

    def cancel(
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
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        return self._on_job(
            "cancel", c.Cancel(hard=admit.switch("hard", hard), reason=admit.reason(reason), **who), request_id, (hard, reason)
        )

    def dead_letter(
        self,
        job_id: int,
        *,
        reason_code: ReasonCode | str,
        failure_stage: FailureStage | str = FailureStage.EXEC,
        error: Any = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Take a live job out of circulation, for a person or a tool to look at."""
        command = c.DeadLetter(
            reason_code=admit.choice("reason_code", ReasonCode, reason_code),
            failure_stage=admit.choice("failure_stage", FailureStage, failure_stage),
            error=None if error is None else admit.error_value(error),
            **self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR),
        )
        body = (command.reason_code, command.failure_stage, command.error)
        return self._on_job("dead_letter", command, request_id, body)

    def discard(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Note on a finished job that nobody needs to look at it any more."""
        return self.annotate(job_id, "discarded", reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)

    def annotate(
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
        if note not in ("discarded", "compensated", "compensation_failed"):
            raise ValidationError("note must be discarded, compensated or compensation_failed", field="note")
        command = c.Annotate(
            note=EventType(note),  # type: ignore[arg-type]
            reason=None if reason is None else admit.reason(reason),
            **self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR),
        )
        return self._on_job("annotate", command, request_id, (note, reason))

    # Queues, policies, retention

    def pause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        """Nothing more is claimed from the queue. Holders are not touched."""
        self._set_paused(queue, True, request_id, actor)

    def unpause(self, queue: str, *, request_id: str | None = None, actor: str | Actor | None = None) -> None:
        self._set_paused(queue, False, request_id, actor)

    def _set_paused(self, queue: str, paused: bool, request_id: str | None, actor: str | Actor | None) -> None:
        limits.check_name("queue", queue)
        verb = "pause" if paused else "unpause"
        self._set(verb, (queue,), request_id, actor, lambda session: session.set_paused(queue, paused))
        if not paused:
            self._store.wake([queue])

    def _set(
        self,
        verb: str,
        body: tuple[Any, ...],
        request_id: str | None,
        actor: str | Actor | None,
        work: Callable[[Session], None],
    ) -> None:
        """A change of the ledger's own settings: no job, no event; a request id is honoured all the same."""
        who, request = admit.actor(actor, Role.OPERATOR, self._actor), admit.request_id(request_id)

        def once(session: Session) -> None:
            if request is None or not repeats(session, who, request, verb, admit.body_hash(verb, *body)):
                work(session)

        self._carrier.alone(once)

    def paused(self) -> dict[str, datetime]:
        """The paused queues and since when."""
        found = self._store.read(lambda session: session.queues())
        return {name: to_datetime(at) for name, at in found if at is not None}

    def set_policy(
        self,
        kind: str | None = None,
        *,
        tier: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **fields: Any,
    ) -> None:
        """Set a kind's or a tier's policy as a whole, for leases issued from now on. Durations: seconds, "30s", timedelta."""
        if (kind is None) == (tier is None):
            raise ValidationError("set_policy takes a kind or a tier", field="kind")
        layer = policies.settings(fields)
        scope: Literal["kind", "tier"] = "tier" if kind is None else "kind"
        name = limits.check_name(scope, tier if kind is None else kind)
        body = (scope, name, layer)
        self._set("set_policy", body, request_id, actor, lambda session: session.set_settings(scope, name, layer))

    def sweep(self, *, limit: int = 1_000) -> dict[str, int]:
        """One liveness tick: everything that is due for up to `limit` jobs. Answers how many of each event that made."""
        return self._sweeper.tick(limit)

    def prune(self, *, jobs_before: datetime | None = None, beats_before: datetime | None = None,
              requests_before: datetime | None = None, batch: int = 1_000) -> dict[str, int]:  # fmt: skip
        """One bounded step of retention: finished jobs, contents of beats and kept answers older than the given times."""
        limits.check_integer("batch", batch, 1, limits.PRUNE_BATCH_MAX)
        wanted = {"jobs": jobs_before, "beats": beats_before, "requests": requests_before}
        before = {name: admit.moment(f"{name}_before", at) for name, at in wanted.items() if at is not None}

        def work(session: Session) -> dict[str, int]:
            steps: dict[str, Callable[[Micros, int], int]] = {
                "jobs": session.prune_jobs,
                "beats": session.prune_beats,
                "requests": session.prune_requests,
            }
            return {name: steps[name](at, batch) for name, at in before.items()}

        return self._carrier.alone(work)

    # Reading

    def get(self, job_id: int) -> Job:
        admit.job_id(job_id)
        found = self._store.read(lambda session: session.load([job_id], lock=False)).get(job_id)
        if found is None:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        return _shown(found)

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        queue: str | None = None,
        kind: str | None = None,
        correlation_id: str | None = None,
        replay_of: int | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> builtins.list[Job]:
        """Jobs by ascending id. The next page is `after=` the last id of this one."""
        chosen = JobFilter(
            statuses=admit.statuses(status),
            queue=None if queue is None else limits.check_name("queue", queue),
            kind=None if kind is None else limits.check_name("kind", kind),
            correlation_id=None if correlation_id is None else limits.check_key("correlation_id", correlation_id),
            replay_of=None if replay_of is None else admit.job_id(replay_of),
            after=limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
            limit=limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
        )
        return [_shown(job) for job in self._store.read(lambda session: session.jobs(chosen))]

    def events(
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
        try:
            kinds = None if types is None else tuple(vocabulary.event_type(name).value for name in types)
        except (ValueError, TypeError):
            raise ValidationError(f"types must be among {', '.join(EventType)}", field="types") from None
        chosen = EventFilter(
            job_id=None if job_id is None else admit.job_id(job_id),
            types=kinds,
            since=None if since is None else admit.moment("since", since),
            until=None if until is None else admit.moment("until", until),
            correlation_id=None if correlation_id is None else limits.check_key("correlation_id", correlation_id),
            after=limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
            limit=limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
        )
        return [public_event(event) for event in self._store.read(lambda session: session.events(chosen))]

    def counts(self) -> dict[str, dict[str, int]]:
        """How many jobs of each status there are, by queue."""
        found: dict[str, dict[str, int]] = {}
        for queue, status, count in self._store.read(lambda session: session.counts()):
            found.setdefault(queue, {})[status] = count
        return found

    def check(self, job_id: int) -> builtins.list[Violation]:
        """Everything wrong with a job's history and row: an empty list."""
        admit.job_id(job_id)

        def work(session: Session) -> Any:
            row = session.load([job_id], lock=False).get(job_id)
            return row, session.events(EventFilter(job_id=job_id, limit=1_000_000))

        try:
            row, events = self._store.read(work)
            if row is None and not events:
                raise NotFound(f"there is no job {job_id}", job_id=job_id)
            found = check_history(events, row)
        except (LookupError, ValueError, msgspec.MsgspecError) as error:
            return [Violation(job_id, 0, "unreadable", f"a value nobody but a stranger can have written: {error!r}")]
        return found if row is not None else [*found, Violation(job_id, 0, "row", "there is no row with a first event")]

    def follow(self, after: int = 0, *, timeout: float | None = None) -> Generator[Event, None, None]:
        """Every event after a position, in the total order, as they come; none that commits late is missed.

        Ends when nothing has come for `timeout` seconds; never, by default. Go on later from the last event's `pos`.
        """
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        if timeout is not None:
            policies.duration_ms("timeout", timeout, 0, policies.DAY_MS)
        return self._follow(after, timeout)

    def _follow(self, after: int, timeout: float | None) -> Generator[Event, None, None]:
        waiter = self._store.waiter(events=True)
        try:
            while True:
                found = self._store.settled_events(after, limits.PAGE_MAX)
                yield from map(public_event, found)
                if found:
                    after = found[-1].pos
                elif not self._changed_within(waiter, after, timeout):
                    return
        finally:
            waiter.close()

    def _changed_within(self, waiter: Waiter, after: int, timeout: float | None) -> bool:
        """Wait for events after a position; False when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                return False
            waiter.wait(left)
            if self._store.settled_events(after, 1):
                return True

    def waiter(self) -> Waiter:
        """Something to wait on for new work: `wait(timeout)`. Make it before looking for work, so that none is missed."""
        return self._store.waiter(events=False)

    # Shared steps

    def _holder(self, fence: Any, request_id: Any, expected_rev: Any, *, draw: bool = True) -> dict[str, Any]:
        fence = admit.fence(fence)
        request = admit.request_id(request_id)
        return {
            "actor": Actor(Role.WORKER, fence.worker),
            "request_id": request if request is not None or not draw else self._entropy.nonce(),
            "job_id": fence.job_id,
            "fence": fence,
            "expected_rev": admit.rev(expected_rev),
        }

    def _outside(self, job_id: Any, request_id: Any, expected_rev: Any, actor: Any, role: Role) -> dict[str, Any]:
        fallback = SYSTEM.name if role is Role.SYSTEM else self._actor
        return {
            "actor": admit.actor(actor, role, fallback),
            "request_id": admit.request_id(request_id) or self._entropy.nonce(),
            "job_id": admit.job_id(job_id),
            "expected_rev": admit.rev(expected_rev),
        }

    def _target(self, job: JobOrFence, request_id: Any, expected_rev: Any, actor: Any) -> dict[str, Any]:
        if isinstance(job, Fence):
            return self._holder(job, request_id, expected_rev)
        return self._outside(job, request_id, expected_rev, actor, Role.SYSTEM)

    def _quick(self, verb: str, commands: Sequence[Any], request_id: str | None) -> Call:
        """A call of a hot verb: its answer is kept only where the caller may ask for it again by a name of its own."""
        named = request_id is not None
        body = admit.body_hash(verb, [_body(command) for command in commands]) if named else b""
        return Call(verb, commands, repeat=named, keep=named, body_hash=body)

    def _many(
        self, verb: str, commands: Sequence[Any], request_id: str | None, dress: Callable[[Any], Any]
    ) -> builtins.list[Any]:
        limits.check_count(verb, len(commands), limits.WRITE_BATCH_MAX)
        answers: builtins.list[Any] = []
        for number, part in enumerate(chunks(commands, limits.WRITE_CHUNK)):
            call = self._quick(verb, part, request_id)
            call.chunk = number
            answers += self._carrier.go(call)
        return [answer if isinstance(answer, HoldfastError) else dress(answer) for answer in answers]

    def _on_job(self, verb: str, command: c.JobCommand, request_id: str | None, body: tuple[Any, ...] = ()) -> Job:
        fence = getattr(command, "fence", None)
        hashed = admit.body_hash(verb, command.job_id, command.expected_rev, fence and (fence.attempt, fence.token), body)
        call = Call(verb, [command], repeat=request_id is not None, keep=True, body_hash=hashed)
        return _shown(self._carrier.one(call))


class _Actors(dict[str, Actor]):
    """Workers by name, made once for a batch."""

    def __missing__(self, name: str) -> Actor:
        actor = self[name] = Actor(Role.WORKER, name)
        return actor


def _body(command: Any) -> Any:
    rest = getattr(command, "payload", None) or getattr(command, "beat", None)
    return command.job_id, command.fence.attempt, command.fence.token, command.expected_rev, rest


def _shown(record: Record) -> Job:
    """Without the fence's secret: only its claimer is told."""
    return Job(record.id, msgspec.structs.replace(record, token=None) if record.token is not None else record)


def _held(record: Record) -> Job:
    fence = None
    if record.token is not None and record.owner is not None:
        fence = Fence(record.id, record.attempt, record.token, record.owner)
    return Job(record.id, msgspec.structs.replace(record, token=None), fence=fence)


def _changed(change: StoreChange) -> Change:
    return Change(change.job_id, change.rev, change.status, to_datetime(change.at))


def _beat(change: StoreChange) -> Beat:
    lease = None if change.lease_expires_at is None else to_datetime(change.lease_expires_at)
    return Beat(change.job_id, change.rev, change.status, lease, change.cancel_requested)
