"""The client of one tool call, and the jobs that the server holds for it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.agent import Agent, Task
from holdfast.agent.tasks import task_of
from holdfast.core.model import Actor
from holdfast.errors import FenceLost, HoldfastError, ValidationError
from holdfast.ledger import Ledger
from holdfast.mcp import schemas
from holdfast.mcp.schemas import TaskResult
from holdfast.mcp.sessions import ClientSessions, SessionKey


class ToolSuggestions:
    """`names_session`: whether the client names its session with each call, and so could name another."""

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
    """Whose job it is cannot be told: the client's transport has no sessions, and it named none."""

    def __init__(self, offered: str) -> None:
        super().__init__("this transport has no sessions, so every call has to say whose it is", field="session", offered=offered)
        self.action = (
            f"Call again with session {offered!r}, and give that with every further call. "
            "If you have given another one before, go on with that one."
        )


class Caller:
    """A client whose transport has a session is in that one, and can name no other; any other client names one itself."""

    def __init__(
        self, sessions: ClientSessions, name: str, session: str | None, new_session_name: Callable[[], str], client: int = 0
    ) -> None:
        self._sessions = sessions
        self._client = client
        self._name = name
        self._session = session
        self._new_session_name = new_session_name

    @property
    def name(self) -> str:
        return self._name

    @property
    def transport_session(self) -> str | None:
        """That of its transport."""
        return self._session

    @property
    def ledger(self) -> Ledger:
        return self._sessions.ledger

    def session(self, named: str | None) -> str | None:
        """Which session it is in, if it is in any."""
        if self._session is not None and named not in (None, self._session):
            refused = ValidationError("this client has a session by its transport, and can be in no other", field="session")
            refused.action = "Leave `session` out."
            raise refused
        return self._session or named

    def session_key(self, request: schemas.ToolArguments) -> SessionKey:
        session = self.session(request.session)
        if session is None:
            raise SessionRequired(self._new_session_name())
        return SessionKey(self._name, session)

    def note_activity(self, named: str | None = None) -> None:
        """It has called, so it is not idle."""
        session = self.session(named)
        if session is not None:
            self._agent(SessionKey(self._name, session))

    def scoped_request_id(self, request: schemas.WriteArguments) -> str | None:
        """A request's id, as the ledger knows it: two sessions of one name may call their requests alike."""
        if request.request_id is None:
            return None
        session = self.session_key(request).session
        return f"{len(session)}:{session}:{request.request_id}"

    def claim(self, request: schemas.WriteArguments, verb: Callable[[Agent, str | None], Any], job_id: int | None = None) -> Any:
        """A verb that gives the caller a job."""
        key = self.session_key(request)
        self._sessions.check_capacity(key, job_id, self._client)
        agent = self._agent(key)
        answer = verb(agent, self.scoped_request_id(request))
        if answer.task is not None:
            self._track(agent, answer.task, getattr(answer, "replayed", answer.task.replayed))
        return answer

    def act_on_held(self, request: schemas.HeldJobArguments, verb: Callable[..., Task], **options: Any) -> TaskResult:
        """A verb on a job that the caller holds."""
        key = self.session_key(request)
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
        return self._sessions.agent(key, ToolSuggestions(names_session=self._session is None))

    def _track(self, agent: Agent, task: Task, replayed: bool | msgspec.UnsetType) -> None:
        """An answer that was given before tells how the job stood then: what counts is how that attempt stands now."""
        if replayed is not True:
            self._sessions.track(agent, task, self._client)
            return
        with suppress(HoldfastError):
            now = task_of(self.ledger.get(task.id).record)
            if now.attempt == task.attempt:
                self._sessions.track(agent, now, self._client)
