"""The client of one tool call, and the jobs that the server holds for it."""

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.agent import Agent, Task
from holdfast.agent.refusals import Suggestions
from holdfast.agent.tasks import task_of
from holdfast.core.explain import Explanation
from holdfast.core.model import Actor
from holdfast.errors import FenceLost, HoldfastError, ValidationError
from holdfast.ledger import Ledger
from holdfast.ledger.verbs.explaining import explain_to
from holdfast.mcp import schemas
from holdfast.mcp.rights import ALL_RIGHTS, CallerRights
from holdfast.mcp.schemas import TaskResult
from holdfast.mcp.sessions import ClientSessions, SessionKey


class ToolSuggestions(Suggestions):
    """Suggestions as tool calls. `names_session`: the client gives its session with each call and can give another one."""

    def __init__(self, *, names_session: bool) -> None:
        self._names_session = names_session

    def resume(self, who: Actor) -> str:
        return "call resume"

    def start(self, who: Actor, job_id: int) -> str:
        return f"call claim_job with id {job_id}"

    def explain(self, job_id: int) -> str:
        return f"call explain with id {job_id}"

    def get_task(self, job_id: int) -> str:
        return f"call get_job with id {job_id}"

    def attempt(self, number: int) -> str:
        return f"give attempt {number}"

    def session(self, name: str) -> str | None:
        return f"give session {name!r}" if self._names_session else None


class SessionRequired(ValidationError):
    """The client's session is unknown: its transport has no sessions, and the call has no `session`."""

    def __init__(self, offered: str) -> None:
        super().__init__("this transport has no sessions, so every call must give `session`", field="session", offered=offered)
        self.action = (
            f"Call again with session {offered!r}, and give the same session with every further call. "
            "If you have given another session before, use that one."
        )


class Caller:
    """The client of one call. Its session is that of its transport; if the transport has none, the client gives one."""

    def __init__(
        self,
        sessions: ClientSessions,
        name: str,
        session: str | None,
        new_session_name: Callable[[], str],
        client: Hashable = 0,
        rights: CallerRights = ALL_RIGHTS,
    ) -> None:
        self._sessions = sessions
        self.rights = rights
        self.client = client
        self._name = name
        self.transport_session = session
        """The session of the client's transport, if it has one."""
        self._new_session_name = new_session_name

    @property
    def ledger(self) -> Ledger:
        return self._sessions.ledger

    def explain(self, job_id: int) -> Explanation:
        """Explain a job that the caller may see, for a caller that wants to claim it."""
        if self.rights is ALL_RIGHTS:
            return self.ledger.explain(job_id, to_claim=True)
        rights = self.rights
        return explain_to(self.ledger, job_id, to_claim=True, sees=rights.sees, hides_keys=rights.hides_keys)

    def check_visible(self, job_id: int) -> int:
        """Return the id of a job that the caller may see. Raise NotFound for any other."""
        if self.rights is not ALL_RIGHTS:
            self.rights.check_visible(self.ledger, job_id)
        return job_id

    def actor(self, request: schemas.ToolArguments) -> str | Actor:
        """Return the actor of jobs that the caller adds."""
        return self.rights.actor(self.session(request.session)) or self._name

    def session(self, named: str | None) -> str | None:
        """Return the client's session, if it has one. Raise ValidationError if `named` differs from the transport's."""
        if self.transport_session is not None and named not in (None, self.transport_session):
            error = ValidationError("the session of this client is that of its transport; it can give no other", field="session")
            error.action = "Leave `session` out."
            raise error
        return self.transport_session or named

    def session_key(self, request: schemas.ToolArguments) -> SessionKey:
        session = self.session(request.session)
        if session is None:
            raise SessionRequired(self._new_session_name())
        return SessionKey(self._name, session)

    def note_activity(self, named: str | None = None) -> None:
        """Record that the client has sent a message and is not idle."""
        session = self.session(named)
        if session is not None:
            self._agent(SessionKey(self._name, session))

    def scoped_request_id(self, request: schemas.WriteArguments) -> str | None:
        """Return the request id for the ledger, with the session in it: two sessions of one agent may use the same id."""
        if request.request_id is None:
            return None
        session = self.session_key(request).session
        return f"{len(session)}:{session}:{request.request_id}"

    def claim(self, request: schemas.WriteArguments, verb: Callable[[Agent, str | None], Any], job_id: int | None = None) -> Any:
        """Run a verb that gives the caller a job, and track the job."""
        key = self.session_key(request)
        self._sessions.check_capacity(key, job_id, self.client)
        agent = self._agent(key)
        answer = verb(agent, self.scoped_request_id(request))
        if answer.task is not None:
            self._track(agent, answer.task, getattr(answer, "replayed", answer.task.replayed))
        return answer

    def act_on_held(self, request: schemas.HeldJobArguments, verb: Callable[..., Task], **options: Any) -> TaskResult:
        """Run a verb on a job that the caller holds, and track the job."""
        key = self.session_key(request)
        self.check_visible(request.id)
        agent = self._agent(key)
        try:
            task = verb(agent, request.id, attempt=request.attempt, request_id=self.scoped_request_id(request), **options)
        except FenceLost:
            if request.attempt is None:
                self._sessions.drop(key, request.id)
            raise
        self._track(agent, task, task.replayed)
        return TaskResult(task)

    def _agent(self, key: SessionKey) -> Agent:
        return self._sessions.agent(key, ToolSuggestions(names_session=self.transport_session is None))

    def _track(self, agent: Agent, task: Task, replayed: bool | msgspec.UnsetType) -> None:
        """Track the job of an answer. A replayed answer has an old state, so read the job's current state for it."""
        if replayed is not True:
            self._sessions.track(agent, task, self.client)
            return
        with suppress(HoldfastError):
            now = task_of(self.ledger.get(task.id).record)
            if now.attempt == task.attempt:
                self._sessions.track(agent, now, self.client)
