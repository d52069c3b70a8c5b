"""The stored form of the tree: tiles of 256 hashes, so that a proof reads only a few tiles.

Tile n of level 0 has the leaf hashes from 256n on. An entry of level k is the root of a full tile of level k−1. The last tile
of a level may be partly filled. A tile is the concatenation of its hashes.
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
    """Return the frontier of the tree of `size` leaves."""
    return Frontier(size, _peaks(_cached(tile), 0, size))


def inclusion_proof(tile: ReadTile, index: int, size: int) -> list[Hash]:
    return merkle.inclusion_proof(index, size, span_of(tile))


def span_of(tile: ReadTile) -> Span:
    """Return the span function of a stored tree. It reads each tile once."""
    kept = _cached(tile)
    return lambda first, end: merkle.fold(list(_peaks(kept, first, end)))


def grow_tiles(tile: ReadTile, size: int, hashes: Sequence[Hash]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the tiles that change when leaves are added to a tree of `size`: level, number and whole body, lower levels first."""
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
    """Yield the roots of the full subtrees of a span, in decreasing size. Spans of proofs always start at such a subtree."""
    while first < end:
        height = (end - first).bit_length() - 1
        yield _subtree(tile, height, first >> height)
        first += 1 << height


def _subtree(tile: ReadTile, height: int, place: int) -> Hash:
    """Return the root of the full subtree of 2^height leaves with index `place` among those of its height."""
    level, rest = divmod(height, TILE_BITS)
    number, start = divmod(place << rest, TILE_HASHES)
    end = start + (1 << rest)
    return merkle.root_of(_hashes(_read_hashes(tile, level, number, end)[start * HASH_BYTES :]))


def _read_hashes(tile: ReadTile, level: int, number: int, count: int) -> bytes:
    """Return the first `count` hashes of a tile."""
    body = tile(level, number)
    if len(body) < count * HASH_BYTES:
        raise ValidationError(
            f"tile {number} of level {level} has fewer than {count} hashes", level=level, number=number, bytes=len(body)
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
    """A tree's size and its edge, the tiles that are not full yet."""

    __slots__ = ("_edge", "size")

    def __init__(self, size: int, tile: ReadTile) -> None:
        """Open the tree of `size` leaves. `tile` reads its tiles."""
        self.size = size
        self._edge: dict[tuple[int, int], bytes] = {}
        level, entries = 0, size
        while entries:
            number, filled = divmod(entries, TILE_HASHES)
            if filled:
                self._edge[level, number] = tile(level, number)[: filled * HASH_BYTES]
            level, entries = level + 1, entries >> TILE_BITS

    def add(self, hashes: Sequence[Hash]) -> list[tuple[int, int, bytes]]:
        """Add these leaves and return the tiles that have changed: level, number and whole body."""
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
        """Return a tile of the edge, or an empty one if it is missing. `_read_hashes` reports missing hashes."""
        return self._edge.get((level, number), b"")
