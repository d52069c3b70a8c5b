"""The verbs of an agent. Each verb is one transaction and is safe to repeat with the same request id."""

import builtins
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from holdfast.agent.brief import Brief, build_brief, get_task, with_token_count
from holdfast.agent.refusals import DEFAULT_SESSION, CommandSuggestions, RefusedRequest, Suggestions, explain_refusal
from holdfast.agent.selection import ResumeOptions, claim_and_start, explain_idle, select_task
from holdfast.agent.tasks import Collected, Task, contents_of, task_of
from holdfast.core import limits, payloads
from holdfast.core import policy as policies
from holdfast.core.commands import Objection
from holdfast.core.limits import PAGE_MAX
from holdfast.core.model import HELD, EventType, FailureStage, JobRecord, ReasonCode
from holdfast.errors import FenceLost, HoldfastError, SignatureInvalid
from holdfast.ledger import Ledger, validate
from holdfast.ledger.base import optional_reason
from holdfast.ledger.transaction import FailureReport, JobSteps
from holdfast.ledger.validators import Submission, held_by
from holdfast.store.agents import AgentState


def release_expired(acts: JobSteps, limit: int) -> Collected:
    """Release up to `limit` expired claims. What is due for other reasons, or is not for this process to sign, is passed by."""
    released: list[int] = []
    after, more = 0, True
    while more and len(released) < limit:
        _, _, due = acts.session.due(after, limit - len(released))
        more = len(due) == limit - len(released)
        locked = acts.session.try_lock(due)
        found = acts.session.load([id_ for id_ in due if id_ not in locked], lock=False) if due else {}
        released += [id_ for id_ in due if id_ in found and found[id_].status in HELD and _release_one(acts, id_)]
        after = due[-1] if due else after
    return Collected(released, more)


def _release_one(acts: JobSteps, job_id: int) -> bool:
    try:
        return EventType.STALLED in acts.sweep(job_id)
    except SignatureInvalid:
        return False


AFTER_EXPIRY = timedelta(milliseconds=1)
"""A claim is over after its last moment."""
RETRY_SECONDS = 1.0
"""When to look again at what is due and cannot be had: another transaction has it, or no attempt is left."""


def wait_for_task(ledger: Ledger, resume: Callable[[], Brief], seconds: float) -> Brief:
    """The first brief with a task, or the last one when the time is over."""
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
    """Seconds until the next task is due, or until a claim of somebody else ends. Of claims, the 1,000 oldest tasks count."""
    held = brief.nothing is not None and brief.nothing.held > 0
    claims = [job.claim_expires_at for job in ledger.list(status=["claimed", "running"], limit=PAGE_MAX)] if held else []
    now = ledger.now()
    waits = [(at + AFTER_EXPIRY - now).total_seconds() for at in (brief.until, *claims) if at is not None]
    return min((seconds if seconds > 0 else RETRY_SECONDS for seconds in waits), default=most)


A = TypeVar("A", bound=msgspec.Struct)


class AgentBase:
    def __init__(
        self,
        ledger: Ledger,
        name: str,
        *,
        session: str = DEFAULT_SESSION,
        suggestions: Suggestions | None = None,
        known_attempt: Callable[[int], int | None] | None = None,
    ) -> None:
        """`suggestions` is how refusals tell what to do next; as commands to type, by default.

        `known_attempt` is for a process that remembers which attempt of a task it has: where a verb is not told one, that
        one fences. It is no part of the request, so one that is sent again is the same even if the process has forgotten.
        """
        self._ledger = ledger
        self._suggestions = suggestions or CommandSuggestions()
        self._known_attempt = known_attempt
        limits.check_name("agent", name)
        limits.check_name("session", session)
        self._who = validate.worker(name, session)

    @property
    def name(self) -> str:
        return self._who.name

    @property
    def session(self) -> str:
        return self._who.incarnation

    def _transact(
        self,
        verb: str,
        body: tuple[Any, ...],
        work: Callable[[JobSteps], A],
        answer: type[A],
        request_id: str | None,
        attempt: int | None = None,
    ) -> A:
        """One transaction. A refusal is put into an agent's words before the transaction ends, from how the task stands there."""

        def work_or_explain(acts: JobSteps) -> A:
            try:
                return work(acts)
            except HoldfastError as error:
                raise explain_refusal(
                    error, acts.session, RefusedRequest(self._who, self._suggestions, attempt)
                ) from error.__cause__

        acted = self._ledger.acting.act(verb, self._who, (self.session, *body), work_or_explain, request_id=request_id)
        found = msgspec.json.decode(acted.answer, type=answer)
        return msgspec.structs.replace(found, replayed=True) if acted.replayed else found

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
        """A verb after which the task is not this agent's any more, nor its focus; nor, where it goes back, its last one."""
        id_, attempt = validate.job_id(id_), validate.attempt(attempt)
        fencing = self._expected_attempt(id_, attempt)

        def work(acts: JobSteps) -> Task:
            place = acts.session.find_agent(self.name, self.session)
            done = step(acts, self._load_held(acts, id_, fencing))
            left = place._replace(
                focus=None if place.focus == id_ else place.focus,
                last=None if forget_last and place.last == id_ else place.last,
            )
            if left != place:
                self._save_place(acts, left)
            return task_of(done)

        return self._transact(verb, (id_, attempt, *body), work, Task, request_id, fencing)

    def _expected_attempt(self, id_: int, attempt: int | None) -> int | None:
        """The attempt that a verb is meant for: what it says, else what this process knows."""
        return self._known_attempt(id_) if attempt is None and self._known_attempt is not None else attempt

    def _load_held(self, acts: JobSteps, id_: int, attempt: int | None) -> JobRecord:
        self._check_attempt(acts, id_, attempt)
        return acts.job(id_)

    def _check_attempt(self, acts: JobSteps, id_: int, attempt: int | None) -> None:
        """An older process of this session may still be about: what it says of an attempt that is over does not count."""
        if attempt is None:
            return
        job = acts.job(id_)
        if job.attempt != attempt:
            raise FenceLost(f"job {id_} is at attempt {job.attempt}, not {attempt}", **job.held_by)

    def _save_place(self, acts: JobSteps, place: AgentState) -> None:
        acts.session.save_agent(self.name, self.session, place)


class Agent(AgentBase):
    """One agent at a ledger. Every process that says the same name and session is the same agent, and has its tasks.

    No verb needs a fence: the ledger finds it by who asks. `attempt` fences off an older process of the same session: it must be
    the task's attempt, else it is fence_lost. A `request_id` makes a verb safe to send again.
    """

    def start(self, id: int, *, ttl: Any = None, attempt: int | None = None, request_id: str | None = None) -> Task:  # noqa: A002
        """Claim, start and focus. Succeeds where nobody has the task, where this agent has it (its claim is renewed), or where a
        claim on it has expired, this agent's own too (a new attempt); else lease_conflict, which says who has it and until
        when. The claim lasts for `ttl`. Without one, a new claim lasts five minutes and a renewed one as long as before."""
        id, attempt, ttl_ms = validate.job_id(id), validate.attempt(attempt), _ttl_ms(ttl)  # noqa: A001

        def work(acts: JobSteps) -> Task:
            place = acts.session.find_agent(self.name, self.session)
            self._check_attempt(acts, id, attempt)
            done = claim_and_start(acts, id, ttl_ms)
            self._save_place(acts, place._replace(focus=id, last=id))
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
        """Proof of life: renews the claim. `checkpoint` is any JSON value for whoever goes on with the task."""
        beat = validate.beat(stage, progress, None, checkpoint)
        left = payloads.json_bytes(beat.checkpoint)
        id, attempt = validate.job_id(id), validate.attempt(attempt)  # noqa: A001
        body = (id, attempt, stage, progress, None if left is None else left.decode())
        fencing = self._expected_attempt(id, attempt)

        def work(acts: JobSteps) -> Task:
            return task_of(acts.beat(self._load_held(acts, id, fencing), beat))

        return self._transact("task_heartbeat", body, work, Task, request_id, fencing)

    def complete(self, id: int, result: Any = None, *, attempt: int | None = None, request_id: str | None = None) -> Task:  # noqa: A002
        """Done. `result` is any JSON value. Where a validator objects it is refused_by_validator, and the task stays running."""
        payload = payloads.result_payload(validate.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        objection = self._objection(validate.job_id(id), payload)

        def step(acts: JobSteps, job: JobRecord) -> JobRecord:
            return acts.complete(job, payload, objection)

        return self._end_attempt("task_complete", id, attempt, (payload.decode(),), step, request_id)

    def _objection(self, id_: int, payload: bytes) -> Objection | None:
        validation = self._ledger.validation
        if validation is None:
            return None
        [found] = validation.objections([Submission(id_, payload, held_by(self._who))])
        return found

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
        """It went wrong: tried again while attempts are left, or for good; as `Ledger.fail`."""
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, validate.DELAY_MS_MAX)
        failure = FailureReport(
            validate.error_value(error),
            validate.switch("retryable", retryable),
            None if reason_code is None else validate.choice("reason_code", ReasonCode, reason_code),
            None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage),
            None if after is None else after * 1_000,
        )
        body = (failure.error.decode(), *failure[1:])
        return self._end_attempt("task_fail", id, attempt, body, lambda acts, job: acts.fail(job, failure), request_id)

    def release(
        self,
        id: int,  # noqa: A002
        *,
        reason: str | None = None,
        attempt: int | None = None,
        request_id: str | None = None,
    ) -> Task:
        """Hand the task back in order: others may have it at once, and the attempt does not count. A `resume` comes to it again
        only when it is next in order."""
        why = validate.reason_if_any(reason)
        return self._end_attempt(
            "task_release",
            id,
            attempt,
            optional_reason(why),
            lambda acts, job: acts.release(job, why),
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
        """Go on with what this agent was at, or with what is next, and be told all about it. One transaction.

        The focus is kept if its claim holds (it is renewed) or it can be claimed again (a new attempt). Else the rule: its own
        running task, its own claimed one, its last one if that was put back and not by its own `release`, then by higher
        priority, earlier `available_at`, lower id; then one whose claim has expired, the longest expired first, taken
        over as `start` does. `queues` and `kinds` limit the last three. `ttl` is as in `start`.

        Where there is nothing, it waits for so long (`wait`, up to a day) until there is something. The ledger wakes it when work
        comes in; else it looks when the next task is due or the next claim of somebody else ends.
        """
        wait_ms = 0 if wait is None else policies.duration_ms("wait", wait, 0, policies.DAY_MS)
        options = ResumeOptions(
            _ttl_ms(ttl),
            None if queues is None else validate.names("queues", queues),
            None if kinds is None else validate.names("kinds", kinds),
        )

        def work(acts: JobSteps) -> Brief:
            place = acts.session.find_agent(self.name, self.session)
            chosen = select_task(acts, place, options)
            if chosen is None:
                if place.focus is not None:
                    self._save_place(acts, place._replace(focus=None))
                nothing, until = explain_idle(acts, options)
                return with_token_count(Brief(task=None, why="nothing", nothing=nothing, until=until, cursor=place.cursor))
            job, why = chosen
            brief = with_token_count(build_brief(acts, job, why, place.cursor))
            self._save_place(acts, place._replace(focus=job.id, last=job.id, cursor=brief.cursor))
            return brief

        def once() -> Brief:
            return self._transact("task_resume", tuple(options), work, Brief, request_id)

        return once() if wait_ms == 0 else wait_for_task(self._ledger, once, wait_ms / 1_000)

    def gc(self, *, limit: int = limits.PAGE_MAX, request_id: str | None = None) -> Collected:
        """Release what was claimed, by anybody, and has expired: what a sweep does to it. Says which tasks that were.

        Tasks whose release would have to be signed, with no server key here, are left alone, as by a sweep.
        """
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._transact("task_gc", (limit,), lambda acts: release_expired(acts, limit), Collected, request_id)

    def get(self, id: int) -> Task:  # noqa: A002
        """A task and what it is about, whoever has it."""
        return get_task(self._ledger, id).task

    def list(self, *, mine: bool = False, **chosen: Any) -> builtins.list[Task]:
        """Tasks by id, chosen as in `Ledger.list`; with `mine`, those that this agent holds."""
        whose: dict[str, Any] = {"owner": self.name, "incarnation": self.session} if mine else {}
        return [task_of(job.record) for job in self._ledger.list(**whose, **chosen)]


def _ttl_ms(given: Any) -> int | None:
    return None if given is None else policies.duration_ms("ttl", given, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
