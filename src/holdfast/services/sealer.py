"""The sealer: appends events to the Merkle tree and signs its heads."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import Forbidden, HoldfastError, SealBroken, SignatureInvalid, ValidationError
from holdfast.keeping.duty import TTL_SECONDS, Duties, Duty
from holdfast.keeping.service import Service, ServiceLoop
from holdfast.ledger import Ledger
from holdfast.ledger.verbs.proofs import SealedLog, tile_reader
from holdfast.ledger.verbs.services import SEAL_DUTY
from holdfast.proof import key_book
from holdfast.proof.key_book import KeyBook, KeyChange, may_sign_head
from holdfast.proof.keys import SecretKey
from holdfast.proof.merkle import HASH_BYTES
from holdfast.proof.notes import LogHead, NoteKey, open_head, origin_of, sign_head
from holdfast.proof.tiles import TILE_HASHES, GrowingTree
from holdfast.services.anchors import ANCHOR_SECONDS, Anchor, AnchorService
from holdfast.store.base import Waiter
from holdfast.store.sealing import (
    HeadRow,
    LeafPage,
    StableRows,
    TileRow,
    leaf_page,
    pack_positions,
    unpack_positions,
)
from holdfast.store.session import Session


class HeadKeyring:
    """The keys of this process that may sign heads. The key book is read again after a change."""

    def __init__(self, log: SealedLog) -> None:
        self._log = log
        self._book: KeyBook | None = None

    def forget(self) -> None:
        """Drop the key book, because keys have changed."""
        self._book = None

    def key_for(self, pos: int) -> SecretKey:
        """Return the key that signs the head with its last leaf at `pos`: the last key of the ring that may."""
        if self._book is None:
            self._book = checked_key_book(self._log.ledger_id, self._log.key_log())
        for held in reversed(list(self._log.ring)):
            known = self._book.find(held.key_id)
            if known is not None and held.secret is not None and may_sign_head(known, pos):
                return held.secret
        action = "Open the ledger with an enrolled key of a server (keys=, HOLDFAST_KEYS, --key)."
        raise Forbidden(f"no key here may sign the head at position {pos}", action=action, pos=pos)


def checked_key_book(ledger_id: str, changes: Sequence[KeyChange]) -> KeyBook:
    """Return the key book of these changes. Raise SealBroken if a change is not vouched for."""
    problems = key_book.check_key_changes(ledger_id, changes)
    if problems:
        pos, key_id, detail = problems[0]
        raise SealBroken(f"the change of key {key_id} at position {pos} is not valid: {detail}", pos=pos, key_id=key_id)
    return KeyBook(changes)


PAGE_EVENTS = 5_000
"""Events of one read. More would only take more memory."""
HEAD_EVENTS_MAX = 50_000
"""The most events that one head adds, if a sealer has fallen behind."""


class LeafReader:
    """Read new leaves. It caches the policies that the rows refer to."""

    def __init__(self, log: SealedLog) -> None:
        self._log = log
        self._policies: dict[int, str] = {}
        self.keys_changed = False
        """Set if a change of keys was among the leaves."""

    def read_leaves(self, after: int) -> tuple[LeafPage, bool]:
        """Return the leaves after a position, at most as many as one head may add, and whether there are more."""
        page = LeafPage([], [])
        while len(page.hashes) < HEAD_EVENTS_MAX:
            rows = self._log.page(after, PAGE_EVENTS)
            self._update_policies(rows)
            leaves = leaf_page(rows, self._policies, self._log.ledger_id)
            page.hashes.extend(leaves.hashes)
            page.positions.extend(leaves.positions)
            if len(rows.events) < PAGE_EVENTS:
                return page, False
            after = rows.until
        return page, True

    def _update_policies(self, rows: StableRows) -> None:
        self.keys_changed = self.keys_changed or bool(rows.keys)
        if not self._policies.keys() >= rows.policy_ids():
            self._policies = self._log.policies()


CHECKED_TILES = 2
"""The number of tiles at the end of the tree that are compared with the events that they were made from."""


class SealedTree:
    """A ledger's tree up to its newest head, to which leaves can be added."""

    def __init__(self, base: HeadRow | None, growth: GrowingTree, positions: Sequence[int]) -> None:
        self.base = base
        self._growth = growth
        self._positions = list(positions)
        """The positions of the leaves in the last tile, if it is not full."""

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
        """Add leaves and return the tiles that have changed."""
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
    return TileRow(level, number, body, pack_positions(own), own[-1])


def load_tree(log: SealedLog) -> SealedTree:
    """Load the current tree. Raise SealBroken if its tiles, its newest head or its last events do not match each other."""
    return log.read(lambda session: _load_tree(session, log.ledger_id))


def _load_tree(session: Session, ledger_id: str) -> SealedTree:
    head = session.last_head()
    if head is None:
        _check_nothing_beyond(session, 0)
        return SealedTree(None, GrowingTree(0, tile_reader(session.tile)), ())
    _check_note(head, ledger_id, checked_key_book(ledger_id, session.key_log()))
    growth = GrowingTree(head.size, tile_reader(session.tile))
    try:
        root = growth.root()
    except ValidationError as error:
        raise SealBroken(f"the tree cannot be read: {error.message}", size=head.size) from error
    if root != head.root:
        raise SealBroken(f"the root of the tiles is not the root that was signed for size {head.size}", size=head.size)
    _check_nothing_beyond(session, head.size)
    last = _check_events(session, head, ledger_id)
    return SealedTree(head, growth, last if head.size % TILE_HASHES else ())


def _check_note(head: HeadRow, ledger_id: str, book: KeyBook) -> None:
    """Raise SealBroken unless a head matches its note and one of the ledger's keys has signed the note."""
    stated = LogHead(origin_of(ledger_id), head.size, bytes(head.root))
    for key in book:
        if may_sign_head(key, head.pos):
            try:
                if open_head(head.note, NoteKey(stated.origin, book.public_key(key.key_id))) == stated:
                    return
            except SignatureInvalid:
                continue
            except HoldfastError as error:
                message = f"the newest head, of size {head.size}, is not a note: {error.message}"
                raise SealBroken(message, size=head.size) from error
    raise SealBroken(f"no key of this ledger has signed its newest head, of size {head.size}", size=head.size)


def _check_nothing_beyond(session: Session, size: int) -> None:
    """Raise SealBroken if the tiles have more leaves than the newest head: newer heads were deleted."""
    number, filled = divmod(size, TILE_HASHES)
    row = session.tile(0, number)
    if (row is not None and len(row.hashes) > filled * HASH_BYTES) or session.tile(0, number + 1) is not None:
        raise SealBroken(f"the tree has more leaves than its newest head, of size {size}, says", size=size)


def _check_events(session: Session, head: HeadRow, ledger_id: str) -> tuple[int, ...]:
    """Raise SealBroken unless the last events are those that were sealed. Return the positions of the last tile.

    Retention may have deleted some events.
    """
    last = (head.size - 1) // TILE_HASHES
    sealed: dict[int, bytes] = {}
    positions: tuple[int, ...] = ()
    for number in range(max(0, last + 1 - CHECKED_TILES), last + 1):
        row = session.tile(0, number)
        if row is None or row.positions is None or len(row.positions) * 4 != len(row.hashes):
            raise SealBroken(f"tile {number} has lost hashes or positions", number=number)
        positions = unpack_positions(row.positions)
        hashes = [row.hashes[at : at + HASH_BYTES] for at in range(0, len(row.hashes), HASH_BYTES)]
        sealed.update(zip(positions, hashes, strict=True))
    if not positions or positions[-1] != head.pos:
        raise SealBroken(f"the last leaf is not at position {head.pos}, where its head says it is", pos=head.pos)
    rows = session.leaves_between(min(sealed) - 1, head.pos, len(sealed) + 1)
    _compare_leaves(leaf_page(rows, session.policy_texts(), ledger_id), sealed)
    return positions


def _compare_leaves(page: LeafPage, sealed: Mapping[int, bytes]) -> None:
    for leaf_hash, pos in zip(page.hashes, page.positions, strict=True):
        if pos not in sealed:
            raise SealBroken(f"the entry at position {pos} was never sealed, though later ones were", pos=pos)
        if sealed[pos] != leaf_hash:
            raise SealBroken(f"the entry at position {pos} is not the one that was sealed", pos=pos)


log = logging.getLogger("holdfast.seal")

EVERY_SECONDS = 1.0
EVERY_EVENTS = 1_000
HEAD_SECONDS_MIN = 0.2
"""The shortest time between two heads: each costs a commit, which other transactions wait for."""


class SealStep(NamedTuple):
    """The result of one step."""

    sealed: int
    """The number of events and key changes that were added to the tree."""
    size: int
    """The size of the tree after the step."""
    more: bool
    """Whether there is more to seal at once."""


class Sealer(Service):
    """Seal every event with the server's key that the ledger was opened with.

    A head is signed after the time `every` or after `every_events` events, whichever comes first. Any number of sealers may run:
    a duty makes one of them work at a time, and the tree accepts a new head only on top of its newest one, so it cannot fork.
    Before a sealer adds anything, it checks the tree. If the tree is not what was signed, it raises SealBroken and adds nothing.
    """

    name = "seal"
    log = log
    duty: Duty

    def __init__(
        self,
        ledger: Ledger,
        *,
        every: Any = EVERY_SECONDS,
        every_events: int = EVERY_EVENTS,
        anchors: Sequence[Anchor] = (),
        anchor_every: Any = ANCHOR_SECONDS,
        duties: Duties | None = None,
        duty_ttl: Any = TTL_SECONDS,
    ) -> None:
        self._log = ledger.sealed_log
        self._every = policies.duration_ms("every", every, limits.SEAL_MS_MIN, limits.SEAL_MS_MAX) / 1_000
        self._every_events = limits.check_integer("every_events", every_events, 1, limits.SEAL_EVENTS_MAX)
        self.duty = Duty(duties or ledger, SEAL_DUTY, self._log.nonce(), duty_ttl, self._log.monotonic)
        self._leaves = LeafReader(self._log)
        self._keys = HeadKeyring(self._log)
        self._tree: SealedTree | None = None
        self.newest: HeadRow | None = None
        """The newest head that this sealer has signed, or found and checked."""
        self.anchor_service = AnchorService(anchors, lambda: self.newest, anchor_every, self._log.monotonic)
        self._anchor_loop: ServiceLoop | None = None
        """The thread of the anchors. A slow one does not delay sealing."""

    def tick(self) -> SealStep | None:
        """Seal the events whose order is final, up to a limit, under one new head. Return None if another sealer has the duty."""
        done = self._step() if self.duty.holds(SEAL_DUTY) else None
        self.every_s = 0.0 if done is not None and done.more else math.inf
        return done

    def seal_all(self, progress: Callable[[int], None] | None = None) -> SealStep | None:
        """Seal until all events whose order is final are sealed. `progress` is called with the number sealed so far.

        Return None if another sealer has the duty.
        """
        total = 0
        while (done := self.tick()) is not None:
            total += done.sealed
            if progress is not None:
                progress(total)
            if not (done.sealed or done.more):
                return done._replace(sealed=total)
        return None

    def begin(self) -> Waiter:
        waiter = self._log.waiter()
        if self.anchor_service.anchors and self._anchor_loop is None:
            self._anchor_loop = ServiceLoop([self.anchor_service])
            self._anchor_loop.start()
        return waiter

    def close(self) -> None:
        """Drop the duty, so that another sealer can take over at once, and anchor the newest head. `run` does both at its end."""
        super().close()
        if self._anchor_loop is None:
            self.anchor_service.close()
        else:
            self._anchor_loop.close()
            self._anchor_loop = None

    def on_wakeup(self) -> None:
        """Wait for more events to share the next head, until the time `every` is over or `every_events` have come."""
        left, pace = self._every if self.is_active else 0.0, min(HEAD_SECONDS_MIN, self._every)
        while left > 0 and not self.stopping.wait(pace):
            left -= pace
            if self._tree is None or self._log.events_after(self._tree.pos) >= self._every_events:
                return

    # Sealing

    def _step(self) -> SealStep:
        tree = self._tree
        # After an error, the tree in memory may be ahead of the stored one. It is then loaded again.
        self._tree = None
        if tree is None:
            tree = load_tree(self._log)
            self.newest = tree.base
        page, more = self._leaves.read_leaves(tree.pos)
        if self._leaves.keys_changed:
            self._keys.forget()
            self._leaves.keys_changed = False
        if page.hashes and not self._seal_page(tree, page):
            return SealStep(0, tree.size, more=True)
        self._tree = tree
        return SealStep(len(page.hashes), tree.size, more)

    def _seal_page(self, tree: SealedTree, page: LeafPage) -> bool:
        """Add leaves to the tree and sign its new head. Return False if another sealer has sealed meanwhile."""
        base, pos = tree.base, page.positions[-1]
        key = self._keys.key_for(pos)
        rows = tree.add(page)
        root = tree.root()
        note = sign_head(LogHead(origin_of(self._log.ledger_id), tree.size, root), key)
        head = HeadRow(tree.size, pos, root, note)
        if not self._log.seal(rows, head, base):
            log.warning("another sealer has sealed beyond size %d: starting again", 0 if base is None else base.size)
            return False
        tree.base = self.newest = head
        return True
