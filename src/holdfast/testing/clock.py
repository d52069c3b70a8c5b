"""A manual clock, and entropy without jitter."""

from datetime import UTC, datetime, timedelta

from holdfast.composition import SystemEntropy

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock for tests. `advance` lets time pass. `jump` steps the wall clock without letting time pass."""

    is_manual = True
    """Workers warn of such a clock: its time passes only in calls of `advance`."""

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        if start.utcoffset() is None:
            raise ValueError("start needs a time zone")
        self._now = start
        self._elapsed = timedelta()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that have passed. Steps of the wall clock do not change it."""
        return self._elapsed.total_seconds()

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("seconds must not be negative; jump() steps the wall clock back")
        self._now += timedelta(seconds=seconds)
        self._elapsed += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class NoJitter(SystemEntropy):
    """Random tokens as usual, but backoffs without jitter, exactly as in the policy."""

    def jitter(self) -> float:
        return 1.0
