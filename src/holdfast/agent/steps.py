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
    def __init__(
        self,
        ledger: Ledger,
        name: str,
        *,
        session: str = DEFAULT_SESSION,
        ways: Ways | None = None,
        known: Callable[[int], int | None] | None = None,
    ) -> None:
        """`ways` is how refusals tell what to do next; as commands to type, by default.

        `known` is for a process that remembers which attempt of a task it has: where a verb is not told one, that one fences. It
        is no part of the request, so one that is sent again is the same even if the process has forgotten.
        """
        self._ledger = ledger
        self._ways = ways or Commands()
        self._known = known
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
        *,
        goes_back: bool = False,
    ) -> Task:
        """A verb after which the task is not this agent's any more, nor its focus; nor, where it goes back, its last one."""
        id_, attempt = admit.job_id(id_), admit.attempt(attempt)
        fencing = self._fencing(id_, attempt)

        def work(acts: Acts) -> Task:
            place = acts.session.find_agent(self.name, self.session)
            done = step(acts, self._held(acts, id_, fencing))
            left = place._replace(
                focus=None if place.focus == id_ else place.focus,
                last=None if goes_back and place.last == id_ else place.last,
            )
            if left != place:
                self._move(acts, left)
            return task_of(done)

        return self._act(verb, (id_, attempt, *body), work, Task, request_id, fencing)

    def _fencing(self, id_: int, attempt: int | None) -> int | None:
        """The attempt that a verb is meant for: what it says, else what this process knows."""
        return self._known(id_) if attempt is None and self._known is not None else attempt

    def _held(self, acts: Acts, id_: int, attempt: int | None) -> Job:
        self._check(acts, id_, attempt)
        return acts.job(id_)

    def _check(self, acts: Acts, id_: int, attempt: int | None) -> None:
        """An older process of this session may still be about: what it says of an attempt that is over does not count."""
        if attempt is None:
            return
        job = acts.job(id_)
        if job.attempt != attempt:
            raise FenceLost(f"job {id_} is at attempt {job.attempt}, not {attempt}", **job.held_by)

    def _move(self, acts: Acts, place: AgentPlace) -> None:
        acts.session.save_agent(self.name, self.session, place)
