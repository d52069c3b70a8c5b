"""What is counted of a ledger's events: by minute, by hour, and since they are counted; and the times of jobs.

The histogram of times is log-linear, with 16 buckets to a doubling. A bucket is named by its upper edge in microseconds. Only
buckets that have times are kept. The bounds of the metrics are edges too, so what the metrics count is exact. A quantile is the
middle of a bucket: it is within 5 % of the true one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable

import msgspec

from holdfast.core import limits
from holdfast.core.formatting import RETRIED
from holdfast.core.model import EventType, Micros, Status

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


def merged(histograms: Iterable[Histogram]) -> Histogram:
    found = Histogram()
    for one in histograms:
        found.merge(one)
    return found


MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
STEPS_US = {"minute": MINUTE_US, "hour": HOUR_US}
KEPT_US = {"minute": 48 * HOUR_US, "hour": 90 * 24 * HOUR_US}
"""How long the rows of each step are kept."""
EVER = "ever"
"""The step of the rows that are about all time: those of all jobs and those of each kind, at time 0."""


class Tally(msgspec.Struct, omit_defaults=True):
    """What happened in one minute, in one hour or ever."""

    events: dict[str, int] = {}
    """The number of events of each type. A stall for a transient error counts as `retried`."""
    queued: int = 0
    """How many more jobs were queued at the end than at the beginning."""
    wait: Histogram = msgspec.field(default_factory=Histogram)
    """Claims by the time that the job had been available."""
    run: dict[str, Histogram] = {}
    """Ends of jobs by the time since the start of the attempt, for each outcome."""

    def add(self, other: "Tally") -> None:
        for name, n in other.events.items():
            self.events[name] = self.events.get(name, 0) + n
        self.queued += other.queued
        self.wait.merge(other.wait)
        for outcome, times in other.run.items():
            self.run.setdefault(outcome, Histogram()).merge(times)

    def count(self, type_: str) -> int:
        """Return the number of events of a type. Stalls for transient errors are stalls here."""
        return self.events.get(type_, 0) + (self.events.get(RETRIED, 0) if type_ == EventType.STALLED else 0)


COUNTED = ("enqueued", "started", "succeeded", "failed", "cancelled", "dead_lettered", "stalled", "requeued")
"""The types of events that charts and kinds show."""
OUTCOMES = ("succeeded", "failed", "cancelled", "dead_lettered")


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
    """The bucket of the wait, if it is known."""
    run: int | None
    wait_us: int
    """The sum of the waits."""
    run_us: int
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
    tally = Tally(events={found.type: found.n}, queued=changes_of(found).get(Status.QUEUED, 0))
    if found.starts:
        tally.events["started"] = found.n
    if found.wait is not None:
        tally.wait.count_in(found.wait, found.n, found.wait_us)
    if found.run is not None:
        tally.run[found.type] = Histogram(found.run_us, {found.run: found.n})
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


SeriesKey = tuple[str, str]
"""A scope (`all`, `queue` or `kind`) and a name."""


def is_kept(step: str, scope: str, slot: Micros, now: Micros) -> bool:
    """Return whether there is a row for a slot. Queues have none for all time."""
    return scope != "queue" if step == EVER else slot + STEPS_US[step] > now - KEPT_US[step]


def last_hours(used: Iterable[tuple[SeriesKey, int]], now: Micros) -> dict[SeriesKey, Micros]:
    """Return the last hour of each queue and kind, from the minutes in which they were used. Hours that are over are left out."""
    hours: dict[SeriesKey, Micros] = {}
    for (scope, name), minute in sorted(used, key=lambda one: one[1]):
        hour = slot_of(minute * MINUTE_US, "hour")
        if scope != "all" and hour >= now - KEPT_US["hour"]:
            hours[scope, name] = hour
    return hours


def with_own_history(known: Collection[SeriesKey], used: Iterable[SeriesKey]) -> set[SeriesKey]:
    """Return the queues and kinds that have a history of their own after some were used, in this order."""
    found = set(known)
    room = {name: limits.HISTORY_NAMES_MAX - sum(scope == name for scope, _ in found) for name in ("queue", "kind")}
    for scope, name in used:
        if (scope, name) not in found and room[scope] > 0:
            room[scope] -= 1
            found.add((scope, name))
    return found


def slot_of(at: Micros, step: str) -> Micros:
    """Return the beginning of the minute or hour of a time."""
    return 0 if step == EVER else at - at % STEPS_US[step]


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
