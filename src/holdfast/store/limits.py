"""Limits, the state of their keys, and which claims draw on them."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from holdfast.core import limits
from holdfast.core.flow import LimitBody, LimitKey
from holdfast.core.model import Micros
from holdfast.store.statement_session import StatementSession

_encode = msgspec.json.Encoder().encode
_limit_bodies = msgspec.json.Decoder(LimitBody)
SLOTS_WALK = "prune_slots"
"""The cursor of the walk through the slots: a key."""


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


class WaitingJobs(NamedTuple):
    """How many jobs wait for a limit, LIMIT_WAITING_MAX at most, and since when the first of them could have started."""

    jobs: int
    since: Micros


@lru_cache(maxsize=1_000)
def decode_limit(text: str) -> LimitBody:
    return _limit_bodies.decode(text)


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


class SqlLimits(StatementSession):
    @abstractmethod
    def _table(self, **columns: Sequence[Any]) -> dict[str, Any]:
        """Return rows as statement parameters, given by column."""

    @abstractmethod
    def _decode_list(self, value: Any) -> list[int]:
        """Return a list of a row."""

    def limit_rows(self, after: str, limit: int) -> list[LimitRow]:
        return self.records(LimitRow, "limits", after=after, limit=limit)

    def limit_body(self, name: str) -> LimitBody | None:
        found: str | None = self.value("limit_body", name=name)
        return None if found is None else decode_limit(found)

    def count_limits(self) -> int:
        return int(self.value("count_limits"))

    def put_limit(self, name: str, body: LimitBody, by: str) -> None:
        self.rows("put_limit", name=name, body=_encode(body).decode(), changed_at=self.now(), changed_by=by)
        self._open_subqueues_of(name)

    def drop_limit(self, name: str) -> bool:
        found = bool(self.rows("drop_limit", name=name))
        self._open_subqueues_of(name)
        return found

    def put_limit_key(self, name: str, key: str, body: LimitBody | None) -> None:
        self.rows("put_limit_key", name=name, key=key, body=None if body is None else _encode(body).decode())
        self._open_subqueues_of(name)

    def _open_subqueues_of(self, limit: str) -> None:
        """Open the subqueues that wait for a limit, after a claim that may close some by its old numbers."""
        self._lock_notes(wait=True)
        self.rows("open_subqueues_of_limit", name=limit)

    @abstractmethod
    def _lock_notes(self, *, wait: bool = False) -> bool:
        """Return whether this transaction may work through the notes and close subqueues. Only one at a time may."""

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

    def waiting_jobs(self, key_ids: Iterable[int]) -> dict[int, WaitingJobs]:
        """Return how many jobs wait for each of these keys, and since when. Keys that no job waits for are left out."""
        rows = self.rows("waiting_jobs", now_at=self.stamp(), ids=self._list(key_ids), limit=limits.LIMIT_WAITING_MAX)
        return {key: WaitingJobs(jobs, since) for key, jobs, since in rows}

    def waiting_by_limit(self) -> dict[str, WaitingJobs]:
        """Return how many jobs wait for each limit, over all of its keys, and since when."""
        bounds = {"subqueues": limits.SUBQUEUES_CHECKED_MAX, "limit": limits.LIMIT_WAITING_MAX}
        rows = self.rows("waiting_by_limit", now_at=self.stamp(), **bounds)
        return {name: WaitingJobs(jobs, since) for name, jobs, since in rows if jobs}

    def limit_usage(self) -> dict[str, tuple[int, int]]:
        """Return the units in use of each limit, over all of its keys, and the number of keys in use."""
        return {name: (int(used), int(keys)) for name, used, keys in self.rows("limit_usage")}

    # The state of keys

    def _locked_keys(self, ids: Iterable[int], *, wait: bool = False) -> tuple[dict[int, LimitKey], Micros]:
        """Lock keys. Return their states, with the tokens that they have now, and the time."""
        rows = self.lock_limit_keys(sorted(ids), wait=wait)
        # After the lock: an earlier claim may have used a later time.
        now = self.now()
        keys: dict[int, LimitKey] = {}
        for id_, name, key, own, shared, used, tokens, filled_at in rows:
            state = LimitKey(id_, name, key, effective_limit(own, shared), used, tokens, filled_at)
            state.refill(now)
            keys[id_] = state
        return keys, now

    @abstractmethod
    def lock_limit_keys(self, ids: Sequence[int], *, wait: bool) -> list[tuple[Any, ...]]:
        """Lock keys and return their states. Without `wait`, leave out those that another transaction has locked."""

    def _read_keys(self, ids: Iterable[int]) -> dict[int, LimitKey]:
        return {
            id_: LimitKey(id_, name, key, effective_limit(own, shared), used, tokens, filled_at)
            for id_, name, key, own, shared, used, tokens, filled_at in self.rows("read_limit_keys", ids=self._list(ids))
        }

    def _save_keys(self, keys: Iterable[LimitKey]) -> None:
        changed = [(key.id, key.used, key.tokens, key.filled_at) for key in keys if key.is_changed]
        if changed:
            ids, used, tokens, filled = zip(*changed, strict=True)
            self.rows("save_limit_keys", **self._table(keys=ids, used=used, tokens=tokens, filled=filled))

    # Slots: the units that jobs use

    def count_used(self, key_ids: Iterable[int]) -> dict[int, int]:
        """Return the units of these keys that are in use now."""
        used = dict.fromkeys(key_ids, 0)
        for key, _, units in self.rows("count_slots", ids=self._list(used)):
            used[key] += units
        return used

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

    def draw_one(self, job_id: int, pos: int, draws: Sequence[tuple[LimitKey, int]]) -> None:
        """Take the units that a job draws that was claimed by its id, at this position. The keys are locked."""
        for key, units in draws:
            key.take(units)
        self._add_slots(pos, [(job_id, tuple((key.id, units) for key, units in draws))])
        self._save_keys(key for key, _ in draws)

    def _add_slots(self, pos: int, drawn: Sequence[tuple[int, tuple[tuple[int, int], ...]]]) -> None:
        slots = [(key, pos, job_id, units) for job_id, draws in drawn for key, units in draws]
        if slots:
            keys, positions, jobs, units = zip(*slots, strict=True)
            self.rows("add_slots", **self._table(keys=keys, positions=positions, jobs=jobs, units=units))

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
