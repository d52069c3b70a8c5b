"""What is held for a client, and when it last called."""

from typing import NamedTuple

from holdfast.agent import Agent, Task
from holdfast.errors import LimitExceeded

BEATS_PER_LEASE = 3


class Place(NamedTuple):
    """Whose call it is: an agent's name and session, as the ledger knows them."""

    name: str
    session: str


class Hold:
    """A job that is held for a client. `attempt` fences off whoever speaks for an attempt that is over."""

    __slots__ = ("attempt", "due_at", "is_beating", "job_id", "lease_s", "lost")

    def __init__(self, task: Task, now: float) -> None:
        assert task.claim_expires_at is not None and task.last_heartbeat_at is not None
        self.job_id = task.id
        self.attempt = task.attempt
        self.lease_s = (task.claim_expires_at - task.last_heartbeat_at).total_seconds()
        self.due_at = now + self.lease_s / BEATS_PER_LEASE
        self.is_beating = False
        self.lost = False


class Seat:
    __slots__ = ("agent", "asleep_until", "called_at", "client", "holds")

    def __init__(self, agent: Agent, now: float, client: int = 0) -> None:
        self.agent = agent
        self.client = client
        self.called_at = now
        self.asleep_until: float | None = None
        self.holds: dict[int, Hold] = {}

    def called(self, now: float) -> None:
        self.called_at = now
        self.asleep_until = None


class HeldTooMany(LimitExceeded):
    """A session holds as many tasks as it may."""

    action = "Complete, fail or release one of yours first: call list_jobs with mine true."


class ServedTooMany(LimitExceeded):
    """The server holds tasks for as many sessions of this client as it may."""

    action = "Go on with what your session holds, or try again when another has ended."
