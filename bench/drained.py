"""Wait until a worker in another process has finished so many jobs."""

import time

from bench.places import Place

DRAIN_SECONDS = 600.0
LOOK_SECONDS = 0.01


class Drained:
    """Count the jobs that succeed after a position. Only the newest batches are read: more would disturb the measurement."""

    def __init__(self, place: Place, after: int) -> None:
        self._place = place
        self._start = after
        self._sizes: dict[int, int] = {}

    def reached(self, count: int) -> float:
        """Wait until this many jobs have succeeded. Return the time, by `time.perf_counter`."""
        deadline = time.perf_counter() + DRAIN_SECONDS
        while sum(self._sizes.values()) < count:
            assert time.perf_counter() < deadline, "the worker does not come to an end"
            time.sleep(LOOK_SECONDS)
            self._sizes |= self._place.succeeded(self._start, max(self._sizes, default=self._start))
        return time.perf_counter()
