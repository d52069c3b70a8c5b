"""The sealed log: key changes, leaf hashes, tiles and signed tree heads."""

import struct
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from holdfast.core.model import Micros
from holdfast.proof.key_book import KeyChange
from holdfast.proof.leaves import LEAF_VERSION, key_leaf, payload_sha256
from holdfast.proof.merkle import Hash, leaf_hash
from holdfast.proof.tiles import TILE_HASHES
from holdfast.store.rows import EventRow, default_correlation
from holdfast.store.statement_session import StatementSession


class SqlKeys(StatementSession):
    """The part of a transaction that reads and writes keys."""

    @abstractmethod
    def lock_keys(self) -> None:
        """Block other transactions that change or use keys until this transaction ends."""

    @abstractmethod
    def _share_keys(self) -> None:
        """Block transactions that change keys until this one ends. Later reads see the state after the wait."""

    @abstractmethod
    def _draw_pos(self) -> int:
        """Draw the next position, for a record that is not an event."""

    def key_log(self) -> list[KeyChange]:
        """Return every key change, oldest first."""
        return self.records(KeyChange, "key_log")

    def last_key_change(self) -> int:
        """Return the position of the newest key change, or 0. No other change is committed until this transaction ends.

        Call it before drawing positions for signed events. A revoked key is then valid at every position below its revocation
        and at none above.
        """
        self._share_keys()
        return int(self.value("last_key_change"))

    def add_key_change(self, change: KeyChange) -> int:
        """Store a key change and return its position. The transaction must have locked the keys."""
        pos = self._draw_pos()
        self.rows("add_key_change", **msgspec.structs.asdict(msgspec.structs.replace(change, pos=pos)))
        return pos


POSITION_BYTES = 8
ANY_EVENT: dict[str, Any] = {"types": None, "since_at": None, "until_at": None}
"""The parameters of `page_end` and `events` for all events."""
Rows = list[tuple[Any, ...]]


def leaf_events(run: Callable[..., Rows], after: int, until: int, limit: int) -> tuple[Rows, int]:
    """Return the rows of a page of events, and the position up to which it is complete. A batch is never divided."""
    while True:
        [(end, count)] = run("page_end", after=after, until=until, limit=limit, **ANY_EVENT)
        end = min(end, until) if count >= limit else until
        rows = run("leaf_events", after=after, until=end)
        if rows or end >= until:
            return rows, end
        after = end


_pos, _policy_id = (itemgetter(EventRow._fields.index(name)) for name in ("pos", "policy_id"))


class StableRows(NamedTuple):
    """The next rows in the total order: everything after the requested position, up to `until`."""

    events: list[tuple[Any, ...]]
    """The values of an `EventRow` each."""
    keys: list[KeyChange]
    until: int
    epoch_us: int = 0
    """Add this to the times of events. Not every store counts from 1970, and converting each row here would take longer."""

    def policy_ids(self) -> set[int]:
        """Return the policies that the events refer to."""
        return {policy_id for policy_id in map(_policy_id, self.events) if policy_id is not None}


class TileRow(NamedTuple):
    level: int
    number: int
    hashes: bytes
    positions: bytes | None = None
    """The positions of the leaves. Only on level 0."""
    last_pos: int | None = None


class HeadRow(NamedTuple):
    """A head, signed with the server's key, of the tree of the first `size` leaves. The last leaf is at `pos`."""

    size: int
    pos: int
    root: bytes
    note: str
    at: Micros = 0
    """When the head was stored; 0 before that."""


class SqlSeals(StatementSession):
    """The part of a transaction that seals the log."""

    @abstractmethod
    def _lock_seal(self) -> None:
        """Block other sealers until this transaction ends."""

    def leaf_keys(self, after: int, until: int) -> list[KeyChange]:
        """Return key changes after `after` and up to `until`, by position."""
        return self.records(KeyChange, "leaf_keys", after=after, until=until)

    def leaves_between(self, after: int, until: int, limit: int) -> StableRows:
        """Return the next events and key changes after `after`, up to `until` at most.

        A page has `limit` events, or more: it ends with a batch.
        """
        events, end = leaf_events(self.rows, after, until, limit)
        return StableRows(events, self.leaf_keys(after, end), end)

    def leaf_rows(self, job_id: int) -> list[EventRow]:
        """Return the rows of a job's events that its leaves are computed from, by revision."""
        return self.records(EventRow, "leaf_events_of_job", jobs=self._list([job_id]))

    def without_first_event(self, ids: Sequence[int]) -> set[int]:
        """Return those of these jobs whose `enqueued` event was deleted."""
        return set(self.values("without_first_event", ids=self._list(ids)))

    def policy_texts(self) -> dict[int, str]:
        """Return the stored text of each policy by its id."""
        return dict(self.rows("policies"))

    def last_head(self) -> HeadRow | None:
        return self.record(HeadRow, "last_head")

    def heads(self, after: int, limit: int) -> list[HeadRow]:
        """Return heads with a size above `after`, by size."""
        return self.records(HeadRow, "heads", after=after, limit=limit)

    def sealed_pos(self) -> int | None:
        """Return the position up to which the tree is complete, or None if nothing was ever sealed."""
        found: int | None = self.value("sealed_pos")
        return found

    def tile(self, level: int, number: int) -> TileRow | None:
        return self.record(TileRow, "tile", level=level, number=number)

    def leaf_index(self, pos: int) -> int | None:
        """Return the index of the leaf at this position, or None if there is none yet."""
        found = self.one("tile_of_pos", pos=pos)
        if found is None:
            return None
        number, packed = found
        positions = unpack_positions(packed)
        index = bisect_left(positions, pos)
        return number * TILE_HASHES + index if index < len(positions) and positions[index] == pos else None

    def seal(self, tiles: Sequence[TileRow], head: HeadRow, base: HeadRow | None) -> bool:
        """Extend the tree. Return False and change nothing if `base` is no longer its newest head."""
        self._lock_seal()
        last = self.last_head()
        if (last and (last.size, last.root)) != (base and (base.size, base.root)):
            return False
        self.each("put_tile", [tile._asdict() for tile in tiles])
        self.rows("add_head", size=head.size, pos=head.pos, root=head.root, note=head.note, now_at=self.stamp())
        return True


def pack_positions(positions: Sequence[int]) -> bytes:
    return struct.pack(f"!{len(positions)}q", *positions)


def unpack_positions(body: bytes) -> tuple[int, ...]:
    return struct.unpack(f"!{len(body) // POSITION_BYTES}q", body)


_encode = msgspec.json.Encoder().encode


class LeafPage(NamedTuple):
    """Leaf hashes, and the position of each leaf."""

    hashes: list[Hash]
    positions: list[int]


def leaf_page(rows: StableRows, policies: Mapping[int, str], ledger_id: str) -> LeafPage:
    """Return the leaves of these rows in the total order. `policies` contains at least those that the rows refer to."""
    page = LeafPage(event_hashes(rows.events, policies, ledger_id, rows.epoch_us), [*map(_pos, rows.events)])
    return _merge_key_changes(page, rows.keys) if rows.keys else page


def event_hashes(rows: Sequence[Sequence[Any]], policies: Mapping[int, str], ledger_id: str, epoch_us: int = 0) -> list[Hash]:
    """Return `leaf_hash(event_leaf(…))` of each row. It is one inlined loop because it runs for every event."""
    hashes: list[Hash] = []
    sha, encode = sha256, _encode
    push = hashes.append
    for (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
         policy_id, correlation_id, trace_id, key_id, signature, statement) in rows:  # fmt: skip
        if kind == "enqueued":
            correlation, trace = correlation_id or default_correlation(ledger_id, job_id), trace_id
        else:
            correlation = trace = None
        leaf = encode(
            ("event", LEAF_VERSION, pos, job_id, rev, kind, received_at + epoch_us,
             received_at + epoch_us if at is None else at + epoch_us, actor, attempt, from_status, to_status, reason,
             request_id, cause, None if payload is None else payload_sha256(kind, payload),
             None if policy_id is None else policies[policy_id], correlation, trace, key_id,
             None if signature is None else signature.hex(), None if statement is None else sha(statement).hexdigest())
        )  # fmt: skip
        push(sha(b"\0" + leaf).digest())
    return hashes


def leaf_row(row: EventRow, policies: Mapping[int, str], ledger_id: str) -> tuple[Any, ...]:
    """Convert a stored row for `event_leaf`: replace the policy id by its text and fill in the derived correlation id."""
    policy = None if row.policy_id is None else policies[row.policy_id]
    correlation_id = row.correlation_id or default_correlation(ledger_id, row.job_id)
    return tuple((row._asdict() | {"policy_id": policy, "correlation_id": correlation_id}).values())


def key_hash(change: KeyChange) -> Hash:
    return leaf_hash(key_leaf(*msgspec.structs.astuple(change)))


def _merge_key_changes(page: LeafPage, keys: Sequence[KeyChange]) -> LeafPage:
    merged = sorted(
        [*zip(page.positions, page.hashes, strict=True), *((change.pos, key_hash(change)) for change in keys)],
    )
    return LeafPage([found for _, found in merged], [pos for pos, _ in merged])
