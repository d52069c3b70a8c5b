"""Deletion of old data: finished jobs, payloads of heartbeats."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core import payloads
from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import UNDO_KIND, Micros
from holdfast.store.dependencies import SqlDependencies
from holdfast.store.sealing import SqlSeals


class _PruneCandidate(NamedTuple):
    """A job examined for deletion."""

    id: int
    is_bad: bool
    """The job did not succeed."""
    is_failure: bool
    """The job failed or was dead-lettered, and is not discarded."""
    by_jobs: bool | None
    by_failed: bool | None
    may_go: bool | None
    replayed: int | None


class SqlRetention(SqlDependencies, SqlSeals):
    """The part of a transaction that deletes old data. A walk through a table continues where the last one ended."""

    @abstractmethod
    def try_lock_unshared(self, ids: Iterable[int]) -> set[int]:
        """Lock jobs that are to be deleted, without waiting. Return those that another transaction uses."""

    def _walk_position(self, name: str) -> int:
        return self.value("cursor", name=name) or 0

    def _prunable_pos(self) -> int:
        """Return the position up to which data may be deleted. Without a sealer that is everything."""
        found = self.sealed_pos()
        return JOB_ID_MAX if found is None else found

    def prune_jobs(self, before: Micros | None, failed_before: Micros | None, limit: int) -> tuple[int, int]:
        """Delete finished jobs among the next `limit` by id, with their events. After the last job the walk starts over.

        `failed_before` is the limit for failed and dead-lettered jobs that are neither discarded nor replayed, `before` for all
        others. Return how many of the others and how many of the former were deleted. The statement `replayed` defines replayed.

        Jobs that another transaction has locked, or adds a dependent to, stay until the next walk. A replay stays as long as the
        job that it replays: without it, that job would look as if it had not been replayed.

        If the log is sealed, jobs with events that are not in the tree yet stay.
        """
        walk = "prune_failed" if before is None else "prune_jobs"
        times = {"before_at": before, "failed_at": failed_before}
        after, sealed = self._walk_position(walk), self._prunable_pos()
        params = {**times, "undo_kind": UNDO_KIND, "sealed": sealed}
        rows = self.records(_PruneCandidate, "walk_jobs", after=after, limit=limit, **params)
        deletable = [row for row in rows if row.may_go]
        unhandled = {row.id for row in deletable if row.is_failure}
        unhandled -= set(self.values("replayed", ids=self._list(sorted(unhandled))))
        old = [row for row in deletable if (row.by_failed if row.id in unhandled else row.by_jobs)]
        locked = self.try_lock_unshared([row.id for row in old])
        bad = [row.id for row in old if row.is_bad and row.id not in locked]
        staying = locked | (set(bad) - set(self._without_dependents(bad)))
        deleted: set[int] = set()
        for row in old:
            if row.id not in staying and (row.replayed is None or row.replayed in deleted):
                deleted.add(row.id)
        ids = self._list(sorted(deleted))
        batches = self.values("batches_of_jobs", ids=ids)
        self.rows("delete_dependencies", ids=ids)
        self.rows("delete_events", ids=ids)
        self.rows("delete_jobs", ids=ids)
        self.rows("delete_batches", positions=self._list(batches))
        self.rows("set_cursor", name=walk, pos=rows[-1].id if len(rows) == limit else 0)
        return len(deleted - unhandled), len(deleted & unhandled)

    def prune_beats(self, before: Micros, limit: int) -> int:
        """Replace payloads of old heartbeats by their hash. The last heartbeat of a job, its last checkpoint and its undo steps
        stay."""
        after = self._walk_position("prune_beats")
        rows = self.rows("walk_beats", after=after, before_at=before, sealed=self._prunable_pos(), limit=limit)
        old = [(pos, body) for pos, body in rows if body is not None and _is_prunable(body)]
        for pos, body in old:
            digest = payloads.BeatPayload(pruned=hashlib.sha256(body).hexdigest())
            self.rows("strip_beat", pos=pos, payload=digest.encode())
        last, _ = rows[-1] if len(rows) == limit else (0, None)
        self.rows("set_cursor", name="prune_beats", pos=last)
        return len(old)


def _is_prunable(body: bytes) -> bool:
    """Return whether a heartbeat still has its payload, and the payload is not an undo step."""
    return not body.startswith(b'{"pruned"') and payloads.undo_step(body) is None
