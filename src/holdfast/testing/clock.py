"""A manual clock, and entropy without jitter."""

from datetime import UTC, datetime, timedelta

from holdfast.composition import SystemEntropy

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """`advance` lets time pass; `jump` steps the wall clock while no time passes."""

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        if start.utcoffset() is None:
            raise ValueError("start needs a time zone")
        self._now = start
        self._elapsed = timedelta()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        """Seconds that have passed; no step of the wall clock shows in it."""
        return self._elapsed.total_seconds()

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not pass backwards; jump() steps the wall clock")
        self._now += timedelta(seconds=seconds)
        self._elapsed += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class NoJitter(SystemEntropy):
    """Tokens as random as ever, and backoffs that are exactly what the policy says."""

    def jitter(self) -> float:
        return 1.0
