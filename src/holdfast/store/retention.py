"""Deletion of old data: finished jobs, payloads of heartbeats."""

import hashlib
import itertools
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.core import payloads
from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import UNDO_KIND, Micros
from holdfast.store.dependencies import SqlDependencies
from holdfast.store.history import SqlHistory
from holdfast.store.sealing import SqlSeals

WALK_PAGES_MAX = 10
"""How many pages of rows that stay one step may pass before it deletes something."""


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
    is_new: bool
    """The job was enqueued after the limits, so it cannot be old enough."""


class SqlRetention(SqlDependencies, SqlSeals, SqlHistory):
    """The part of a transaction that deletes old data. A walk through a table continues where the last one ended."""

    @abstractmethod
    def try_lock_unshared(self, ids: Iterable[int]) -> set[int]:
        """Lock jobs that are to be deleted, without waiting. Return those that another transaction uses."""

    def _with_locked_parts(self, ids: Sequence[int]) -> set[int]:
        """Return those of these jobs of which another transaction has locked an event, a batch or a dependency."""
        return set()

    @abstractmethod
    def _forget_times(self, positions: Sequence[int]) -> None:
        """Delete what is stored about the times of deleted events."""

    def _walk_position(self, name: str) -> int:
        return self.value("cursor", name=name) or 0

    def _prunable_pos(self) -> int:
        """Return the position up to which data may be deleted. Without a sealer that is everything."""
        found = self.sealed_pos()
        return JOB_ID_MAX if found is None else found

    def prune_jobs(self, before: Micros | None, failed_before: Micros | None, limit: int) -> tuple[int, int]:
        """Delete finished jobs among the next `limit` by id, with their events. After the last old job the walk starts over.

        If none of the next `limit` is to be deleted, the step goes on with the next ones, up to WALK_PAGES_MAX times.

        `failed_before` is the limit for failed and dead-lettered jobs that are neither discarded nor replayed, `before` for all
        others. Return how many of the others and how many of the former were deleted. The statement `replayed` defines replayed.

        Jobs that another transaction has locked, or adds a dependent to, stay until the next walk. In a careful run this is also
        true of jobs whose events, batches or dependencies are locked, and of all jobs while another transaction counts events.
        A replay stays as long as the job that it replays: without it, that job would look as if it had not been replayed.

        A job that keeps its dedupe key for some time after its end stays so long. If the log is sealed, jobs with events that are
        not in the tree yet stay.
        """
        walk = "prune_failed" if before is None else "prune_jobs"
        times = {"before_at": before, "failed_at": failed_before, "new_at": max(before or 0, failed_before or 0)}
        after, sealed = self._walk_position(walk), self._prunable_pos()
        old: list[_PruneCandidate] = []
        unhandled: set[int] = set()
        for _ in range(WALK_PAGES_MAX):
            params = {**times, "undo_kind": UNDO_KIND, "sealed": sealed, "now_at": self.stamp()}
            page = self.records(_PruneCandidate, "walk_jobs", after=after, limit=limit, **params)
            after = 0 if len(page) < limit or all(row.is_new for row in page) else page[-1].id
            unhandled = self._unhandled(page)
            old = [row for row in page if row.may_go and (row.by_failed if row.id in unhandled else row.by_jobs)]
            if old or not after:
                break
        wanted = [row.id for row in old]
        locked = self.try_lock_unshared(wanted)
        if self.careful and wanted:
            locked |= self._with_locked_parts(wanted)
        bad = [row.id for row in old if row.is_bad and row.id not in locked]
        staying = locked | (set(bad) - set(self._without_dependents(bad)))
        deleted: set[int] = set()
        for row in old:
            if row.id not in staying and (row.replayed is None or row.replayed in deleted):
                deleted.add(row.id)
        if deleted and self.uncount(sorted(deleted)):
            self._delete(sorted(deleted))
        else:
            deleted.clear()
        self.rows("set_cursor", name=walk, pos=after)
        return len(deleted - unhandled), len(deleted & unhandled)

    def _delete(self, jobs: Sequence[int]) -> None:
        """Delete jobs with their events, and the batches of which no job is left."""
        ids = self._list(jobs)
        batches = self.values("batches_of_jobs", ids=ids)
        self.rows("delete_dependencies", ids=ids)
        gone = self.values("delete_events", ids=ids)
        self.rows("delete_jobs", ids=ids)
        gone += self.values("delete_batches", positions=self._list(batches))
        self._forget_times(gone)

    def _unhandled(self, page: Iterable[_PruneCandidate]) -> set[int]:
        """Return the failures among deletable jobs that are neither discarded nor replayed."""
        failures = {row.id for row in page if row.may_go and row.is_failure}
        return (
            failures - {letter for letter, _ in self.rows("replayed", ids=self._list(sorted(failures)))} if failures else failures
        )

    def prune_beats(self, before: Micros, limit: int) -> int:
        """Replace payloads of old heartbeats by their hash. The last heartbeat of a job, its last checkpoint and its undo steps
        stay.

        The walk ends at the first event that is not old, and goes on from there. What is left of the step examines earlier events
        again, because some of them stayed only for a time. If the next `limit` events have nothing to strip, the step goes on,
        up to WALK_PAGES_MAX times.
        """
        for _ in range(WALK_PAGES_MAX):
            end, stripped, examined = self._walk_beats("prune_beats", JOB_ID_MAX, before, limit)
            if examined < limit:
                return stripped + self._walk_beats("prune_beats_again", end, before, limit - examined)[1]
            if stripped:
                return stripped
        return 0

    def _walk_beats(self, walk: str, until: int, before: Micros, limit: int) -> tuple[int, int, int]:
        """Strip old heartbeats among the next `limit` events up to a position. Return where the walk is, how many heartbeats were
        stripped, and how many events were examined. A walk that has reached `until` starts over."""
        after, sealed = self._walk_position(walk), self._prunable_pos()
        rows = self.rows("walk_beats", after=after, until=until, before_at=before, sealed=sealed, limit=limit)
        old = [(pos, body) for pos, body, _ in itertools.takewhile(_is_old, rows)]
        prunable = [(pos, body) for pos, body in old if body is not None and _is_prunable(body)]
        for pos, body in prunable:
            digest = payloads.BeatPayload(pruned=hashlib.sha256(body).hexdigest())
            self.rows("strip_beat", pos=pos, payload=digest.encode())
        is_over = until < JOB_ID_MAX and len(rows) < limit
        last, _ = old[-1] if old else (after, None)
        end = 0 if is_over else last
        if end != after:
            self.rows("set_cursor", name=walk, pos=end)
        return end, len(prunable), len(old)


def _is_old(row: tuple[Any, ...]) -> bool:
    """Return whether an event of the walk is older than the limit."""
    _, _, is_new = row
    return not is_new


def _is_prunable(body: bytes) -> bool:
    """Return whether a heartbeat still has its payload, and the payload is not an undo step."""
    return not body.startswith(b'{"pruned"') and payloads.undo_step(body) is None
