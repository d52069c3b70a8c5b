"""A model of the ledger: a few dictionaries and the functions of the core, without SQL, transactions or files.

It has the verbs of `Ledger`, for valid input, and returns what a caller would get. Rows, events, answers and refusals of
the stores are compared with it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.core import commands as c
from holdfast.core import payloads, strict_json
from holdfast.core import policy as policies
from holdfast.core.decide import decide, enqueued_event, replay_command
from holdfast.core.dependencies import DependencyState, failure_command, unblock_command
from holdfast.core.evolve import evolve
from holdfast.core.fence_tokens import issue_token
from holdfast.core.limits import ERROR_BYTES_MAX, PAYLOAD_BYTES_MAX, UNDO_BATCH_MAX
from holdfast.core.model import (
    HELD,
    LIVE,
    SYSTEM,
    TERMINAL,
    Actor,
    EventRecord,
    EventType,
    FailureStage,
    Fence,
    JobRecord,
    Micros,
    Phase,
    Policy,
    ReasonCode,
    Role,
    StallReason,
    Status,
)
from holdfast.core.undo import has_undo_due, undo_command, undo_key, undo_note
from holdfast.core.windows import Outcome, change_command, outcome_of
from holdfast.errors import Conflict, HoldfastError, IdempotencyConflict, NotClaimable, NotFound
from holdfast.ledger.dependencies import in_order

T = TypeVar("T")

STEP_US = 2_000_000
"""A larger difference between the clocks is a step."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> Micros:
    return (moment - EPOCH) // timedelta(microseconds=1)


class Draws:
    """One source of random numbers for several ledgers: within a step all ledgers draw the same."""

    def __init__(self) -> None:
        self.step = 0

    def token(self) -> str:
        return hashlib.sha256(f"token {self.step}".encode()).hexdigest()[:32]

    def nonce(self) -> str:
        return f"nonce-{self.step}"

    def secret(self) -> bytes:
        return hashlib.sha256(f"secret {self.step}".encode()).digest()

    def jitter(self) -> float:
        return 0.5 + (self.step * 37 % 101) / 101


class Seen(NamedTuple):
    """A job in an answer."""

    job: JobRecord
    fence: Fence | None = None
    is_new: bool = True


class Changed(NamedTuple):
    """The answer to a start or a completion."""

    job_id: int
    rev: int
    status: Status
    at: Micros


class BeatAnswer(NamedTuple):
    """The answer to a beat."""

    job_id: int
    rev: int
    status: Status
    lease_expires_at: Micros | None
    cancel_requested: bool


@dataclass(frozen=True)
class StoredAnswer:
    """An answered request."""

    body: Any
    answers: list[Any]
    at: Micros


@dataclass
class Model:
    """All state of a ledger. `ledger_id` is part of correlation ids that no caller gave."""

    now: Callable[[], Micros]
    passed: Callable[[], float]
    """Seconds, by a clock that never steps."""
    draws: Draws
    ledger_id: str
    actor: str = "client"
    incarnation: str = "nonce-0"
    jobs: dict[int, JobRecord] = field(default_factory=dict)
    history: dict[int, list[EventRecord]] = field(default_factory=dict)
    requests: dict[tuple[str, str], StoredAnswer] = field(default_factory=dict)
    paused_at: dict[str, Micros] = field(default_factory=dict)
    by_kind: dict[str, policies.Settings] = field(default_factory=dict)
    by_tier: dict[str, policies.Settings] = field(default_factory=dict)
    last_id: int = 0
    swept_at: tuple[Micros, float] | None = None
    fresh_since: Micros | None = None
    edges: dict[int, set[int]] = field(default_factory=dict)
    """The dependencies of each job."""
    lost: set[int] = field(default_factory=set)
    """Jobs that no longer have their dedupe key, because another call took it or their window was over when one wanted it."""
    stripped: set[int] = field(default_factory=set)
    """Jobs of which a beat has been pruned."""

    # Requests

    def _once(self, actor: str, request_id: str | None, body: Any, work: Callable[[], list[Any]]) -> list[Any]:
        """Run a call, or return its stored answer. Refusals and empty claims are not stored."""
        kept = None if request_id is None else self.requests.get((actor, request_id))
        if kept is not None:
            if kept.body != body:
                raise IdempotencyConflict("another body")
            return [self._again(answer) for answer in kept.answers]
        answers = work()
        if request_id is not None and any(not isinstance(answer, HoldfastError) for answer in answers):
            self.requests[actor, request_id] = StoredAnswer(body, answers, self.now())
        return answers

    def _again(self, answer: Any) -> Any:
        """A repeated answer: the same, except for a fence that is no longer valid."""
        if answer is None:
            return None
        if isinstance(answer, HoldfastError):
            return type(answer)(answer.message)
        if not isinstance(answer, Seen):
            return answer if answer.job_id in self.jobs else IdempotencyConflict("pruned")
        if answer.job.id not in self.jobs:
            return IdempotencyConflict("pruned")
        job = answer.job
        if job.is_waiting:
            # Its events show that it waited, but not for which of its dependencies.
            answer = answer._replace(job=msgspec.structs.replace(job, waits_for=job.depends_on))
        return answer if self._holds(answer.fence) else answer._replace(fence=None)

    def _holds(self, fence: Fence | None) -> bool:
        job = None if fence is None else self.jobs.get(fence.job_id)
        return job is not None and fence is not None and job.token == fence.token and job.status in HELD

    def _one(self, actor: str, request_id: str | None, body: Any, work: Callable[[], T]) -> T:
        def alone() -> list[Any]:
            return [work()]

        answer = self._once(actor, request_id, body, alone)[0]
        if isinstance(answer, HoldfastError):
            raise answer
        found: T = answer
        return found

    # Enqueueing

    def enqueue(self, kind: str, args: Any = None, *, request_id: Any = None, actor: Any = None, **options: Any) -> Seen:
        return self._enqueue([{"kind": kind, "args": args, **options}], request_id, actor)[0]

    def enqueue_many(self, items: Sequence[Mapping[str, Any]], *, request_id: Any = None, actor: Any = None) -> list[Seen]:
        return self._enqueue(items, request_id, actor) if items else []

    def _enqueue(self, items: Sequence[Mapping[str, Any]], request_id: str | None, actor: str | None) -> list[Seen]:
        who = Actor(Role.CLIENT, actor or self.actor)
        commands = _enqueue_commands(who, request_id, items)
        said = [(command.payload, command.correlation_id, command.trace_id, command.after) for command in commands]
        answers = self._once(who.name, request_id, ("enqueue", said), lambda: self._all_or_none(commands))
        for answer in answers:
            if isinstance(answer, HoldfastError):
                raise answer
        return answers

    def _all_or_none(self, commands: Sequence[c.EnqueueLinked]) -> list[Seen]:
        """Enqueue the jobs of one call. If one of them is refused, nothing has changed."""
        before = dict(self.jobs), {id_: list(events) for id_, events in self.history.items()}, self.last_id, set(self.lost)
        try:
            return self._make_all(commands)
        except HoldfastError:
            self.jobs, self.history, self.last_id, self.lost = before
            raise

    def _make_all(self, commands: Sequence[c.EnqueueLinked]) -> list[Seen]:
        """Enqueue the jobs of one call, then apply the state of their dependencies."""
        for command in commands:
            if command.replay_of is None and any(id_ not in self.jobs for id_ in command.depends_on):
                raise NotFound("no such job")
        ids = [self.last_id + number for number in range(1, len(commands) + 1)]
        self.last_id += len(commands)
        on = {place: {self._newest(id_) for id_ in command.depends_on} for place, command in enumerate(commands)}
        made: dict[int, int] = {}
        for place in in_order(commands):
            holder = self._key_holder(commands[place])
            if holder is not None:
                ids[place] = holder.id
            else:
                made[place] = self._make(ids[place], commands[place], [ids[other] for other in commands[place].after])
        self.jobs = dict(sorted(self.jobs.items()))
        for place, job_id in made.items():
            inside = {self._newest(ids[other]) for other in commands[place].after}
            self.edges[job_id] = {id_ for id_ in on[place] | inside if id_ in self.jobs}
        self._apply_dependencies(sorted(made.values()), commands[0])
        return [Seen(self.jobs[id_], is_new=place in made) for place, id_ in enumerate(ids)]

    def _make(self, job_id: int, command: c.EnqueueLinked, inside: list[int]) -> int:
        if inside:
            body = payloads.decode(payloads.EnqueuedPayload, command.payload)
            body = msgspec.structs.replace(body, depends_on=tuple(sorted({*command.depends_on, *inside})))
            command = msgspec.structs.replace(command, payload=body.encode())
        event = enqueued_event(job_id, command, self.now(), command.correlation_id or f"{self.ledger_id}-{job_id}")
        self.jobs[job_id] = evolve(None, event)
        self.history[job_id] = [event]
        return job_id

    # Dependencies

    def _newest(self, job_id: int) -> int:
        """The job itself, or its newest replay if it did not succeed."""
        job = self.jobs.get(job_id)
        again = [other.id for other in self.jobs.values() if other.replay_of == job_id]
        if job is None or job.status not in TERMINAL - {Status.SUCCEEDED} or not again:
            return job_id
        return self._newest(max(again))

    def _unmet(self, job_id: int) -> tuple[int, ...]:
        left = [on for on in self.edges.get(job_id, ()) if on in self.jobs and self.jobs[on].status is not Status.SUCCEEDED]
        return tuple(sorted(left))

    def _apply_dependencies(self, new: list[int], command: c.Enqueue) -> None:
        """Unblock new jobs without open dependencies. End those with a failed dependency, then their dependents."""
        due = [job_id for job_id in new if self.jobs[job_id].is_waiting]
        lost = {job_id: [on for on in self._unmet(job_id) if self.jobs[on].status in TERMINAL] for job_id in due}
        free = {job_id for job_id in due if not self._unmet(job_id)}
        over: list[int] = []
        for job_id in due:
            if job_id in free:
                self._decide(unblock_command(job_id, None, command.request_id))
            elif lost[job_id] and command.replay_of is None:
                asked = self._consequence(job_id, lost[job_id][0], command.request_id)
                over += self._ended_by(asked)
        self._cascade(over, command.request_id)
        self._refresh()

    def _dependency_state(self, job_id: int) -> DependencyState:
        return DependencyState(job_id, self.jobs[job_id].status, self.jobs[job_id].rev)

    def _consequence(self, job_id: int, ended: int, request_id: str | None) -> c.JobCommand | None:
        """The command for a job whose dependency has ended, or None."""
        if self.jobs[ended].status is not Status.SUCCEEDED:
            return failure_command(self.jobs[job_id], self._dependency_state(ended), request_id)
        return None if self._unmet(job_id) else unblock_command(job_id, self._dependency_state(ended), request_id)

    def _cascade(self, ended: list[int], request_id: str | None) -> None:
        """Update the dependents of ended jobs, and then the dependents of those that ended with them."""
        over = list(ended)
        for gone in over:
            for job_id in sorted(job.id for job in self.jobs.values() if job.is_waiting and gone in self.edges[job.id]):
                over += self._ended_by(self._consequence(job_id, gone, request_id))

    def _ended_by(self, command: c.JobCommand | None) -> list[int]:
        """Run a command, and return its job if that ended it."""
        if command is None:
            return []
        outcome = decide(self.jobs[command.job_id], command, self.now())
        self.jobs[command.job_id] = outcome.job
        self.history[command.job_id] += outcome.events
        return [command.job_id] if outcome.job.status in TERMINAL else []

    def _refresh(self) -> None:
        """Set `waits_for` in the rows."""
        for job in list(self.jobs.values()):
            if job.is_waiting:
                self.jobs[job.id] = msgspec.structs.replace(job, waits_for=self._unmet(job.id))

    def _move_dependents(self, from_id: int, to_id: int) -> None:
        for job in self.jobs.values():
            if job.is_waiting and from_id in self.edges[job.id]:
                self.edges[job.id] = self.edges[job.id] - {from_id} | {to_id}
        self._refresh()

    def _key_holder(self, command: c.Enqueue) -> JobRecord | None:
        """The job that has the key of a call, changed as the call says. None if the call makes a job of its own."""
        while (holder := self._find_key(command.queue, command.dedupe_key)) is not None:
            outcome = outcome_of(holder, command, self.now())
            if outcome is Outcome.CHANGE:
                self._decide(change_command(holder.id, command))
            if outcome is not Outcome.TAKE:
                return self.jobs[holder.id]
            self.lost.add(holder.id)
        return None

    def _find_key(self, queue: str, key: str | None) -> JobRecord | None:
        for job in self.jobs.values():
            if key is None or (job.queue, job.dedupe_key) != (queue, key) or job.id in self.lost:
                continue
            if job.dedupe_forever or job.status in LIVE:
                return job
            if job.dedupe_until is not None and self.now() < job.dedupe_until:
                return job
            self.lost.add(job.id)
        return None

    def replay(
        self, job_id: int, *, reason: str | None = None, request_id: Any = None, actor: Any = None, expected_rev: Any = None
    ) -> Seen:
        who = actor if isinstance(actor, Actor) else Actor(Role.OPERATOR, actor or self.actor)
        request = request_id or self.draws.nonce()
        command = c.Replay(actor=who, request_id=request, job_id=job_id, expected_rev=expected_rev, reason=reason)
        return self._one(who.name, request_id, ("replay", job_id, expected_rev, reason), lambda: self._replay(command))

    def _replay(self, command: c.Replay, before: int | None = None) -> Seen:
        job = self.jobs.get(command.job_id)
        if job is None:
            raise NotFound("no such job", job_id=command.job_id)
        if command.expected_rev not in (None, job.rev):
            raise Conflict("another rev", expected_rev=command.expected_rev, **job.held_by)
        fresh = replay_command(job, command)
        living = [other for other in self.jobs.values() if other.replay_of == job.id and other.status in LIVE]
        if living:
            return Seen(living[0], is_new=False)
        if before is not None:
            return Seen(self.jobs[before], is_new=False)
        if job.dedupe_until is not None:
            self.lost.add(job.id)
        made = self._make_all([fresh if isinstance(fresh, c.EnqueueLinked) else _linked(fresh)])[0]
        if not made.is_new:
            raise Conflict("the key is held", holder=made.job.id, rev=job.rev)
        self._move_dependents(job.id, made.job.id)
        return Seen(self.jobs[made.job.id])

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
    ) -> list[Seen]:
        who = Actor(Role.WORKER, worker, incarnation or self.incarnation)
        request = request_id or self.draws.nonce()
        wanted = tuple(dict.fromkeys(queues))
        body = ("claim", wanted, limit, None if kinds is None else tuple(dict.fromkeys(kinds)), start)
        kept = None if request_id is None else self.requests.get((who.name, request_id))
        if kept is not None and kept.body == body:
            held = [answer.fence for answer in kept.answers if self._holds(answer.fence)]
            return [Seen(self.jobs[fence.job_id], fence) for fence in held]
        return self._once(who.name, request_id, body, lambda: self._claim(who, request, wanted, limit, kinds, start))

    def _claim(
        self, who: Actor, request: str, queues: Sequence[str], limit: int, kinds: Sequence[str] | None, start: bool
    ) -> list[Seen]:
        """Claim one by one, in order, and skip jobs that could not be claimed by id."""
        token = issue_token(self.draws.token(), who.name)
        held: list[Seen] = []
        for job in self._in_order(queues, kinds):
            fence = Fence(job.id, job.attempt + 1, token, who.name)
            claim = c.ClaimJob(actor=who, request_id=request, job_id=job.id, token=token, policy=self.policy_of(job))
            if len(held) < limit and not isinstance(_refusal(partial(self._decide, claim)), NotClaimable):
                if start:
                    self._decide(c.Start(actor=who, request_id=request, job_id=job.id, fence=fence))
                held.append(Seen(self.jobs[job.id], fence))
        return held

    def _in_order(self, queues: Sequence[str], kinds: Sequence[str] | None) -> list[JobRecord]:
        """Queues in the given order, higher priority, earlier time, lower id."""
        found = [
            job
            for job in self.jobs.values()
            if job.status is Status.QUEUED
            and job.queue in queues
            and job.queue not in self.paused_at
            and (kinds is None or job.kind in kinds)
        ]
        return sorted(found, key=lambda job: (queues.index(job.queue), -job.priority, job.available_at, job.id))

    def policy_of(self, job: JobRecord) -> Policy:
        """The policy of a lease that is issued now."""
        by_job = policies.NO_SETTINGS if job.override is None else msgspec.json.decode(job.override, type=policies.Settings)
        by_kind = self.by_kind.get(job.kind, policies.NO_SETTINGS)
        by_tier = self.by_tier.get(job.tier or "", policies.NO_SETTINGS)
        return policies.resolve(job.tier, by_kind, by_tier, by_job)

    def claim_job(
        self,
        job_id: int,
        worker: str,
        *,
        ttl: Any = None,
        incarnation: str | None = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Seen:
        ttl_ms = None if ttl is None else policies.duration_ms("ttl", ttl, 1_000, 3_600_000)
        job = self.jobs.get(job_id)
        command = c.ClaimJob(
            actor=Actor(Role.WORKER, worker, incarnation or self.incarnation),
            request_id=request_id or self.draws.nonce(),
            job_id=job_id,
            expected_rev=expected_rev,
            token=issue_token(self.draws.token(), worker),
            ttl_ms=ttl_ms,
            policy=None if job is None else self.policy_of(job),
            paused=job is not None and job.queue in self.paused_at,
            fresh_since=self.fresh_since,
        )
        body = ("claim_job", job_id, ttl_ms, expected_rev)
        return self._one(worker, request_id, body, lambda: _held(self._decide(command)))

    # A holder's verbs

    def start(self, fence: Fence, *, request_id: str | None = None, expected_rev: int | None = None) -> Changed:
        command = c.Start(**self._holder(fence, request_id, expected_rev))
        body = ("start", _said(fence), expected_rev)
        return self._one(fence.worker, request_id, body, lambda: self._settle(command))

    def heartbeat(
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
    ) -> BeatAnswer:
        beat = payloads.BeatPayload(
            stage=stage,
            progress=progress,
            assist_requested=assist_requested,
            checkpoint=checkpoint if checkpoint is payloads.UNSET else msgspec.Raw(_json(checkpoint)),
            undo=payloads.UNSET if undo is None else payloads.UndoStep(undo["kind"], msgspec.Raw(_json(undo.get("args", {})))),
        )
        # A beat without contents has no request id unless one is given.
        plain = beat.checkpoint is payloads.UNSET and beat.undo is payloads.UNSET
        holder = self._holder(fence, request_id, expected_rev)
        command = c.Heartbeat(beat=beat, **holder | ({"request_id": request_id} if plain else {}))
        body = ("heartbeat", _said(fence), expected_rev, beat)
        return self._one(fence.worker, request_id, body, lambda: _beaten(self._decide(command)))

    def heartbeat_many(self, fences: Iterable[Fence]) -> list[BeatAnswer | HoldfastError]:
        return [_refusal(partial(self.heartbeat, fence)) for fence in fences]

    def complete(
        self, fence: Fence, result: Any = None, *, request_id: str | None = None, expected_rev: int | None = None
    ) -> Changed:
        command = _complete(result, self._holder(fence, request_id, expected_rev))
        body = ("complete", [(_said(fence), expected_rev, command.payload)])
        return self._one(fence.worker, request_id, body, lambda: self._settle(command))

    def complete_many(
        self, results: Sequence[tuple[Fence, Any]], *, request_id: str | None = None
    ) -> list[Changed | HoldfastError]:
        """One call: its request id belongs to the worker of the first fence, and every event has it."""
        if not results:
            return []
        commands = [_complete(result, self._holder(fence, request_id, None)) for fence, result in results]
        body = ("complete", [(_said(command.fence), None, command.payload) for command in commands])

        def work() -> list[Any]:
            return [_refusal(partial(self._settle, command)) for command in commands]

        try:
            return self._once(commands[0].actor.name, request_id, body, work)
        except IdempotencyConflict as conflict:
            return [conflict] * len(commands)

    def _settle(self, command: c.Start | c.Complete) -> Changed:
        """Decide. If that is refused because the same request was already accepted, return its answer."""
        try:
            return _changed(self._decide(command))
        except HoldfastError:
            mine = [e for e in self.history.get(command.job_id, []) if e.request_id == command.request_id]
            if not mine or mine[-1].actor.name != command.actor.name:
                raise
        event = mine[-1]
        if isinstance(command, c.Complete):
            same = event.type is EventType.SUCCEEDED and event.payload == command.payload
        else:
            same = event.type in (EventType.STARTED, EventType.RESUMED)
        if not same:
            raise IdempotencyConflict("another body")
        return Changed(event.job_id, event.rev, event.to_status, event.received_at)

    def fail(
        self,
        fence: Fence,
        error: Any,
        *,
        retryable: bool = True,
        reason_code: str | None = None,
        failure_stage: str | None = None,
        retry_after: Any = None,
        request_id: str | None = None,
        expected_rev: int | None = None,
    ) -> Seen:
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, 10**12) * 1_000
        command = c.Fail(
            error=_error(error),
            retryable=retryable,
            reason_code=None if reason_code is None else ReasonCode(reason_code),
            failure_stage=None if failure_stage is None else FailureStage(failure_stage),
            retry_after_us=after,
            jitter=self.draws.jitter(),
            **self._holder(fence, request_id, expected_rev),
        )
        return self._on_job("fail", command, request_id, (command.error, retryable, reason_code, failure_stage, after))

    def release(self, fence: Fence, *, reason: str | None = None, request_id: Any = None, expected_rev: Any = None) -> Seen:
        command = c.Release(reason=reason, **self._holder(fence, request_id, expected_rev))
        return self._on_job("release", command, request_id, (reason,))

    def acknowledge_cancel(
        self, fence: Fence, *, reason: str | None = None, request_id: Any = None, expected_rev: Any = None
    ) -> Seen:
        command = c.AcknowledgeCancel(reason=reason, **self._holder(fence, request_id, expected_rev))
        return self._on_job("acknowledge_cancel", command, request_id, (reason,))

    # Verbs of other actors

    def stall(
        self,
        job: int | Fence,
        *,
        reason: str | None = None,
        error: Any = None,
        reason_code: str | None = None,
        failure_stage: str | None = None,
        **rest: Any,
    ) -> Seen:
        command = c.Stall(
            reason=None if reason is None else StallReason(reason),
            error=None if error is None else _error(error),
            reason_code=None if reason_code is None else ReasonCode(reason_code),
            failure_stage=None if failure_stage is None else FailureStage(failure_stage),
            fresh_since=self.fresh_since,
            **self._target(job, **rest),
        )
        return self._on_job("stall", command, rest.get("request_id"), (reason, command.error, reason_code, failure_stage))

    def resume(self, job: int | Fence, *, reason: str | None = None, **rest: Any) -> Seen:
        command = c.Resume(reason=reason, **self._target(job, **rest))
        return self._on_job("resume", command, rest.get("request_id"), (reason,))

    def requeue(self, job_id: int, *, reason: str | None = None, **rest: Any) -> Seen:
        command = c.Requeue(reason=reason, jitter=self.draws.jitter(), **self._outside(job_id, Role.SYSTEM, **rest))
        return self._on_job("requeue", command, rest.get("request_id"), (reason,))

    def assist(self, job_id: int, *, reason: str | None = None, **rest: Any) -> Seen:
        command = c.Assist(on=True, reason=reason, **self._outside(job_id, Role.OPERATOR, **rest))
        return self._on_job("assist", command, rest.get("request_id"), (reason,))

    def unassist(self, job_id: int, *, reason: str | None = None, **rest: Any) -> Seen:
        command = c.Assist(on=False, reason=reason, **self._outside(job_id, Role.OPERATOR, **rest))
        return self._on_job("unassist", command, rest.get("request_id"), (reason,))

    def cancel(self, job_id: int, *, hard: bool = False, reason: str = "requested", **rest: Any) -> Seen:
        command = c.Cancel(hard=hard, reason=reason, **self._outside(job_id, Role.CLIENT, **rest))
        return self._on_job("cancel", command, rest.get("request_id"), (hard, reason))

    def move(
        self, job_id: int, queue: str | None = None, *, for_worker: str | None = None, reason: str | None = None, **rest: Any
    ) -> Seen:
        command = c.MoveJob(queue=queue, for_worker=for_worker, reason=reason, **self._outside(job_id, Role.CLIENT, **rest))

        def work() -> Seen:
            job = self.jobs.get(job_id)
            has_key = job is not None and job.dedupe_key is not None and self._find_key(job.queue, job.dedupe_key) is job
            holder = self._find_key(queue, job.dedupe_key) if job is not None and has_key and queue is not None else None
            return Seen(self._decide(msgspec.structs.replace(command, key_holder=None if holder is None else holder.id)))

        said = ("move", command.job_id, command.expected_rev, None, (queue, for_worker, reason))
        return self._one(command.actor.name, rest.get("request_id"), said, work)

    def reprioritise(self, job_id: int, priority: int, *, reason: str | None = None, **rest: Any) -> Seen:
        command = c.Reprioritise(priority=priority, reason=reason, **self._outside(job_id, Role.CLIENT, **rest))
        return self._on_job("reprioritise", command, rest.get("request_id"), (priority, reason))

    def reschedule(self, job_id: int, *, delay: float = 0, reason: str | None = None, **rest: Any) -> Seen:
        us = round(delay * 1_000_000)
        command = c.Reschedule(delay_us=us, reason=reason, **self._outside(job_id, Role.CLIENT, **rest))
        return self._on_job("reschedule", command, rest.get("request_id"), (us, reason))

    def dead_letter(
        self, job_id: int, *, reason_code: str, failure_stage: str | None = None, error: Any = None, **rest: Any
    ) -> Seen:
        command = c.DeadLetter(
            reason_code=ReasonCode(reason_code),
            failure_stage=None if failure_stage is None else FailureStage(failure_stage),
            error=None if error is None else _error(error),
            **self._outside(job_id, Role.OPERATOR, **rest),
        )
        return self._on_job("dead_letter", command, rest.get("request_id"), (reason_code, failure_stage, command.error))

    def discard(self, job_id: int, *, reason: str | None = None, **rest: Any) -> Seen:
        return self.annotate(job_id, "discarded", reason=reason, **rest)

    def annotate(self, job_id: int, note: str, *, reason: str | None = None, **rest: Any) -> Seen:
        who = self._outside(job_id, Role.OPERATOR, **rest)
        command = c.Annotate(note=EventType(note), reason=reason, **who)  # type: ignore[arg-type]
        return self._on_job("annotate", command, rest.get("request_id"), (note, reason))

    def pause(self, queue: str, **rest: Any) -> None:
        self._set(("pause", queue), lambda: self.paused_at.update({queue: self.now()}), **rest)

    def unpause(self, queue: str, **rest: Any) -> None:
        self._set(("unpause", queue), lambda: self.paused_at.pop(queue, None), **rest)

    def set_policy(
        self, kind: str | None = None, *, tier: str | None = None, request_id: Any = None, actor: Any = None, **fields: Any
    ) -> None:
        layers, name = (self.by_kind, kind) if kind is not None else (self.by_tier, tier or "")
        changes = policies.read_fields(fields)

        def work() -> None:
            layers[name] = policies.change_settings(layers.get(name, policies.NO_SETTINGS), changes)

        self._set(("set_policy", kind, tier, changes), work, request_id, actor)

    def _set(self, body: Any, work: Callable[[], Any], request_id: str | None = None, actor: str | None = None) -> None:
        def once() -> None:
            work()

        self._one(actor or self.actor, request_id, body, once)

    def sweep(self, *, limit: int = 1_000) -> dict[str, int]:
        """Do what is due for at most `limit` jobs. Return the number of events of each type."""
        self._notice_steps()
        swept, made = 0, Counter[str]()
        for job_id in sorted(self.jobs):
            before = len(self.history[job_id])
            if self.jobs[job_id].status in LIVE and swept < limit:
                self._decide(
                    c.Sweep(
                        actor=SYSTEM,
                        request_id=self.draws.nonce(),
                        job_id=job_id,
                        jitter=self.draws.jitter(),
                        fresh_since=self.fresh_since,
                    )
                )
                made.update(event.type.value for event in self.history[job_id][before:])
                swept += len(self.history[job_id]) > before
        for job in self._owing()[: min(limit, UNDO_BATCH_MAX)]:
            made[self._compensate(job)] += 1
        return dict(made)

    def undo_job(self, job: JobRecord) -> JobRecord | None:
        return next((other for other in self.jobs.values() if other.dedupe_key == undo_key(job.id)), None)

    def _owing(self) -> list[JobRecord]:
        """Jobs with steps to undo and without a live undo job."""
        found = [(job, self.undo_job(job)) for job in self.jobs.values() if has_undo_due(job)]
        return sorted((job for job, undo in found if undo is None or undo.status not in LIVE), key=lambda job: job.id)

    def _compensate(self, job: JobRecord) -> str:
        """Do what is due for the undo steps of a job, and return its event type."""
        command = c.Compensate(actor=SYSTEM, request_id=self.draws.nonce(), job_id=job.id)
        undo = self.undo_job(job)
        if undo is None:
            beats = [event.payload for event in self.history[job.id] if event.type is EventType.HEARTBEAT and event.payload]
            steps = [step for step in map(payloads.undo_step, beats) if step is not None]
            self._make_all([_linked(undo_command(job, steps, command, self.now()))])
            return "enqueued"
        note = undo_note(undo, command)
        assert note is not None
        self._decide(note)
        return note.note.value

    # Dead letters

    def dead_letters(self, *, queue: str | None = None, reason_code: str | None = None, limit: int = 100) -> list[JobRecord]:
        found = [
            job
            for job in self.jobs.values()
            if job.status is Status.DEAD_LETTERED
            and queue in (None, job.queue)
            and reason_code in (None, job.reason_code)
            and all(event.type is not EventType.DISCARDED for event in self.history[job.id])
        ]
        return sorted(found, key=lambda job: job.id)[:limit]

    def on_jobs(
        self,
        verb: str,
        ids: list[int],
        *,
        again: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Seen | HoldfastError]:
        """Replay jobs."""
        assert verb == "replay"
        who = actor if isinstance(actor, Actor) else Actor(Role.OPERATOR, actor or self.actor)
        request = request_id or self.draws.nonce()

        def work() -> list[Any]:
            before = {} if again else {id_: replay for id_ in ids if (replay := self._replayed(id_)) is not None}
            commands = [c.Replay(actor=who, request_id=request, job_id=id_, reason=reason, again=again) for id_ in ids]
            return [_refusal(partial(self._replay, command, before.get(command.job_id))) for command in commands]

        try:
            return self._once(who.name, request_id, (verb, ids, reason, again), work)
        except IdempotencyConflict as error:
            return [error] * len(ids)

    def _replayed(self, job_id: int) -> int | None:
        """The newest replay that counts of a job that has been replayed."""
        replays = [job for job in self.jobs.values() if job.replay_of == job_id]
        in_vain = (Status.FAILED, Status.CANCELLED)
        found = [self._replayed(job.id) if job.status in in_vain else job.id for job in replays]
        return max((id_ for id_ in found if id_ is not None), default=None)

    def _notice_steps(self) -> None:
        """If the clock has stepped since the last sweep, every holder gets a fresh interval."""
        now, passed = self.now(), self.passed()
        if self.swept_at is not None:
            before, then = self.swept_at
            if abs((now - before) - (passed - then) * 1_000_000) > STEP_US:
                self.fresh_since = now
        self.swept_at = (now, passed)

    def prune(
        self,
        *,
        jobs_before: datetime | None = None,
        failed_before: datetime | None = None,
        beats_before: datetime | None = None,
        requests_before: datetime | None = None,
        batch: int = 1_000,
    ) -> dict[str, int]:
        """Delete everything in one batch."""
        done = {}
        if jobs_before is not None:
            done["jobs"] = self._prune_jobs(micros(jobs_before), is_open=False)
        if failed_before is not None:
            done["failed"] = self._prune_jobs(micros(failed_before), is_open=True)
        if beats_before is not None:
            done["beats"] = sum(self._prune_beats(events, micros(beats_before)) for events in self.history.values())
        if requests_before is not None:
            old = [key for key, kept in self.requests.items() if kept.at < micros(requests_before)]
            done["requests"] = len(old)
            for key in old:
                del self.requests[key]
        return done

    def _is_replayed(self, job: JobRecord) -> bool:
        """A replay that failed or was cancelled does not count, unless it was replayed itself."""
        return any(
            other.replay_of == job.id and (other.status not in (Status.FAILED, Status.CANCELLED) or self._is_replayed(other))
            for other in self.jobs.values()
        )

    def _is_open(self, job: JobRecord) -> bool:
        """Whether it failed or was dead-lettered, and is neither discarded nor replayed."""
        is_discarded = any(event.type is EventType.DISCARDED for event in self.history[job.id])
        return job.status in (Status.FAILED, Status.DEAD_LETTERED) and not is_discarded and not self._is_replayed(job)

    def _prune_jobs(self, before: Micros, *, is_open: bool) -> int:
        are_open = {job.id for job in self.jobs.values() if self._is_open(job)}
        owed = {undo_key(job.id) for job in self.jobs.values() if has_undo_due(job)}
        awaited = {on for job in self.jobs.values() for on in job.waits_for}
        old = [
            job.id
            for job in self.jobs.values()
            if job.status in TERMINAL
            and (job.finished_at or 0) < before
            and job.undo_owed == 0
            and job.dedupe_key not in owed
            and (job.dedupe_until is None or job.dedupe_until <= self.now())
            and job.id not in awaited
            and (job.id in are_open) is is_open
        ]
        for job_id in sorted(old):
            job = self.jobs[job_id]
            first = self.jobs.get(job.replay_of or 0)
            is_failed = first is not None and first.status in (Status.FAILED, Status.DEAD_LETTERED)
            if first and is_failed and first.id not in old and job.status is not Status.CANCELLED:
                old.remove(job_id)
        for job_id in old:
            del self.jobs[job_id], self.history[job_id]
            self.edges.pop(job_id, None)
        return len(old)

    def _prune_beats(self, events: list[EventRecord], before: Micros) -> int:
        """Prune the contents of all beats except the last one, the newest checkpoint and undo steps."""
        beats = [place for place, event in enumerate(events) if event.type is EventType.HEARTBEAT]
        marked = [place for place in beats if payloads.checkpoint_of(events[place].payload) is not None]
        done = 0
        for place in beats[:-1]:
            event = events[place]
            if event.payload is None or place in marked[-1:] or payloads.undo_step(event.payload) is not None:
                continue
            if event.received_at < before and b'"pruned"' not in event.payload:
                digest = payloads.BeatPayload(pruned=hashlib.sha256(event.payload).hexdigest())
                events[place] = msgspec.structs.replace(event, payload=digest.encode())
                self.stripped.add(event.job_id)
                done += 1
        return done

    # Shared steps

    def _decide(self, command: c.JobCommand) -> JobRecord:
        outcome = decide(self.jobs.get(command.job_id), command, self.now())
        if outcome.events:
            self.jobs[command.job_id] = outcome.job
            self.history[command.job_id] += outcome.events
            if outcome.job.status in TERMINAL and not isinstance(command, c.Annotate):
                self._cascade([command.job_id], command.request_id)
                self._refresh()
        return outcome.job

    def _on_job(self, verb: str, command: c.JobCommand, request_id: str | None, body: tuple[Any, ...] = ()) -> Seen:
        fence: Fence | None = getattr(command, "fence", None)
        said = (verb, command.job_id, command.expected_rev, fence and _said(fence), body)
        return self._one(command.actor.name, request_id, said, lambda: Seen(self._decide(command)))

    def _holder(self, fence: Fence, request_id: str | None = None, expected_rev: int | None = None) -> dict[str, Any]:
        return {
            "actor": Actor(Role.WORKER, fence.worker),
            "request_id": request_id or self.draws.nonce(),
            "job_id": fence.job_id,
            "fence": fence,
            "expected_rev": expected_rev,
        }

    def _outside(
        self,
        job_id: int,
        role: Role,
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> dict[str, Any]:
        fallback = SYSTEM.name if role is Role.SYSTEM else self.actor
        return {
            "actor": actor if isinstance(actor, Actor) else Actor(role, actor or fallback),
            "request_id": request_id or self.draws.nonce(),
            "job_id": job_id,
            "expected_rev": expected_rev,
        }

    def _target(self, job: int | Fence, **rest: Any) -> dict[str, Any]:
        if isinstance(job, Fence):
            return self._holder(job, rest.get("request_id"), rest.get("expected_rev"))
        return self._outside(job, Role.SYSTEM, **rest)


def _enqueue_commands(who: Actor, request_id: str | None, items: Sequence[Mapping[str, Any]]) -> list[c.EnqueueLinked]:
    places = {item["ref"]: place for place, item in enumerate(items) if "ref" in item}
    return [_enqueue_command(who, request_id, places, **item) for item in items]


def _linked(command: c.Enqueue) -> c.EnqueueLinked:
    return c.EnqueueLinked(**{name: getattr(command, name) for name in c.Enqueue.__struct_fields__})


def _enqueue_command(
    who: Actor, request_id: str | None, places: Mapping[str, int], kind: str, args: Any = None, **options: Any
) -> c.EnqueueLinked:
    body = b"{}" if args is None else _json(args)
    layer = policies.read_settings(dict(options.get("policy") or {}))
    override = None if layer == policies.NO_SETTINGS else msgspec.json.encode(layer)
    available_at = options.get("available_at")
    shared = {
        "queue": options.get("queue", "default"),
        "kind": kind,
        "priority": options.get("priority", 0),
        "available_at": None if available_at is None else micros(available_at),
        "delay_us": policies.duration_ms("delay", options.get("delay") or 0, 0, 10**12) * 1_000,
        "dedupe_key": options.get("dedupe_key"),
        "dedupe_forever": options.get("dedupe") == "forever",
        "dedupe_for_us": round(options.get("dedupe_for", 0) * 1_000_000),
        "on_duplicate": options.get("on_duplicate", "keep"),
        "postpone_max_us": round(options.get("postpone_max", 0) * 1_000_000),
        "tier": options.get("tier"),
    }
    policy = payloads.UNSET if override is None else msgspec.Raw(override)
    on = options.get("depends_on") or []
    depends_on = tuple(sorted({int(one) for one in on if not isinstance(one, str)}))
    choice = {
        "depends_on": depends_on,
        "on_dependency_failure": options.get("on_dependency_failure", "dead_letter"),
    }
    payload = payloads.EnqueuedPayload(args=msgspec.Raw(body), policy=policy, **shared, **choice)
    return c.EnqueueLinked(
        depends_on=depends_on,
        after=tuple(sorted({places[one] for one in on if isinstance(one, str)})),
        actor=who,
        request_id=request_id,
        payload=payload.encode(),
        override=override,
        correlation_id=options.get("correlation_id"),
        trace_id=options.get("trace_id"),
        **shared,
    )


def _json(value: Any) -> bytes:
    return bytes(value) if isinstance(value, msgspec.Raw) else strict_json.encode("value", value, PAYLOAD_BYTES_MAX)


def _error(error: Any) -> bytes:
    return strict_json.encode("error", {"message": error} if isinstance(error, str) else error, ERROR_BYTES_MAX)


def _complete(result: Any, holder: dict[str, Any]) -> c.Complete:
    return c.Complete(payload=payloads.SucceededPayload(result=msgspec.Raw(_json(result))).encode(), **holder)


def _said(fence: Fence) -> tuple[int, int, str]:
    return fence.job_id, fence.attempt, fence.token


def _held(job: JobRecord) -> Seen:
    assert job.owner is not None and job.token is not None
    return Seen(job, Fence(job.id, job.attempt, job.token, job.owner))


def _changed(job: JobRecord) -> Changed:
    return Changed(job.id, job.rev, job.status, job.updated_at)


def _beaten(job: JobRecord) -> BeatAnswer:
    return BeatAnswer(job.id, job.rev, job.status, job.lease_expires_at, job.phase is Phase.ABORTING)


def _refusal(work: Callable[[], T]) -> T | HoldfastError:
    """Return a refusal as an answer of a batch."""
    try:
        return work()
    except HoldfastError as error:
        return error
