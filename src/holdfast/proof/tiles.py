"""The tree as it is kept: hashes in tiles of 256, so that any proof reads a handful of them.

Tile n of level 0 holds the leaf hashes from 256n on; an entry of level k is the root of a full tile of level k−1. The last tile
of a level may be partly filled; a tile is its hashes one after another.
"""

from collections.abc import Callable, Iterator, Sequence

from holdfast.errors import ValidationError
from holdfast.proof import merkle
from holdfast.proof.merkle import HASH_BYTES, Frontier, Hash, Span

TILE_BITS = 8
TILE_HASHES = 1 << TILE_BITS
TILE_BYTES = TILE_HASHES * HASH_BYTES
ReadTile = Callable[[int, int], bytes]
"""Reads a tile by level and number."""


def frontier(tile: ReadTile, size: int) -> Frontier:
    """The frontier of the tree of `size` leaves."""
    return Frontier(size, _peaks(_cached(tile), 0, size))


def inclusion_proof(tile: ReadTile, index: int, size: int) -> list[Hash]:
    return merkle.inclusion_proof(index, size, span_of(tile))


def consistency_proof(tile: ReadTile, old_size: int, size: int) -> list[Hash]:
    return merkle.consistency_proof(old_size, size, span_of(tile))


def span_of(tile: ReadTile) -> Span:
    """Spans of a tree, out of its tiles; each tile is read once."""
    kept = _cached(tile)
    return lambda first, end: merkle.fold(list(_peaks(kept, first, end)))


def grow_tiles(tile: ReadTile, size: int, hashes: Sequence[Hash]) -> Iterator[tuple[int, int, bytes]]:
    """The tiles that change when a tree of `size` leaves gets these as well: level, number and whole body, lower levels first."""
    level = 0
    while hashes:
        number, filled = divmod(size >> level * TILE_BITS, TILE_HASHES)
        body = (_read_hashes(tile, level, number, filled) if filled else b"") + b"".join(hashes)
        full: list[Hash] = []
        for start in range(0, len(body), TILE_BYTES):
            part = body[start : start + TILE_BYTES]
            yield level, number + start // TILE_BYTES, part
            if len(part) == TILE_BYTES:
                full.append(merkle.full_root(_hashes(part)))
        hashes, level = full, level + 1


def _peaks(tile: ReadTile, first: int, end: int) -> Iterator[Hash]:
    """The full subtrees of falling size that make up a span. No span of a proof begins where a larger one could."""
    while first < end:
        height = (end - first).bit_length() - 1
        yield _subtree(tile, height, first >> height)
        first += 1 << height


def _subtree(tile: ReadTile, height: int, place: int) -> Hash:
    """The root of the full subtree of 2^height leaves that is number `place` among those."""
    level, rest = divmod(height, TILE_BITS)
    number, start = divmod(place << rest, TILE_HASHES)
    end = start + (1 << rest)
    return merkle.root_of(_hashes(_read_hashes(tile, level, number, end)[start * HASH_BYTES :]))


def _read_hashes(tile: ReadTile, level: int, number: int, count: int) -> bytes:
    """The first `count` hashes of a tile."""
    body = tile(level, number)
    if len(body) < count * HASH_BYTES:
        raise ValidationError(
            f"tile {number} of level {level} is short of its {count} hashes", level=level, number=number, bytes=len(body)
        )
    return body[: count * HASH_BYTES]


def _hashes(body: bytes) -> list[Hash]:
    return [body[at : at + HASH_BYTES] for at in range(0, len(body), HASH_BYTES)]


def _cached(tile: ReadTile) -> ReadTile:
    known: dict[tuple[int, int], bytes] = {}

    def read(level: int, number: int) -> bytes:
        if (level, number) not in known:
            known[level, number] = tile(level, number)
        return known[level, number]

    return read


class GrowingTree:
    """A tree's size and its edge: the tiles that are not full yet."""

    __slots__ = ("_edge", "size")

    def __init__(self, size: int, tile: ReadTile) -> None:
        """The tree of `size` leaves, whose tiles `tile` reads."""
        self.size = size
        self._edge: dict[tuple[int, int], bytes] = {}
        level, entries = 0, size
        while entries:
            number, filled = divmod(entries, TILE_HASHES)
            if filled:
                self._edge[level, number] = tile(level, number)[: filled * HASH_BYTES]
            level, entries = level + 1, entries >> TILE_BITS

    def add(self, hashes: Sequence[Hash]) -> list[tuple[int, int, bytes]]:
        """Grow by these leaves. The tiles that have changed: level, number and whole body."""
        changed = list(grow_tiles(self._read, self.size, hashes))
        self.size += len(hashes)
        for level, number, body in changed:
            self._edge.pop((level, number), None)
            if len(body) < TILE_BYTES:
                self._edge[level, number] = body
        return changed

    def root(self) -> Hash:
        return frontier(self._read, self.size).root()

    def _read(self, level: int, number: int) -> bytes:
        """A tile that is missing reads as an empty one: whoever needs hashes of it says so."""
        return self._edge.get((level, number), b"")
