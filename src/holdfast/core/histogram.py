"""The histogram of times: log-linear, with 16 buckets to a doubling.

A bucket is named by its upper edge in microseconds. Only buckets that have times are kept. The bounds of the metrics are edges
too, so what the metrics count is exact. A quantile is the middle of a bucket: it is within 5 % of the true one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import msgspec

MS_US = 1_000
SECOND_US = 1_000_000
BOUNDS_US = (
    1 * MS_US, 2_500, 5 * MS_US, 10 * MS_US, 25 * MS_US, 50 * MS_US, 100 * MS_US, 250 * MS_US, 500 * MS_US,
    1 * SECOND_US, 2_500 * MS_US, 5 * SECOND_US, 10 * SECOND_US, 30 * SECOND_US, 60 * SECOND_US, 120 * SECOND_US, 300 * SECOND_US,
    600 * SECOND_US, 1_800 * SECOND_US, 3_600 * SECOND_US, 14_400 * SECOND_US, 86_400 * SECOND_US,
)  # fmt: skip
"""The upper bounds of the buckets of metrics. The last bucket has no bound and is not listed."""

PARTS = 16
DOUBLINGS = 44
"""The longest time that has a bucket of its own is 8.9 years. A longer one is in the last bucket."""
EDGES_US: tuple[int, ...] = tuple(
    sorted({*range(2 * PARTS), *((PARTS + part) << power for power in range(1, DOUBLINGS) for part in range(PARTS)), *BOUNDS_US})
)
"""The upper edge of each bucket. Times up to 32 us have buckets of their own."""
P50, P95 = 0.5, 0.95
ERROR = "within 5 %"


def edge_of(us: int) -> int:
    """Return the bucket of a time. The statements of PostgreSQL compute the same."""
    return EDGES_US[min(bisect_left(EDGES_US, us), len(EDGES_US) - 1)]


class Histogram(msgspec.Struct, omit_defaults=True, rename={"sum_us": "us", "buckets": "n"}):
    """Times by bucket, and their sum. It is not thread-safe: its owner holds a lock."""

    sum_us: int = 0
    buckets: dict[int, int] = {}
    """The number of times of each bucket, by its edge."""

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    def add(self, times_us: list[int]) -> None:
        """Add times. Sorts the list in place: one search for each bucket is cheaper than one for each time."""
        times_us.sort()
        start = 0
        while start < len(times_us):
            edge = edge_of(times_us[start])
            end = bisect_right(times_us, edge, start) if edge < EDGES_US[-1] else len(times_us)
            self.count_in(edge, end - start)
            start = end
        self.sum_us += sum(times_us)

    def count_in(self, edge: int, count: int, sum_us: int = 0) -> None:
        """Add this many times to a bucket."""
        self.buckets[edge] = self.buckets.get(edge, 0) + count
        self.sum_us += sum_us

    def merge(self, other: "Histogram") -> "Histogram":
        """Add the times of another histogram, and return this one."""
        for edge, count in other.buckets.items():
            self.count_in(edge, count)
        self.sum_us += other.sum_us
        return self

    def copy(self) -> "Histogram":
        return Histogram(self.sum_us, dict(self.buckets))

    def quantile_us(self, share: float) -> float | None:
        """Return the time that this share of the times does not exceed. None without times."""
        left = share * self.count
        for edge, count in sorted(self.buckets.items()):
            left -= count
            if left <= 0:
                return _middle_us(edge)
        return None

    def quantile(self, share: float) -> float | None:
        """Return the same in seconds."""
        found = self.quantile_us(share)
        return None if found is None else found / SECOND_US

    def up_to_bounds(self) -> list[int]:
        """Return how many times do not exceed each of the bounds of the metrics, and how many there are."""
        counts = [0] * (len(BOUNDS_US) + 1)
        for edge, count in self.buckets.items():
            for number in range(bisect_left(BOUNDS_US, edge), len(counts)):
                counts[number] += count
        return counts


def _middle_us(edge: int) -> float:
    """Return the middle of the whole microseconds of a bucket."""
    number = bisect_left(EDGES_US, edge)
    low = EDGES_US[number - 1] + 1 if number else 0
    return (low + edge) / 2


def merged(histograms: Mapping[str, Histogram]) -> Histogram:
    found = Histogram()
    for one in histograms.values():
        found.merge(one)
    return found
