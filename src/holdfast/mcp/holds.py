"""A session's jobs, as far as the server knows of them."""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.agent import Agent, Task

BEATS_PER_LEASE = 3


class Place(NamedTuple):
    """Whose call it is: an agent's name and session, as the ledger knows them."""

    name: str
    session: str


class Hold:
    """A job that is held for a client. `attempt` fences off whoever speaks for an attempt that is over."""

    __slots__ = ("attempt", "beating", "due_at", "job_id", "lease_s", "lost")

    def __init__(self, task: Task, now: float) -> None:
        assert task.claim_expires_at is not None and task.last_heartbeat_at is not None
        self.job_id = task.id
        self.attempt = task.attempt
        self.lease_s = (task.claim_expires_at - task.last_heartbeat_at).total_seconds()
        self.due_at = now + self.lease_s / BEATS_PER_LEASE
        self.beating = False
        self.lost = False


class Seat:
    __slots__ = ("agent", "called_at", "dormant", "holds")

    def __init__(self, agent: Agent, now: float) -> None:
        self.agent = agent
        self.called_at = now
        self.dormant = False
        self.holds: dict[int, Hold] = {}

    def calls(self, now: float) -> None:
        self.called_at = now
        self.dormant = False

    def beaten(self) -> Iterator[Hold]:
        """What wants a beat when its time comes."""
        return iter(()) if self.dormant else (hold for hold in self.holds.values() if not hold.lost and not hold.beating)

    def over_at(self, idle_s: float) -> float:
        """When it has slept for longer than any of its leases lasts."""
        return self.called_at + idle_s + max(hold.lease_s for hold in self.holds.values())
