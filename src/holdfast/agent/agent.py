"""The verbs of an agent. Each verb is one transaction and is safe to repeat with the same request id."""

import builtins
import time
from collections.abc import Callable, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Self, TypeVar

import msgspec

from holdfast.agent.brief import Brief, build_brief, get_task, with_token_count
from holdfast.agent.refusals import DEFAULT_SESSION, RefusedRequest, Suggestions, explain_refusal
from holdfast.agent.selection import ResumeOptions, claim_and_start, explain_idle, select_task
from holdfast.agent.tasks import Collected, Task, contents_of, task_of
from holdfast.core import limits, payloads
from holdfast.core import policy as policies
from holdfast.core.commands import Objection
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import HELD, EventType, FailureStage, JobRecord, ReasonCode
from holdfast.errors import FenceLost, HoldfastError, SignatureInvalid
from holdfast.ledger import Ledger, validate
from holdfast.ledger.transaction import FailureReport, JobSteps
from holdfast.ledger.validators import Submission, held_by
from holdfast.store.agents import AgentState


def release_expired(steps: JobSteps, limit: int) -> Collected:
    """Release up to `limit` expired claims. Skip jobs that are due for other reasons or that this process cannot sign."""
    released: list[int] = []
    after, more = 0, True
    while more and len(released) < limit:
        due = steps.session.due(after, limit - len(released)).ids
        more = len(due) == limit - len(released)
        locked = steps.session.try_lock(due)
        jobs = steps.session.load([id_ for id_ in due if id_ not in locked], lock=False) if due else {}
        released += [id_ for id_ in due if id_ in jobs and jobs[id_].status in HELD and _release_one(steps, id_)]
        after = due[-1] if due else after
    return Collected(released, more)


def _release_one(steps: JobSteps, job_id: int) -> bool:
    try:
        return EventType.STALLED in steps.sweep(job_id)
    except SignatureInvalid:
        return False


AFTER_EXPIRY = timedelta(milliseconds=1)
"""Added to an expiry time, because a claim is still valid at that time."""
RETRY_SECONDS = 1.0
"""When to retry a task that is due but cannot be claimed: another transaction has locked it, or no attempt is left."""


def wait_for_task(ledger: Ledger, resume: Callable[[], Brief], seconds: float) -> Brief:
    """Call `resume` until it returns a brief with a task, or until the time is over. Return the last brief."""
    deadline = time.monotonic() + seconds
    waiter = ledger.waiter()
    try:
        while True:
            brief = resume()
            left = deadline - time.monotonic()
            if brief.task is not None or left <= 0:
                return brief
            waiter.wait(min(left, _seconds_until_due(ledger, brief, left)))
    finally:
        waiter.close()


def _seconds_until_due(ledger: Ledger, brief: Brief, most: float) -> float:
    """Return the seconds until the next task is due or a claim of another agent ends, `most` if there is neither.

    Of the claims, only those of the 1,000 oldest tasks count.
    """
    held = brief.nothing is not None and brief.nothing.held > 0
    claims = [job.claim_expires_at for job in ledger.list(status=["claimed", "running"], limit=PAGE_MAX)] if held else []
    now = ledger.now()
    waits = [(at + AFTER_EXPIRY - now).total_seconds() for at in (brief.until, *claims) if at is not None]
    return min((seconds if seconds > 0 else RETRY_SECONDS for seconds in waits), default=most)


A = TypeVar("A", bound=msgspec.Struct)


class Agent:
    """One agent of a ledger. All processes with the same name and session are the same agent and share its tasks.

    No verb needs a fence: the ledger finds it by the agent's name and session. `attempt` fences off an older process of the
    same session: it must be the task's attempt, else the verb raises fence_lost. A `request_id` makes a verb safe to send again.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        *,
        session: str = DEFAULT_SESSION,
        suggestions: Suggestions | None = None,
        known_attempt: Callable[[int], int | None] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        """`suggestions` words the suggested actions of refusals; as shell commands by default. `labels` are what the agent has,
        for tasks that require labels.

        `known_attempt` returns the attempt of a task that this process holds, if it remembers one. It fences verbs that are
        called without `attempt`. It is not part of the request, so a request that is sent again stays the same even if the
        process has forgotten the attempt.
        """
        self._ledger = ledger
        self._suggestions = suggestions or Suggestions()
        self._known_attempt = known_attempt
        limits.check_name("agent", name)
        limits.check_name("session", session)
        self._who = validate.worker(name, session)
        self.labels = validate.labels("labels", labels, limits.LABELS_PER_WORKER_MAX)

    @property
    def name(self) -> str:
        return self._who.name

    @property
    def session(self) -> str:
        return self._who.incarnation

    def with_labels(self, labels: Sequence[str]) -> Self:
        """Return this agent with these labels besides its own."""
        found = copy(self)
        more = validate.labels("labels", labels, limits.LABELS_PER_WORKER_MAX)
        found.labels = validate.labels("labels", (*self.labels, *more), limits.LABELS_PER_WORKER_MAX)
        return found

    def _transact(
        self,
        verb: str,
        body: tuple[Any, ...],
        work: Callable[[JobSteps], A],
        answer: type[A],
        request_id: str | None,
        attempt: int | None = None,
    ) -> A:
        """Run `work` in one transaction. Explain a refusal to the agent from the task's state in that transaction."""

        def work_or_explain(steps: JobSteps) -> A:
            try:
                return work(steps)
            except HoldfastError as error:
                raise explain_refusal(
                    error, steps.session, RefusedRequest(self._who, self._suggestions, attempt)
                ) from error.__cause__

        acted = self._ledger.step_transactions.run(
            verb, self._who, (self.session, *body), work_or_explain, request_id=request_id, labels=self.labels
        )
        decoded = msgspec.json.decode(acted.answer, type=answer)
        return msgspec.structs.replace(decoded, replayed=True) if acted.replayed else decoded

    def _end_attempt(
        self,
        verb: str,
        id_: int,
        attempt: int | None,
        body: tuple[Any, ...],
        step: Callable[[JobSteps, JobRecord], JobRecord],
        request_id: str | None,
        *,
        forget_last: bool = False,
    ) -> Task:
        """Run a verb that ends this agent's hold on the task. The task is no longer its focus.

        With `forget_last` it is no longer its last task either.
        """
        id_, attempt = validate.job_id(id_), validate.attempt(attempt)
        fencing = self._expected_attempt(id_, attempt)

        def work(steps: JobSteps) -> Task:
            state = steps.session.find_agent(self.name, self.session)
            done = step(steps, self._load_held(steps, id_, fencing))
            new_state = state._replace(
                focus=None if state.focus == id_ else state.focus,
                last=None if forget_last and state.last == id_ else state.last,
            )
            if new_state != state:
                self._save_state(steps, new_state)
            return task_of(done)

        return self._transact(verb, (id_, attempt, *body), work, Task, request_id, fencing)

    def _expected_attempt(self, id_: int, attempt: int | None) -> int | None:
        """Return the attempt that a verb applies to: the given one, else the one that this process remembers."""
        return self._known_attempt(id_) if attempt is None and self._known_attempt is not None else attempt

    def _load_held(self, steps: JobSteps, id_: int, attempt: int | None) -> JobRecord:
        self._check_attempt(steps, id_, attempt)
        return steps.job(id_)

    def _check_attempt(self, steps: JobSteps, id_: int, attempt: int | None) -> None:
        """Raise FenceLost if the task is at another attempt: an older process of this session may still be running."""
        if attempt is None:
            return
        job = steps.job(id_)
        if job.attempt != attempt:
            raise FenceLost(f"job {id_} is at attempt {job.attempt}, not {attempt}", **job.held_by)

    def _save_state(self, steps: JobSteps, state: AgentState) -> None:
        steps.session.save_agent(self.name, self.session, state)

    # The verbs

    def start(self, id: int, *, ttl: Any = None, attempt: int | None = None, request_id: str | None = None) -> Task:  # noqa: A002
        """Claim and start the task, and make it the focus.

        This succeeds if the task is free, if this agent holds it (its claim is renewed), or if a claim on it has expired,
        this agent's own included (a new attempt). Otherwise it raises lease_conflict with the holder and the end of its claim.
        The claim lasts for `ttl`. Without `ttl`, a new claim lasts five minutes and a renewed one as long as before.
        """
        id, attempt, ttl_ms = validate.job_id(id), validate.attempt(attempt), _ttl_ms(ttl)  # noqa: A001

        def work(steps: JobSteps) -> Task:
            state = steps.session.find_agent(self.name, self.session)
            self._check_attempt(steps, id, attempt)
            done = claim_and_start(steps, id, ttl_ms)
            self._save_state(steps, state._replace(focus=id, last=id))
            return task_of(done, contents_of(done))

        return self._transact("task_start", (id, attempt, ttl_ms), work, Task, request_id, attempt)

    def heartbeat(
        self,
        id: int,  # noqa: A002
        *,
        stage: str | None = None,
        progress: int | None = None,
        checkpoint: Any = payloads.UNSET,
        attempt: int | None = None,
        request_id: str | None = None,
    ) -> Task:
        """Renew the claim. `checkpoint` is any JSON value for the process that continues the task."""
        beat = validate.beat(stage, progress, None, checkpoint)
        checkpoint_json = payloads.json_bytes(beat.checkpoint)
        id, attempt = validate.job_id(id), validate.attempt(attempt)  # noqa: A001
        body = (id, attempt, stage, progress, None if checkpoint_json is None else checkpoint_json.decode())
        fencing = self._expected_attempt(id, attempt)

        def work(steps: JobSteps) -> Task:
            return task_of(steps.beat(self._load_held(steps, id, fencing), beat))

        return self._transact("task_heartbeat", body, work, Task, request_id, fencing)

    def complete(self, id: int, result: Any = None, *, attempt: int | None = None, request_id: str | None = None) -> Task:  # noqa: A002
        """Complete the task. `result` is any JSON value.

        If a validator objects, raise refused_by_validator; the task stays running.
        """
        payload = payloads.result_payload(validate.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        objection = self._objection(validate.job_id(id), payload)

        def step(steps: JobSteps, job: JobRecord) -> JobRecord:
            return steps.complete(job, payload, objection)

        return self._end_attempt("task_complete", id, attempt, (payload.decode(),), step, request_id)

    def _objection(self, id_: int, payload: bytes) -> Objection | None:
        validation = self._ledger.validation
        if validation is None:
            return None
        [objection] = validation.objections([Submission(id_, payload, held_by(self._who))])
        return objection

    def fail(
        self,
        id: int,  # noqa: A002
        error: Any,
        *,
        retryable: bool = True,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        retry_after: Any = None,
        attempt: int | None = None,
        request_id: str | None = None,
    ) -> Task:
        """Fail the attempt, as `Ledger.fail` does. The task is retried while attempts are left, unless `retryable` is false."""
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, validate.DELAY_MS_MAX)
        failure = FailureReport(
            validate.error_value(error),
            validate.switch("retryable", retryable),
            None if reason_code is None else validate.choice("reason_code", ReasonCode, reason_code),
            None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage),
            None if after is None else after * 1_000,
        )
        body = (failure.error.decode(), *failure[1:])
        return self._end_attempt("task_fail", id, attempt, body, lambda steps, job: steps.fail(job, failure), request_id)

    def release(
        self,
        id: int,  # noqa: A002
        *,
        reason: str | None = None,
        attempt: int | None = None,
        request_id: str | None = None,
    ) -> Task:
        """Hand the task back. Another agent can claim it at once, and the attempt does not count.

        `resume` selects it again only when it is next in order.
        """
        why = validate.reason_if_any(reason)
        return self._end_attempt(
            "task_release",
            id,
            attempt,
            (why,),
            lambda steps, job: steps.release(job, why),
            request_id,
            forget_last=True,
        )

    def resume(
        self,
        *,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        ttl: Any = None,
        wait: Any = None,
        request_id: str | None = None,
    ) -> Brief:
        """Continue this agent's task or claim the next one, and return a brief of it. This is one transaction.

        The focus is kept if its claim is valid (it is renewed) or the task can be claimed again (a new attempt). Otherwise the
        order is: the agent's own running task; its own claimed task; its last task, if that was requeued and not by the agent's
        own `release`; the next task by higher priority, earlier `available_at` and lower id; a task whose claim has expired,
        the longest expired first, claimed as by `start`. `queues` and `kinds` limit the last three. `ttl` is as in `start`.

        If there is no task, wait up to `wait` (at most a day) for one. The ledger wakes the caller when work is enqueued.
        The caller also looks when the next task is due or the next claim of another agent ends.
        """
        wait_ms = 0 if wait is None else policies.duration_ms("wait", wait, 0, policies.DAY_MS)
        options = ResumeOptions(
            _ttl_ms(ttl),
            None if queues is None else validate.names("queues", queues),
            None if kinds is None else validate.names("kinds", kinds),
        )

        def work(steps: JobSteps) -> Brief:
            state = steps.session.find_agent(self.name, self.session)
            selection = select_task(steps, state, options)
            if selection is None:
                if state.focus is not None:
                    self._save_state(steps, state._replace(focus=None))
                nothing, until = explain_idle(steps, options)
                return with_token_count(Brief(task=None, why="nothing", nothing=nothing, until=until, cursor=state.cursor))
            job, why = selection
            brief = with_token_count(build_brief(steps, job, why, state.cursor))
            self._save_state(steps, state._replace(focus=job.id, last=job.id, cursor=brief.cursor))
            return brief

        def once() -> Brief:
            return self._transact("task_resume", tuple(options), work, Brief, request_id)

        return once() if wait_ms == 0 else wait_for_task(self._ledger, once, wait_ms / 1_000)

    def gc(self, *, limit: int = limits.PAGE_MAX, request_id: str | None = None) -> Collected:
        """Release the expired claims of all agents, as the sweeper does. Return the ids of the released tasks.

        A task is skipped, as by the sweeper, if its release has to be signed and this process has no server key.
        """
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._transact("task_gc", (limit,), lambda steps: release_expired(steps, limit), Collected, request_id)

    def get(self, id: int) -> Task:  # noqa: A002
        """Return a task and its contents. Any agent may hold it."""
        return get_task(self._ledger, id).task

    def list(self, *, mine: bool = False, **chosen: Any) -> builtins.list[Task]:
        """Return tasks ordered by id, filtered as in `Ledger.list`; with `mine`, only those that this agent holds."""
        holder: dict[str, Any] = {"owner": self.name, "incarnation": self.session} if mine else {}
        return [task_of(job.record) for job in self._ledger.list(**holder, **chosen)]


def _ttl_ms(given: Any) -> int | None:
    return None if given is None else policies.duration_ms("ttl", given, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
