"""Where the live rows of a queue begin, for the kinds that a claim asks for.

While an old transaction holds back vacuum, a claim has to skip the index entries of every job that was ever ready: throughput
halves over 100,000 jobs. So after a slow scan, the next ones start where it ended. After half a second, or later if the scan was
very slow, one scan starts at the beginning again and finds jobs that were added before the mark.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.core.commands import ClaimNext

SLOW_SECONDS = 0.005
KEEP_SECONDS = 0.5
KEEP_SCANS = 20
"""A mark is kept for at least this many times the duration of the scan that it avoids, so full scans cost a twentieth."""
KEEP_SECONDS_MAX = 5.0
MARKS_MAX = 1_000
"""The most marks kept. The oldest ones are dropped."""
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


class LowWaterMark(NamedTuple):
    """A position in the order of claims: after this rank (minus the priority), time and id."""

    rank: int = -(2**31)
    available_at: datetime | None = _BEGINNING
    job_id: int = 0

    @property
    def is_set(self) -> bool:
        return self.job_id > 0


Key = tuple[str, tuple[str, ...] | None]


class LowWaterMarks:
    """Marks by queue and kinds. A claim for other kinds may need the rows that this one skips."""

    def __init__(self) -> None:
        self._marks: dict[Key, tuple[LowWaterMark, float]] = {}

    def of(self, command: ClaimNext) -> list[LowWaterMark]:
        """Return where the scan starts in each queue of the claim."""
        now = time.monotonic()
        found = [self._marks.get(key, (LowWaterMark(), float("-inf"))) for key in _keys(command)]
        return [mark if now < until else LowWaterMark() for mark, until in found]

    def drop(self, command: ClaimNext) -> None:
        for key in _keys(command):
            self._marks.pop(key, None)

    def learn(
        self, command: ClaimNext, begun: Sequence[LowWaterMark], *, seconds: float, last: Mapping[str, LowWaterMark]
    ) -> None:
        """Update the marks after a scan that started at `begun`, took `seconds`, and ended at `last` in queues with jobs.

        A scan from the beginning of a queue decides whether a mark is needed. Other scans advance the mark. In a queue without
        jobs the mark stays.
        """
        keep_until = time.monotonic() + min(max(KEEP_SECONDS, KEEP_SCANS * seconds), KEEP_SECONDS_MAX)
        for key, mark in zip(_keys(command), begun, strict=True):
            known = self._marks.pop(key, None)
            end = last.get(key[0]) or (known and known[0])
            if end and mark.is_set and known:
                self._marks[key] = (end, known[1])
            elif end and not mark.is_set and seconds > SLOW_SECONDS:
                self._marks[key] = (end, keep_until)
        while len(self._marks) > MARKS_MAX:
            self._marks.pop(next(iter(self._marks)), None)


def _keys(command: ClaimNext) -> list[Key]:
    return [(queue, command.kinds) for queue in command.queues]
