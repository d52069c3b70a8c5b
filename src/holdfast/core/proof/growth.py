"""A tree that grows: what has to be remembered between one head and the next."""

from collections.abc import Sequence

from holdfast.core.proof import tiles
from holdfast.core.proof.merkle import HASH_BYTES, Hash
from holdfast.core.proof.tiles import TILE_BITS, TILE_BYTES, TILE_HASHES, Tile


class Growth:
    """A tree's size and its edge: the tiles that are not full yet."""

    __slots__ = ("_edge", "size")

    def __init__(self, size: int, tile: Tile) -> None:
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
        changed = list(tiles.grow(self._read, self.size, hashes))
        self.size += len(hashes)
        for level, number, body in changed:
            self._edge.pop((level, number), None)
            if len(body) < TILE_BYTES:
                self._edge[level, number] = body
        return changed

    def root(self) -> Hash:
        return tiles.frontier(self._read, self.size).root()

    def _read(self, level: int, number: int) -> bytes:
        """A tile that is missing reads as an empty one: whoever needs hashes of it says so."""
        return self._edge.get((level, number), b"")
