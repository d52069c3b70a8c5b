"""Who waits for whom, as both stores keep it. The caller holds the locks that each step needs."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.waiting import Standing
from holdfast.store.base import STATUSES


class Waiting(ABC):
    """The part of a transaction that jobs need which wait for others."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    @abstractmethod
    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> dict[str, Any]:
        """Pairs of numbers as parameters."""

    @abstractmethod
    def lock(self, ids: Iterable[int]) -> None: ...

    def draw_ids(self, count: int) -> list[int]:
        """Ids for as many new jobs, ascending."""
        return sorted(row[0] for row in self.rows("draw_ids", numbers=self._list(range(1, count + 1))))

    def standings(self, ids: Iterable[int]) -> dict[int, Standing]:
        """Where these jobs stand, those that there are; locked, so that they stay there until this transaction ends."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        self.lock(wanted)
        found = self.rows("standings", ids=self._list(wanted))
        return {id_: Standing(id_, STATUSES[status], rev, replay) for id_, status, rev, replay in found}

    def link(self, edges: Mapping[int, Sequence[int]], unmet: Mapping[int, Sequence[int]]) -> None:
        """Note whom each new job depends on, and that it waits for the `unmet` ones among them."""
        self.rows("insert_dependencies", **self._pairs((job_id, on_id) for job_id, on in edges.items() for on_id in on))
        if unmet:
            self.rows("set_waits", **self._pairs((job_id, len(on)) for job_id, on in unmet.items()))
            counted = Counter(on_id for on in unmet.values() for on_id in on)
            self.rows("add_dependents", **self._pairs(sorted(counted.items())))

    def lock_waiting(self, on_ids: Sequence[int]) -> list[int]:
        """Those who wait for any of these jobs, locked, ascending."""
        return [row[0] for row in self.rows("lock_waiting", on_ids=self._list(on_ids))]

    def meet(self, ids: Sequence[int]) -> list[int]:
        """Each of these waits for one less; answers those who wait for nobody now, ascending."""
        return sorted(id_ for id_, left in self.rows("meet", ids=self._list(ids)) if left == 0)

    def downstream(self, ids: Iterable[int]) -> list[int]:
        """These jobs and everybody who might be told of their end."""
        return [row[0] for row in self.rows("downstream", ids=self._list(ids))]

    def hand_on(self, from_id: int, to_id: int) -> None:
        """Whoever waits for one job waits for the other from here on."""
        moved = self.rows("hand_on", from_id=from_id, to_id=to_id)
        if moved:
            self.rows("add_dependents", **self._pairs([(to_id, len(moved))]))

    def dependents(self, job_id: int, after: int, limit: int) -> list[int]:
        """Those who wait, or have waited, for a job."""
        return [row[0] for row in self.rows("dependents", on_id=job_id, after=after, limit=limit)]

    def _unwanted(self, ids: Sequence[int]) -> list[int]:
        """Those of these finished jobs that nobody waits for, nor will before this transaction ends."""
        if not ids:
            return []
        self.lock(ids)
        waited = {row[0] for row in self.rows("waited_for", ids=self._list(ids))}
        return [id_ for id_ in ids if id_ not in waited]
