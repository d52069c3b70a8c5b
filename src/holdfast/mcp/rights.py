"""What the caller of a tool may do, see and be called."""

from typing import Any, Literal

from holdfast.core.model import Actor
from holdfast.errors import Forbidden, NotFound
from holdfast.ledger import Ledger

Need = Literal["read", "enqueue", "hold"]
"""What a tool does: it reads, adds jobs, or claims and holds jobs."""
CLIENT_SCOPE_KEY = "holdfast.client"
"""The key in a request's scope for its client: the id of its token."""
RIGHTS_SCOPE_KEY = "holdfast.rights"
"""The key in a request's scope for the rights of its caller."""


class CallerRights:
    """The rights of a caller. These are all rights: `holdfast mcp` has one kind of caller. A server with roles has others."""

    agent: str | None = None
    """The only name that the caller's agent can have. None: the server chooses one."""

    def may(self, need: Need) -> bool:
        return True

    def check(self, need: Need, tool: str) -> None:
        """Raise Forbidden if the caller may not use a tool."""
        if not self.may(need):
            action = "Use another token: tools/list has what this one may use."
            raise Forbidden(f"this token may not use {tool}", action=action, verb=tool)

    hides_keys = False
    """Whether the caller must not see the keys of limits, which are arguments of jobs."""

    def sees(self, queue: str) -> bool:
        return True

    def check_queue(self, queue: str) -> None:
        """Raise Forbidden if the caller may not use this queue."""
        if not self.sees(queue):
            raise Forbidden(f"this token does not cover the queue {queue!r:.80}", action="Use a queue of your token.")

    def check_visible(self, ledger: Ledger, job_id: int) -> None:
        """Raise NotFound if the job is in a queue that the caller may not see: it does not exist for this caller."""
        if not self.sees(ledger.get(job_id).queue):
            raise NotFound(f"there is no job {job_id}", job_id=job_id)

    def claimable(self, ledger: Ledger, queues: list[str] | None) -> list[str] | None:
        """Return the queues to claim from, of those that the caller names. None: all."""
        return queues

    def actor(self, session: str | None) -> str | Actor | None:
        """Return the actor of jobs that the caller adds. None: its agent."""
        return None

    def show(self, answer: Any) -> Any:
        """Return an answer without what is hidden from the caller."""
        return answer

    def show_json(self, part: str, body: bytes) -> bytes:
        """Return one of a job's contents without what is hidden from the caller."""
        return body


ALL_RIGHTS = CallerRights()
