"""One SQLite transaction. There is one writer at a time, so rows read in it cannot change before the commit."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import starmap
from operator import itemgetter
from typing import Any, NamedTuple

import apsw
import msgspec

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, Enqueue, Heartbeat, Settle, Start
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Actor, Micros, Role, Status
from holdfast.store.dependencies import EVENT_COLUMNS, JOB_COLUMNS
from holdfast.store.flow import FlowClaim
from holdfast.store.policies import RowCache
from holdfast.store.rows import BATCH_EVENTS_MAX, STATUSES, ClaimedJobs, ClaimedRow, chunks, row_id, sort_claimed
from holdfast.store.session import AppliedCommand, EnqueuedRow, Session
from holdfast.store.statements import statements
from holdfast.store.subqueues import Line

_encode = msgspec.json.Encoder().encode
SQL = statements("holdfast.store.sqlite")
TIME_BLOCK = 200
"""Events per block. The earliest and latest time of a block are stored, so that a search by time can skip it."""
TIME_BLOCKS_MAX = 100
"""The most blocks that one transaction stores. Another program may have added many events without blocks."""
_POS_MAX = 2**63 - 1


class SqliteSession(Session):
    def __init__(self, connection: apsw.Connection, ledger_id: str, cache: RowCache, clock: Callable[[], Micros]) -> None:
        super().__init__(ledger_id, cache)
        self._connection = connection.cursor()
        self._connection.row_trace = None
        self._clock = clock
        self._now_cached: Micros | None = None
        self._last_pos: int | None = None
        """The last position that was drawn. None until this transaction has drawn one."""

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

    def _write_rows(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.each(name, [dict(zip(columns, row, strict=True)) for row in rows])

    def _save_dependents(self, jobs: Sequence[Sequence[Any]], events: Sequence[Sequence[Any]]) -> None:
        pos = self._draw(len(events))
        self.each("save_dependents", [dict(zip(JOB_COLUMNS, row, strict=True), last_pos=pos) for row in jobs])
        self.each(
            "insert_dependent_events", [dict(zip(EVENT_COLUMNS, row, strict=True), pos=pos + n) for n, row in enumerate(events)]
        )

    def tidy_claims(self, limit: int) -> None:
        found = self.rows("next_checks", now_at=self.now(), limit=limit)
        self.each("tidy_claim", [{"pos": pos, "check_at": at} for pos, at in found if at is not None])
        self.rows("close_claims", positions=self._list([pos for pos, at in found if at is None]))

    def _no_lock(self, *_: Any, **__: Any) -> None:
        """The only writer needs no lock."""

    _lock_seal = _lock_jobs = _lock_settings = lock_keys = _share_keys = _lock_agent = _no_lock

    def _none_locked(self, *_: Any, **__: Any) -> set[Any]:
        """No other transaction has locked a row."""
        return set()

    try_lock = try_lock_unshared = pin = take_requests = _none_locked

    def _draw_pos(self) -> int:
        return self._draw(1)

    def _save_row(self, events: int, **values: Any) -> list[tuple[int, int | None, int | None]]:
        pos = self._draw(events)
        [(claim_pos,)] = self.rows("claim_of", id=values["id"])
        offset = values.pop("claim_offset")
        [(subqueue,)] = self.rows("save", last_pos=pos, claim_pos=claim_pos if offset is None else pos + offset, **values)
        return [(pos, claim_pos, subqueue)]

    def _insert_claim(self, values: dict[str, Any]) -> None:
        self.rows("insert_claim", jobs=self._list([values.pop("job_id")]), **values)
        self.rows("open_one_claim", pos=values["pos"])

    def _keys(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {"keys": self._list(keys)}

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> dict[str, Any]:
        return {"pairs": self._list(pairs)}

    # Events by time

    def note_times(self, noted: int) -> int:
        """Store the times of full blocks of events after position `noted`. Return the end of the last block."""
        newest = self._last_pos
        if newest is None or newest < noted + TIME_BLOCK:
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
            noted = pos
        return noted

    def _forget_times(self, positions: Sequence[int]) -> None:
        if positions:
            self.rows("forget_blocks", positions=self._list(positions))

    def _events_by_time(self, limit: int, after: int, **chosen: Any) -> list[tuple[Any, ...]]:
        """Skip blocks in which all events are too old or too new. Read adjacent blocks together."""
        if chosen["since_at"] is None and chosen["until_at"] is None:
            return super()._events_by_time(limit, after, **chosen)
        end, _ = self.one("last_block") or (0, 0)
        times = {name: chosen[name] for name in ("since_at", "until_at")}
        found: list[tuple[Any, ...]] = []
        for begin, upto in _join_ranges([*self.rows("time_blocks", after=after, **times), (end, _POS_MAX)]):
            for rows, _ in self.pages(max(begin, after), upto, limit - len(found), **chosen):
                found += rows
                if len(found) >= limit:
                    return found[:limit]
        return found

    # Positions and batches

    def _draw(self, count: int) -> int:
        """Take the next `count` positions and return the first of them."""
        if self._last_pos is None:
            self._last_pos = self._connection.execute(SQL["last_pos"]).get
        first = self._last_pos + 1
        if count:
            self._last_pos += count
            self._connection.execute(SQL["set_last_pos"], (self._last_pos,))
        return first

    def _insert_batch(self, pos: int, batch: "_Batch", jobs: "_BatchColumns") -> None:
        """Record one event for each of these jobs, or two if the batch `starts`. They take the positions from `pos` on."""
        ids, revs, attempts, times, policies = jobs
        self._connection.execute(
            SQL["insert_batch"],
            (
                pos, min(times), batch.claim_pos, len(ids) * (1 + batch.starts), revs[0], attempts[0], policies[0], batch.starts,
                batch.type, batch.from_status, batch.to_status, batch.actor, batch.reason, batch.request_id, self._list(ids),
                self._unless_equal(revs), self._unless_equal(attempts), self._unless_equal(policies), self._unless_equal(times),
            ),
        )  # fmt: skip

    def _unless_equal(self, values: list[Any]) -> str | None:
        return None if values.count(values[0]) == len(values) else self._list(values)

    def _insert_batches(self, pos: int, batches: "dict[_Batch, list[_BatchEntry]]") -> None:
        for batch, entries in batches.items():
            self._insert_batch(pos, batch, _BatchColumns(*map(list, zip(*entries, strict=True))))
            pos += len(entries)

    # Hot verbs

    def enqueue(self, items: Sequence[Enqueue]) -> list[EnqueuedRow]:
        if len(items) > BATCH_EVENTS_MAX:
            return [row for part in chunks(items, BATCH_EVENTS_MAX) for row in self.enqueue(part)]
        now, ids, profile = self.now(), self._ids_for(items), self.profile_id
        places_of = None if all([item.bare for item in items]) else self._places_of(items)  # noqa: C419 - a list is faster
        first = pos = self._draw(len(items))
        places: dict[tuple[Actor, str | None, str | None], list[int]] = {}
        for id_, item in zip(ids, items, strict=True):
            places.setdefault((item.actor, item.request_id, item.reason), []).append(id_)
        positions: dict[tuple[Actor, str | None, str | None], int] = {}
        for key, members in places.items():
            actor, request_id, reason = key
            batch = _Batch("enqueued", None, "queued", str(actor), request_id=request_id, reason=reason)
            self._insert_batch(pos, batch, _BatchColumns(members, [1], [0], [now], [None]))
            positions[key] = pos
            pos += len(members)
        rows: list[tuple[Any, ...]] = [
            (
                id_, item.queue, item.kind, item.priority,
                now + item.delay_us if item.available_at is None else item.available_at,
                now, profile(item), item.dedupe_key, item.dedupe_forever, item.correlation_id, item.trace_id,
                item.replay_of, positions[item.actor, item.request_id, item.reason], first, item.payload,
            )
            for id_, item in zip(ids, items, strict=True)
        ]  # fmt: skip
        if places_of is None:
            self._connection.executemany(SQL["insert_job"], rows)
        else:
            placed = [(*row, *place) for row, place in zip(rows, places_of, strict=True)]
            self._connection.executemany(SQL["insert_placed_job"], placed)
        return [EnqueuedRow(id_, now, True) for id_ in ids]

    def _places_of(self, items: Sequence[Enqueue]) -> list[tuple[int | None, int | None]] | None:
        """Return the group and the subqueue of each new job, and note that they get jobs.

        None if no job has any of these.
        """
        groups = self.join_groups(items)
        has_flow = any(item.flow is not None for item in items)
        if not groups and not has_flow:
            return None
        self.note_joined(groups, items)
        subqueues = self.subqueue_ids(items) if has_flow else [None] * len(items)
        self.note_subqueues(sorted({id_ for id_ in subqueues if id_ is not None}))
        return [(groups.get(item.group), subqueue) for item, subqueue in zip(items, subqueues, strict=True)]

    def _ids_for(self, items: Sequence[Enqueue]) -> Sequence[int]:
        """Return the ids that were drawn for these jobs, or the next ones."""
        if items[0].job_id is not None:
            return [item.job_id for item in items if item.job_id is not None]
        first: int = self._connection.execute(SQL["last_job_id"]).get + 1
        return range(first, first + len(items))

    def enqueue_keyed(self, item: Enqueue) -> EnqueuedRow:
        assert item.dedupe_key is not None
        found = self.find_key(item.queue, item.dedupe_key)
        if found is not None:
            return EnqueuedRow(found.id, found.created_at, False)
        row = self.enqueue([item])[0]
        if item.dedupe_for_us:
            self.rows("set_window", id=row.job_id, until_at=row.at + item.dedupe_for_us)
        return row

    def claim(self, command: ClaimNext) -> ClaimedJobs:
        rows: list[tuple[Any, ...]] = []
        for queue in command.queues:
            if len(rows) < command.limit:
                paused_at, has_flow = self.one("queue_state", queue=queue) or (None, 0)
                if paused_at is None:
                    claim_from = self._claim_flow if has_flow else self._claim_from
                    rows += claim_from(queue, command, command.limit - len(rows))
        return self.claimed(rows, command)

    def claim_statement(self, command: ClaimNext) -> tuple[ClaimedJobs, ClaimNext | None]:
        return self.claim(command), None

    def _claim_flow(self, queue: str, command: ClaimNext, limit: int) -> list[tuple[Any, ...]]:
        """Claim jobs of a queue with subqueues."""
        claim = FlowClaim(queue, command, limit, self.queue_settings(queue))
        rows: list[tuple[Any, ...]] = []
        for picked in self.rounds(claim):
            pos, selection = self._draw(0), {"ids": self._list(picked), "now": self.now()}
            found = {row_id(row): row for row in self._claim_rows("claim_chosen", command, selection)}
            rows += [found[id_] for id_ in picked]
            self.draw(claim, pos)
        return rows

    def _claim_from(self, queue: str, command: ClaimNext, limit: int) -> list[tuple[Any, ...]]:
        params = {"queue": queue, "now": self.now(), "kinds": None if command.kinds is None else self._list(command.kinds)}
        ready = self._connection.execute(SQL["next_two"], params).fetchall()
        if not ready:
            return []
        is_single = len(ready) == 1 or limit == 1
        selection = {"id": ready[0][0], "now": params["now"]} if is_single else {**params, "limit": limit}
        return self._claim_rows("claim_lone" if is_single else "claim", command, selection)

    def _claim_rows(self, name: str, command: ClaimNext, selection: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Claim the jobs of a selection and record it."""
        start, pos = command.start, self._draw(0)
        rows: list[tuple[Any, ...]] = self._connection.execute(
            SQL[name],
            {
                "pos": pos,
                "status": "running" if start else "claimed",
                "phase": "executing" if start else None,
                "steps": 2 if start else 1,
                "owner": command.actor.name,
                "incarnation": command.actor.incarnation,
                "token": command.token,
                **selection,
            },
        ).fetchall()
        if not rows:
            return []
        sort_claimed(rows)
        self._draw(len(rows) * (1 + start))
        batch = _Batch("claimed", "queued", "claimed", str(command.actor), request_id=command.request_id, starts=start)
        claimed = _claimed_columns(rows)
        self._insert_batch(pos, batch, claimed._replace(revs=[rev - start for rev in claimed.revs]))
        policies = self._list(set(claimed.policy_ids))
        self._connection.execute(
            SQL["open_claim"], {"pos": pos, "now": selection["now"], "size": len(rows), "policies": policies}
        )
        return rows

    def _passing_guards(self, commands: Sequence[Any], statuses: frozenset[str]) -> Iterator[tuple[Any, "_Guard"]]:
        """Yield the commands whose guards hold, each with its row. The write lock is held, so the rows cannot change."""
        guards, now = self._guards("guards", commands), self.now()
        for command in commands:
            guard = guards.get(command.job_id)
            if guard is None:
                continue
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
        now, pos, done = self.now(), self._draw(0), {}
        updates: list[tuple[Any, ...]] = []
        batches: dict[_Batch, list[_BatchEntry]] = {}
        for command, guard in self._passing_guards(commands, _CLAIMED):
            at = max(now, guard.updated_at)
            change = AppliedCommand(guard.id, guard.rev + 1, Status.RUNNING, at, at + guard.lease_us)
            updates.append((guard.id, change.rev, at, change.lease_expires_at, pos))
            batch = _Batch("started", "claimed", "running", guard.worker, guard.claim_pos, command.request_id)
            batches.setdefault(batch, []).append(_BatchEntry(guard.id, change.rev, guard.attempt, at))
            done[guard.id] = change
        self._draw(len(updates))
        self._connection.executemany(SQL["start"], updates)
        self._insert_batches(pos, batches)
        return [done.get(command.job_id) for command in commands]

    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        now, first, done = self.now(), self._draw(0), {}
        plain: list[tuple[Any, ...]] = []
        full: list[tuple[Any, ...]] = []
        events: list[tuple[Any, ...]] = []
        batches: dict[_Batch, list[_BatchEntry]] = {}
        for command, guard in self._passing_guards([c for c in commands if c.beat.is_plain], _HELD):
            at, beat, rev, status = max(now, guard.updated_at), command.beat, guard.rev + 1, guard.status
            lease, body = at + guard.lease_us, payloads.beat_payload(beat)
            if body is None and command.request_id is None:
                plain.append((guard.id, rev, at, lease, first))
                batch = _Batch("heartbeat", status, status, guard.worker, guard.claim_pos)
                batches.setdefault(batch, []).append(_BatchEntry(guard.id, rev, guard.attempt, at))
            else:
                full.append((guard.id, rev, at, lease, first, beat.stage, beat.progress, beat.assist_requested))
                event = (guard.claim_pos, guard.worker, guard.attempt, status, status, command.request_id, body)
                events.append((first + len(events), guard.id, rev, at, *event))
            done[guard.id] = AppliedCommand(guard.id, rev, STATUSES[status], at, lease, guard.phase == "aborting")
        self._draw(len(plain) + len(full))
        self._connection.executemany(SQL["beat"], plain)
        self._connection.executemany(SQL["heartbeat"], full)
        self._connection.executemany(SQL["insert_heartbeat"], events)
        self._insert_batches(first + len(events), batches)
        return [done.get(command.job_id) for command in commands]

    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        now, first, done = self.now(), self._draw(0), {}
        updates: list[tuple[Any, ...]] = []
        events: list[tuple[Any, ...]] = []
        for command, guard in self._passing_signed_guards([c for c in commands if c.beat.is_plain]):
            signed = command.signed
            assert signed is not None
            at, beat, rev, status = max(now, guard.updated_at), command.beat, guard.rev + 1, guard.status
            lease = at + guard.lease_us
            updates.append((guard.id, rev, at, lease, first, signed.counter, beat.stage, beat.progress, beat.assist_requested))
            events.append((
                first + len(events), guard.id, rev, at, guard.claim_pos, guard.worker, guard.attempt, status, status,
                command.request_id, payloads.beat_payload(beat), signed.signed_at, signed.key_id, signed.signature,
                signed.statement,
            ))  # fmt: skip
            done[guard.id] = AppliedCommand(guard.id, rev, STATUSES[status], at, lease, guard.phase == "aborting")
        self._draw(len(events))
        self._connection.executemany(SQL["beat_signed"], updates)
        self._connection.executemany(SQL["insert_beat_signed"], events)
        return [done.get(command.job_id) for command in commands]

    def _passing_signed_guards(self, commands: Sequence[Heartbeat]) -> Iterator[tuple[Heartbeat, "_Guard"]]:
        """Yield the commands whose fence and signed statement belong to the attempt, with a new counter and a current time."""
        guards, now = self._guards("signed_guards", commands), self.now()
        for command in commands:
            guard = guards.get(command.job_id)
            if guard is not None and _signed_guard_holds(command, guard, now):
                yield command, guard

    def _guards(self, name: str, commands: Sequence[Any]) -> "dict[int, _Guard]":
        found = self._connection.execute(SQL[name], (self._list([command.job_id for command in commands]),))
        return {guard.id: guard for guard in starmap(_Guard, found)}

    def complete(self, commands: Sequence[Complete]) -> list[AppliedCommand | None]:
        done = {id_: AppliedCommand(id_, rev, Status.SUCCEEDED, at) for id_, rev, at, *_ in self._complete(commands)}
        return [done.get(command.job_id) for command in commands]

    def _settle(self, commands: Sequence[Settle]) -> Sequence[int]:
        return [update[0] for update in self._complete(commands)]

    def settle_alike(
        self, ids: Sequence[int], token: str, attempt: int, payload: bytes, request_id: str | None
    ) -> Sequence[int] | None:
        """See `Session.settle_alike`. This completes all of the jobs or none."""
        now, listed = self.now(), self._list(ids)
        guards = {"ids": listed, "attempt": attempt, "token": token, "now": now}
        found = self.rows("settle_guards", **guards)
        [(count, rev, rev_max, updated_at, owner, incarnation, first_claim, last_claim, is_noted)] = found
        if count < len(ids) or rev < rev_max or updated_at > now:
            return ()
        pos = self._draw(count)
        self.rows("settle", now=now, pos=pos, result=payload, ids=listed)
        worker = f"{Role.WORKER.value}:{owner}#{incarnation}"
        claims = {first_claim: list(ids)} if first_claim == last_claim else self._by_claim(ids)
        for claim_pos, members in claims.items():
            batch = _Batch("succeeded", "running", "succeeded", worker, claim_pos, request_id)
            self._insert_batch(pos, batch, _BatchColumns(members, [rev + 1], [attempt], [now], [None]))
            self.rows("close_claim", pos=claim_pos, ended=len(members))
            pos += len(members)
        if is_noted:
            self._note_ends(ids)
        return None

    def _by_claim(self, ids: Sequence[int]) -> dict[int, list[int]]:
        """Return jobs by the position of their claim. One call of `claim` records one for each queue and round."""
        found: dict[int, list[int]] = {}
        for id_, claim_pos in self.rows("claims_of", ids=self._list(ids)):
            found.setdefault(claim_pos, []).append(id_)
        return found

    def _note_ends(self, ids: Sequence[int]) -> None:
        """Note that jobs have ended, for their groups and for the limits that they drew on, and wake workers."""
        self.note_ended(ids)
        freed = self.rows("limited_jobs", ids=self._list(ids))
        self.note_subqueues(freed=[subqueue for _, subqueue in freed])
        if freed:
            self.wake({queue for queue, _ in freed})

    def _complete(self, commands: Sequence[Complete]) -> list[tuple[Any, ...]]:
        """Complete jobs. Return the id, revision and time of each completed one, then the other columns that changed."""
        now, pos = self.now(), self._draw(0)
        updates: list[tuple[Any, ...]] = []
        batches: dict[_Batch, list[_BatchEntry]] = {}
        results, noted = set(), []
        for command, guard in self._passing_guards(commands, _RUNNING):
            if guard.dependents:
                continue
            rev, at = guard.rev + 1, max(now, guard.updated_at)
            updates.append((guard.id, rev, at, pos, command.payload))
            results.add(command.payload)
            batch = _Batch("succeeded", "running", "succeeded", guard.worker, guard.claim_pos, command.request_id)
            batches.setdefault(batch, []).append(_BatchEntry(guard.id, rev, guard.attempt, at))
            if guard.is_noted:
                noted.append(guard.id)
        self._draw(len(updates))
        if len(updates) > 1 and len(results) == 1:
            ids = self._list([update[0] for update in updates])
            self._connection.execute(SQL["settle"], {"now": now, "pos": pos, "result": results.pop(), "ids": ids})
        else:
            self._connection.executemany(SQL["complete"], updates)
        self._insert_batches(pos, batches)
        ended = Counter(batch.claim_pos for batch, entries in batches.items() for _ in entries)
        self.each("close_claim", [{"pos": pos, "ended": count} for pos, count in ended.items()])
        if noted:
            self._note_ends(noted)
        return updates

    # Flow control

    def _table(self, **columns: Sequence[Any]) -> dict[str, Any]:
        return {"rows": self._list(zip(*columns.values(), strict=True))}

    def _lock_notes(self, *, wait: bool = False) -> bool:
        """The only writer needs no lock."""
        return True

    def _lock_names(self, *, alone: bool) -> bool:
        """The only writer needs no lock."""
        return True

    def _decode_list(self, value: Any) -> list[int]:
        return [] if value is None else msgspec.json.decode(value)

    def _first_in(self, lines: Sequence[Line]) -> list[int]:
        waiting = self.values("has_line", rows=self._list(lines))
        return [id_ for number in waiting for id_ in self.values("first_in_line", **lines[number]._asdict())]

    def _windows_of(self, who: dict[str, Any], rank: int, starts: dict[str, int], each: int) -> list[tuple[Any, ...]]:
        place = {"rank": rank, "limit": each, **who}
        return [row for name, start in starts.items() for row in self.rows("flow_windows", partition=name, place=start, **place)]

    def lock_limit_keys(self, ids: Sequence[int], *, wait: bool) -> list[tuple[Any, ...]]:
        return self.rows("read_limit_keys", ids=self._list(ids))

    def _pick_jobs(self, queue: str, rank: int, before: Micros | None, counts: dict[int, int]) -> list[tuple[int, int]]:
        of_count: dict[int, list[int]] = {}
        for subqueue, count in counts.items():
            of_count.setdefault(count, []).append(subqueue)
        place = {"queue": queue, "rank": rank, "until": self.now() if before is None else min(before, self.now())}
        found: dict[int, list[int]] = {}
        for count, subqueues in of_count.items():
            rows = self.rows("pick_jobs_of", **place, count=count, subqueues=self._list(subqueues))
            found |= {subqueue: self._decode_list(ids) for subqueue, ids in rows}
        return [(id_, subqueue) for subqueue in counts for id_ in found[subqueue]]


class _Batch(NamedTuple):
    """The values that the events of a batch share."""

    type: str
    from_status: str | None
    to_status: str
    actor: str
    claim_pos: int | None = None
    request_id: str | None = None
    reason: str | None = None
    starts: bool = False


class _BatchEntry(NamedTuple):
    """One job of a batch."""

    job_id: int
    rev: int
    attempt: int
    at: Micros
    policy_id: int | None = None


class _BatchColumns(NamedTuple):
    """The jobs of a batch, by column."""

    ids: list[int]
    revs: list[int]
    attempts: list[int]
    times: list[Micros]
    policy_ids: list[int | None]


_claimed_columns_of = itemgetter(*map(ClaimedRow._fields.index, ("id", "rev", "attempt", "claimed_at", "policy_id")))


def _claimed_columns(rows: Sequence[tuple[Any, ...]]) -> _BatchColumns:
    return _BatchColumns(*map(list, zip(*map(_claimed_columns_of, rows), strict=True)))


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent ranges of positions. The ranges are in order."""
    merged: list[tuple[int, int]] = []
    for after, upto in ranges:
        touches = bool(merged) and merged[-1][1] >= after
        merged.append((merged.pop()[0] if touches else after, upto))
    return merged


_CLAIMED, _RUNNING, _HELD = frozenset({"claimed"}), frozenset({"running"}), frozenset({"claimed", "running"})


_WORKER = Role.WORKER.value


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
    claim_pos: int
    lease_us: int
    is_noted: bool
    """Whether its end matters to a group or to a limit."""
    counter: int | None = None

    @property
    def worker(self) -> str:
        return f"{_WORKER}:{self.owner}#{self.incarnation}"


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
