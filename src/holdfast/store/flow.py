"""Flow control: the settings of queues, and the jobs that a claim takes from subqueues.

A claim in a queue with subqueues goes in rounds. Each round reads the open subqueues of the highest priority, locks the keys of
their limits, shares out the jobs (`core.flow.allocate`), and locks the first jobs of each. Subqueues in which nothing may start
are closed. They are opened again by notes, which enqueues and ends leave, or when their time has come.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from holdfast.core import limits
from holdfast.core.commands import ClaimNext
from holdfast.core.flow import (
    FIRST_IN_LINE,
    FIRST_PLACE,
    PLAIN,
    TURNS_MAX,
    VISITS_MAX,
    VISITS_MIN,
    BlockedSubqueue,
    FlowCheck,
    FlowRefusal,
    LimitKey,
    OpenSubqueue,
    QueueSettings,
    Turn,
    allocate,
    in_line,
    line_up,
)
from holdfast.core.model import ACTIVE, JobRecord, Micros, own_label
from holdfast.store.subqueues import Line, SqlSubqueues, decode_draws

_encode = msgspec.json.Encoder().encode
_settings = msgspec.json.Decoder(QueueSettings)
NO_QUEUE_SETTINGS = QueueSettings()
RANK_MIN = -limits.PRIORITY_MAX


class QueueSettingsRow(NamedTuple):
    """A queue with settings of its own."""

    queue: str
    settings: str


class FlowClaim:
    """A claim in one queue with subqueues: whom it is for, and which jobs it has locked so far."""

    def __init__(self, queue: str, command: ClaimNext, limit: int, settings: QueueSettings) -> None:
        self.queue = queue
        self.settings = settings
        self.left = limit
        self.worker, self.kinds, self.labels = command.actor.name, command.kinds, command.labels
        self.who: dict[str, Any] | None = None
        """The parameters that say which routes the worker serves."""
        self.seed = crc32(command.token.encode())
        """Where the first claim of a process begins. Many processes claim only once."""
        self.picked: dict[int, int | None] = {}
        """The jobs that a round has locked, each with its subqueue."""
        self.keys: dict[int, LimitKey] = {}
        self.seen: dict[int, OpenSubqueue] = {}
        """The subqueues that this claim has looked at."""
        self.served: set[int] = set()
        self.empty: set[int] = set()
        self.blocked: dict[int, int] = {}
        """Subqueues that wait for a key."""
        self.without_plain: set[int] = set()
        """Ranks whose jobs without a subqueue are all taken."""
        self.rank_from = RANK_MIN
        """The first rank that may have something left for this claim."""
        self.is_cut = False
        """Whether the claim has ended before it had looked at all subqueues."""
        self.ranks: dict[int, int] = {}
        """The rank of each subqueue that was looked at."""
        self.visits = min(VISITS_MAX, max(VISITS_MIN, limit))
        """Subqueues that a round looks at."""
        self.at: Micros | None = None
        """The time of the claim, if a rate counts by it. Starts and tokens must have one time.

        A job that became available later is left for the next claim.
        """
        self.keeps = False
        """Whether this claim works through the notes. Only that one may close subqueues."""

    @property
    def knowledge(self) -> tuple[frozenset[int], frozenset[int], int]:
        """Changes with everything that a round finds out, so that another one makes sense."""
        return frozenset(self.empty), frozenset(self.blocked), len(self.without_plain)

    @property
    def tried(self) -> set[int]:
        """Subqueues in which this claim has found nothing that may start now."""
        return self.empty | self.blocked.keys()

    def unblock(self) -> None:
        """Look again at subqueues whose keys have got room: an empty subqueue has given its units back."""
        self.blocked = {id_: key for id_, key in self.blocked.items() if not self.keys[key].fits(dict(self.seen[id_].draws)[key])}

    def lines(self, most: int) -> list[Line]:
        """Return the lines of keys that have room, although this claim has found subqueues in vain that draw on them."""
        drawn = {(key, self.seen[id_].route) for id_ in self.tried for key, _ in self.seen[id_].draws}
        return [Line(key, route, most) for key, route in sorted(drawn) if key in self.keys and self.keys[key].fits(1)]


@lru_cache(maxsize=1_000)
def decode_settings(text: str) -> QueueSettings:
    return _settings.decode(text)


class SqlFlow(SqlSubqueues):
    def queue_settings(self, queue: str) -> QueueSettings:
        found: str | None = self.value("queue_settings", queue=queue)
        return NO_QUEUE_SETTINGS if found is None else decode_settings(found)

    def set_queue(self, queue: str, settings: QueueSettings) -> None:
        self.rows("set_queue", queue=queue, settings=None if settings == NO_QUEUE_SETTINGS else _encode(settings).decode())

    def queue_rows(self) -> list[QueueSettingsRow]:
        return self.records(QueueSettingsRow, "all_queue_settings")

    def flow_queues(self, limit: int, only: Sequence[str] | None = None) -> list[str]:
        """Return queues with subqueues that are not paused, those with open ones first, `only` among some if they are given."""
        return self.values("all_flow_queues", queues=None if only is None else self._list(only), limit=limit)

    def flow_next_at(self, queue: str, worker: str, kinds: Sequence[str] | None, labels: Sequence[str]) -> Micros | None:
        """Return when a worker may get a job of a queue with subqueues."""
        who = self._who(queue, worker, kinds, labels)
        found: Micros | None = self.value("flow_next_at", now_at=self.stamp(), rank_from=RANK_MIN, **who)
        return found

    # Claims

    def begin_flow_claim(self, queue: str, command: ClaimNext) -> FlowClaim | None:
        """Return a claim in a queue with subqueues, None if the queue is paused."""
        [(paused_at, settings, has_flow)] = self.rows("flow_queue", queue=queue) or [(None, None, False)]
        if paused_at is not None:
            return None
        if not has_flow:
            self.cache.flow_queues.discard(queue)
        return FlowClaim(queue, command, command.limit, NO_QUEUE_SETTINGS if settings is None else decode_settings(settings))

    def rounds(self, claim: FlowClaim) -> Iterator[dict[int, int | None]]:
        """Lock jobs for a claim, by rounds. Yield those of each round, with their subqueues. The caller then claims them."""
        claim.keeps = self._lock_notes()
        if claim.keeps:
            self._work_through_notes()
        for _ in range(limits.CLAIM_ROUNDS_MAX):
            if claim.left <= 0:
                break
            if not self._pick_round(claim):
                if not (claim.keeps and self._open_first(claim.lines(claim.visits))):
                    break
                claim.rank_from = RANK_MIN
            if claim.picked:
                yield claim.picked
        else:
            claim.is_cut = claim.left > 0
        if claim.keeps:
            # What may start is open for the next claim, which may be that of a worker that waits.
            if self._open_first(claim.lines(1)):
                self.wake([claim.queue])
            self._close(claim)
        self._save_keys(claim.keys.values())

    def _pick_round(self, claim: FlowClaim) -> bool:
        """Lock jobs of one priority. Return whether another round may find more."""
        claim.picked = {}
        while True:
            chosen = self._next_rank(claim)
            if chosen is None:
                return False
            rank, has_plain = chosen
            turn = self._turn(claim.queue, rank)
            has_plain = has_plain and rank not in claim.without_plain
            found, is_alone = self._window(claim, turn, rank, has_plain=has_plain)
            if found:
                break
            claim.rank_from = rank + 1
        self._lock_keys(claim, found)
        known = claim.knowledge
        if turn.is_new:
            begin = claim.seed % len(found)
            found = found[begin:] + found[:begin]
        found = in_line(found)
        shares = allocate(
            claim.left, found if is_alone else turn.order(found), claim.keys, claim.settings.weights, turn.left_for(found)
        )
        counts = shares.counts
        claim.blocked |= shares.blocked
        turn.move(found, shares, is_alone=is_alone)
        got = self._pick_plain(claim, rank, counts.pop(PLAIN.id, 0))
        got += self._pick_subqueues(claim, rank, counts)
        claim.left -= got
        claim.unblock()
        if not got:
            claim.visits = VISITS_MAX
            self._leave_out(claim, found)
            if known == claim.knowledge:
                claim.rank_from = rank + 1
        return True

    def _leave_out(self, claim: FlowClaim, window: Sequence[OpenSubqueue]) -> None:
        """Leave out all subqueues of a window that have no job to take, not only those that had a turn."""
        ids = {one.id for one in window} - claim.tried - {PLAIN.id}
        claim.empty |= ids - self._ready_subqueues(ids, claim.at)

    def _ready_subqueues(self, ids: Collection[int], before: Micros | None = None) -> set[int]:
        """Return those of these subqueues that have a job that is available."""
        if not ids:
            return set()
        return set(self.values("ready_subqueues", ids=self._list(ids), now_at=self.stamp(), before_at=before))

    def _turn(self, queue: str, rank: int) -> Turn:
        """Return where the next claim of this process goes on."""
        turns: dict[tuple[str, int], Turn] = self.cache.turns
        if len(turns) > TURNS_MAX:
            turns.clear()
        return turns.setdefault((queue, rank), Turn(FIRST_PLACE))

    def _who(self, queue: str, worker: str, kinds: Sequence[str] | None, labels: Sequence[str]) -> dict[str, Any]:
        """Return the parameters that say which routes of a queue a worker serves."""
        own = own_label(worker)
        wanted = None if kinds is None else self._list(kinds)
        return {"queue": queue, "worker": own, "kinds": wanted, "labels": self._list([own, *labels])}

    def _claimant(self, claim: FlowClaim) -> dict[str, Any]:
        if claim.who is None:
            claim.who = self._who(claim.queue, claim.worker, claim.kinds, claim.labels)
        return claim.who

    def _next_rank(self, claim: FlowClaim) -> tuple[int, bool] | None:
        """Return the rank of the next round, and whether jobs without a subqueue have it."""
        [(opened, plain)] = self.rows("flow_ranks", now_at=self.stamp(), rank_from=claim.rank_from, **self._claimant(claim))
        rank = min((rank for rank in (opened, plain) if rank is not None), default=None)
        return None if rank is None else (rank, rank == plain)

    def _window(self, claim: FlowClaim, turn: Turn, rank: int, *, has_plain: bool) -> tuple[list[OpenSubqueue], bool]:
        """Return subqueues in the order of their turns, those after the last turn first.

        Also return whether they are of one partition that has more of them, while no other partition has any.
        """
        limit, after = claim.visits, turn.after
        found = self._window_after(claim, rank, after, limit)
        if len(found) < limit and after != FIRST_PLACE:
            known = {one.id for one in found}
            found += [one for one in self._window_after(claim, rank, FIRST_PLACE, limit) if one.id not in known]
        found, is_full = found[:limit], len(found) >= limit
        partitions = {one.partition for one in found}
        if is_full and len(partitions) < len(found):
            names = self._partitions(claim, rank, found[0].partition, limit)
            if len(names) > 1 or (has_plain and names[0]):
                found, is_full = self._spread(claim, turn, rank, names), len(names) >= limit
                if has_plain and (not is_full or "" in names):
                    # The partition without a name is the first of all.
                    place = next((n for n, one in enumerate(found) if not one.partition or one.partition < names[0]), len(found))
                    found.insert(place, PLAIN)
                return found, False
        alone = is_full and len(partitions) == 1
        return turn.with_plain(found, is_full=is_full) if has_plain else found, alone

    def _window_after(self, claim: FlowClaim, rank: int, after: tuple[str, int], limit: int) -> list[OpenSubqueue]:
        partition, id_ = after
        # Those that this claim has found empty or blocked are still open.
        params = {"rank": rank, "after_partition": partition, "after_id": id_, "limit": limit + len(claim.tried)}
        return self._looked_at(claim, rank, self.rows("flow_window", **params, **self._claimant(claim)))[:limit]

    def _looked_at(self, claim: FlowClaim, rank: int, rows: Sequence[tuple[Any, ...]]) -> list[OpenSubqueue]:
        tried = claim.tried
        found = [
            OpenSubqueue(id_, partition, decode_draws(draws), route, since)
            for id_, partition, draws, route, since in rows
            if id_ not in tried
        ]
        claim.seen |= {one.id: one for one in found}
        claim.ranks |= {one.id: rank for one in found}
        return found

    def _partitions(self, claim: FlowClaim, rank: int, first: str, limit: int) -> list[str]:
        """Return partitions with open subqueues in the order of their turns, from the first one on."""
        params = {"rank": rank, "limit": limit, **self._claimant(claim)}
        # No name has a character before the blank, so this is the first text after `first` that may be one.
        names = [first, *self.values("flow_partitions", from_partition=first + "\x01", **params)]
        if len(names) < limit:
            names += [name for name in self.values("flow_partitions", from_partition="", **params) if name < first]
        return names[:limit]

    def _spread(self, claim: FlowClaim, turn: Turn, rank: int, names: Sequence[str]) -> list[OpenSubqueue]:
        """Return some subqueues of each partition, those after the one that was served last first."""
        each = -(-claim.visits // len(names))
        starts = {name: turn.served.get(name, FIRST_PLACE[1]) for name in names}
        rows = self._windows_of(self._claimant(claim), rank, starts, each + len(claim.tried))
        of_partition: dict[str, list[OpenSubqueue]] = {name: [] for name in names}
        for one in self._looked_at(claim, rank, rows):
            of_partition[one.partition].append(one)
        found: list[OpenSubqueue] = []
        for name, members in of_partition.items():
            found += sorted(members, key=lambda one, start=starts[name]: (one.id <= start, one.id))[:each]  # type: ignore[misc]
        return found

    @abstractmethod
    def _windows_of(self, who: dict[str, Any], rank: int, starts: dict[str, int], each: int) -> list[tuple[Any, ...]]:
        """Return open subqueues of some partitions, so many of each after a place, and so many from its beginning on."""

    def _lock_keys(self, claim: FlowClaim, window: Sequence[OpenSubqueue]) -> None:
        """Lock the keys of these subqueues, and count those anew that have no room. Leave out keys that are locked."""
        wanted = {key for one in window for key, _ in one.draws} - claim.keys.keys()
        if wanted:
            locked, _ = self._locked_keys(wanted)
            claim.at = max([claim.at or 0, *(key.filled_at for key in locked.values() if key.has_rate)]) or None
            claim.keys |= locked
        full = {key for one in window for key, units in one.draws if key in claim.keys and claim.keys[key].is_full(units)}
        self._recount([claim.keys[key] for key in full])

    def _pick_plain(self, claim: FlowClaim, rank: int, count: int) -> int:
        if not count:
            return 0
        kinds = None if claim.kinds is None else self._list(claim.kinds)
        params = {"queue": claim.queue, "rank": rank, "kinds": kinds, "limit": count}
        found = self.values("pick_plain_jobs", now_at=self.stamp(), before_at=claim.at, **params)
        if len(found) < count:
            claim.without_plain.add(rank)
        claim.picked |= dict.fromkeys(found)
        return len(found)

    def _pick_subqueues(self, claim: FlowClaim, rank: int, counts: dict[int, int]) -> int:
        """Lock the first jobs of each subqueue. What a subqueue could not use goes back to its keys."""
        if not counts:
            return 0
        found = dict(self._pick_jobs(claim.queue, rank, claim.at, counts))
        got = Counter(found.values())
        for id_, count in counts.items():
            short = count - got[id_]
            if got[id_]:
                claim.served.add(id_)
            if short:
                claim.empty.add(id_)
                for key, units in claim.seen[id_].draws:
                    claim.keys[key].give_back(short * units)
        claim.picked |= found
        return len(found)

    @abstractmethod
    def _pick_jobs(self, queue: str, rank: int, before: Micros | None, counts: dict[int, int]) -> list[tuple[int, int]]:
        """Lock the first jobs of each subqueue, so many of each. Return them with their subqueues."""

    def _close(self, claim: FlowClaim) -> None:
        """Close the subqueues in which this claim found nothing, and those whose limit is used up."""
        now = self.now()
        # What has no job does not stand in line.
        unready = claim.blocked.keys() - self._ready_subqueues(claim.blocked.keys())
        claim.empty |= unready
        claim.blocked = {id_: key for id_, key in claim.blocked.items() if id_ not in unready}
        if claim.empty:
            self.rows("close_empty_subqueues", ids=self._list(claim.empty), now_at=self.stamp())
        if places := line_up(self._blocked(claim), claim.keys, now, now + limits.SUBQUEUE_CLOSED_MS_MAX * 1_000):
            ids, keys, times, sinces = zip(*places, strict=True)
            self.rows("shut_subqueues", **self._table(shut=ids, keys=keys, times=times, sinces=sinces))
        if started := [id_ for id_ in claim.served if claim.seen[id_].waits_since is not None and id_ not in claim.blocked]:
            self.rows("leave_line", ids=self._list(started))

    def _blocked(self, claim: FlowClaim) -> Iterator[BlockedSubqueue]:
        """Return the subqueues that wait for a key. They keep their places in line until a job of them starts.

        If the claim had to stop before it had looked at all, they go to the end: the next claim then looks at others first.
        """
        for id_, key in claim.blocked.items():
            one, has_started = claim.seen[id_], id_ in claim.served
            since = None if has_started or claim.is_cut else one.waits_since
            if self._turn(claim.queue, claim.ranks[id_]).has_left(one.partition):
                since = FIRST_IN_LINE
            yield BlockedSubqueue(id_, key, dict(one.draws)[key], since, has_started, claim.ranks[id_], one.route)

    def draw(self, claim: FlowClaim, pos: int) -> None:
        """Store what the jobs of a round draw. `pos` is the position of their claim."""
        self._add_slots(pos, [(id_, claim.seen[sub].draws) for id_, sub in claim.picked.items() if sub is not None and sub > 0])
        for key in claim.keys.values():
            key.drawn = 0

    # Claims of one job

    def check_flow(self, job: JobRecord, worker: str, labels: Sequence[str]) -> FlowCheck:
        """Return whether this worker may begin an attempt of a job now. The keys that the job draws on stay locked.

        A caller that begins the attempt gives what it draws to `save`.
        """
        flow = job.flow
        assert flow is not None
        if flow.for_worker not in ("", worker):
            return FlowCheck(FlowRefusal("label", f"it is for the worker {flow.for_worker}"))
        if missing := sorted(set(flow.labels).difference(labels)):
            return FlowCheck(FlowRefusal("label", f"it requires a worker with the label {missing[0]}"))
        draws = self._draws_of(job)
        if not draws:
            return FlowCheck(None)
        keys, at = self._locked_keys([key for key, _ in draws], wait=True)
        drawn = [(keys[key], units) for key, units in draws]
        own = drawn if job.status in ACTIVE else []
        for key, units in own:
            key.free(units)
        self._recount([key for key, units in drawn if key.is_full(units)])
        full = next((key for key, units in drawn if not key.fits(units)), None)
        if full is not None:
            for key, units in own:
                key.free(-units)
            self._save_keys(keys.values())
            return FlowCheck(FlowRefusal("limit", f"the limit {full.name} is used up"))
        return FlowCheck(None, max([at, *(key.filled_at for key in keys.values() if key.has_rate)]), drawn)
