"""An agent's verbs: each one transaction, each the same however often the same request comes."""

import builtins
from collections.abc import Sequence
from typing import Any

from holdfast.agent.brief import Brief, brief_of, weighed
from holdfast.agent.collecting import collect
from holdfast.agent.idle import Wish, idleness
from holdfast.agent.looking import look
from holdfast.agent.rule import choose, take_up
from holdfast.agent.steps import Steps
from holdfast.agent.tasks import Collected, Task, contents_of, task_of
from holdfast.agent.waiting import wait_for
from holdfast.core import limits, payloads
from holdfast.core import policy as policies
from holdfast.core.commands import Objection
from holdfast.core.model import FailureStage, Job, ReasonCode
from holdfast.ledger import admit
from holdfast.ledger.acting import Acts, Failure
from holdfast.ledger.desk import given
from holdfast.ledger.validating import Asked, held_by


class Agent(Steps):
    """One agent at a ledger. Every process that says the same name and session is the same agent, and has its tasks.

    No verb needs a fence: the ledger finds it by who asks. `attempt` fences off an older process of the same session: it must be
    the task's attempt, else it is fence_lost. A `request_id` makes a verb safe to send again.
    """

    def start(self, id: int, *, ttl: Any = None, attempt: int | None = None, request_id: str | None = None) -> Task:  # noqa: A002
        """Claim, start and focus. Succeeds where nobody has the task, where this agent has it (its claim is renewed), or where a
        claim on it has expired, this agent's own too (a new attempt); else lease_conflict, which says who has it and until
        when. The claim lasts for `ttl`. Without one, a new claim lasts five minutes and a renewed one as long as before."""
        id, attempt, ttl_ms = admit.job_id(id), admit.attempt(attempt), _ttl(ttl)  # noqa: A001

        def work(acts: Acts) -> Task:
            place = acts.session.find_agent(self.name, self.session)
            self._check(acts, id, attempt)
            done = take_up(acts, id, ttl_ms)
            self._move(acts, place._replace(focus=id, last=id))
            return task_of(done, contents_of(done))

        return self._act("task_start", (id, attempt, ttl_ms), work, Task, request_id, attempt)

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
        beat = admit.beat(stage, progress, None, checkpoint)
        left = payloads.body_of(beat.checkpoint)
        id, attempt = admit.job_id(id), admit.attempt(attempt)  # noqa: A001
        body = (id, attempt, stage, progress, None if left is None else left.decode())
        fencing = self._fencing(id, attempt)

        def work(acts: Acts) -> Task:
            return task_of(acts.beat(self._held(acts, id, fencing), beat))

        return self._act("task_heartbeat", body, work, Task, request_id, fencing)

    def complete(self, id: int, result: Any = None, *, attempt: int | None = None, request_id: str | None = None) -> Task:  # noqa: A002
        """Done. `result` is any JSON value. Where a validator objects it is refused_by_validator, and the task stays running."""
        payload = payloads.result_payload(admit.json_value("result", result, limits.PAYLOAD_BYTES_MAX))
        objection = self._objection(admit.job_id(id), payload)

        def step(acts: Acts, job: Job) -> Job:
            return acts.complete(job, payload, objection)

        return self._end("task_complete", id, attempt, (payload.decode(),), step, request_id)

    def _objection(self, id_: int, payload: bytes) -> Objection | None:
        validation = self._ledger.validation
        if validation is None:
            return None
        [found] = validation.objections([Asked(id_, payload, held_by(self._who))])
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
        after = None if retry_after is None else policies.duration_ms("retry_after", retry_after, 0, admit.DELAY_MS_MAX)
        failure = Failure(
            admit.error_value(error),
            admit.switch("retryable", retryable),
            None if reason_code is None else admit.choice("reason_code", ReasonCode, reason_code),
            None if failure_stage is None else admit.choice("failure_stage", FailureStage, failure_stage),
            None if after is None else after * 1_000,
        )
        body = (failure.error.decode(), *failure[1:])
        return self._end("task_fail", id, attempt, body, lambda acts, job: acts.fail(job, failure), request_id)

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
        why = admit.reason_if_any(reason)
        return self._end(
            "task_release", id, attempt, given(why), lambda acts, job: acts.release(job, why), request_id, goes_back=True
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
        wish = Wish(
            _ttl(ttl),
            None if queues is None else admit.names("queues", queues),
            None if kinds is None else admit.names("kinds", kinds),
        )

        def work(acts: Acts) -> Brief:
            place = acts.session.find_agent(self.name, self.session)
            chosen = choose(acts, place, wish)
            if chosen is None:
                if place.focus is not None:
                    self._move(acts, place._replace(focus=None))
                nothing, until = idleness(acts, wish)
                return weighed(Brief(task=None, why="nothing", nothing=nothing, until=until, cursor=place.cursor))
            job, why = chosen
            brief = weighed(brief_of(acts, job, why, place.cursor))
            self._move(acts, place._replace(focus=job.id, last=job.id, cursor=brief.cursor))
            return brief

        def once() -> Brief:
            return self._act("task_resume", tuple(wish), work, Brief, request_id)

        return once() if wait_ms == 0 else wait_for(self._ledger, once, wait_ms / 1_000)

    def gc(self, *, limit: int = limits.PAGE_MAX, request_id: str | None = None) -> Collected:
        """Release what was claimed, by anybody, and has expired: what a sweep does to it. Says which tasks that were.

        Tasks whose release would have to be signed, with no server key here, are left alone, as by a sweep.
        """
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._act("task_gc", (limit,), lambda acts: collect(acts, limit), Collected, request_id)

    def get(self, id: int) -> Task:  # noqa: A002
        """A task and what it is about, whoever has it."""
        return look(self._ledger, id).task

    def list(self, *, mine: bool = False, **chosen: Any) -> builtins.list[Task]:
        """Tasks by id, chosen as in `Ledger.list`; with `mine`, those that this agent holds."""
        whose: dict[str, Any] = {"owner": self.name, "incarnation": self.session} if mine else {}
        return [task_of(job.record) for job in self._ledger.list(**whose, **chosen)]


def _ttl(given: Any) -> int | None:
    return None if given is None else policies.duration_ms("ttl", given, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
