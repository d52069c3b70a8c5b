"""Queries for `explain`: the jobs of a queue that a claim takes before one of its jobs."""

from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.explain.order import Rival
from holdfast.core.flow import LimitKey
from holdfast.core.limits import PRIORITY_MAX
from holdfast.core.model import JobRecord, Micros
from holdfast.store.limits import SqlLimits
from holdfast.store.subqueues import decode_draws


class SqlRivals(SqlLimits):
    def ahead(self, job: JobRecord, limit: int) -> int:
        """Return how many jobs without a subqueue and of the same priority precede a job, `limit` at most."""
        place = {"queue": job.queue, "priority": job.priority, "available_at": job.available_at, "id": job.id}
        return int(self.value("ahead", now_at=self.stamp(), limit=limit, **place))

    def ahead_like(self, job: JobRecord, subqueue: int, limit: int) -> int:
        """Return how many jobs of its subqueue precede a job, `limit` at most."""
        place = {"queue": job.queue, "priority": job.priority, "available_at": job.available_at, "id": job.id}
        return int(self.value("ahead_like", now_at=self.stamp(), subqueue=subqueue, limit=limit, **place))

    def priorities(self, queue: str, lowest: int) -> list[int]:
        """Return the priorities that the queued jobs of a queue have, down to the lowest one."""
        return self.values("priorities", queue=queue, rank_from=-PRIORITY_MAX, rank_until=-lowest)

    def count_plain(self, queue: str, before: Mapping[int, Micros], limit: int) -> int:
        """Count the jobs without a subqueue, up to a time for each priority, `limit` at most."""
        table = self._table(ranks=[-priority for priority in before], times=list(before.values()))
        return int(self.value("count_plain", queue=queue, limit=limit, **table)) if before else 0

    def rivals(self, queue: str, priorities: Sequence[int], limit: int) -> list[Rival]:
        """Return subqueues with queued jobs of these priorities, `limit` at most."""
        if not priorities:
            return []
        rows = self.rows("rivals", queue=queue, limit=limit, **self._table(ranks=[-priority for priority in priorities]))
        return [
            Rival(id_, -rank, kind, worker, frozenset(map(str, self._decode_list(requires))), decode_draws(draws), first_at)
            for id_, rank, kind, worker, requires, draws, first_at in rows
        ]

    def count_rivals(self, queue: str, rivals: Sequence[Rival], before: Mapping[int, Micros], limit: int) -> dict[int, int]:
        """Count the jobs of subqueues, up to a time for each priority, `limit` at most over all of them."""
        if not rivals:
            return {}
        columns = zip(*[(one.id, -one.priority, before[one.priority]) for one in rivals], strict=True)
        table = self._table(**dict(zip(("subqueues", "ranks", "times"), columns, strict=True)))
        return {id_: int(count) for id_, count in self.rows("count_rivals", queue=queue, limit=limit, **table)}

    def key_states(self, ids: Iterable[int], now: Micros) -> dict[int, LimitKey]:
        """Return the states of keys of limits. What is in use is counted for those that seem to have no room."""
        keys = self._read_keys(ids) if (ids := set(ids)) else {}
        for key in keys.values():
            key.refill(now)
        full = [key for key in keys.values() if key.is_full(1)]
        used = self.count_used([key.id for key in full]) if full else {}
        for key in full:
            key.recount(used[key.id])
        return keys
