"""What an agent's verbs share: who asks, how it is answered, where the agent stands afterwards."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from holdfast.agent.refusals import Asked, explained
from holdfast.agent.tasks import Task, task_of
from holdfast.agent.ways import DEFAULT_SESSION, Commands, Ways
from holdfast.core import limits
from holdfast.core.model import Job
from holdfast.errors import FenceLost, HoldfastError
from holdfast.ledger import Ledger, admit
from holdfast.ledger.acting import Acts
from holdfast.store.agents import AgentPlace

A = TypeVar("A", bound=msgspec.Struct)


class Steps:
    def __init__(self, ledger: Ledger, name: str, *, session: str = DEFAULT_SESSION, ways: Ways | None = None) -> None:
        """`ways` is how refusals tell what to do next; as commands to type, by default."""
        self._ledger = ledger
        self._ways = ways or Commands()
        limits.check_name("agent", name)
        limits.check_name("session", session)
        self._who = admit.worker(name, session)

    @property
    def name(self) -> str:
        return self._who.name

    @property
    def session(self) -> str:
        return self._who.incarnation

    def _act(
        self,
        verb: str,
        body: tuple[Any, ...],
        work: Callable[[Acts], A],
        answer: type[A],
        request_id: str | None,
        attempt: int | None = None,
    ) -> A:
        """One transaction. A refusal is put into an agent's words before the transaction ends, from how the task stands there."""

        def explaining(acts: Acts) -> A:
            try:
                return work(acts)
            except HoldfastError as error:
                raise explained(error, acts.session, Asked(self._who, self._ways, attempt)) from error.__cause__

        acted = self._ledger.acting.act(verb, self._who, (self.session, *body), explaining, request_id=request_id)
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

        return self._act(verb, (admit.job_id(id_), attempt, *body), work, Task, request_id, attempt)

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
