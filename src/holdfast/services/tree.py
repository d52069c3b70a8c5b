"""The tree as a sealer has it: what is there is checked against what was signed before anything is added."""

from collections.abc import Mapping, Sequence

from holdfast.core.proof.book import Book, may_sign_head
from holdfast.core.proof.growth import Growth
from holdfast.core.proof.merkle import HASH_BYTES
from holdfast.core.proof.notes import Head, NoteKey, open_head, origin_of
from holdfast.core.proof.tiles import TILE_HASHES
from holdfast.errors import HoldfastError, SealBroken, SignatureInvalid, ValidationError
from holdfast.ledger.seals import SealedLog, tile_reader
from holdfast.services.headkeys import sound_book
from holdfast.store.base import Session
from holdfast.store.leaves import LeafPage, leaf_page
from holdfast.store.seals import SignedHead, TileRow, packed, unpacked

CHECKED_TILES = 2
"""So many tiles at the end of the tree are compared with the events they were made of."""


class Tree:
    """A ledger's tree up to its newest head, and how it goes on."""

    def __init__(self, base: SignedHead | None, growth: Growth, positions: Sequence[int]) -> None:
        self.base = base
        self._growth = growth
        self._positions = list(positions)
        """Those of the leaves in the last tile, where it is not full."""

    @property
    def pos(self) -> int:
        """The position of the last leaf."""
        return 0 if self.base is None else self.base.pos

    @property
    def size(self) -> int:
        return self._growth.size

    def root(self) -> bytes:
        return self._growth.root()

    def add(self, page: LeafPage) -> list[TileRow]:
        """Grow by these leaves. The tiles that have changed."""
        first = self.size // TILE_HASHES
        positions = self._positions + page.positions
        changed = [_tile_row(*tile, first, positions) for tile in self._growth.add(page.hashes)]
        self._positions = positions[(self.size // TILE_HASHES - first) * TILE_HASHES :]
        return changed


def _tile_row(level: int, number: int, body: bytes, first: int, positions: Sequence[int]) -> TileRow:
    if level:
        return TileRow(level, number, body)
    start = (number - first) * TILE_HASHES
    own = positions[start : start + len(body) // HASH_BYTES]
    return TileRow(level, number, body, packed(own), own[-1])


def load(log: SealedLog) -> Tree:
    """The tree as it stands. Raises SealBroken where its tiles, its newest head or its last events do not fit each other."""
    return log.read(lambda session: _load(session, log.ledger_id))


def _load(session: Session, ledger_id: str) -> Tree:
    head = session.last_head()
    if head is None:
        _check_nothing_beyond(session, 0)
        return Tree(None, Growth(0, tile_reader(session.tile)), ())
    _check_note(head, ledger_id, sound_book(ledger_id, session.key_log()))
    growth = Growth(head.size, tile_reader(session.tile))
    try:
        root = growth.root()
    except ValidationError as error:
        raise SealBroken(f"the tree cannot be read: {error.message}", size=head.size) from error
    if root != head.root:
        raise SealBroken(f"the tiles do not give the root that was signed for size {head.size}", size=head.size)
    _check_nothing_beyond(session, head.size)
    last = _check_events(session, head, ledger_id)
    return Tree(head, growth, last if head.size % TILE_HASHES else ())


def _check_note(head: SignedHead, ledger_id: str, book: Book) -> None:
    """A head is what its note says, and one of the ledger's own keys has signed that."""
    stated = Head(origin_of(ledger_id), head.size, bytes(head.root))
    for key in book:
        if may_sign_head(key, head.pos):
            try:
                if open_head(head.note, NoteKey(stated.origin, book.public_key(key.key_id))) == stated:
                    return
            except SignatureInvalid:
                continue
            except HoldfastError as error:
                raise SealBroken(f"the newest head, of size {head.size}, is no note: {error.message}", size=head.size) from error
    raise SealBroken(f"no key of this ledger has signed its newest head, of size {head.size}", size=head.size)


def _check_nothing_beyond(session: Session, size: int) -> None:
    """More tiles than the newest head has leaves: newer heads were taken away."""
    number, filled = divmod(size, TILE_HASHES)
    row = session.tile(0, number)
    if (row is not None and len(row.hashes) > filled * HASH_BYTES) or session.tile(0, number + 1) is not None:
        raise SealBroken(f"the tree has more leaves than its newest head, of size {size}, says", size=size)


def _check_events(session: Session, head: SignedHead, ledger_id: str) -> tuple[int, ...]:
    """The last events are those that were sealed; retention may have taken some. Answers the last tile's positions."""
    last = (head.size - 1) // TILE_HASHES
    sealed: dict[int, bytes] = {}
    positions: tuple[int, ...] = ()
    for number in range(max(0, last + 1 - CHECKED_TILES), last + 1):
        row = session.tile(0, number)
        if row is None or row.positions is None or len(row.positions) * 4 != len(row.hashes):
            raise SealBroken(f"tile {number} has lost hashes or positions", number=number)
        positions = unpacked(row.positions)
        hashes = [row.hashes[at : at + HASH_BYTES] for at in range(0, len(row.hashes), HASH_BYTES)]
        sealed.update(zip(positions, hashes, strict=True))
    if not positions or positions[-1] != head.pos:
        raise SealBroken(f"the last leaf is not at position {head.pos}, as its head has it", pos=head.pos)
    found = session.leaves_between(min(sealed) - 1, head.pos, len(sealed) + 1)
    _compare(leaf_page(found, session.policy_texts(), ledger_id), sealed)
    return positions


def _compare(page: LeafPage, sealed: Mapping[int, bytes]) -> None:
    for found, pos in zip(page.hashes, page.positions, strict=True):
        if pos not in sealed:
            raise SealBroken(f"what stands at position {pos} was never sealed, though later things were", pos=pos)
        if sealed[pos] != found:
            raise SealBroken(f"what stands at position {pos} is not what was sealed there", pos=pos)
