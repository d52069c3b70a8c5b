"""One transaction over named statements: the part that both stores share. The hot verbs and the locks differ.

The hot verbs are the SQL form of `decide` for the plain case of the verbs that workers use most. They return the applied change
for each command, and None where a guard did not hold. The ledger then loads, decides and saves that command in the usual way.
"""

from abc import abstractmethod
from collections.abc import Container, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, Enqueue, Heartbeat, Settle, Start
from holdfast.core.model import Micros, Policy, Status
from holdfast.store.access import SqlAccess
from holdfast.store.agents import SqlAgents
from holdfast.store.diagnostics import SqlDiagnostics
from holdfast.store.fleet import SqlFleet
from holdfast.store.jobs import SqlJobs
from holdfast.store.outbox import SqlSinks
from holdfast.store.policies import RowCache
from holdfast.store.readings import SqlReadings
from holdfast.store.requests import SqlRequests
from holdfast.store.retention import SqlRetention
from holdfast.store.rows import BATCH_EVENTS_MAX, ClaimedJobs, chunks, row_checkpoint_rev, row_id, row_policy_id
from holdfast.store.schedules import SqlSchedules
from holdfast.store.sealing import SqlKeys
from holdfast.store.subqueues import SubqueueName

_job_id = attrgetter("job_id")


class AppliedCommand(NamedTuple):
    """The change that one accepted hot command made."""

    job_id: int
    rev: int
    status: Status
    at: Micros
    lease_expires_at: Micros | None = None
    cancel_requested: bool = False


class EnqueuedRow(NamedTuple):
    """The job that an enqueue created, or the existing one with its key."""

    job_id: int
    at: Micros
    is_new: bool


class Session(
    SqlJobs,
    SqlRequests,
    SqlRetention,
    SqlKeys,
    SqlAgents,
    SqlFleet,
    SqlSchedules,
    SqlSinks,
    SqlAccess,
    SqlDiagnostics,
    SqlReadings,
):
    """One transaction. What is abstract here and in the classes of the features differs by store."""

    def __init__(self, ledger_id: str, cache: RowCache) -> None:
        self.ledger_id = ledger_id
        self.cache = cache
        self.new_profiles: dict[tuple[str, str, str], int] = {}
        self.policies: dict[int, Policy] = {}
        """Like `new_profiles`: not in the cache until this transaction is committed."""
        self.new_subqueues: dict[SubqueueName, int] = {}
        self._policy_ids: dict[Policy, int] = {}
        self.changed_groups: set[int] = set()
        self.careful = False
        """Do not wait for locks of other transactions."""
        self.wakes: set[str] | None = None
        """Queues whose waiters are woken after the commit. None: wake no waiters, not even event followers."""

    def wake(self, queues: Iterable[str]) -> None:
        """At the commit, wake processes that wait for work in these queues and processes that follow the events."""
        self.wakes = set(queues).union(self.wakes or ())

    # Hot verbs

    @abstractmethod
    def enqueue(self, items: Sequence[Enqueue]) -> list[EnqueuedRow]: ...

    @abstractmethod
    def enqueue_keyed(self, item: Enqueue) -> EnqueuedRow: ...

    @abstractmethod
    def claim(self, command: ClaimNext) -> ClaimedJobs: ...

    @abstractmethod
    def claim_statement(self, command: ClaimNext) -> tuple[ClaimedJobs, ClaimNext | None]:
        """Claim by one statement. Return the jobs, and the rest of the command from the first queue on that needs more."""

    @abstractmethod
    def start(self, commands: Sequence[Start]) -> list[AppliedCommand | None]: ...

    @abstractmethod
    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]: ...

    @abstractmethod
    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        """Apply signed heartbeats. The caller has checked that each signed statement matches its heartbeat."""

    @abstractmethod
    def complete(self, commands: Sequence[Complete]) -> list[AppliedCommand | None]: ...

    def settle(self, commands: Sequence[Settle]) -> Container[int]:
        """Complete many different jobs. Return the ids of those that were completed."""
        done: set[int] = set()
        for part in chunks(sorted(commands, key=_job_id), BATCH_EVENTS_MAX):
            first, ids = part[0], [c.job_id for c in part]
            some: Sequence[int] | None = ()
            if len({(c.fence.token, c.fence.attempt, c.request_id, c.payload) for c in part}) == 1:
                some = self.settle_alike(ids, first.fence.token, first.fence.attempt, first.payload, first.request_id)
            done.update(ids if some is None else some or self._settle(part))
        return done

    @abstractmethod
    def settle_alike(
        self, ids: Sequence[int], token: str, attempt: int, payload: bytes, request_id: str | None
    ) -> Sequence[int] | None:
        """Complete jobs of one claim that have this attempt number, with one result. `ids` are sorted.

        Return None if all were completed, else the ids of those that were.
        """

    @abstractmethod
    def _settle(self, commands: Sequence[Settle]) -> Sequence[int]:
        """Complete jobs of several claims, or with several results. Return the ids of those that were completed."""

    def claimed(self, rows: Sequence[tuple[Any, ...]], command: ClaimNext, epoch_us: Micros = 0) -> ClaimedJobs:
        """Return the jobs of the rows of a claim, with times since `epoch_us`. Only checkpoints need a second statement."""
        with_checkpoint = [row_id(row) for row in rows if row_checkpoint_rev(row) is not None]
        found = self.rows("checkpoints", ids=self._list(with_checkpoint)) if with_checkpoint else []
        checkpoints = {id_: payloads.checkpoint_of(body) for id_, body in found}
        policies = {policy_id: self._policy(policy_id) for policy_id in set(map(row_policy_id, rows))}
        return ClaimedJobs(rows, command, policies, self.ledger_id, checkpoints, epoch_us)
