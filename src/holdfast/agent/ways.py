"""How an agent is told what to do next: in the words of whatever it asks with."""

import shlex
from typing import Protocol

from holdfast.core.model import Actor

DEFAULT_SESSION = "agent"


class Ways(Protocol):
    """Each says how one thing is done."""

    def resume(self, who: Actor) -> str: ...
    def start(self, who: Actor, job_id: int) -> str: ...
    def explain(self, job_id: int) -> str: ...
    def look(self, job_id: int) -> str: ...
    def attempt(self, number: int) -> str: ...

    def session(self, name: str) -> str | None:
        """None where whoever asks cannot be in another session than it is."""
        ...


class Commands:
    """Something to type as this agent."""

    def resume(self, who: Actor) -> str:
        return self._as(who, "resume")

    def start(self, who: Actor, job_id: int) -> str:
        return self._as(who, "task", "start", str(job_id))

    def explain(self, job_id: int) -> str:
        return f"holdfast explain {job_id}"

    def look(self, job_id: int) -> str:
        return f"holdfast task get {job_id}"

    def attempt(self, number: int) -> str:
        return f"say --attempt {number}"

    def session(self, name: str) -> str:
        return f"say --session {shlex.quote(name)}"

    def _as(self, who: Actor, *words: str) -> str:
        session = [] if who.incarnation == DEFAULT_SESSION else ["--session", who.incarnation]
        return shlex.join(["holdfast", *words, "--agent", who.name, *session])
