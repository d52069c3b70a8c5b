"""Flow control: which of the jobs that are ready may start next.

Jobs may name a partition, limits that they draw on, labels that their worker needs, or one worker. Jobs of a queue that agree in
all of that, and in kind and priority, compete alike: they form a subqueue, and start in the order of their age. Subqueues of the
same priority take turns. A job without any of these options is in no subqueue.

The functions here are pure. They get what the store has read, and say how many jobs each subqueue may start.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.model import Micros
from holdfast.core.policy import duration_ms, is_duration
from holdfast.errors import ValidationError

VISITS_MAX = 128
"""Subqueues that one round of a claim takes jobs from. A claim of more jobs takes several from each."""
VISITS_MIN = 16
"""Subqueues that one round looks at, at least: some of them may be blocked."""


class FlowRefusal(NamedTuple):
    """Why a worker may not have a job now: a code (label or limit) and a sentence."""

    why: str
    words: str


class LimitBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The numbers of a limit, or of one key of it. A field that is None does not limit."""

    concurrent: int | None = None
    """Units that may be in use at once. With 0, no job starts until the number is changed."""
    rate: int | None = None
    """Units that may start in `per_us`, on average."""
    per_us: int | None = None
    burst: int | None = None
    """Units that may start at once after a pause."""
    by: str | None = None
    """The path of the argument that is the key, such as args.tenant."""

    @property
    def tokens_max(self) -> int:
        """The size of the bucket. The default is what the rate gives in a second, at least 1, and at most what may be set."""
        if self.burst is not None:
            return self.burst
        assert self.rate is not None
        assert self.per_us is not None
        return min(max(1, -(-self.rate * 1_000_000 // self.per_us)), limits.LIMIT_COUNT_MAX)

    def refuses(self, units: int) -> bool:
        """Return whether a job with so many units could never start."""
        return units > (self.concurrent or units) or (self.rate is not None and units > self.tokens_max)


class QueueSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a queue serves its partitions."""

    weights: dict[str, int] = {}
    """Turns of each partition in one round. Partitions without a weight have 1."""


class LimitKey(msgspec.Struct):
    """The state of one key of a limit during a claim. `body` is None if the limit was removed: it then limits nothing."""

    id: int
    limit: str
    key: str
    """The value that the limit counts by, "" without one."""
    body: LimitBody | None
    used: int
    """Units in use, at most: some of their jobs may have ended since they were counted."""
    tokens: float
    filled_at: Micros
    drawn: int = 0
    """Units that were taken, and are not stored as taken yet."""
    is_changed: bool = False

    @property
    def name(self) -> str:
        """The limit and the key, for messages."""
        return f"{self.limit} for {self.key}" if self.key else self.limit

    @property
    def has_rate(self) -> bool:
        return self.body is not None and self.body.rate is not None

    @property
    def is_as_new(self) -> bool:
        """Whether its rate allows as much as that of a key that was never drawn on."""
        return self.body is None or self.body.rate is None or self.tokens + TOKEN_ERROR >= self.body.tokens_max

    def refill(self, now: Micros) -> None:
        """Add the tokens that have come in since the last time. If the clock was set back, they come in from now on."""
        body = self.body
        if self.filled_at > now + CLOCK_STEP_US:
            self.filled_at, self.is_changed = now, True
        if body is not None and body.rate is not None and body.per_us is not None:
            passed = max(0, now - self.filled_at)
            self.tokens = min(float(body.tokens_max), self.tokens + passed * body.rate / body.per_us)
            self.filled_at = max(now, self.filled_at)

    def fits(self, units: int) -> int:
        """Return how many jobs of so many units may start."""
        found = limits.CLAIM_BATCH_MAX
        if self.body is not None and self.body.concurrent is not None:
            found = min(found, (self.body.concurrent - self.used) // units)
        if self.body is not None and self.body.rate is not None:
            found = min(found, int((self.tokens + TOKEN_ERROR) // units))
        return max(0, found)

    def is_full(self, units: int) -> bool:
        """Return whether too many units are in use for one more job."""
        return self.body is not None and self.body.concurrent is not None and self.body.concurrent - self.used < units

    def take(self, units: int) -> None:
        self.used += units
        self.drawn += units
        self.is_changed = self.is_changed or units != 0
        if self.body is not None and self.body.rate is not None:
            self.tokens -= units

    def free(self, units: int) -> None:
        """Leave out units of a job that is about to begin another attempt: that one uses them again."""
        self.used -= units
        self.drawn -= units

    def recount(self, used: int) -> None:
        """Set what is in use. What is drawn comes on top of that."""
        self.is_changed = self.is_changed or self.used != used + self.drawn
        self.used = used + self.drawn

    def give_back(self, units: int) -> None:
        """Undo `take`: there was no job for these units."""
        self.take(-units)

    def next_at(self, units: int) -> Micros | None:
        """Return when the rate allows a job of so many units. None if it allows one now, or will never."""
        body = self.body
        if body is None or body.rate is None or body.per_us is None or self.tokens + TOKEN_ERROR >= units:
            return None
        if units > body.tokens_max:
            return None
        return self.allows_at(units)

    def allows_at(self, units: int) -> Micros:
        """Return when the rate has allowed so many units to start, in one or several jobs."""
        body = self.body
        assert body is not None
        assert body.rate is not None
        assert body.per_us is not None
        return self.filled_at + -int(-(units - self.tokens - TOKEN_ERROR / 1_000) * body.per_us // body.rate)


CLOCK_STEP_US = 1_000_000
"""A key that was filled later than this from now was filled before the clock was set back."""
TOKEN_ERROR = 1e-6
"""The rounding error of a bucket, in tokens."""


class FlowCheck(NamedTuple):
    """Whether flow control lets a worker begin an attempt of a job now."""

    refusal: FlowRefusal | None
    at: Micros = 0
    """The time at which units and tokens were counted. The start must not have an earlier one."""
    draws: Sequence[tuple[LimitKey, int]] = ()
    """The keys that the start draws on, and how many units. They are locked, and do not count what the job uses already."""


class OpenSubqueue(NamedTuple):
    """A subqueue that may have jobs that may start. `draws` are ids of keys and units."""

    id: int
    partition: str
    draws: tuple[tuple[int, int], ...] = ()
    route: int = 0
    waits_since: Micros | None = None
    """Since when it has waited for a limit, without a start since then."""

    @property
    def place(self) -> tuple[str, int]:
        """Its place in the order of turns."""
        return self.partition, self.id


PLAIN = OpenSubqueue(0, "")
"""The jobs of a priority that are in no subqueue."""


class Allocation(NamedTuple):
    """How many jobs each subqueue may start, and the key that blocks each subqueue that may start none."""

    counts: dict[int, int]
    blocked: dict[int, int]
    last: OpenSubqueue | None
    """The subqueue that was served last."""
    left: int
    """How many jobs the turn of that one's partition has left: the claim was too small, or a limit had no room."""


def allocate(
    limit: int, found: Sequence[OpenSubqueue], keys: Mapping[int, LimitKey], weights: Mapping[str, int], left: int = 0
) -> Allocation:
    """Share out a claim of `limit` jobs among subqueues, in their order.

    Partitions take turns; one with the weight 3 gets three times the jobs. The first one has `left` jobs of its last turn left.
    The subqueues of a partition share its turns. A subqueue whose keys are not in `keys` gets none: another claim has locked one
    of them.
    """
    counts: dict[int, int] = {}
    blocked: dict[int, int] = {}
    turn = -(-limit // VISITS_MAX)
    waiting: dict[str, list[OpenSubqueue]] = {}
    for one in found:
        if all(key in keys for key, _ in one.draws):
            waiting.setdefault(one.partition, []).append(one)
    rotations = {partition: _Rotation(members, keys, counts, blocked) for partition, members in waiting.items()}
    last: OpenSubqueue | None = None
    left_of_last = 0
    while limit > 0 and rotations:
        for partition, members in list(rotations.items()):
            share, left = left or turn * weights.get(partition, 1), 0
            taken = members.take(min(limit, share))
            limit -= taken
            if taken:
                last, left_of_last = members.served, share - taken
            if not members.left:
                del rotations[partition]
            if limit <= 0:
                break
    return Allocation(counts, {id_: key for id_, key in blocked.items() if id_ not in counts}, last, left_of_last)


class _Rotation:
    """The subqueues of a partition, in turn, without those that are blocked."""

    def __init__(
        self, members: Sequence[OpenSubqueue], keys: Mapping[int, LimitKey], counts: dict[int, int], blocked: dict[int, int]
    ) -> None:
        self.left = {one.id: one for one in members}
        self.served: OpenSubqueue | None = None
        """The one that got jobs last."""
        self._order: Iterator[int] = cycle([one.id for one in members])
        self._keys = keys
        self._counts = counts
        self._blocked = blocked

    def take(self, count: int) -> int:
        """Give `count` jobs to the subqueues. Return how many they could take."""
        taken = 0
        while taken < count and self.left:
            one = next(self.left[id_] for id_ in self._order if id_ in self.left)
            taken += self._serve(one, count - taken)
        return taken

    def _serve(self, one: OpenSubqueue, count: int) -> int:
        room = min([self._keys[key].fits(units) for key, units in one.draws], default=count)
        got = min(count, room)
        for key, units in one.draws:
            self._keys[key].take(units * got)
        if got:
            self._counts[one.id] = self._counts.get(one.id, 0) + got
            self.served = one
        if one.draws and not all(self._keys[key].fits(units) for key, units in one.draws):
            del self.left[one.id]
            self._blocked[one.id] = next(key for key, units in one.draws if not self._keys[key].fits(units))
        return got


def in_line(found: Sequence[OpenSubqueue]) -> list[OpenSubqueue]:
    """Return subqueues with those that have waited for a limit in the order of their places in line. The others stay in place."""
    waiting = iter(sorted((one for one in found if one.waits_since is not None), key=lambda one: one.waits_since or 0))
    return [one if one.waits_since is None else next(waiting) for one in found]


class BlockedSubqueue(NamedTuple):
    """A subqueue that waits for a key of a limit after a claim."""

    id: int
    key: int
    units: int
    since: Micros | None
    """Its place in the line of the key, among those of its priority. None for the end of the line."""
    has_started: bool = False
    """Whether the claim has started a job of it."""
    rank: int = 0
    route: int = 0


class LinePlace(NamedTuple):
    """The place of a subqueue in the line of a key, and when the key will have room for it, at the latest."""

    id: int
    key: int
    until: Micros
    since: Micros


def line_up(blocked: Iterable[BlockedSubqueue], keys: Mapping[int, LimitKey], now: Micros, latest: Micros) -> list[LinePlace]:
    """Give blocked subqueues places in line. Those at the end that have started a job stand behind those that have not.

    A rate makes room for one of a route after the other, but nothing waits for the tokens of larger jobs, which could take long,
    or for those of another route, which may have no worker. No subqueue stays closed beyond `latest`.
    """
    line = sorted(blocked, key=lambda one: (one.rank, one.since is None, one.since or 0, one.has_started))
    waiting: dict[tuple[int, int], Counter[int]] = {}
    places = []
    for number, one in enumerate(line):
        key, until = keys[one.key], latest
        if key.next_at(one.units) is not None:
            before = waiting.setdefault((one.key, one.route), Counter())
            before[one.units] += 1
            drawn = sum(units * count for units, count in before.items() if units <= one.units)
            until = min(latest, key.allows_at(drawn))
        places.append(LinePlace(one.id, one.key, until, now + number if one.since is None else one.since))
    return places


FIRST_IN_LINE: Micros = 0


class Turn(msgspec.Struct):
    """Where the next claim of a queue goes on, at one priority: after a place in the order of subqueues."""

    after: tuple[str, int]
    is_new: bool = True
    """Whether no claim was made yet."""
    left: int = 0
    """How many jobs the next partition has left of its last turn."""
    served: dict[str, int] = {}
    """The subqueue that was served last of each partition that has several."""

    def order(self, found: Sequence[OpenSubqueue]) -> list[OpenSubqueue]:
        """Return the subqueues, those of each partition beginning after the one that was served last."""
        if not self.served:
            return list(found)
        places = {partition: place for place, partition in reversed(list(enumerate([one.partition for one in found])))}
        return sorted(found, key=lambda one: (places[one.partition], one.id <= self.served.get(one.partition, one.id - 1)))

    def left_for(self, found: Sequence[OpenSubqueue]) -> int:
        """Return how many jobs the first of these subqueues has left of the last turn of its partition."""
        return self.left if found and self.has_left(found[0].partition) else 0

    def has_left(self, partition: str) -> bool:
        """Return whether the turn of this partition has jobs left."""
        return self.left > 0 and partition == self.after[0]

    def with_plain(self, found: Sequence[OpenSubqueue], *, is_full: bool) -> list[OpenSubqueue]:
        """Return these subqueues, which are in the order of turns, with the jobs that have no subqueue.

        Those are one more subqueue of the partition without a name. If the window `is_full`, their turn may come after it.
        """
        place = sum(self._order(one.place) < self._order(PLAIN.place) for one in found)
        if place == len(found) and is_full:
            return list(found)
        return [*found[:place], PLAIN, *found[place:]]

    def _order(self, place: tuple[str, int]) -> tuple[bool, tuple[str, int]]:
        return place <= self.after, place

    def move(self, found: Sequence[OpenSubqueue], allocation: "Allocation", *, is_alone: bool) -> None:
        """Set where the next claim goes on: after the partition that was served last.

        If a partition `is_alone` and has more subqueues than were found, the next claim goes on among them.
        """
        last, self.is_new = allocation.last, False
        if last is None:
            return
        self.left = allocation.left
        if is_alone:
            self.after = (last.partition, last.id - 1) if self.left else last.place
            return
        self.after = (last.partition, FIRST_PLACE[1] if self.left else LAST_ID)
        if sum(one.partition == last.partition for one in found) > 1:
            if len(self.served) >= TURNS_MAX:
                self.served = {}
            self.served[last.partition] = last.id


FIRST_PLACE = ("", -(2**63))
"""The place before the first subqueue."""
LAST_ID = 2**63 - 1
TURNS_MAX = 10_000


def read_ratio(what: str, given: Any, example: str, low_ms: int, high_ms: int) -> tuple[int, int]:
    """Return the number and the microseconds of a text such as 600/1m. 600/m is the same."""
    number, _, period = given.partition("/") if isinstance(given, str) else ("", "", "")
    if period.isalpha():
        period = f"1{period}"
    if not number.isascii() or not number.isdigit() or not is_duration(period):
        raise ValidationError(f'{what} must be a number, a slash and a duration, such as "{example}"', field=what)
    count = limits.check_integer(what, int(number[:20]), 1, limits.LIMIT_COUNT_MAX)
    return count, duration_ms(f"the duration of {what}", period, low_ms, high_ms, what) * 1_000


def key_of(by: str, args: bytes, limit: str) -> str:
    """Return the key of a limit in a job's arguments: the text, whole number or boolean at the path `by`."""
    value: Any = {"args": msgspec.json.decode(args)}
    for name in by.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        value = str(value).lower()
    if value is None or not isinstance(value, str | int):
        raise ValidationError(
            f"limit {limit} is counted by {by}, and the arguments have no text or whole number there",
            field="limits",
            limit_name=limit,
        )
    return limits.check_name(by, str(value))
