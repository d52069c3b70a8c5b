"""Taking away what is old: finished jobs, contents of beats, answers to requests."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core import payloads
from holdfast.core.limits import JOB_ID_MAX
from holdfast.core.model import UNDO_KIND, Micros


class Retention(ABC):
    """The part of a transaction that deletes. Walks through a table go on where the last one ended."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _list(self, values: Iterable[Any]) -> Any: ...

    @abstractmethod
    def try_lock_unshared(self, ids: Iterable[int]) -> set[int]:
        """Lock jobs that are to be deleted, without waiting. Answers those that another transaction uses."""

    @abstractmethod
    def _unwanted(self, ids: Sequence[int]) -> list[int]: ...

    @abstractmethod
    def sealed_pos(self) -> int | None: ...

    def _place(self, name: str) -> int:
        found = self.rows("cursor", name=name)
        return int(found[0][0]) if found else 0

    def _sealed(self) -> int:
        """Up to which position retention may take things away: all there are, where nobody seals them."""
        found = self.sealed_pos()
        return JOB_ID_MAX if found is None else found

    def prune_jobs(self, before: Micros, limit: int) -> int:
        """Delete finished jobs among the next `limit` by id, with their events; the walk starts over at the end.

        Jobs that another transaction has locked, or is making a dependent of, stay until the next walk.

        Where the log is sealed, what is not in the tree yet stays.
        """
        after = self._place("prune_jobs")
        sealed = self._sealed()
        rows = self.rows("walk_jobs", after=after, before_at=before, undo_kind=UNDO_KIND, sealed=sealed, limit=limit)
        locked = self.try_lock_unshared([id_ for id_, _, is_old in rows if is_old])
        old_rows = [(id_, failed) for id_, failed, is_old in rows if is_old and id_ not in locked]
        gone = [id_ for id_, failed in old_rows if not failed]
        gone += self._unwanted([id_ for id_, failed in old_rows if failed])
        old = self._list(gone)
        self.rows("delete_dependencies", ids=old)
        self.rows("delete_events", ids=old)
        self.rows("delete_jobs", ids=old)
        self.rows("set_cursor", name="prune_jobs", pos=rows[-1][0] if len(rows) == limit else 0)
        return len(gone)

    def prune_beats(self, before: Micros, limit: int) -> int:
        """Replace payloads of old beats by their hash. The last beat of a job stays, and so do its last checkpoint and its
        undo steps."""
        after = self._place("prune_beats")
        rows = self.rows("walk_beats", after=after, before_at=before, sealed=self._sealed(), limit=limit)
        old = [(pos, body) for pos, body in rows if body is not None and _may_go(body)]
        for pos, body in old:
            digest = payloads.Beat(pruned=hashlib.sha256(body).hexdigest())
            self.rows("strip_beat", pos=pos, payload=digest.encode())
        self.rows("set_cursor", name="prune_beats", pos=rows[-1][0] if len(rows) == limit else 0)
        return len(old)

    def prune_requests(self, before: Micros, limit: int) -> int:
        return len(self.rows("prune_requests", before_at=before, limit=limit))


def _may_go(body: bytes) -> bool:
    """Whether a beat has contents, and none that somebody may still have to undo."""
    return not body.startswith(b'{"pruned"') and payloads.undo_step(body) is None
