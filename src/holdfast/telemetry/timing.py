"""Durations in buckets: what a histogram keeps, and what can be estimated from it."""

from bisect import bisect_right
from itertools import pairwise

MS = 1_000
SECOND = 1_000_000

BOUNDS_US = (
    1 * MS, 2_500, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS,
    1 * SECOND, 2_500 * MS, 5 * SECOND, 10 * SECOND, 30 * SECOND, 60 * SECOND, 120 * SECOND, 300 * SECOND,
    600 * SECOND, 1_800 * SECOND, 3_600 * SECOND, 14_400 * SECOND, 86_400 * SECOND,
)  # fmt: skip
"""The longest duration that each bucket but the last holds, in microseconds; the last holds all beyond."""


class Timing:
    """Durations of one sort. Not safe by itself: whoever owns it has the lock."""

    __slots__ = ("buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def add(self, durations_us: list[int]) -> None:
        """Sorts what it is given: one search a bucket costs less than one a duration."""
        durations_us.sort()
        self.sum_us += sum(durations_us)
        start, count = 0, len(durations_us)
        for place, bound in enumerate(BOUNDS_US):
            end = bisect_right(durations_us, bound, start)
            self.buckets[place] += end - start
            start = end
            if start == count:
                return
        self.buckets[-1] += count - start

    def merged(self, other: "Timing") -> "Timing":
        both = Timing()
        both.buckets = [mine + its for mine, its in zip(self.buckets, other.buckets, strict=True)]
        both.sum_us = self.sum_us + other.sum_us
        return both

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of the durations did not exceed, taken to lie evenly within a bucket; None where there are
        none. Beyond the last bound nothing is known but that: then it is the bound."""
        rank = self.count * share
        if not rank:
            return None
        seen = 0
        for held, (low, high) in zip(self.buckets, pairwise((0, *BOUNDS_US)), strict=False):
            if seen + held >= rank:
                return (low + (high - low) * (rank - seen) / held) / SECOND
            seen += held
        return BOUNDS_US[-1] / SECOND
