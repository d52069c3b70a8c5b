"""Queries for `explain`, `doctor` and lists of dead letters."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.doctor.model import ReadyJobs
from holdfast.core.model import JobRecord, Micros
from holdfast.store.statement_session import StatementSession


class EventTime(NamedTuple):
    pos: int
    at: Micros


class SqlDiagnostics(StatementSession):
    def status_since(self, job: JobRecord) -> Micros:
        """Return when the job entered its status."""
        return int(self.value("status_since", jobs=self._list([job.id])))

    def newest_replays(self, ids: Iterable[int]) -> dict[int, int]:
        """Return the newest replay of each of these jobs that was replayed."""
        return dict(self.rows("newest_replays", ids=self._list(ids)))

    def replayed(self, ids: Iterable[int]) -> dict[int, int]:
        """Return those of these jobs that have been replayed, each with the newest replay that counts.

        A replay that failed or was cancelled does not count, unless it was replayed itself. A replay that was dead-lettered
        counts, because it is a dead letter itself.
        """
        return dict(self.rows("replayed", ids=self._list(ids)))

    def failed_left(self, limit: int) -> int:
        """Count failed jobs that are neither discarded nor replayed, up to `limit`. A cancelled replay does not count."""
        return int(self.value("failed_left", limit=limit))

    def count_waiting_for_failed(self, limit: int) -> int:
        """Count jobs that wait for one that failed, was cancelled or was dead-lettered, up to `limit`."""
        return int(self.value("count_waiting_for_failed", limit=limit))

    def ready(self, limit: int) -> list[ReadyJobs]:
        """Count claimable jobs by queue and kind, longest waiting first. Paused queues are included."""
        return self.records(ReadyJobs, "ready", now_at=self.stamp(), limit=limit)

    def ready_elsewhere(self, routes: Iterable[int], limit: int) -> list[ReadyJobs]:
        """Count claimable jobs like `ready`, without those of some routes."""
        return self.records(ReadyJobs, "ready_elsewhere", now_at=self.stamp(), ids=self._list(routes), limit=limit)

    def first_ready(self, each: int, limit: int) -> list[ReadyJobs]:
        """Count claimable jobs among the first `each` of every priority of every queue, longest waiting first.

        Unlike `ready`, it does not read all of them, so `jobs` is a lower bound.
        """
        return self.records(ReadyJobs, "first_ready", now_at=self.stamp(), each=each, limit=limit)

    def event_from(self, pos: int) -> EventTime | None:
        """Return the first event at or after a position, with the time at which it was recorded."""
        return self.record(EventTime, "event_from", pos=pos)

    def size(self) -> tuple[int | None, int]:
        """Return the estimated number of events, None without an estimate, and the bytes that the ledger takes on disk."""
        [(rows, bytes_)] = self.rows("size")
        return rows, int(bytes_)
