"""Flow control: limits, subqueues, and the jobs that a claim takes from them.

A claim in a queue with subqueues goes in rounds. Each round reads the open subqueues of the highest priority, locks the keys of
their limits, shares out the jobs (`core.flow.allocate`), and locks the first jobs of each. Subqueues in which nothing may start
are closed. They are opened again by notes, which enqueues and ends leave, or when their time has come.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from holdfast.core import limits
from holdfast.core.commands import ClaimNext, Enqueue
from holdfast.core.doctor.model import LimitTrouble, RoutedJobs
from holdfast.core.flow import (
    FIRST_PLACE,
    TURNS_MAX,
    VISITS_MAX,
    VISITS_MIN,
    FlowRefusal,
    Level,
    LimitBody,
    LimitKey,
    OpenSubqueue,
    QueueSettings,
    Turn,
    allocate,
    choose_level,
)
from holdfast.core.model import Flow, JobRecord, Micros
from holdfast.store.policies import RowCache
from holdfast.store.statement_session import StatementSession

_encode = msgspec.json.Encoder().encode
_limit_bodies = msgspec.json.Decoder(LimitBody)
_settings = msgspec.json.Decoder(QueueSettings)
_draws = msgspec.json.Decoder(tuple[tuple[int, int], ...])
NO_QUEUE_SETTINGS = QueueSettings()
RANK_MIN = -limits.PRIORITY_MAX
CLOCK_STEP_US = 1_000_000
"""A key that was filled later than this from now was filled before the clock was set back."""
SLOTS_WALK = "prune_slots"
"""The cursor of the walk through the slots: a key."""


class SubqueueName(NamedTuple):
    """What the jobs of a subqueue have in common."""

    queue: str
    priority: int
    kind: str
    flow: Flow


def subqueue_name(queue: str, priority: int, kind: str, flow: Flow, *, reserved: bool = True) -> SubqueueName:
    """Return the name of a job's subqueue. A job that is no longer `reserved` is for any worker."""
    worker = flow.for_worker if reserved else ""
    return SubqueueName(queue, priority, kind, msgspec.structs.replace(flow, for_worker=worker, for_worker_us=0))


class LimitRow(NamedTuple):
    name: str
    body: str
    updated_at: Micros
    updated_by: str


class LimitKeyRow(NamedTuple):
    id: int
    key: str
    body: str | None
    used: int
    tokens: float
    filled_at: Micros


class QueueSettingsRow(NamedTuple):
    """A queue with settings of its own, or with subqueues."""

    queue: str
    settings: str | None
    has_flow: bool


class FlowPlace(NamedTuple):
    """The subqueue that a queued job competes in, and the only worker that may have it, "" for any."""

    id: int
    for_worker: str


class FlowClaim:
    """A claim in one queue with subqueues: whom it is for, and which jobs it has locked so far."""

    def __init__(self, queue: str, command: ClaimNext, limit: int, settings: QueueSettings) -> None:
        self.queue = queue
        self.settings = settings
        self.left = limit
        self.who = {"queue": queue, "worker": command.actor.name}
        self.kinds, self.labels = command.kinds, command.labels
        self.seed = crc32(command.token.encode())
        """Where the first claim of a process begins. Many processes claim only once."""
        self.picked: dict[int, int | None] = {}
        """The jobs that a round has locked, each with its subqueue."""
        self.keys: dict[int, LimitKey] = {}
        self.draws: dict[int, tuple[tuple[int, int], ...]] = {}
        self.empty: set[int] = set()
        self.blocked: dict[int, int] = {}
        """Subqueues that wait for a key."""
        self.without_plain: set[int] = set()
        """Ranks whose jobs without a subqueue are all taken."""
        self.passed: set[int] = set()
        """Ranks that have nothing left for this claim."""
        self.at: Micros | None = None
        """The time of the claim, if a rate counts by it. Starts and tokens must have one time."""
        self.keeps = False
        """Whether this claim works through the notes. Only that one may close subqueues."""

    @property
    def knowledge(self) -> int:
        """A number that rises with everything that the claim finds out, so that another round makes sense."""
        return len(self.empty) + len(self.blocked) + len(self.without_plain)


@lru_cache(maxsize=10_000)
def _decode_draws(text: str) -> tuple[tuple[int, int], ...]:
    return _draws.decode(text)


@lru_cache(maxsize=1_000)
def decode_limit(text: str) -> LimitBody:
    return _limit_bodies.decode(text)


@lru_cache(maxsize=1_000)
def decode_settings(text: str) -> QueueSettings:
    return _settings.decode(text)


def effective_limit(own: str | None, shared: str | None) -> LimitBody | None:
    """Return the numbers of a key: its own ones, else those of its limit. None if the limit was removed."""
    if shared is None:
        return None
    body = decode_limit(shared)
    if own is None:
        return body
    given = decode_limit(own)
    changes: dict[str, Any] = {}
    if given.concurrent is not None:
        changes["concurrent"] = given.concurrent
    if given.rate is not None:
        changes |= {"rate": given.rate, "per_us": given.per_us, "burst": given.burst}
    return msgspec.structs.replace(body, **changes)


class SqlFlow(StatementSession):
    _keys_read_at: Micros = 0
    cache: RowCache
    new_subqueues: dict[SubqueueName, int]

    @abstractmethod
    def _table(self, **columns: Sequence[Any]) -> dict[str, Any]:
        """Return rows as statement parameters, given by column."""

    # Settings

    def limit_rows(self, after: str, limit: int) -> list[LimitRow]:
        return self.records(LimitRow, "limits", after=after, limit=limit)

    def limit_body(self, name: str) -> LimitBody | None:
        found: str | None = self.value("limit_body", name=name)
        return None if found is None else decode_limit(found)

    def count_limits(self) -> int:
        return int(self.value("count_limits"))

    def put_limit(self, name: str, body: LimitBody, by: str) -> None:
        self.rows("put_limit", name=name, body=_encode(body).decode(), changed_at=self.now(), changed_by=by)
        self.rows("open_subqueues_of_limit", name=name)

    def drop_limit(self, name: str) -> bool:
        found = bool(self.rows("drop_limit", name=name))
        self.rows("open_subqueues_of_limit", name=name)
        return found

    def put_limit_key(self, name: str, key: str, body: LimitBody | None) -> None:
        self.rows("put_limit_key", name=name, key=key, body=None if body is None else _encode(body).decode())
        self.rows("open_subqueues_of_limit", name=name)

    def limit_keys(self, name: str, after: str | None, limit: int) -> list[LimitKeyRow]:
        return self.records(LimitKeyRow, "limit_keys", name=name, after=after, limit=limit)

    def limit_key(self, name: str, key: str) -> LimitKeyRow | None:
        return self.record(LimitKeyRow, "limit_key", name=name, key=key)

    def limit_state(self, name: str, key: str) -> LimitKey | None:
        """Return the state of a key, with what is in use of it counted. None if the limit was removed."""
        body = self.limit_body(name)
        if body is None:
            return None
        row = self.limit_key(name, key)
        if row is None:
            return LimitKey(0, name, key, body, 0, float(limits.LIMIT_COUNT_MAX), 0)
        own = effective_limit(row.body, _encode(body).decode())
        return LimitKey(row.id, name, key, own, self.count_used([row.id])[row.id], row.tokens, row.filled_at)

    def flow_place(self, job: JobRecord) -> FlowPlace | None:
        """Return where a queued job competes."""
        return self.record(FlowPlace, "flow_place", id=job.id)

    def ahead_like(self, job: JobRecord, subqueue: int, limit: int) -> int:
        """Return how many jobs of its subqueue a claim would take before it, `limit` at most."""
        place = {"queue": job.queue, "priority": job.priority, "available_at": job.available_at, "id": job.id}
        return int(self.value("ahead_like", now_at=self.stamp(), subqueue=subqueue, limit=limit, **place))

    def count_used(self, key_ids: Iterable[int]) -> dict[int, int]:
        """Return the units of these keys that are in use now."""
        used = dict.fromkeys(key_ids, 0)
        for key, _, units in self.rows("count_slots", ids=self._list(used)):
            used[key] += units
        return used

    def queue_settings(self, queue: str) -> QueueSettings:
        found: str | None = self.value("queue_settings", queue=queue)
        return NO_QUEUE_SETTINGS if found is None else decode_settings(found)

    def set_queue(self, queue: str, settings: QueueSettings) -> None:
        self.rows("set_queue", queue=queue, settings=_encode(settings).decode())

    def queue_rows(self) -> list[QueueSettingsRow]:
        return self.records(QueueSettingsRow, "all_queue_settings")

    # Subqueues of new jobs

    def subqueue_ids(self, items: Sequence[Enqueue]) -> list[int | None]:
        """Return the subqueue of each of these new jobs, None for those without flow control."""
        names = [None if item.flow is None else subqueue_name(item.queue, item.priority, item.kind, item.flow) for item in items]
        known = self.find_subqueues({name for name in names if name is not None})
        return [None if name is None else known[name] for name in names]

    def subqueue_of(self, job: JobRecord, *, reserved: bool = True) -> int | None:
        """Return the subqueue in which a queued job competes."""
        if job.flow is None:
            return None
        name = subqueue_name(job.queue, job.priority, job.kind, job.flow, reserved=reserved)
        return self.find_subqueues({name})[name]

    def find_subqueues(self, names: set[SubqueueName]) -> dict[SubqueueName, int]:
        """Return the numbers of subqueues. Those that do not exist are made."""
        known = self.cache.known_subqueues()
        found = {name: id_ for name in names if (id_ := known.get(name) or self.new_subqueues.get(name))}
        missing = sorted(names - found.keys(), key=_order)
        if missing:
            made = self.intern_subqueues(missing)
            self.new_subqueues |= made
            found |= made
        return found

    def intern_subqueues(self, names: Sequence[SubqueueName]) -> dict[SubqueueName, int]:
        """Make subqueues, with their routes and keys, where they do not exist yet, and return their numbers."""
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

    def _intern(self, what: str, rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> dict[tuple[Any, ...], int]:
        wanted = sorted(set(rows))
        if not wanted:
            return {}
        params = self._table(**dict(zip(columns, zip(*wanted, strict=True), strict=True)))
        times = {"now_at": self.stamp()} if what == "subqueues" else {}
        self.rows(f"add_{what}", **params, **times)
        return {wanted[number - 1]: id_ for number, id_ in self.rows(f"find_{what}", **params)}

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
    def _lock_notes(self) -> bool:
        """Return whether this transaction may work through the notes. Only one at a time may."""

    @abstractmethod
    def _decode_list(self, value: Any) -> list[int]:
        """Return a list of a row."""

    @abstractmethod
    def _open_freed(self, counts: dict[int, int]) -> None:
        """Open subqueues that wait for these keys, so many of each."""

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
                for key, units in _decode_draws(draws):
                    counts[key] += units * freed[id_]
            # Each unit may let one subqueue start a job. A few more are opened, since some of them may be empty.
            self._open_freed({key: 2 * count + 1 for key, count in counts.items()})
        self.rows("open_due_subqueues", now_at=self.stamp(), limit=limits.SUBQUEUES_OPENED_MAX)

    # Claims

    def begin_flow_claim(self, queue: str, command: ClaimNext) -> FlowClaim | None:
        """Return a claim in a queue with subqueues, None if the queue is paused."""
        [(paused_at, settings)] = self.rows("flow_queue", queue=queue) or [(None, None)]
        if paused_at is not None:
            return None
        return FlowClaim(queue, command, command.limit, NO_QUEUE_SETTINGS if settings is None else decode_settings(settings))

    def rounds(self, claim: FlowClaim) -> Iterator[dict[int, int | None]]:
        """Lock jobs for a claim, by rounds. Yield those of each round, with their subqueues. The caller then claims them."""
        claim.keeps = self._lock_notes()
        if claim.keeps:
            self._work_through_notes()
        for _ in range(limits.CLAIM_ROUNDS_MAX):
            if claim.left <= 0 or not self._pick_round(claim):
                break
            if claim.picked:
                yield claim.picked
        if claim.keeps:
            self._close(claim)
        self._save_keys(claim.keys.values())

    def _pick_round(self, claim: FlowClaim) -> bool:
        """Lock jobs of one priority. Return whether another round may find more."""
        claim.picked = {}
        ageing = claim.settings.ageing
        chosen = self._next_rank(claim) if ageing is None else self._aged_rank(claim)
        if chosen is None:
            return False
        rank, before, has_plain = chosen
        window, is_full = self._window(claim, rank)
        plain = OpenSubqueue(0, "")
        self._lock_keys(claim, window)
        known = claim.knowledge
        found = [plain, *window] if has_plain and rank not in claim.without_plain else window
        turn = self._turn(claim.queue, rank)
        if turn.is_new and window:
            begin = claim.seed % len(window)
            window = window[begin:] + window[:begin]
            found = [*found[: len(found) - len(window)], *window]
        shares = allocate(claim.left, turn.order(found), claim.keys, claim.settings.weights, turn.left)
        counts = shares.counts
        claim.blocked |= shares.blocked
        if window:
            turn.move(window, shares, is_full=is_full)
        got = self._pick_plain(claim, rank, before, counts.pop(plain.id, 0))
        got += self._pick_subqueues(claim, rank, before, counts)
        claim.left -= got
        if not got and known == claim.knowledge:
            claim.passed.add(rank)
        return True

    def _turn(self, queue: str, rank: int) -> Turn:
        """Return where the next claim of this process goes on."""
        turns: dict[tuple[str, int], Turn] = self.cache.turns
        if len(turns) > TURNS_MAX:
            turns.clear()
        return turns.setdefault((queue, rank), Turn(FIRST_PLACE))

    def _who(self, claim: FlowClaim) -> dict[str, Any]:
        kinds = None if claim.kinds is None else self._list(claim.kinds)
        return {**claim.who, "kinds": kinds, "labels": self._list(claim.labels)}

    def _next_rank(self, claim: FlowClaim) -> tuple[int, Micros | None, bool] | None:
        """Return the rank of the next round, the latest time of its jobs, and whether jobs without a subqueue have it."""
        rank_from = max(claim.passed, default=RANK_MIN - 1) + 1
        [(opened, plain)] = self.rows("flow_ranks", now_at=self.stamp(), rank_from=rank_from, **self._who(claim))
        rank = min((rank for rank in (opened, plain) if rank is not None), default=None)
        return None if rank is None else (rank, None, rank == plain)

    def _aged_rank(self, claim: FlowClaim) -> tuple[int, Micros | None, bool] | None:
        ageing = claim.settings.ageing
        assert ageing is not None
        params = {"passed": self._list(claim.passed), "limit": limits.AGEING_LEVELS_MAX, "each": VISITS_MAX}
        rows = self.rows("flow_levels", now_at=self.stamp(), **params, **self._who(claim))
        levels = [Level(-rank, oldest) for rank, oldest in rows if oldest is not None]
        chosen = choose_level(levels, ageing, self.now())
        return None if chosen is None else (-chosen[0], chosen[1], True)

    def _window(self, claim: FlowClaim, rank: int) -> tuple[list[OpenSubqueue], bool]:
        """Return subqueues in the order of their turns, those after the last turn first, and whether there may be more."""
        limit = min(VISITS_MAX, max(VISITS_MIN, claim.left))
        after = self._turn(claim.queue, rank).after
        found = self._window_after(claim, rank, after, limit)
        if len(found) < limit and after != FIRST_PLACE:
            known = {one.id for one in found}
            found += [one for one in self._window_after(claim, rank, FIRST_PLACE, limit) if one.id not in known]
        return found[:limit], len(found) >= limit

    def _window_after(self, claim: FlowClaim, rank: int, after: tuple[str, int], limit: int) -> list[OpenSubqueue]:
        partition, id_ = after
        # Those that this claim has found empty or blocked are still open.
        passed = claim.empty | claim.blocked.keys()
        params = {"rank": rank, "after_partition": partition, "after_id": id_, "limit": limit + len(passed)}
        rows = self.rows("flow_window", **params, **self._who(claim))
        found = [OpenSubqueue(id_, partition, _decode_draws(draws)) for id_, partition, draws in rows if id_ not in passed]
        return found[:limit]

    def _lock_keys(self, claim: FlowClaim, window: Sequence[OpenSubqueue]) -> None:
        """Lock the keys of these subqueues, and count those anew that have no room. Leave out keys that are locked."""
        claim.draws |= {one.id: one.draws for one in window}
        wanted = {key for one in window for key, _ in one.draws} - claim.keys.keys()
        if wanted:
            locked = self._locked_keys(wanted)
            latest = self._keys_read_at + CLOCK_STEP_US
            times = [key.filled_at for key in locked.values() if key.has_rate and key.filled_at <= latest]
            claim.at = max([claim.at or 0, *times]) or None
            claim.keys |= locked
        full = {key for one in window for key, units in one.draws if key in claim.keys and claim.keys[key].is_full(units)}
        self._recount([claim.keys[key] for key in full])

    def _locked_keys(self, ids: Iterable[int], *, wait: bool = False) -> dict[int, LimitKey]:
        rows = self.lock_limit_keys(sorted(ids), wait=wait)
        # After the lock: an earlier claim may have used a later time.
        now = self._keys_read_at = self.now()
        keys: dict[int, LimitKey] = {}
        for id_, name, key, own, shared, used, tokens, filled_at in rows:
            state = LimitKey(id_, name, key, effective_limit(own, shared), used, tokens, filled_at)
            state.refill(now)
            keys[id_] = state
        return keys

    @abstractmethod
    def lock_limit_keys(self, ids: Sequence[int], *, wait: bool) -> list[tuple[Any, ...]]:
        """Lock keys and return their states. Without `wait`, leave out those that another transaction has locked."""

    def _recount(self, keys: Sequence[LimitKey]) -> None:
        """Count what is in use of these keys. They are locked, so that no other claim draws on them meanwhile."""
        if not keys:
            return
        used = dict.fromkeys((key.id for key in keys), 0)
        over: list[tuple[int, int]] = []
        for key, pos, units in self.rows("count_slots", ids=self._list(used)):
            used[key] += units
            if not units:
                over.append((key, pos))
        for state in keys:
            state.recount(used[state.id])
        if over:
            dropped, positions = zip(*over, strict=True)
            self.rows("drop_slots", **self._table(keys=dropped, positions=positions))

    def _pick_plain(self, claim: FlowClaim, rank: int, before: Micros | None, count: int) -> int:
        if not count:
            return 0
        kinds = None if claim.kinds is None else self._list(claim.kinds)
        params = {"queue": claim.queue, "rank": rank, "kinds": kinds, "limit": count}
        found = self.values("pick_plain_jobs", now_at=self.stamp(), before_at=before, **params)
        if len(found) < count and (before is None or not found):
            claim.without_plain.add(rank)
        claim.picked |= dict.fromkeys(found)
        return len(found)

    def _pick_subqueues(self, claim: FlowClaim, rank: int, before: Micros | None, counts: dict[int, int]) -> int:
        """Lock the first jobs of each subqueue. What a subqueue could not use goes back to its keys."""
        if not counts:
            return 0
        found = dict(self._pick_jobs(claim.queue, rank, before, counts))
        got = Counter(found.values())
        for id_, count in counts.items():
            short = count - got[id_]
            if short and (before is None or not got[id_]):
                claim.empty.add(id_)
            for key, units in claim.draws[id_] if short else ():
                claim.keys[key].give_back(short * units)
        claim.picked |= found
        return len(found)

    @abstractmethod
    def _pick_jobs(self, queue: str, rank: int, before: Micros | None, counts: dict[int, int]) -> list[tuple[int, int]]:
        """Lock the first jobs of each subqueue, so many of each. Return them with their subqueues."""

    def _close(self, claim: FlowClaim) -> None:
        """Close the subqueues in which this claim found nothing, and those whose limit is used up."""
        now = self.now()
        if claim.empty:
            self.rows("close_empty_subqueues", ids=self._list(claim.empty), now_at=self.stamp())
        shut: list[tuple[int, int, Micros]] = []
        for id_, key_id in claim.blocked.items():
            units = dict(claim.draws[id_])[key_id]
            key = claim.keys[key_id]
            if not key.fits(units):
                latest = now + limits.SUBQUEUE_CLOSED_MS_MAX * 1_000
                shut.append((id_, key_id, min(latest, key.next_at(units) or latest)))
        if shut:
            ids, keys, times = zip(*shut, strict=True)
            self.rows("shut_subqueues", now_at=self.stamp(), **self._table(shut=ids, keys=keys, times=times))

    def draw(self, claim: FlowClaim, pos: int) -> None:
        """Store what the jobs of a round draw. `pos` is the position of their claim."""
        self._add_slots(pos, [(id_, claim.draws[sub]) for id_, sub in claim.picked.items() if sub is not None and sub > 0])
        for key in claim.keys.values():
            key.drawn = 0

    def _add_slots(self, pos: int, drawn: Sequence[tuple[int, tuple[tuple[int, int], ...]]]) -> None:
        slots = [(key, pos, job_id, units) for job_id, draws in drawn for key, units in draws]
        if slots:
            keys, positions, jobs, units = zip(*slots, strict=True)
            self.rows("add_slots", **self._table(keys=keys, positions=positions, jobs=jobs, units=units))

    def _save_keys(self, keys: Iterable[LimitKey]) -> None:
        changed = [(key.id, key.used, key.tokens, key.filled_at) for key in keys if key.is_changed]
        if changed:
            ids, used, tokens, filled = zip(*changed, strict=True)
            self.rows("save_limit_keys", **self._table(keys=ids, used=used, tokens=tokens, filled=filled))

    # Claims of one job

    def flow_refusal(self, job: JobRecord, worker: str, labels: Sequence[str]) -> FlowRefusal | None:
        """Return why this worker may not claim a queued job now, or None. The keys that the job draws on stay locked."""
        flow = job.flow
        if flow is None:
            return None
        until = flow.reserved_until(job.available_at)
        if flow.for_worker not in ("", worker) and (until is None or self.now() < until):
            return FlowRefusal("reserved", f"it is for the worker {flow.for_worker}")
        if missing := sorted(set(flow.requires).difference(labels)):
            return FlowRefusal("label", f"it requires a worker with the label {missing[0]}")
        draws = self._draws_of(job)
        keys = self._locked_keys([key for key, _ in draws], wait=True) if draws else {}
        self._recount([keys[key] for key, units in draws if keys[key].is_full(units)])
        for key, units in draws:
            if not keys[key].fits(units):
                return FlowRefusal("limit", f"the limit {keys[key].name} is used up")
        return None

    def _draws_of(self, job: JobRecord) -> tuple[tuple[int, int], ...]:
        id_ = self.subqueue_of(job)
        return () if id_ is None else _decode_draws(self.rows("draws", ids=self._list([id_]))[0][1])

    def draw_one(self, job: JobRecord, pos: int) -> None:
        """Save what a job draws that was claimed by its id, at this position."""
        if job.flow is None or not job.flow.limits:
            return
        draws = self._draws_of(job)
        keys = self._locked_keys([key for key, _ in draws], wait=True)
        for key, units in draws:
            keys[key].take(units)
        self._add_slots(pos, [(job.id, draws)])
        self._save_keys(keys.values())

    # Reservations

    def open_reserved(self, ids: Sequence[int]) -> None:
        """Let any worker have these jobs, if their own worker has not taken them in time. Skip those that are locked."""
        found = self.values("unreserved_jobs", now_at=self.stamp(), ids=self._list(ids))
        if found:
            jobs = self.load(found, lock=False)
            placed = {id_: self.subqueue_of(job, reserved=False) for id_, job in jobs.items()}
            self.rows("place_jobs", **self._table(jobs=list(placed), subqueues=list(placed.values())))
            self.note_subqueues([id_ for id_ in placed.values() if id_ is not None])
            self.wake({job.queue for job in jobs.values()})

    @abstractmethod
    def wake(self, queues: Iterable[str]) -> None: ...

    @abstractmethod
    def load(self, ids: Sequence[int], *, lock: bool) -> dict[int, JobRecord]: ...

    def prune_subqueues(self, before: Micros, limit: int) -> int:
        """Delete subqueues that have no job, and that no process has asked for since, nor in the last day.

        A process uses a number that it has asked for during an hour.
        """
        before = min(before, self.now() - limits.SUBQUEUE_KEPT_MS * 1_000)
        deleted = len(self.rows("forget_subqueues", before_at=before, limit=limit))
        if deleted:
            self.cache.subqueues.clear()
        return deleted

    def prune_slots(self, limit: int) -> int:
        """Delete slots of claims that hold no job any more, among the next `limit` by key. Return how many were deleted.

        A claim deletes those of a key whose limit is used up. The others would stay.
        """
        after = int(self.value("cursor", name=SLOTS_WALK) or 0)
        rows = self.rows("walk_slots", after=after, limit=limit)
        dead = [(key, pos) for key, pos, units in rows if not units]
        if dead:
            keys, positions = zip(*dead, strict=True)
            self.rows("drop_slots", **self._table(keys=keys, positions=positions))
        # The key at the end of a full page may have more slots. It is begun again, unless the page has this key only.
        last = rows[-1][0] if len(rows) == limit else 0
        place = last if last and rows[0][0] == last and not dead else max(0, last - 1)
        if place != after:
            self.rows("set_cursor", name=SLOTS_WALK, pos=place)
        return len(dead)

    # Diagnoses

    def routed_jobs(self, limit: int) -> list[RoutedJobs]:
        """Return jobs that certain workers only may claim now, with up to `limit` jobs counted of each."""
        rows = self.rows("routed_jobs", now_at=self.stamp(), routes=limits.ROUTES_CHECKED_MAX, limit=limit)
        return [
            RoutedJobs(queue, kind, worker, tuple(map(str, self._decode_list(requires))), jobs, since)
            for queue, kind, worker, requires, jobs, since in rows
            if jobs
        ]

    def limit_troubles(self, limit: int) -> list[LimitTrouble]:
        """Return limits that were removed or are too small for queued jobs, with up to `limit` jobs counted of each."""
        removed = set(self.values("removed_limits", limit=limits.LIMITS_MAX))
        if not removed and not self.count_limits():
            return []
        rows = self.rows("drawing_subqueues", limit=limits.SUBQUEUES_CHECKED_MAX)
        drawn = {id_: _decode_draws(draws) for id_, draws in rows}
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

    def _read_keys(self, ids: Iterable[int]) -> dict[int, LimitKey]:
        return {
            id_: LimitKey(id_, name, key, effective_limit(own, shared), used, tokens, filled_at)
            for id_, name, key, own, shared, used, tokens, filled_at in self.rows("read_limit_keys", ids=self._list(ids))
        }

    def limit_usage(self) -> dict[str, tuple[int, int]]:
        """Return the units in use of each limit, over all of its keys, and the number of keys in use."""
        return {name: (int(used), int(keys)) for name, used, keys in self.rows("limit_usage")}

    # What workers wait for

    def flow_next_at(self, queue: str, worker: str, kinds: Sequence[str] | None, labels: Sequence[str]) -> Micros | None:
        """Return when a worker may get a job of a queue with subqueues."""
        wanted = None if kinds is None else self._list(kinds)
        params = {"queue": queue, "worker": worker, "kinds": wanted, "labels": self._list(labels), "rank_from": RANK_MIN}
        found: Micros | None = self.value("flow_next_at", now_at=self.stamp(), **params)
        return found

    def flow_queues(self, limit: int) -> list[str]:
        """Return queues with subqueues that are not paused."""
        return self.values("all_flow_queues", limit=limit)


def _order(name: SubqueueName) -> tuple[Any, ...]:
    return name.queue, name.priority, name.kind, _encode(name.flow)


def _route(name: SubqueueName) -> tuple[str, str, str, str]:
    return name.queue, name.flow.for_worker, name.kind, _encode(name.flow.requires).decode()
