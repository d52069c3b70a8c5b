"""What an agent's verbs share: who asks, how it is answered, where the agent stands afterwards."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from holdfast.agent.rule import said
from holdfast.agent.tasks import Task, task_of
from holdfast.core import limits
from holdfast.core.model import Job
from holdfast.errors import FenceLost, HoldfastError
from holdfast.ledger import Ledger, admit
from holdfast.ledger.acting import Acts
from holdfast.store.agents import AgentPlace

A = TypeVar("A", bound=msgspec.Struct)

SESSION = "agent"


class Steps:
    def __init__(self, ledger: Ledger, name: str, *, session: str = SESSION) -> None:
        self._ledger = ledger
        self._who = admit.worker(name, session)

    @property
    def name(self) -> str:
        return self._who.name

    @property
    def session(self) -> str:
        return self._who.incarnation

    def _act(self, verb: str, body: tuple[Any, ...], work: Callable[[Acts], A], answer: type[A], request_id: str | None) -> A:
        try:
            body = (self.session, *body)
            acted = self._ledger.acting.act(verb, self._who, body, work, request_id=request_id)
        except HoldfastError as error:
            raise said(error) from error.__cause__
        found = msgspec.json.decode(acted.answer, type=answer)
        return msgspec.structs.replace(found, replayed=True) if acted.replayed else found

    def _end(
        self,
        verb: str,
        id_: int,
        attempt: int | None,
        body: tuple[Any, ...],
        step: Callable[[Acts, Job], Job],
        request_id: str | None,
    ) -> Task:
        """A verb after which the task is not this agent's any more, nor its focus."""

        def work(acts: Acts) -> Task:
            place = acts.session.find_agent(self.name, self.session)
            done = step(acts, self._held(acts, id_, attempt))
            if place.focus == id_:
                self._move(acts, place, focus=None)
            return task_of(done)

        return self._act(verb, (admit.job_id(id_), attempt, *body), work, Task, request_id)

    def _held(self, acts: Acts, id_: int, attempt: int | None) -> Job:
        self._check(acts, id_, attempt)
        return acts.job(id_)

    def _check(self, acts: Acts, id_: int, attempt: int | None) -> None:
        """An older process of this session may still be about: what it says of an attempt that is over does not count."""
        if attempt is None:
            return
        job = acts.job(id_)
        if job.attempt != limits.check_integer("attempt", attempt, 0, limits.REV_MAX):
            raise FenceLost(f"job {id_} is at attempt {job.attempt}, not {attempt}", **job.held_by)

    def _move(self, acts: Acts, place: AgentPlace, **changes: Any) -> None:
        acts.session.save_agent(self.name, self.session, place._replace(**changes))
