"""Subqueues: jobs of a queue that compete alike, and the notes that say which of them have got jobs or room."""

from abc import abstractmethod
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.commands import Enqueue
from holdfast.core.doctor.model import LimitTrouble, RoutedJobs
from holdfast.core.model import Flow, JobRecord, Micros, own_label
from holdfast.store.limits import SqlLimits
from holdfast.store.policies import RowCache

_encode = msgspec.json.Encoder().encode
_draws = msgspec.json.Decoder(tuple[tuple[int, int], ...])
NAMES_FORGOTTEN = "forget_names"
"""The cursor that is the time at which routes and keys without subqueues were last deleted."""
NAMES_KEPT_US = 3_600_000_000


class SubqueueName(NamedTuple):
    """What the jobs of a subqueue have in common."""

    queue: str
    priority: int
    kind: str
    flow: Flow


class Line(NamedTuple):
    """The subqueues of a route that wait for a key, and how many of them may be opened."""

    key: int
    route: int
    most: int


@lru_cache(maxsize=10_000)
def decode_draws(text: str) -> tuple[tuple[int, int], ...]:
    return _draws.decode(text)


class SqlSubqueues(SqlLimits):
    cache: RowCache
    new_subqueues: dict[SubqueueName, int]

    def subqueue_ids(self, items: Sequence[Enqueue]) -> list[int | None]:
        """Return the subqueue of each of these new jobs, None for those without flow control."""
        names = [None if item.flow is None else SubqueueName(item.queue, item.priority, item.kind, item.flow) for item in items]
        known = self.find_subqueues({name for name in names if name is not None})
        return [None if name is None else known[name] for name in names]

    def subqueue_of(self, job: JobRecord) -> int | None:
        """Return the subqueue in which a queued job competes."""
        if job.flow is None:
            return None
        name = SubqueueName(job.queue, job.priority, job.kind, job.flow)
        return self.find_subqueues({name})[name]

    def find_subqueues(self, names: set[SubqueueName]) -> dict[SubqueueName, int]:
        """Return the numbers of subqueues. Those that do not exist are made."""
        known = self.cache.known_subqueues(self.stamp())
        found = {name: id_ for name in names if (id_ := known.get(name) or self.new_subqueues.get(name))}
        missing = sorted(names - found.keys(), key=_order)
        if missing:
            made = self.intern_subqueues(missing)
            self.new_subqueues |= made
            found |= made
        return found

    def intern_subqueues(self, names: Sequence[SubqueueName]) -> dict[SubqueueName, int]:
        """Make subqueues, with their routes and keys, where they do not exist yet, and return their numbers."""
        self._lock_names(alone=False)
        for queue in sorted({name.queue for name in names}):
            self.rows("mark_flow_queue", queue=queue)
        routes = self._intern("routes", [_route(name) for name in names], ("queues", "workers", "kinds", "labels"))
        drawn = [(draw.limit, draw.key) for name in names for draw in name.flow.limits]
        keys = self._intern("limit_keys", drawn, ("names", "keys"))
        rows = [
            (
                name.queue,
                -name.priority,
                routes[_route(name)],
                name.flow.partition,
                _encode(sorted((keys[draw.limit, draw.key], draw.units) for draw in name.flow.limits)).decode(),
            )
            for name in names
        ]
        made = self._intern("subqueues", rows, ("queues", "ranks", "routes", "partitions", "draws"))
        return {name: made[row] for name, row in zip(names, rows, strict=True)}

    @abstractmethod
    def _lock_names(self, *, alone: bool) -> bool:
        """Lock the names of subqueues, routes and keys, together with others or `alone`. Return False if others have them."""

    def _intern(self, what: str, rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> dict[tuple[Any, ...], int]:
        wanted = sorted(set(rows))
        if not wanted:
            return {}
        params = self._table(**dict(zip(columns, zip(*wanted, strict=True), strict=True)))
        times = {"now_at": self.stamp()} if what == "subqueues" else {}
        self.rows(f"add_{what}", **params, **times)
        return {wanted[number - 1]: id_ for number, id_ in self.rows(f"find_{what}", **params)}

    def _draws_of(self, job: JobRecord) -> tuple[tuple[int, int], ...]:
        id_ = self.subqueue_of(job)
        return () if id_ is None else decode_draws(self.rows("draws", ids=self._list([id_]))[0][1])

    # Notes

    def note_subqueues(self, queued: Sequence[int] = (), freed: Sequence[int] = ()) -> None:
        """Note that these subqueues have got a job, and that a job of these no longer uses its units."""
        if queued or freed:
            self.rows(
                "note_subqueues",
                queued=self._list(queued) if queued else None,
                freed=self._list(freed) if freed else None,
            )

    @abstractmethod
    def _first_in(self, lines: Sequence[Line]) -> list[int]:
        """Return the first subqueues of these lines."""

    def _open_first(self, lines: Sequence[Line]) -> bool:
        """Open the first subqueues of lines. Return whether there were some. They keep their places until a job starts."""
        found = self._first_in(lines) if lines else []
        if found:
            self.rows("open_shut_subqueues", ids=self._list(found))
        return bool(found)

    def _work_through_notes(self) -> None:
        """Open subqueues that have got jobs, whose limits have got room, or whose time has come."""
        queued: set[int] = set()
        freed: Counter[int] = Counter()
        for got, ended in self.rows("take_notes", limit=limits.SUBQUEUE_NOTES_MAX):
            queued.update(self._decode_list(got))
            freed.update(self._decode_list(ended))
        if queued:
            self.rows("open_subqueues", ids=self._list(queued))
        if freed:
            counts: Counter[int] = Counter()
            for id_, draws in self.rows("draws", ids=self._list(freed)):
                for key, units in decode_draws(draws):
                    counts[key] += units * freed[id_]
            # Each unit may let one subqueue start a job. If it cannot, the claim that finds this opens the next.
            lines = self.rows("shut_routes", keys=self._list(counts))
            self._open_first([Line(key, route, min(counts[key], limits.SUBQUEUES_OPENED_MAX)) for key, route in lines])
        self.rows("open_due_subqueues", now_at=self.stamp(), limit=limits.SUBQUEUES_OPENED_MAX)

    @abstractmethod
    def wake(self, queues: Iterable[str]) -> None: ...

    # Diagnoses and pruning

    def ahead(self, jobs: Iterable[JobRecord], limit: int) -> dict[int, int]:
        """Return how many jobs of its subqueue and of its priority precede each of these queued jobs, `limit` at most.

        One statement is run for each subqueue and priority. It reads the first `limit` places.
        """
        alike: dict[Any, list[JobRecord]] = defaultdict(list)
        for job in jobs:
            alike[job.queue, job.priority, None if job.flow is None else (job.kind, repr(job.flow))].append(job)
        found: dict[int, int] = {}
        for (queue, priority, _), members in alike.items():
            own = {} if members[0].flow is None else {"id": members[0].id}
            name = "first_like" if own else "first_places"
            places = self.rows(name, now_at=self.stamp(), queue=queue, priority=priority, limit=limit, **own)
            found |= {job.id: bisect_left(places, (job.available_at, job.id)) for job in members}
        return found

    def has_higher(self, queue: str, priority: int) -> bool:
        """Return whether jobs of a higher priority wait in a queue."""
        return bool(self.value("has_higher", now_at=self.stamp(), queue=queue, priority=priority))

    def routed_jobs(self, limit: int) -> list[RoutedJobs]:
        """Return jobs that certain workers only may claim now, with up to `limit` jobs counted of each."""
        rows = self.rows("routed_jobs", now_at=self.stamp(), routes=limits.ROUTES_CHECKED_MAX, limit=limit)
        return [
            RoutedJobs(queue, kind, tuple(map(str, self._decode_list(requires))), jobs, since, route)
            for queue, kind, requires, jobs, since, route in rows
            if jobs
        ]

    def limit_troubles(self, limit: int) -> list[LimitTrouble]:
        """Return limits that were removed or are too small for queued jobs, with up to `limit` jobs counted of each."""
        removed = set(self.values("removed_limits", limit=limits.LIMITS_MAX))
        if not removed and not self.count_limits():
            return []
        rows = self.rows("drawing_subqueues", limit=limits.SUBQUEUES_CHECKED_MAX)
        drawn = {id_: decode_draws(draws) for id_, draws in rows}
        # A limit has at least one unit: only jobs that draw several can be too large.
        drawn = {id_: draws for id_, draws in drawn.items() if removed or any(units > 1 for _, units in draws)}
        keys = self._read_keys({key for draws in drawn.values() for key, _ in draws}) if drawn else {}
        found: dict[int, list[tuple[str, int]]] = {}
        for id_, draws in drawn.items():
            for key, units in draws:
                state = keys[key]
                if state.body is None:
                    found.setdefault(id_, []).append((state.limit, 0))
                elif state.body.refuses(units):
                    found.setdefault(id_, []).append((state.name, units))
        jobs: Counter[tuple[str, int]] = Counter()
        for id_, count in self.rows("count_jobs_of", ids=self._list(found), limit=limit) if found else ():
            for trouble in found[id_]:
                jobs[trouble] = min(limit, jobs[trouble] + count)
        return [LimitTrouble(name, count, units) for (name, units), count in sorted(jobs.items()) if count]

    def prune_subqueues(self, before: Micros, limit: int) -> int:
        """Delete subqueues that have no job, and that no process has asked for since, nor in the last day.

        A process uses a number that it has asked for during an hour.
        """
        before = min(before, self.now() - limits.SUBQUEUE_KEPT_MS * 1_000)
        deleted = len(self.rows("forget_subqueues", before_at=before, limit=limit))
        if deleted < limit:
            deleted += self._forget_names(before, limit - deleted)
        if deleted:
            self.cache.subqueues.clear()
        return deleted

    def _forget_names(self, before: Micros, limit: int) -> int:
        """Delete open subqueues without jobs, and routes and keys that no subqueue has, once an hour.

        A queue without subqueues is claimed as before it had some. Return how many subqueues were deleted.
        """
        now, last = self.now(), int(self.value("cursor", name=NAMES_FORGOTTEN) or 0)
        if last <= now < last + NAMES_KEPT_US or not self._lock_names(alone=True):
            return 0
        opened = len(self.rows("forget_open_subqueues", before_at=before, limit=limit))
        self.rows("unmark_flow_queues")
        routes = len(self.rows("forget_routes", limit=limit))
        keys, _ = self._locked_keys(self.values("idle_limit_keys", limit=limit))
        as_new = [key.id for key in keys.values() if key.is_as_new]
        if as_new:
            self.rows("forget_limit_keys", ids=self._list(as_new))
        if max(opened, routes, len(as_new)) < limit:
            self.rows("set_cursor", name=NAMES_FORGOTTEN, pos=now)
        return opened


def _order(name: SubqueueName) -> tuple[Any, ...]:
    return name.queue, name.priority, name.kind, _encode(name.flow)


def _route(name: SubqueueName) -> tuple[str, str, str, str]:
    worker = name.flow.for_worker
    return name.queue, own_label(worker) if worker else "", name.kind, _encode(name.flow.requires).decode()
