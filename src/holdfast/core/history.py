"""The history of a ledger by minute and by hour: what is counted, and the percentiles of times.

Times are counted in 28 buckets. The first one ends at 1 ms, the last one at 7 d, and each bound is 2.12 times the one before.
So a percentile is at most a factor of 2.12 away from the true one.
"""

import math
from collections.abc import Collection, Iterable, Mapping

import msgspec

from holdfast.core import limits
from holdfast.core.model import EventType, Micros, Status

BUCKETS = 28
SHORTEST_US = 1_000
LONGEST_US = 7 * 86_400_000_000
LOG_RATIO = math.log(LONGEST_US / SHORTEST_US) / (BUCKETS - 1)
RATIO = math.exp(LOG_RATIO)
BOUNDS_US = tuple(SHORTEST_US * RATIO**number for number in range(BUCKETS))
"""The upper bound of each bucket. A longer time is in the last one."""
MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
STEPS_US = {"minute": MINUTE_US, "hour": HOUR_US}
KEPT_US = {"minute": 48 * HOUR_US, "hour": 90 * 24 * HOUR_US}
"""How long the rows of each step are kept."""


def bucket_of(us: float) -> int:
    """Return the bucket of a time. The statements of both stores compute the same."""
    return max(0, min(BUCKETS - 1, math.ceil(math.log(max(us, 1) / SHORTEST_US) / LOG_RATIO)))


def percentile_us(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the time that this share of the times does not exceed, interpolated within its bucket. None without times."""
    left = share * sum(buckets.values())
    for bucket, count in sorted(buckets.items()):
        if left <= count:
            low = BOUNDS_US[bucket - 1] if bucket else 0.0
            return low + (BOUNDS_US[bucket] - low) * left / count
        left -= count
    return None


class Tally(msgspec.Struct, omit_defaults=True):
    """What happened in one minute or one hour."""

    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    dead_lettered: int = 0
    stalled: int = 0
    requeued: int = 0
    queued: int = 0
    """How many more jobs were queued at the end than at the beginning."""
    wait: dict[int, int] = {}
    """Claims by the time that the job had been available, by bucket."""
    run: dict[int, int] = {}
    """Ends of jobs by the time since the start of the attempt, by bucket."""

    def add(self, other: "Tally") -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.queued += other.queued
        _add_buckets(self.wait, other.wait)
        _add_buckets(self.run, other.run)


COUNTED = ("enqueued", "started", "succeeded", "failed", "cancelled", "dead_lettered", "stalled", "requeued")
"""The types of events that are counted."""


def _add_buckets(buckets: dict[int, int], others: Mapping[int, int]) -> None:
    for bucket, count in others.items():
        buckets[bucket] = buckets.get(bucket, 0) + count


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    found = Tally()
    for tally in tallies:
        found.add(tally)
    return found


class CountedEvents(msgspec.Struct, frozen=True):
    """Events of jobs of one queue and kind in one minute that are alike."""

    minute: int
    queue: str
    kind: str
    type: str
    from_status: str | None
    to_status: str
    starts: bool
    """The same jobs were claimed and started by one statement."""
    wait: int | None
    run: int | None
    n: int


def changes_of(found: CountedEvents) -> dict[str, int]:
    """Return how these events change the number of jobs of each status."""
    to_status = Status.RUNNING.value if found.starts else found.to_status
    if found.from_status == to_status:
        return {}
    changes = {to_status: found.n}
    if found.from_status is not None:
        changes[found.from_status] = -found.n
    return changes


def tally_of(found: CountedEvents) -> Tally:
    """Return these events as part of the history of their minute."""
    tally = Tally(queued=changes_of(found).get(Status.QUEUED, 0))
    if found.type in COUNTED:
        setattr(tally, found.type, found.n)
    if found.starts:
        tally.started = found.n
    if found.wait is not None:
        tally.wait[found.wait] = found.n
    if found.run is not None:
        tally.run[found.run] = found.n
    return tally


class Move(msgspec.Struct, frozen=True):
    """A `moved` event of a job."""

    rev: int
    queue: str
    from_queue: str


def queue_at(moves: Iterable[Move], rev: int, queue: str) -> str:
    """Return the queue of a job after its event `rev`. `moves` are its moves, oldest first; `queue` is its present one."""
    return next((move.from_queue for move in moves if move.rev > rev), queue)


def is_other(name: str, own: Collection[str]) -> bool:
    """Return whether a queue or a kind has no history of its own, because others came first. `own` are those that have one."""
    return name not in own and len(own) >= limits.HISTORY_NAMES_MAX


def slot_of(at: Micros, step: str) -> Micros:
    """Return the beginning of the minute or hour of a time."""
    return at - at % STEPS_US[step]


CHART_STEPS_S = (60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
"""The distances between the points of a chart. Those below an hour are made of minutes."""
POINTS_MAX = 400


def chart_step_s(since: Micros, until: Micros, now: Micros) -> int:
    """Return the shortest step with which a chart from `since` to `until` has at most POINTS_MAX points.

    Minutes are kept for 48 h only.
    """
    oldest = now - KEPT_US["minute"]
    for step_s in CHART_STEPS_S:
        if (step_s >= HOUR_US // 1_000_000 or since >= oldest) and points_between(since, until, step_s) <= POINTS_MAX:
            return step_s
    return CHART_STEPS_S[-1]


def points_between(since: Micros, until: Micros, step_s: int) -> int:
    """Return how many points a chart has. The first one begins at or before `since`."""
    step_us = step_s * 1_000_000
    return -(-until // step_us) - since // step_us


assert set(COUNTED) <= {kind.value for kind in EventType}
