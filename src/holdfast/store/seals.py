"""The sealed log as it is kept: tiles of hashes, and signed heads. Whoever seals adds both in one transaction."""

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.core.model import Micros
from holdfast.core.proof.book import KeyChange
from holdfast.core.proof.tiles import TILE_HASHES

POSITION_BYTES = 8


class SettledRows(NamedTuple):
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


class SignedHead(NamedTuple):
    """The tree of the first `size` leaves, the last of them at `pos`, as somebody with the server's key has signed it."""

    size: int
    pos: int
    root: bytes
    note: str
    at: Micros = 0
    """When it was recorded; 0 until it is."""


class Seals(ABC):
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

    def leaves_between(self, after: int, until: int, limit: int) -> SettledRows:
        """Events and changes of keys at these positions, of the first at most `limit`."""
        events = self.rows("leaf_events", after=after, until=until, limit=limit)
        return SettledRows(events, self.leaf_keys(after, until), until)

    def leaf_rows(self, job_id: int) -> list[tuple[Any, ...]]:
        """A job's events as leaves are made of them, by revision."""
        return self.rows("leaf_events_of_job", job_id=job_id)

    def policy_texts(self) -> dict[int, str]:
        """Policies as they are written, by the number that events have of them."""
        return dict(self.rows("policies"))

    def last_head(self) -> SignedHead | None:
        rows = self.rows("last_head")
        return SignedHead(*rows[0]) if rows else None

    def heads(self, after: int, limit: int) -> list[SignedHead]:
        """By size, those above `after`."""
        return [SignedHead(*row) for row in self.rows("heads", after=after, limit=limit)]

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
        positions = unpacked(packed)
        place = bisect_left(positions, pos)
        return number * TILE_HASHES + place if place < len(positions) and positions[place] == pos else None

    def seal(self, tiles: Sequence[TileRow], head: SignedHead, base: SignedHead | None) -> bool:
        """Add to the tree that `base` is the newest head of. False where it no longer is: nothing is changed then."""
        self._lock_seal()
        last = self.last_head()
        if (last and (last.size, last.root)) != (base and (base.size, base.root)):
            return False
        self.each("put_tile", [tile._asdict() for tile in tiles])
        self.rows("add_head", size=head.size, pos=head.pos, root=head.root, note=head.note, now_at=self.stamp())
        return True


def packed(positions: Sequence[int]) -> bytes:
    return struct.pack(f"!{len(positions)}q", *positions)


def unpacked(body: bytes) -> tuple[int, ...]:
    return struct.unpack(f"!{len(body) // POSITION_BYTES}q", body)
