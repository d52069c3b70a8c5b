"""One PostgreSQL transaction."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any, Self

import psycopg
from msgspec.structs import replace

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext, Complete, Enqueue, Heartbeat, Settle, Start
from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Micros, Status
from holdfast.store.base import Contention
from holdfast.store.dependencies import EVENT_COLUMNS, JOB_COLUMNS
from holdfast.store.policies import RowCache
from holdfast.store.postgres.connections import LOCK_MS, LoopConnection, TimedConnection, check_server, extend_timeout
from holdfast.store.postgres.low_water_marks import LowWaterMark, LowWaterMarks
from holdfast.store.postgres.values import (
    POSTGRES_EPOCH_US,
    binary_cursor,
    bytes_array,
    column_array,
    plain_array,
    raw_cursor,
    text_array,
    time_array,
    to_param,
    to_timestamp,
)
from holdfast.store.postgres.wakeup import Notifier
from holdfast.store.rows import (
    BATCH_EVENTS_MAX,
    CLAIMED_COLUMNS,
    STATUSES,
    ClaimedJobs,
    ClaimedRow,
    chunks,
    row_id,
    row_queue,
    sort_claimed,
)
from holdfast.store.session import AppliedCommand, EnqueuedRow, Session
from holdfast.store.subqueues import Line, SubqueueName

KEYED_TRIES_MAX = 10
NONCE_US = 600_000_000
"""How old an enqueue may be whose answer was lost. It is looked for within some seconds."""
IDLE_MS = 10_000
"""How long a transaction may be idle. The server then ends it, in case its process is frozen or out of reach."""
BEGIN = f"""BEGIN; SELECT pg_current_xact_id()::text FROM set_config('lock_timeout', '{LOCK_MS}', true) AS a,
set_config('idle_in_transaction_session_timeout', '{IDLE_MS}', true) AS b"""
_job_id = attrgetter("job_id")


class PostgresSession(Session):
    def __init__(
        self,
        connection: "psycopg.Connection[Any] | LoopConnection",
        sql: dict[str, str],
        ledger_id: str,
        cache: RowCache,
        clock: Callable[[], Micros] | None,
        marks: LowWaterMarks,
        intern: "Callable[[tuple[str, str, str]], int] | None" = None,
        subqueues: "Callable[[Sequence[SubqueueName]], dict[SubqueueName, int]] | None" = None,
        notifier: Notifier | None = None,
    ) -> None:
        super().__init__(ledger_id, cache)
        self._connection: Any = connection
        self._cursor: Any = connection.cursor() if isinstance(connection, LoopConnection) else binary_cursor(connection)
        self._sql = sql
        self._clock = clock
        self._marks = marks
        self._intern_outside = intern
        self._subqueues_outside = subqueues
        self._notifier = notifier
        self._begins = False
        self._nonce: str | None = None
        self._may_be_done = False
        self.has_enqueued = False
        """An enqueue that is a transaction of its own was committed."""
        self._identity: Any = None
        self.xid: int | None = None
        """The id of the transaction, once this session has begun one."""
        self.notified: set[str] = set()
        """Queues that are notified by the commit itself."""
        self.own_ids: set[int] | None = None
        """In a caller's transaction: the jobs that it has created so far. No other transaction sees them yet."""

    def begins(self, identity: Any = None) -> Self:
        """Begin a transaction with the first statement. With an identity, check that it is that server."""
        self._begins = True
        self._identity = identity
        return self

    def enqueues_once(self, nonce: str, *, may_be_done: bool) -> Self:
        """Let an enqueue be a transaction of its own. With `may_be_done`, an earlier try with this nonce may have committed."""
        self._nonce, self._may_be_done = nonce, may_be_done
        return self

    def _begin(self) -> int:
        """Begin a transaction and return its id, which resolves an unknown commit if the response to it is lost.

        It is not sent in a pipeline with the first statement, although that would save a message: an interrupted pipeline leaves
        the connection in a state that the driver cannot handle.
        """
        checked = self._identity is not None
        cursor = self._connection.execute(f"{BEGIN}; {self._sql['identity']}" if checked else BEGIN, prepare=False)
        cursor.nextset()
        [(xid,)] = cursor.fetchall()
        if checked:
            cursor.nextset()
            check_server(cursor.fetchone(), self._identity, self._connection)
        return int(xid)

    def now(self) -> Micros:
        """Return the current time. It is read each time, because the transaction may have waited for a lock."""
        if self._clock is not None:
            return self._clock()
        [(now,)] = self._run("now")
        return int(now)

    def _run(
        self, name: str, params: dict[str, Any] | None = None, cursor: "psycopg.Cursor[Any] | None" = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. `cursor` replaces the session's own one."""
        used = cursor or self._cursor
        if self._begins and self.xid is None:
            self.xid = self._begin()
        if params and isinstance(self._connection, TimedConnection):
            extend_timeout(self._connection, params)
        used.execute(self._sql[name], params)
        return used.fetchall() if used.description else []

    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
        return self._run(name, {key: to_param(key, value) for key, value in params.items()})

    def each(self, name: str, params: Sequence[dict[str, Any]]) -> None:
        self._cursor.executemany(self._sql[name], params)

    def _save_dependents(self, jobs: Sequence[Sequence[Any]], events: Sequence[Sequence[Any]]) -> None:
        self._write_rows("save_dependents", JOB_COLUMNS, jobs)
        self._write_rows("insert_dependent_events", EVENT_COLUMNS, events)

    def _write_rows(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        by_column = zip(columns, zip(*rows, strict=True), strict=True)
        self._run(name, {column: column_array(column, values) for column, values in by_column})

    def _save_row(self, events: int, **values: Any) -> list[tuple[int, int | None, int | None]]:
        return [(pos, claim_pos, subqueue) for pos, claim_pos, subqueue in self.rows("save", **values)]

    def _insert_claim(self, values: dict[str, Any]) -> None:
        self.rows("insert_claim", **values)

    def _lock_seal(self) -> None:
        self._run("lock_seal")

    def _list(self, values: Iterable[Any]) -> list[Any]:
        return list(values)

    def _keys(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {"actors": [actor for actor, _ in keys], "requests": [request for _, request in keys]}

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> dict[str, Any]:
        found = list(pairs)
        return {"lefts": plain_array(left for left, _ in found), "rights": plain_array(right for _, right in found)}

    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        names = {f"{len(actor)} {actor} {request}": (actor, request) for actor, request in keys}
        return {names[name] for name, taken in self.rows("take_requests", names=list(names)) if not taken}

    def _lock_jobs(self, ids: Any) -> None:
        self.rows("lock_jobs", ids=ids)

    def lock_key_holder(self, queue: str, key: str) -> int | None:
        found: int | None = self.value("lock_key_holder", queue=queue, key=key)
        return found

    def try_lock(self, ids: Iterable[int]) -> set[int]:
        return self._select_ids("try_lock", ids)

    def try_lock_unshared(self, ids: Iterable[int]) -> set[int]:
        return self._select_ids("try_lock_unshared", ids)

    def _with_locked_parts(self, ids: Sequence[int]) -> set[int]:
        return self._select_ids("with_locked_parts", ids)

    def _forget_times(self, positions: Sequence[int]) -> None:
        """Do nothing: times are found by indexes."""

    def pin(self, ids: Iterable[int]) -> set[int]:
        """See `Session.pin`. A caller's transaction may stay open for long, so it does not prevent other jobs from ending."""
        wanted = set(ids)
        if self.own_ids is not None:
            self._select_ids("share_jobs", wanted)
            return wanted - self.own_ids
        if self.careful:
            return self.try_lock(wanted)
        self.lock(wanted)
        return set()

    def _select_ids(self, name: str, ids: Iterable[int]) -> set[int]:
        wanted = sorted(set(ids))
        return set(self.values(name, ids=wanted)) if wanted else set()

    def _lock_settings(self) -> None:
        self._run("lock_settings")

    def lock_keys(self) -> None:
        self._run("lock_keys")

    def _share_keys(self) -> None:
        self._run("share_keys")

    def _lock_agent(self, name: str, session: str) -> None:
        self.rows("lock_agent", name=name, session=session)

    def _draw_pos(self) -> int:
        return int(self.value("draw_pos"))

    def intern_profile(self, key: tuple[str, str, str]) -> int:
        """Store a profile. Inside a caller's transaction, use a separate one, so that others do not wait for the caller."""
        if self._intern_outside is not None:
            return self._intern_outside(key)
        return super().intern_profile(key)

    def stamp(self) -> Micros | None:
        return None if self._clock is None else self._clock()

    def _now_at(self) -> Any:
        return to_timestamp(self.stamp())

    # Hot verbs

    def enqueue(self, items: Sequence[Enqueue]) -> list[EnqueuedRow]:
        if len(items) > BATCH_EVENTS_MAX:
            return [row for part in chunks(items, BATCH_EVENTS_MAX) for row in self.enqueue(part)]
        if self._may_be_done and (found := self._enqueued_before()):
            return found
        first = items[0]
        channel = self._channel(first.queue) if all(item.queue == first.queue for item in items) else None
        shape = (first.queue, first.kind, first.actor, first.request_id)
        if all(item.bare and (item.queue, item.kind, item.actor, item.request_id) == shape for item in items):
            rows = self._run(
                "enqueue_plain",
                {
                    "now_at": self._now_at(),
                    "queue": first.queue,
                    "kind": first.kind,
                    "profile": self.profile_id(first),
                    "actor": str(first.actor),
                    "request": first.request_id,
                    "payloads": bytes_array([item.payload for item in items]),
                    "channel": channel,
                    "nonce": self._nonce,
                },
            )
        else:
            profiles = [self.profile_id(item) for item in items]
            groups = self.join_groups(items)
            columns = self._columns(items, profiles) | {"groups": plain_array([groups.get(item.group) for item in items])}
            rows = self._run("enqueue", columns | {"channel": channel, "nonce": self._nonce})
            self.note_joined(groups, items)
        self.has_enqueued = self._nonce is not None
        if channel is not None:
            self.notified.add(first.queue)
        _, at, _ = rows[0]
        if self.own_ids is not None:
            self.own_ids.update([id_ for id_, _, _ in rows])
        return [EnqueuedRow(id_, at, True) for id_, _, _ in rows]

    def _enqueued_before(self) -> list[EnqueuedRow]:
        """Return the jobs that the earlier try has enqueued. Ids were drawn in the order of the items."""
        rows = self.rows("enqueued_with_nonce", nonce=self._nonce, since_at=self.now() - NONCE_US)
        return [EnqueuedRow(id_, at, True) for id_, at in rows]

    def _channel(self, queue: str) -> str | None:
        """Return the channel to notify within the statement, or None if that is done later or was done already."""
        if self._notifier is None or queue in self.notified or not self._notifier.may_notify_inline():
            return None
        return self._notifier.name

    def _columns(self, items: Sequence[Enqueue], profiles: list[int]) -> dict[str, Any]:
        return {
            "now_at": self._now_at(),
            "queues": text_array([item.queue for item in items]),
            "kinds": text_array([item.kind for item in items]),
            "priorities": plain_array([item.priority for item in items]),
            "available": [to_timestamp(item.available_at) for item in items],
            "delays": plain_array([item.delay_us for item in items]),
            "profiles": plain_array(profiles),
            "keys": text_array([item.dedupe_key for item in items]),
            "forever": [item.dedupe_forever for item in items],
            "correlations": text_array([item.correlation_id for item in items]),
            "traces": text_array([item.trace_id for item in items]),
            "replays": plain_array([item.replay_of for item in items]),
            "actors": text_array([str(item.actor) for item in items]),
            "requests": text_array([item.request_id for item in items]),
            "payloads": bytes_array([item.payload for item in items]),
            "drawn": plain_array([item.job_id for item in items]),
            "reasons": text_array([item.reason for item in items]),
            "subqueues": plain_array(self.subqueue_ids(items)),
        }

    def enqueue_keyed(self, item: Enqueue) -> EnqueuedRow:
        """Insert the job, or return the one that has the key. Retry if that one ends and frees its key in between."""
        assert item.dedupe_key is not None
        groups = self.join_groups([item])
        params = {
            "now_at": self._now_at(),
            "queue": item.queue,
            "kind": item.kind,
            "priority": item.priority,
            "available_at": to_timestamp(item.available_at),
            "delay_us": item.delay_us,
            "profile": self.profile_id(item),
            "key": item.dedupe_key,
            "forever": item.dedupe_forever,
            "window_us": item.dedupe_for_us or None,
            "correlation": item.correlation_id,
            "trace": item.trace_id,
            "replay": item.replay_of,
            "group": groups.get(item.group),
            "actor": str(item.actor),
            "request": item.request_id,
            "payload": item.payload,
            "drawn": item.job_id,
            "reason": item.reason,
            "subqueue": self.subqueue_ids([item])[0],
            "channel": self._channel(item.queue),
        }
        for _ in range(KEYED_TRIES_MAX):
            if created := self._run("enqueue_keyed", params):
                [(id_, at, _)] = created
                self.note_joined(groups, [item])
                if params["channel"] is not None:
                    self.notified.add(item.queue)
                if self.own_ids is not None:
                    self.own_ids.add(id_)
                return EnqueuedRow(id_, at, True)
            if (found := self.find_key(item.queue, item.dedupe_key)) is not None:
                return EnqueuedRow(found.id, found.created_at, False)
        raise Contention(f"the jobs with the key {item.dedupe_key!r} change too quickly")

    def claim(self, command: ClaimNext) -> ClaimedJobs:
        rows: list[tuple[Any, ...]] = []
        rest: ClaimNext | None = command
        while rest is not None:
            got, rest = self._claim_until_flow(rest)
            rows += got
            if rest is not None:
                got = self._claim_flow(rest.queues[0], rest)
                rows += got
                rest = _rest_of(rest, rest.queues[1:], len(got))
        return self.claimed(rows, command, POSTGRES_EPOCH_US)

    def claim_statement(self, command: ClaimNext) -> tuple[ClaimedJobs, ClaimNext | None]:
        rows, rest = self._claim_until_flow(command)
        return self.claimed(rows, command, POSTGRES_EPOCH_US), rest

    def _claim_until_flow(self, command: ClaimNext) -> tuple[list[tuple[Any, ...]], ClaimNext | None]:
        """Claim jobs of the queues before the first one with subqueues. Return the rows, and the rest of the command.

        A queue that has just got its first subqueue may not be known as one yet. Its jobs are then claimed after those of the
        queues behind it, once.
        """
        before = tuple(takewhile(lambda queue: queue not in self.cache.flow_queues, command.queues))
        rows: list[tuple[Any, ...]] = []
        if before:
            rows, found = self._claim_plain(command if before == command.queues else replace(command, queues=before))
            self.cache.flow_queues.update(found)
        first = next((place for place, queue in enumerate(command.queues) if queue in self.cache.flow_queues), None)
        return rows, None if first is None else _rest_of(command, command.queues[first:], len(rows))

    def _claim_flow(self, queue: str, command: ClaimNext) -> list[tuple[Any, ...]]:
        """Claim jobs of a queue with subqueues."""
        claim = self.begin_flow_claim(queue, command)
        if claim is None:
            return []
        rows: list[tuple[Any, ...]] = []
        for picked in self.rounds(claim):
            params = self._claim_params(command) | {"ids": list(picked)}
            if claim.at is not None:
                params["now_at"] = to_timestamp(claim.at)
            found = {row_id(row): row for row in self._run("claim_chosen", params, raw_cursor(self._connection))}
            rows += [found[id_] for id_ in picked]
            self.draw(claim, rows[-1][CLAIMED_COLUMNS])
        return rows

    def _claim_plain(self, command: ClaimNext) -> tuple[list[tuple[Any, ...]], Sequence[str]]:
        """Claim jobs. Return the rows, and the queues with subqueues, which were skipped."""
        begun = self._marks.of(command)
        rows, flow = self._claim_after(command, begun)
        if len(rows) < command.limit and any(mark.is_set for mark in begun):
            self._marks.drop(command)
            begun = [LowWaterMark()] * len(begun)
            more, flow = self._claim_after(command, begun, command.limit - len(rows))
            rows += more
        if rows:
            # The last column has the seconds that the search took, in one of the rows of each statement.
            seconds = max([row[CLAIMED_COLUMNS] or 0.0 for row in rows])
            sort_claimed(rows)
            if len(command.queues) > 1:
                order = {queue: number for number, queue in enumerate(command.queues)}
                rows.sort(key=lambda row: order[row_queue(row)])
            self._marks.learn(command, begun, seconds=seconds, last=_last_marks(rows))
        return rows, flow

    def _claim_after(
        self, command: ClaimNext, marks: Sequence[LowWaterMark], limit: int | None = None
    ) -> tuple[list[tuple[Any, ...]], Sequence[str]]:
        """Claim jobs after these marks. Return the rows, with times counted from 2000, and the queues with subqueues."""
        rows = self._run(
            "claim",
            {
                **self._claim_params(command),
                "queues": list(command.queues),
                "kinds": None if command.kinds is None else list(command.kinds),
                "limit": limit or command.limit,
                "ranks": [mark.rank for mark in marks],
                "times": [mark.available_at for mark in marks],
                "marks": [mark.job_id for mark in marks],
            },
            raw_cursor(self._connection),
        )
        # Without jobs there is one row, which has only the queues.
        return ([] if rows[0][0] is None else rows), rows[0][-1] or ()

    def _claim_params(self, command: ClaimNext) -> dict[str, Any]:
        start = command.start
        return {
            "now_at": self._now_at(),
            "status": "running" if start else "claimed",
            "phase": "executing" if start else None,
            "steps": 2 if start else 1,
            "owner": command.actor.name,
            "incarnation": command.actor.incarnation,
            "token": command.token,
            "actor": str(command.actor),
            "request": command.request_id,
        }

    def _run_parts(
        self,
        name: str,
        commands: Sequence[Any],
        params: Callable[[Sequence[Any]], dict[str, Any]],
        cursor: "psycopg.Cursor[Any] | None" = None,
    ) -> list[tuple[Any, ...]]:
        """Run a statement for these commands, in parts: there is a limit to what one statement may record."""
        if len(commands) <= BATCH_EVENTS_MAX:
            return self._run(name, params(commands), cursor)
        return [row for part in chunks(commands, BATCH_EVENTS_MAX) for row in self._run(name, params(part), cursor)]

    def _fence_params(self, commands: Sequence[Any]) -> dict[str, Any]:
        return {
            "now_at": self._now_at(),
            "ids": plain_array([c.job_id for c in commands]),
            "attempts": plain_array([c.fence.attempt for c in commands]),
            "tokens": text_array([c.fence.token for c in commands]),
        }

    def _guard_params(self, commands: Sequence[Any]) -> dict[str, Any]:
        revs, requests = [c.expected_rev for c in commands], [c.request_id for c in commands]
        return self._fence_params(commands) | {"revs": plain_array(revs), "requests": text_array(requests)}

    def start(self, commands: Sequence[Start]) -> list[AppliedCommand | None]:
        rows = self._run_parts("start", _sorted_by_job(commands), self._guard_params)
        done = {id_: AppliedCommand(id_, rev, Status.RUNNING, at, lease) for id_, rev, at, lease in rows}
        return [done.get(command.job_id) for command in commands]

    def heartbeat(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        ordered = _sorted_by_job([command for command in commands if command.beat.is_plain])
        if not ordered:
            return [None] * len(commands)
        if all(c.beat is payloads.NO_BEAT and c.expected_rev is None and c.request_id is None for c in ordered):
            rows = self._run_parts("beat", ordered, self._fence_params, raw_cursor(self._connection))
            return _beat_results(commands, rows, POSTGRES_EPOCH_US)
        rows = self._run_parts("heartbeat", ordered, lambda part: self._guard_params(part) | _beat_params(part))
        return _beat_results(commands, rows)

    def beat_signed(self, commands: Sequence[Heartbeat]) -> list[AppliedCommand | None]:
        ordered = _sorted_by_job([command for command in commands if command.beat.is_plain])
        if not ordered:
            return [None] * len(commands)
        return _beat_results(commands, self._run_parts("beat_signed", ordered, self._signed_params))

    def _signed_params(self, commands: Sequence[Heartbeat]) -> dict[str, Any]:
        more = {"tokens": text_array([c.fence.token or None for c in commands]), "skew_us": SKEW_US_MAX}
        return self._guard_params(commands) | _beat_params(commands) | _signature_params(commands) | more

    def complete(self, commands: Sequence[Complete]) -> list[AppliedCommand | None]:
        rows = self._run_parts("complete", _sorted_by_job(commands), self._complete_params)
        done = {id_: AppliedCommand(id_, rev, Status.SUCCEEDED, at) for id_, rev, at, _, _ in rows}
        self._wake_freed(queue for _, _, _, _, queue in rows)
        self.changed_groups.update([group_id for _, _, _, group_id, _ in rows if group_id is not None])
        return [done.get(command.job_id) for command in commands]

    def _complete_params(self, commands: Sequence[Complete]) -> dict[str, Any]:
        return self._guard_params(commands) | {"payloads": bytes_array([c.payload for c in commands])}

    def _settle(self, commands: Sequence[Settle]) -> Sequence[int]:
        params = {
            "requests": text_array([c.request_id for c in commands]),
            "payloads": bytes_array([c.payload for c in commands]),
            "size": len(commands),
        }
        [(done, groups, freed)] = self._run("settle", self._fence_params(commands) | params)
        self.changed_groups.update(groups or ())
        self._wake_freed([freed])
        return [c.job_id for c in commands] if done is None else done

    def settle_alike(
        self, ids: Sequence[int], token: str, attempt: int, payload: bytes, request_id: str | None
    ) -> list[int] | None:
        params = {
            "now_at": self._now_at(),
            "ids": plain_array(ids),
            "attempt": attempt,
            "token": token,
            "request": request_id,
            "payload": payload,
            "size": len(ids),
        }
        [(done, groups, freed)] = self._run("settle_alike", params)
        self.changed_groups.update(groups or ())
        self._wake_freed([freed])
        return done  # type: ignore[no-any-return]

    def _wake_freed(self, queues: Iterable[str | None]) -> None:
        """Wake workers, because jobs of these queues that drew on limits have ended."""
        if freed := {queue for queue in queues if queue is not None}:
            self.wake(freed)

    # Flow control

    def _table(self, **columns: Sequence[Any]) -> dict[str, Any]:
        return {name: time_array(values) if name in _TIMES else column_array(name, values) for name, values in columns.items()}

    def _lock_notes(self, *, wait: bool = False) -> bool:
        if wait:
            self.rows("wait_for_notes")
        return wait or bool(self.value("lock_notes"))

    def _lock_names(self, *, alone: bool) -> bool:
        if alone:
            return bool(self.value("lock_names_alone"))
        self.rows("lock_names")
        return True

    def _decode_list(self, value: Any) -> list[int]:
        return value or []

    def _first_in(self, lines: Sequence[Line]) -> list[int]:
        keys, routes, counts = zip(*lines, strict=True)
        return self.values("first_in_line", **self._table(keys=keys, routes=routes, counts=counts))

    def _windows_of(self, who: dict[str, Any], rank: int, starts: dict[str, int], each: int) -> list[tuple[Any, ...]]:
        places = self._table(partitions=list(starts), places=list(starts.values()))
        return self.rows("flow_windows", rank=rank, limit=each, **places, **who)

    def lock_limit_keys(self, ids: Sequence[int], *, wait: bool) -> list[tuple[Any, ...]]:
        return self.rows("wait_for_limit_keys" if wait else "lock_limit_keys", ids=list(ids))

    def _pick_jobs(self, queue: str, rank: int, before: Micros | None, counts: dict[int, int]) -> list[tuple[int, int]]:
        params = self._table(subqueues=list(counts), counts=list(counts.values()))
        rows = self.rows("pick_jobs", now_at=self.stamp(), before_at=before, queue=queue, rank=rank, **params)
        return [(id_, subqueue) for id_, subqueue in rows]

    def intern_subqueues(self, names: Sequence[SubqueueName]) -> dict[SubqueueName, int]:
        """Make subqueues. Inside a caller's transaction, use a separate one, so that others do not wait for the caller."""
        if self._subqueues_outside is not None:
            return self._subqueues_outside(names)
        return super().intern_subqueues(names)


_TIMES = ("times", "filled", "sinces")


def _rest_of(command: ClaimNext, queues: Sequence[str], claimed: int) -> ClaimNext | None:
    """Return the command for these queues and the jobs that are left to claim."""
    if not queues or claimed >= command.limit:
        return None
    return replace(command, queues=tuple(queues), limit=command.limit - claimed)


def _last_marks(rows: Sequence[tuple[Any, ...]]) -> dict[str, LowWaterMark]:
    """Return the mark after the last of the rows of each queue."""
    last = {row_queue(row): ClaimedRow(*row[:CLAIMED_COLUMNS]) for row in {row_queue(row): row for row in rows}.values()}
    return {
        queue: LowWaterMark(-row.priority, to_timestamp(row.available_at + POSTGRES_EPOCH_US), row.id)
        for queue, row in last.items()
    }


def _beat_params(commands: Sequence[Heartbeat]) -> dict[str, Any]:
    return {
        "stages": text_array([c.beat.stage for c in commands]),
        "progress": plain_array([c.beat.progress for c in commands]),
        "assists": [c.beat.assist_requested for c in commands],
        "payloads": bytes_array([payloads.beat_payload(c.beat) for c in commands]),
    }


def _signature_params(commands: Sequence[Heartbeat]) -> dict[str, Any]:
    found = [c.signed for c in commands if c.signed is not None]
    return {
        "owners": text_array([signed.signer.name for signed in found]),
        "incarnations": text_array([signed.signer.incarnation for signed in found]),
        "counters": plain_array([signed.counter for signed in found]),
        "signed": [to_timestamp(signed.signed_at) for signed in found],
        "key_ids": plain_array([signed.key_id for signed in found]),
        "signatures": bytes_array([signed.signature for signed in found]),
        "statements": bytes_array([signed.statement for signed in found]),
    }


def _beat_results(
    commands: Sequence[Heartbeat], rows: Iterable[tuple[Any, ...]], epoch: Micros = 0
) -> list[AppliedCommand | None]:
    """Return what the statement has applied. The times in its rows are counted from `epoch`."""
    done = {
        id_: AppliedCommand(id_, rev, STATUSES[status], at + epoch, lease + epoch, phase == "aborting")
        for id_, rev, at, lease, status, phase in rows
    }
    return [done.get(command.job_id) for command in commands]


def _sorted_by_job(commands: Sequence[Any]) -> list[Any]:
    """Sort by job, so that all transactions lock rows in the same order."""
    return sorted(commands, key=_job_id)
