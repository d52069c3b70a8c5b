"""Where the live rows of a queue begin.

When something pins the vacuum horizon, a claim has to step over the index entries of every job that was ever ready: the drain
falls to half over 100,000 jobs. So when a scan was slow, the next ones start where it ended; every half second, or as seldom as a
slow scan is to cost little, one starts at the beginning again, to find what has come in before the mark.
"""

import time
from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.core.commands import ClaimNext

SLOW_SECONDS = 0.005
KEEP_SECONDS = 0.5
KEEP_SCANS = 20
"""A mark is kept for at least this many times the scan it spares: then looking from the beginning costs a twentieth."""
KEEP_SECONDS_MAX = 5.0
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


class Mark(NamedTuple):
    """A place in the order of claims: after this rank (minus the priority), time and id."""

    rank: int = -(2**31)
    available_at: datetime | None = _BEGINNING
    job_id: int = 0

    @property
    def is_set(self) -> bool:
        return self.job_id > 0


class Marks:
    """By queue. Only plain claims from one queue use them: for others the skipped rows may be wanted."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[Mark, float]] = {}

    def of(self, command: ClaimNext) -> Mark:
        mark, until = self._marks.get(command.queues[0], (Mark(), float("-inf")))
        return mark if _plain(command) and time.monotonic() < until else Mark()

    def drop(self, command: ClaimNext) -> None:
        self._marks.pop(command.queues[0], None)

    def learn(self, command: ClaimNext, *, seconds: float, last: Mark, full: bool) -> None:
        """A scan took this long and ended there. A full one decides whether a mark is needed; others move it on."""
        if not _plain(command):
            return
        queue = command.queues[0]
        if full:
            if seconds > SLOW_SECONDS:
                keep = min(max(KEEP_SECONDS, KEEP_SCANS * seconds), KEEP_SECONDS_MAX)
                self._marks[queue] = (last, time.monotonic() + keep)
            else:
                self._marks.pop(queue, None)
        elif queue in self._marks:
            self._marks[queue] = (last, self._marks[queue][1])


def _plain(command: ClaimNext) -> bool:
    return len(command.queues) == 1 and command.kinds is None
