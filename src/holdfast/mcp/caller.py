"""One call: who calls, and what the server holds for it from here on."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.agent import Agent, Task
from holdfast.agent.tasks import task_of
from holdfast.errors import FenceLost, HoldfastError, ValidationError
from holdfast.ledger import Ledger
from holdfast.mcp import asks
from holdfast.mcp.answers import OneTask
from holdfast.mcp.holds import Place
from holdfast.mcp.seats import Seats
from holdfast.mcp.ways import Tools


class SessionUnknown(ValidationError):
    """Whose job it is cannot be told: the client's transport has no sessions, and it named none."""

    def __init__(self, offered: str) -> None:
        super().__init__("this transport has no sessions, so every call has to say whose it is", field="session", offered=offered)
        self.action = (
            f"Call again with session {offered!r}, and give that with every further call. "
            "If you have given another one before, go on with that one."
        )


class Caller:
    """A client whose transport has a session is in that one, and can name no other; any other client names one itself."""

    def __init__(self, seats: Seats, name: str, session: str | None, draw: Callable[[], str], client: int = 0) -> None:
        self._seats = seats
        self._client = client
        self._name = name
        self._session = session
        self._draw = draw

    @property
    def name(self) -> str:
        return self._name

    @property
    def own_session(self) -> str | None:
        """That of its transport."""
        return self._session

    @property
    def ledger(self) -> Ledger:
        return self._seats.ledger

    def session(self, named: str | None) -> str | None:
        """Which session it is in, if it is in any."""
        if self._session is not None and named not in (None, self._session):
            refused = ValidationError("this client has a session by its transport, and can be in no other", field="session")
            refused.action = "Leave `session` out."
            raise refused
        return self._session or named

    def place(self, ask: asks.Ask) -> Place:
        session = self.session(ask.session)
        if session is None:
            raise SessionUnknown(self._draw())
        return Place(self._name, session)

    def calls(self, named: str | None = None) -> None:
        """It has called, so it is not idle."""
        session = self.session(named)
        if session is not None:
            self._agent(Place(self._name, session))

    def request_of(self, ask: asks.Change) -> str | None:
        """A request's id, as the ledger knows it: two sessions of one name may call their requests alike."""
        if ask.request_id is None:
            return None
        session = self.place(ask).session
        return f"{len(session)}:{session}:{ask.request_id}"

    def take(self, ask: asks.Change, verb: Callable[[Agent, str | None], Any], job_id: int | None = None) -> Any:
        """A verb that gives the caller a job."""
        place = self.place(ask)
        self._seats.check_room(place, job_id, self._client)
        agent = self._agent(place)
        answer = verb(agent, self.request_of(ask))
        if answer.task is not None:
            self._heard(agent, answer.task, getattr(answer, "replayed", answer.task.replayed))
        return answer

    def on(self, ask: asks.OnAJob, verb: Callable[..., Task], **options: Any) -> OneTask:
        """A verb on a job that the caller holds."""
        place = self.place(ask)
        agent = self._agent(place)
        try:
            task = verb(agent, ask.id, attempt=ask.attempt, request_id=self.request_of(ask), **options)
        except FenceLost:
            if ask.attempt is None:
                self._seats.drop(place, ask.id)
            raise
        self._heard(agent, task, task.replayed)
        return OneTask(task)

    def _agent(self, place: Place) -> Agent:
        return self._seats.agent(place, Tools(says_session=self._session is None))

    def _heard(self, agent: Agent, task: Task, replayed: bool | msgspec.UnsetType) -> None:
        """An answer that was given before tells how the job stood then: what counts is how that attempt stands now."""
        if replayed is not True:
            self._seats.heard(agent, task, self._client)
            return
        with suppress(HoldfastError):
            now = task_of(self.ledger.get(task.id).record)
            if now.attempt == task.attempt:
                self._seats.heard(agent, now, self._client)
