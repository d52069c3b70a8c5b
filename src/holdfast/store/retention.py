"""Taking away what is old: finished jobs, contents of beats, answers to requests."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.core import payloads
from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import UNDO_KIND, Micros


class _PruneCandidate(NamedTuple):
    """A job that a walk has come to."""

    id: int
    is_bad: bool
    """It has not succeeded."""
    is_failure: bool
    """It failed or was dead-lettered, and is not discarded."""
    by_jobs: bool | None
    by_failed: bool | None
    may_go: bool | None
    replayed: int | None


class RetentionSession(ABC):
    """The part of a transaction that deletes. Walks through a table go on where the last one ended."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    @abstractmethod
    def try_lock_unshared(self, ids: Iterable[int]) -> set[int]:
        """Lock jobs that are to be deleted, without waiting. Answers those that another transaction uses."""

    @abstractmethod
    def _without_dependents(self, ids: Sequence[int]) -> list[int]: ...

    @abstractmethod
    def sealed_pos(self) -> int | None: ...

    def _walk_position(self, name: str) -> int:
        found = self.rows("cursor", name=name)
        return int(found[0][0]) if found else 0

    def _prunable_pos(self) -> int:
        """Up to which position retention may take things away: all there are, where nobody seals them."""
        found = self.sealed_pos()
        return JOB_ID_MAX if found is None else found

    def prune_jobs(self, before: Micros | None, failed_before: Micros | None, limit: int) -> tuple[int, int]:
        """Delete finished jobs among the next `limit` by id, with their events; the walk starts over at the end.

        Failed and dead-lettered jobs that are neither discarded nor replayed go by `failed_before`, all others by `before`. The
        answer is how many others and how many of those went. What counts as replayed is said at the statement `replayed`.

        Jobs that another transaction has locked, or is making a dependent of, stay until the next walk. A replay stays while the
        job that it replays is there: that one would seem not to be replayed.

        Where the log is sealed, what is not in the tree yet stays.
        """
        walk = "prune_failed" if before is None else "prune_jobs"
        times = {"before_at": before, "failed_at": failed_before}
        after, sealed = self._walk_position(walk), self._prunable_pos()
        rows = self.rows("walk_jobs", after=after, **times, undo_kind=UNDO_KIND, sealed=sealed, limit=limit)
        known = [row for row in map(_PruneCandidate._make, rows) if row.may_go]
        unhandled = {row.id for row in known if row.is_failure}
        unhandled -= {id_ for (id_,) in self.rows("replayed", ids=self._list(sorted(unhandled)))}
        old = [row for row in known if (row.by_failed if row.id in unhandled else row.by_jobs)]
        locked = self.try_lock_unshared([row.id for row in old])
        bad = [row.id for row in old if row.is_bad and row.id not in locked]
        staying = locked | (set(bad) - set(self._without_dependents(bad)))
        gone: set[int] = set()
        for row in old:
            if row.id not in staying and (row.replayed is None or row.replayed in gone):
                gone.add(row.id)
        ids = self._list(sorted(gone))
        self.rows("delete_dependencies", ids=ids)
        self.rows("delete_events", ids=ids)
        self.rows("delete_jobs", ids=ids)
        self.rows("set_cursor", name=walk, pos=rows[-1][0] if len(rows) == limit else 0)
        return len(gone - unhandled), len(gone & unhandled)

    def prune_beats(self, before: Micros, limit: int) -> int:
        """Replace payloads of old beats by their hash. The last beat of a job stays, and so do its last checkpoint and its
        undo steps."""
        after = self._walk_position("prune_beats")
        rows = self.rows("walk_beats", after=after, before_at=before, sealed=self._prunable_pos(), limit=limit)
        old = [(pos, body) for pos, body in rows if body is not None and _is_prunable(body)]
        for pos, body in old:
            digest = payloads.BeatPayload(pruned=hashlib.sha256(body).hexdigest())
            self.rows("strip_beat", pos=pos, payload=digest.encode())
        self.rows("set_cursor", name="prune_beats", pos=rows[-1][0] if len(rows) == limit else 0)
        return len(old)

    def prune_requests(self, before: Micros, limit: int) -> int:
        return len(self.rows("prune_requests", before_at=before, limit=limit))


def _is_prunable(body: bytes) -> bool:
    """Whether a beat has contents, and none that somebody may still have to undo."""
    return not body.startswith(b'{"pruned"') and payloads.undo_step(body) is None
