"""What this process has counted to in the statements of its workers."""

import threading

from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Micros


class Counts:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._newest: dict[str, int] = {}
        """Of each worker, by name."""

    def next(self, worker: str, at: Micros, last: int) -> int:
        """Above everything signed for `worker` here, and over a restart as well: it is the time wherever that is more.

        What is too far ahead of the time to be accepted is not counted on from, but for the one job whose `last` it is.
        """
        ahead_max = at + SKEW_US_MAX
        with self._mutex:
            own = self._newest.get(worker, 0) + 1
            count = max(own if own <= ahead_max else 0, last + 1, at)
            if count <= ahead_max:
                self._newest[worker] = count
            return count
