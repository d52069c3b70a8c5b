"""One transaction over named statements: the part that both stores share. Only the hot verbs differ."""

from abc import abstractmethod
from collections.abc import Container, Iterable, Sequence
from operator import attrgetter
from typing import Any

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Settle
from holdfast.core.model import Micros, Policy
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


class SqlSession(
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
    """One transaction over named statements."""

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
        self.wakes: set[str] | None = None
        """Queues whose waiters are woken after the commit. None: wake no waiters, not even event followers."""

    def wake(self, queues: Iterable[str]) -> None:
        self.wakes = set(queues).union(self.wakes or ())

    def settle(self, commands: Sequence[Settle]) -> Container[int]:
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
    ) -> Sequence[int] | None: ...

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
