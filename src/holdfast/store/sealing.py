"""The sealed log: changes of keys, hashes of leaves, tiles and signed heads."""

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from holdfast.core.model import Micros
from holdfast.proof.key_book import KeyChange
from holdfast.proof.leaves import LEAF_VERSION, key_leaf, payload_sha256
from holdfast.proof.merkle import Hash, leaf_hash
from holdfast.proof.tiles import TILE_HASHES
from holdfast.store.rows import default_correlation


class KeyLogSession(ABC):
    """The part of a transaction that keys need."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def lock_keys(self) -> None:
        """Hold off everybody who changes keys, and everybody who relies on them, until this transaction ends."""

    @abstractmethod
    def _share_keys(self) -> None:
        """Hold off whoever changes keys until this transaction ends. What is read next is as of after the wait."""

    @abstractmethod
    def _draw_pos(self) -> int:
        """The next position, for something that is no event."""

    def key_log(self) -> list[KeyChange]:
        """Every change, oldest first."""
        return [KeyChange(*row) for row in self.rows("key_log")]

    def keys_stand(self) -> int:
        """The position of the newest change, 0 where there is none; no other comes before this transaction ends.

        Ask before positions are drawn for what was signed: then a key that is revoked counts at every position below its
        revocation and at none above.
        """
        self._share_keys()
        [(pos,)] = self.rows("keys_stand")
        return int(pos)

    def add_key_change(self, change: KeyChange) -> int:
        """The position it is given. For a transaction that has locked the keys."""
        pos = self._draw_pos()
        self.rows("add_key_change", **msgspec.structs.asdict(msgspec.structs.replace(change, pos=pos)))
        return pos


POSITION_BYTES = 8


class StableRows(NamedTuple):
    """What came next in the total order. Everything up to `until` is in it."""

    events: list[tuple[Any, ...]]
    keys: list[KeyChange]
    until: int
    epoch_us: int = 0
    """What has to be added to the events' times: not every store counts from 1970, and converting here takes longer."""


class TileRow(NamedTuple):
    level: int
    number: int
    hashes: bytes
    positions: bytes | None = None
    """Those of the leaves, on level 0."""
    last_pos: int | None = None


class HeadRow(NamedTuple):
    """The tree of the first `size` leaves, the last of them at `pos`, as somebody with the server's key has signed it."""

    size: int
    pos: int
    root: bytes
    note: str
    at: Micros = 0
    """When it was recorded; 0 until it is."""


class SealSession(ABC):
    """The part of a transaction that sealing needs."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def each(self, name: str, params: Sequence[dict[str, Any]]) -> None:
        """Run a statement that answers nothing once for each of `params`."""

    @abstractmethod
    def stamp(self) -> Micros | None: ...

    @abstractmethod
    def _lock_seal(self) -> None:
        """Hold off every other sealer until this transaction ends."""

    def leaf_keys(self, after: int, until: int) -> list[KeyChange]:
        """Changes of keys at these positions, in their order."""
        return [KeyChange(*row) for row in self.rows("leaf_keys", after=after, until=until)]

    def leaves_between(self, after: int, until: int, limit: int) -> StableRows:
        """Events and changes of keys at these positions, of the first at most `limit`."""
        events = self.rows("leaf_events", after=after, until=until, limit=limit)
        return StableRows(events, self.leaf_keys(after, until), until)

    def leaf_rows(self, job_id: int) -> list[tuple[Any, ...]]:
        """A job's events as leaves are made of them, by revision."""
        return self.rows("leaf_events_of_job", job_id=job_id)

    def policy_texts(self) -> dict[int, str]:
        """Policies as they are written, by the number that events have of them."""
        return dict(self.rows("policies"))

    def last_head(self) -> HeadRow | None:
        rows = self.rows("last_head")
        return HeadRow(*rows[0]) if rows else None

    def heads(self, after: int, limit: int) -> list[HeadRow]:
        """By size, those above `after`."""
        return [HeadRow(*row) for row in self.rows("heads", after=after, limit=limit)]

    def sealed_pos(self) -> int | None:
        """Everything up to there is in the tree; None where nobody has sealed anything yet."""
        rows = self.rows("sealed_pos")
        return int(rows[0][0]) if rows else None

    def tile(self, level: int, number: int) -> TileRow | None:
        rows = self.rows("tile", level=level, number=number)
        return TileRow(level, number, *rows[0]) if rows else None

    def leaf_index(self, pos: int) -> int | None:
        """Which leaf stands for this position; None where there is none as yet."""
        rows = self.rows("tile_of_pos", pos=pos)
        if not rows:
            return None
        number, packed = rows[0]
        positions = unpack_positions(packed)
        place = bisect_left(positions, pos)
        return number * TILE_HASHES + place if place < len(positions) and positions[place] == pos else None

    def seal(self, tiles: Sequence[TileRow], head: HeadRow, base: HeadRow | None) -> bool:
        """Add to the tree that `base` is the newest head of. False where it no longer is: nothing is changed then."""
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
POLICY_COLUMN, CORRELATION_COLUMN = 14, 15
"""Places in a row."""


class LeafPage(NamedTuple):
    """Hashes of leaves, and the position of each."""

    hashes: list[Hash]
    positions: list[int]


def leaf_page(found: StableRows, policies: Mapping[int, str], ledger_id: str) -> LeafPage:
    """The leaves of these rows in the total order. `policies` has at least those that the rows refer to."""
    page = LeafPage(event_hashes(found.events, policies, ledger_id, found.epoch_us), [row[0] for row in found.events])
    return _merge_key_changes(page, found.keys) if found.keys else page


def event_hashes(rows: Sequence[Sequence[Any]], policies: Mapping[int, str], ledger_id: str, epoch_us: int = 0) -> list[Hash]:
    """What `leaf_hash(event_leaf(…))` gives for each row, in one loop: it is gone through for everything that happens."""
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


def leaf_row(row: Sequence[Any], policies: Mapping[int, str], ledger_id: str) -> tuple[Any, ...]:
    """A stored row as `event_leaf` takes it: the policy's text for its number, and the correlation id that is in effect."""
    values = list(row)
    values[POLICY_COLUMN] = None if values[POLICY_COLUMN] is None else policies[values[POLICY_COLUMN]]
    values[CORRELATION_COLUMN] = values[CORRELATION_COLUMN] or default_correlation(ledger_id, values[1])
    return tuple(values)


def key_hash(change: KeyChange) -> Hash:
    return leaf_hash(key_leaf(*msgspec.structs.astuple(change)))


def _merge_key_changes(page: LeafPage, keys: Sequence[KeyChange]) -> LeafPage:
    merged = sorted(
        [*zip(page.positions, page.hashes, strict=True), *((change.pos, key_hash(change)) for change in keys)],
    )
    return LeafPage([found for _, found in merged], [pos for pos, _ in merged])
