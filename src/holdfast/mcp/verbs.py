"""What each tool does: an agent's verb, and whether its job is held from here on."""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.agent import Agent, Brief, InFull, Task, look
from holdfast.agent.tasks import task_of
from holdfast.core import limits
from holdfast.core.explain import Explanation
from holdfast.errors import FenceLost, ValidationError
from holdfast.ledger import Ledger
from holdfast.mcp import asks
from holdfast.mcp.answers import Enqueued, OneTask, Tasks
from holdfast.mcp.seats import Place, Seats


class SessionUnknown(ValidationError):
    """Whose job it is cannot be told: the client's transport has no sessions, and it named none."""

    action = "Give `session`, as `task.session` says in the answer to claim_job or resume."


class Caller:
    """One call: who calls, and at which ledger.

    A client whose transport has no session is a new one with each claim or resume, unless it says which one it is.
    """

    def __init__(self, seats: Seats, name: str, session: str | None, draw: Callable[[], str]) -> None:
        self._seats = seats
        self._name = name
        self._session = session
        self._draw = draw

    @property
    def name(self) -> str:
        return self._name

    @property
    def session(self) -> str | None:
        return self._session

    @property
    def ledger(self) -> Ledger:
        return self._seats.ledger

    def place(self, ask: asks.OfASession, *, new: bool = False) -> Place:
        session = ask.session or self._session or (self._draw() if new else None)
        if session is None:
            raise SessionUnknown("whose session is it? this client's transport has none", field="session")
        return Place(self._name, session)

    def calls(self) -> None:
        """It has called, so it is not idle."""
        if self._session is not None:
            self._seats.agent(Place(self._name, self._session))

    def take(self, ask: asks.Change, verb: Callable[[Agent, str | None], Any]) -> Any:
        """A verb that gives the caller a job."""
        place = self.place(ask, new=True)
        self._seats.check_room(place, getattr(ask, "id", None))
        answer = verb(self._seats.agent(place), request_of(ask, place.session))
        if answer.task is not None:
            self._seats.heard(place, answer.task)
        return answer

    def on(self, ask: asks.OnAJob, verb: Callable[..., Task], **options: Any) -> OneTask:
        """A verb on a job that the caller holds."""
        place = self.place(ask)
        agent = self._seats.agent(place)
        attempt = self._seats.attempt(place, ask.id) if ask.attempt is None else ask.attempt
        try:
            task = verb(agent, ask.id, attempt=attempt, request_id=request_of(ask, place.session), **options)
        except FenceLost:
            self._seats.drop(place, ask.id)
            raise
        self._seats.heard(place, task)
        return OneTask(task)


def request_of(ask: asks.Change, session: str | None) -> str | None:
    """A request's id, as the ledger knows it: two sessions of one name may call their requests alike."""
    return ask.request_id if ask.request_id is None or session is None else f"{session}:{ask.request_id}"


def list_jobs(caller: Caller, ask: asks.ListJobs) -> Tasks:
    whose: dict[str, Any] = {"owner": (place := caller.place(ask)).name, "incarnation": place.session} if ask.mine else {}
    status = [one.value for one in ask.status] if ask.status else None
    page = caller.ledger.list(status=status, queue=ask.queue, kind=ask.kind, after=ask.after, limit=ask.limit, **whose)
    return Tasks([task_of(job.record) for job in page], page[-1].id if len(page) == ask.limit else None)


def get_job(caller: Caller, ask: asks.GetJob) -> InFull:
    return look(caller.ledger, ask.id, bytes_max=limits.AGENT_VALUE_BYTES_MAX)


def explain(caller: Caller, ask: asks.GetJob) -> Explanation:
    return caller.ledger.explain(ask.id)


def claim_job(caller: Caller, ask: asks.ClaimJob) -> OneTask:
    def start(agent: Agent, request_id: str | None) -> OneTask:
        return OneTask(agent.start(ask.id, ttl=ask.ttl_s, attempt=ask.attempt, request_id=request_id))

    done: OneTask = caller.take(ask, start)
    return done


def resume(caller: Caller, ask: asks.Resume) -> Brief:
    def go_on(agent: Agent, request_id: str | None) -> Brief:
        return agent.resume(queues=ask.queues, kinds=ask.kinds, ttl=ask.ttl_s, request_id=request_id)

    brief: Brief = caller.take(ask, go_on)
    return brief


def heartbeat(caller: Caller, ask: asks.OnAJob) -> OneTask:
    return caller.on(ask, Agent.heartbeat)


def progress(caller: Caller, ask: asks.Progress) -> OneTask:
    left = {} if ask.checkpoint is msgspec.UNSET else {"checkpoint": ask.checkpoint}
    return caller.on(ask, Agent.heartbeat, progress=ask.progress, stage=ask.stage, **left)


def complete(caller: Caller, ask: asks.Complete) -> OneTask:
    return caller.on(ask, Agent.complete, result=ask.result)


def fail(caller: Caller, ask: asks.Fail) -> OneTask:
    return caller.on(
        ask,
        Agent.fail,
        error=ask.error,
        retryable=ask.retryable,
        reason_code=ask.reason_code,
        failure_stage=ask.failure_stage,
        retry_after=ask.retry_after_s,
    )


def release(caller: Caller, ask: asks.OnAJob) -> OneTask:
    return caller.on(ask, Agent.release)


def enqueue(caller: Caller, ask: asks.Enqueue) -> Enqueued:
    names = ("queue", "priority", "dedupe_key", "correlation_id", "on_dependency_failure")
    given = {name: getattr(ask, name) for name in names if getattr(ask, name) is not None}
    given |= {"depends_on": ask.depends_on} if ask.depends_on else {}
    given |= {"delay": ask.delay_s} if ask.delay_s else {}
    request = request_of(ask, ask.session or caller.session)
    made = caller.ledger.enqueue(ask.kind, ask.args, actor=caller.name, request_id=request, **given)
    return Enqueued(task_of(made.record), made.is_new)
