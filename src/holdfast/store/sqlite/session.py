"""One SQLite transaction. There is one writer at a time, so rows read in it cannot change before the commit."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, Enqueue, Heartbeat, Settle, Start
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, JobRecord, Micros, Role, Status
from holdfast.store.base import AppliedCommand, EnqueuedRow
from holdfast.store.policies import RowCache
from holdfast.store.rows import STATUSES
from holdfast.store.session import SqlSession
from holdfast.store.statements import statements

_encode = msgspec.json.Encoder().encode
SQL = statements("holdfast.store.sqlite")
SETTLE_BYTES_MAX = 1 << 20
"""The most bytes of results that are passed to one statement as JSON. Larger batches are bound row by row."""
TIME_BLOCK = 200
"""Events per block. The earliest and latest time of a block are stored, so that a search by time can skip it."""
TIME_BLOCKS_MAX = 100
"""The most blocks that one transaction stores. Another program may have added many events without blocks."""
_POS_MAX = 2**63 - 1


class SqliteSession(SqlSession):
    def __init__(self, connection: apsw.Connection, ledger_id: str, cache: RowCache, clock: Callable[[], Micros]) -> None:
        super().__init__(ledger_id, cache)
        self._connection = connection.cursor()
        self._connection.row_trace = None
        self._clock = clock
        self._now_cached: Micros | None = None

    def now(self) -> Micros:
        """Return the time, read once a transaction. The transaction holds the write lock, so later ones get later times."""
        if self._now_cached is None:
            self._now_cached = self._clock()
        return self._now_cached

    def stamp(self) -> Micros:
        return self.now()

    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(SQL[name], params))

    def _list(self, values: Iterable[Any]) -> str:
        return _encode(list(values)).decode()

    def each(self, name: str, params: Sequence[dict[str, Any]]) -> None:
        self._connection.executemany(SQL[name], params)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.each(name, [dict(zip(columns, row, strict=True)) for row in rows])

    def _lock_seal(self) -> None:
        """The only writer needs no lock."""

    def _lock_jobs(self, ids: Any) -> None:
        """The only writer needs no lock."""

    def try_lock(self, ids: Iterable[int]) -> set[int]:
        """The only writer needs no lock."""
        return set()

    def try_lock_unshared(self, ids: Iterable[int]) -> set[int]:
        return set()

    def pin(self, ids: Iterable[int]) -> set[int]:
        return set()

    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        return set()

    def _lock_settings(self) -> None:
        """The only writer needs no lock."""

    def lock_keys(self) -> None:
        """The only writer needs no lock."""

    def _share_keys(self) -> None:
        """The only writer needs no lock."""

    def _lock_agent(self, name: str, session: str) -> None:
        """The only writer needs no lock."""

    def _draw_pos(self) -> int:
        self.rows("begin_positions")
        [(pos,)] = self.rows("draw_pos")
        return int(pos)

    def _keys(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {"keys": self._list(keys)}

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> dict[str, Any]:
        return {"pairs": self._list(pairs)}

    # Events by time

    def note_times(self, noted: int) -> int:
        """Store the times of full blocks of events after position `noted`. Return the end of the last block."""
        newest = self._connection.connection.last_insert_rowid()
        if newest < noted + TIME_BLOCK:
            return noted
        noted, high_at = self.one("last_block") or (0, 0)
        for _ in range(TIME_BLOCKS_MAX):
            if newest < noted + TIME_BLOCK:
                break
            [(pos, min_at, max_at, count)] = self.rows("next_block", after=noted, size=TIME_BLOCK)
            if count < TIME_BLOCK:
                break
            high_at = max(high_at, max_at)
            self.rows("insert_block", pos=pos, after=noted, min_at=min_at, max_at=max_at, high_at=high_at)
            self.rows("forget_block")
            noted = pos
        return noted

    def _events_by_time(self, chosen: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Skip blocks in which all events are too old or too new. Read adjacent blocks in one query."""
        if chosen["since_at"] is None and chosen["until_at"] is None:
            return self.rows("events", upto=_POS_MAX, **chosen)
        times = {name: chosen[name] for name in ("after", "since_at", "until_at")}
        end, _ = self.one("last_block") or (0, 0)
        found: list[tuple[Any, ...]] = []
        for after, upto in _join_ranges([*self.rows("time_blocks", **times), (end, _POS_MAX)]):
            left = chosen["limit"] - len(found)
            if left <= 0:
                break
            found += self.rows("events", **{**chosen, "after": max(after, chosen["after"]), "upto": upto, "limit": left})
        return found

    # Hot verbs

    def enqueue(self, items: Sequence[Enqueue]) -> list[EnqueuedRow]:
        now, connection = self.now(), self._connection
        profile = self.profile_id
        ids = self._ids_for(items)
        connection.executemany(
            SQL["insert_job"],
            [
                (
                    id_, item.queue, item.kind, item.priority,
                    now + item.delay_us if item.available_at is None else item.available_at,
                    now, now, profile(item), item.dedupe_key, item.dedupe_forever, item.correlation_id, item.trace_id,
                    item.replay_of,
                )
                for id_, item in zip(ids, items, strict=True)
            ],
        )  # fmt: skip
        actors: dict[Actor, str] = {}
        connection.executemany(
            SQL["insert_enqueued"],
            [
                (
                    id_, now, actors.get(item.actor) or actors.setdefault(item.actor, str(item.actor)), item.reason,
                    item.request_id, item.payload, item.correlation_id,
                )
                for id_, item in zip(ids, items, strict=True)
            ],
        )  # fmt: skip
        return [EnqueuedRow(id_, now, True) for id_ in ids]

    def _ids_for(self, items: Sequence[Enqueue]) -> Sequence[int]:
        """Return the ids that were drawn for these jobs, or the next ones."""
        if items[0].job_id is not None:
            return [item.job_id for item in items if item.job_id is not None]
        first: int = self._connection.execute(SQL["last_job_id"]).get + 1
        return range(first, first + len(items))

    def enqueue_keyed(self, item: Enqueue) -> EnqueuedRow:
        found = self._connection.execute(SQL["find_dedupe"], (item.queue, item.dedupe_key)).get
        if found is not None:
            return EnqueuedRow(found[0], found[1], False)
        return self.enqueue([item])[0]

    def claim(self, command: ClaimNext) -> list[JobRecord]:
        held: list[JobRecord] = []
        for queue in command.queues:
            if len(held) < command.limit and not self.paused(queue):
                held += self._claim_from(queue, command, command.limit - len(held))
        return held

    def _claim_from(self, queue: str, command: ClaimNext, limit: int) -> list[JobRecord]:
        params = {"queue": queue, "now": self.now(), "kinds": None if command.kinds is None else self._list(command.kinds)}
        ready = self._connection.execute(SQL["next_two"], params).fetchall()
        if not ready:
            return []
        actor, start = command.actor, command.start
        is_single = len(ready) == 1 or limit == 1
        selection = {"id": ready[0][0], "now": params["now"]} if is_single else {**params, "limit": limit}
        rows: list[tuple[Any, ...]] = self._connection.execute(
            SQL["claim_lone" if is_single else "claim"],
            {
                "status": "running" if start else "claimed",
                "phase": "executing" if start else None,
                "steps": 2 if start else 1,
                "owner": actor.name,
                "incarnation": actor.incarnation,
                "token": command.token,
                **selection,
            },
        ).fetchall()
        if not rows:
            return []
        rows.sort(key=lambda row: (-row[5], row[6], row[0]))
        self._connection.execute(
            SQL["insert_claimed"],
            {
                "ids": self._list([row[0] for row in rows]),
                "steps": 2 if start else 1,
                "actor": str(actor),
                "request": command.request_id,
            },
        )
        return self.claimed(rows, command)

    def _passing_guards(self, commands: Sequence[Any], statuses: frozenset[str]) -> Iterator[tuple[Any, "_Guard"]]:
        """Yield the commands whose guards hold, each with its row. The write lock is held, so the rows cannot change."""
        found = self._connection.execute(SQL["guards"], (self._list([command.job_id for command in commands]),))
        rows = {row[0]: row for row in found}
        now = self.now()
        for command in commands:
            row = rows.get(command.job_id)
            if row is None:
                continue
            guard = _Guard(*row)
            fence, expected = command.fence, command.expected_rev
            if (
                guard.status in statuses
                and guard.attempt == fence.attempt
                and guard.token == fence.token
                and max(now, guard.updated_at) <= guard.lease_expires_at
                and (expected is None or expected == guard.rev)
            ):
                yield command, guard

    def start(self, commands: Sequence[Start]) -> list[AppliedCommand | None]:
        now, done = self.now(), {}
        updates, events = [], []
        for command, guard in self._passing_guards(commands, _CLAIMED):
            at = max(now, guard.updated_at)
            change = AppliedCommand(guard.id, guard.rev + 1, Status.RUNNING, at, at + guard.lease_us)
            updates.append((guard.id, change.rev, at, change.lease_expires_at))
            events.append((guard.id, change.rev, at, guard.worker, guard.attempt, command.request_id))
            done[guard.id] = change
        self._connection.executemany(SQL["start"], updates)
        self._connection.executemany(SQL["insert_started"], events)
        return [done.get(command.job_id) for command in commands]

    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        now, done = self.now(), {}
        plain, full, events = [], [], []
        for command, guard in self._passing_guards([c for c in commands if c.beat.is_plain], _HELD):
            at, beat = max(now, guard.updated_at), command.beat
            lease, body = at + guard.lease_us, payloads.beat_payload(beat)
            if body is None:
                plain.append((guard.id, guard.rev + 1, at, lease))
            else:
                full.append((guard.id, guard.rev + 1, at, lease, beat.stage, beat.progress, beat.assist_requested))
            status, request_id = guard.status, command.request_id
            events.append((guard.id, guard.rev + 1, at, guard.worker, guard.attempt, status, status, request_id, body))
            done[guard.id] = AppliedCommand(guard.id, guard.rev + 1, STATUSES[status], at, lease, guard.phase == "aborting")
        self._connection.executemany(SQL["beat"], plain)
        self._connection.executemany(SQL["heartbeat"], full)
        self._connection.executemany(SQL["insert_heartbeat"], events)
        return [done.get(command.job_id) for command in commands]

    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        now, done = self.now(), {}
        updates, events = [], []
        for command, guard in self._passing_signed_guards([c for c in commands if c.beat.is_plain]):
            signed = command.signed
            assert signed is not None
            at, beat, rev, status = max(now, guard.updated_at), command.beat, guard.rev + 1, guard.status
            lease = at + guard.lease_us
            updates.append((guard.id, rev, at, lease, signed.counter, beat.stage, beat.progress, beat.assist_requested))
            events.append((
                guard.id, rev, at, guard.worker, guard.attempt, status, status, command.request_id, payloads.beat_payload(beat),
                signed.signed_at, signed.key_id, signed.signature, signed.statement,
            ))  # fmt: skip
            done[guard.id] = AppliedCommand(guard.id, rev, STATUSES[status], at, lease, guard.phase == "aborting")
        self._connection.executemany(SQL["beat_signed"], updates)
        self._connection.executemany(SQL["insert_beat_signed"], events)
        return [done.get(command.job_id) for command in commands]

    def _passing_signed_guards(self, commands: Sequence[Heartbeat]) -> Iterator[tuple[Heartbeat, "_Guard"]]:
        """Yield the commands whose fence and signed statement belong to the attempt, with a new counter and a current time."""
        found = self._connection.execute(SQL["signed_guards"], (self._list([command.job_id for command in commands]),))
        rows = {row[0]: row for row in found}
        now = self.now()
        for command in commands:
            row = rows.get(command.job_id)
            if row is not None and _signed_guard_holds(command, guard := _Guard(*row), now):
                yield command, guard

    def complete(self, commands: Sequence[Complete]) -> list[AppliedCommand | None]:
        done = {id_: AppliedCommand(id_, rev, Status.SUCCEEDED, at) for id_, rev, at in self._complete(commands)}
        return [done.get(command.job_id) for command in commands]

    def settle(self, commands: Sequence[Settle]) -> Container[int]:
        if sum([len(command.payload) for command in commands]) > SETTLE_BYTES_MAX:
            return {update[0] for update in self._complete(commands)}
        bodies: dict[str | None, dict[int, str]] = {}
        for command, guard in self._passing_guards(commands, _RUNNING):
            if not guard.dependents:
                bodies.setdefault(command.request_id, {})[guard.id] = command.payload.decode()
        done = {id_ for found in bodies.values() for id_ in found}
        self._connection.execute(SQL["settle"], {"now": self.now(), "ids": self._list(done)})
        for request_id, found in bodies.items():
            self._connection.execute(SQL["insert_settled"], {"request": request_id, "payloads": _encode(found).decode()})
        return done

    def _complete(self, commands: Sequence[Complete]) -> list[tuple[int, int, Micros]]:
        """Complete jobs. Return the id, revision and time of each completed one."""
        now, updates, events = self.now(), [], []
        for command, guard in self._passing_guards(commands, _RUNNING):
            if guard.dependents:
                continue
            rev, at = guard.rev + 1, max(now, guard.updated_at)
            updates.append((guard.id, rev, at))
            events.append((guard.id, rev, at, guard.worker, guard.attempt, command.request_id, command.payload))
        self._connection.executemany(SQL["complete"], updates)
        self._connection.executemany(SQL["insert_succeeded"], events)
        return updates


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent ranges of positions. The ranges are in order."""
    merged: list[tuple[int, int]] = []
    for after, upto in ranges:
        touches = bool(merged) and merged[-1][1] >= after
        merged.append((merged.pop()[0] if touches else after, upto))
    return merged


_CLAIMED, _RUNNING, _HELD = frozenset({"claimed"}), frozenset({"running"}), frozenset({"claimed", "running"})


class _Guard(NamedTuple):
    """The columns that a holder's command is checked against."""

    id: int
    status: str
    rev: int
    attempt: int
    token: str
    updated_at: Micros
    lease_expires_at: Micros
    owner: str
    incarnation: str
    phase: str | None
    dependents: int
    lease_us: int
    counter: int | None = None

    @property
    def worker(self) -> str:
        return f"{Role.WORKER.value}:{self.owner}#{self.incarnation}"


def _signed_guard_holds(command: Heartbeat, guard: _Guard, now: Micros) -> bool:
    signed, fence, expected = command.signed, command.fence, command.expected_rev
    assert signed is not None
    assert signed.counter is not None
    return (
        guard.status in _HELD
        and fence.token in (guard.token, "")
        and (fence.attempt, signed.attempt) == (guard.attempt, guard.attempt)
        and (signed.signer.name, signed.signer.incarnation) == (guard.owner, guard.incarnation)
        and (guard.counter is None or signed.counter > guard.counter)
        and abs(signed.signed_at - now) <= SKEW_US_MAX
        and max(now, guard.updated_at) <= guard.lease_expires_at
        and (expected is None or expected == guard.rev)
    )
