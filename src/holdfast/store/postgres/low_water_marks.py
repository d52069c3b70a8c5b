"""Where the live rows of a queue begin, for the kinds that a claim asks for.

When a transaction pins the vacuum horizon, a claim has to step over the index entries of every job that was ever ready: the
drain falls to half over 100,000 jobs. So when a scan was slow, the next ones start where it ended. After half a second, or as
seldom as a slow scan is to cost little, one starts at the beginning again and finds what has come in before the mark.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.core.commands import ClaimNext

SLOW_SECONDS = 0.005
KEEP_SECONDS = 0.5
KEEP_SCANS = 20
"""A mark is kept for at least this many times the scan it spares: then looking from the beginning costs a twentieth."""
KEEP_SECONDS_MAX = 5.0
MARKS_MAX = 1_000
"""Marks that are remembered; the oldest are forgotten."""
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


class LowWaterMark(NamedTuple):
    """A place in the order of claims: after this rank (minus the priority), time and id."""

    rank: int = -(2**31)
    available_at: datetime | None = _BEGINNING
    job_id: int = 0

    @property
    def is_set(self) -> bool:
        return self.job_id > 0


Key = tuple[str, tuple[str, ...] | None]


class LowWaterMarks:
    """By queue and kinds: a claim for other kinds may want the rows that this one skips."""

    def __init__(self) -> None:
        self._marks: dict[Key, tuple[LowWaterMark, float]] = {}

    def of(self, command: ClaimNext) -> list[LowWaterMark]:
        """Where to begin in each queue of the claim."""
        now = time.monotonic()
        found = [self._marks.get(key, (LowWaterMark(), float("-inf"))) for key in _keys(command)]
        return [mark if now < until else LowWaterMark() for mark, until in found]

    def drop(self, command: ClaimNext) -> None:
        for key in _keys(command):
            self._marks.pop(key, None)

    def learn(
        self, command: ClaimNext, begun: Sequence[LowWaterMark], *, seconds: float, last: Mapping[str, LowWaterMark]
    ) -> None:
        """A scan from these marks took this long and ended, in each queue where it found jobs, at `last`.

        Where it went from the beginning of a queue, it decides whether a mark is needed; elsewhere it moves the mark on. A queue
        in which it found nothing keeps the place that it had.
        """
        keep = time.monotonic() + min(max(KEEP_SECONDS, KEEP_SCANS * seconds), KEEP_SECONDS_MAX)
        for key, mark in zip(_keys(command), begun, strict=True):
            known = self._marks.pop(key, None)
            place = last.get(key[0]) or (known and known[0])
            if place and mark.is_set and known:
                self._marks[key] = (place, known[1])
            elif place and not mark.is_set and seconds > SLOW_SECONDS:
                self._marks[key] = (place, keep)
        while len(self._marks) > MARKS_MAX:
            self._marks.pop(next(iter(self._marks)), None)


def _keys(command: ClaimNext) -> list[Key]:
    return [(queue, command.kinds) for queue in command.queues]
