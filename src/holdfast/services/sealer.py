"""The sealer: appends events to the Merkle tree and signs its heads."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import Forbidden, HoldfastError, SealBroken, SignatureInvalid, Unavailable, ValidationError
from holdfast.ledger import Ledger
from holdfast.ledger.verbs.proofs import SealedLog, tile_reader
from holdfast.proof import key_book
from holdfast.proof.key_book import KeyBook, KeyChange, may_sign_head
from holdfast.proof.keys import SecretKey
from holdfast.proof.merkle import HASH_BYTES
from holdfast.proof.notes import LogHead, NoteKey, open_head, origin_of, sign_head
from holdfast.proof.tiles import TILE_HASHES, GrowingTree
from holdfast.services.anchors import ANCHOR_SECONDS, Anchor, AnchorService
from holdfast.services.duties import TTL_SECONDS, Duties, DutyLeases
from holdfast.services.ticker import Outage, Ticker
from holdfast.store.base import Session, Waiter
from holdfast.store.sealing import (
    POLICY_COLUMN,
    HeadRow,
    LeafPage,
    StableRows,
    TileRow,
    leaf_page,
    pack_positions,
    unpack_positions,
)


class HeadKeyring:
    """The keys of this process that are good for heads, by a book that is read again when it has changed."""

    def __init__(self, log: SealedLog) -> None:
        self._log = log
        self._book: KeyBook | None = None

    def forget(self) -> None:
        """Keys have changed."""
        self._book = None

    def key_for(self, pos: int) -> SecretKey:
        """What signs the head whose last leaf is at `pos`: the last key given, where several may."""
        if self._book is None:
            self._book = checked_key_book(self._log.ledger_id, self._log.key_log())
        for held in reversed(list(self._log.ring)):
            known = self._book.find(held.key_id)
            if known is not None and held.secret is not None and may_sign_head(known, pos):
                return held.secret
        action = "Open the ledger with an enrolled key of a server (keys=, HOLDFAST_KEYS, --key)."
        raise Forbidden(f"no key here may sign the head at position {pos}", action=action, pos=pos)


def checked_key_book(ledger_id: str, changes: Sequence[KeyChange]) -> KeyBook:
    """The book of these changes, if each was vouched for."""
    problems = key_book.check_key_changes(ledger_id, changes)
    if problems:
        pos, key_id, detail = problems[0]
        raise SealBroken(f"the change of key {key_id} at position {pos} does not hold: {detail}", pos=pos, key_id=key_id)
    return KeyBook(changes)


PAGE_EVENTS = 5_000
"""Read at once: more would only take more memory."""
HEAD_EVENTS_MAX = 50_000
"""What one head takes in at most, where a sealer has fallen behind."""


class LeafReader:
    """Remembers what the rows refer to."""

    def __init__(self, log: SealedLog) -> None:
        self._log = log
        self._policies: dict[int, str] = {}
        self.keys_changed = False
        """Set where changes of keys were among the leaves."""

    def read_leaves(self, after: int) -> tuple[LeafPage, bool]:
        """The leaves after a position, as many as one head may take in, and whether there are more."""
        page = LeafPage([], [])
        while len(page.hashes) < HEAD_EVENTS_MAX:
            found = self._log.page(after, PAGE_EVENTS)
            self._update_policies(found)
            made = leaf_page(found, self._policies, self._log.ledger_id)
            page.hashes.extend(made.hashes)
            page.positions.extend(made.positions)
            if len(found.events) < PAGE_EVENTS:
                return page, False
            after = found.until
        return page, True

    def _update_policies(self, found: StableRows) -> None:
        self.keys_changed = self.keys_changed or bool(found.keys)
        if not self._policies.keys() >= {row[POLICY_COLUMN] for row in found.events if row[POLICY_COLUMN] is not None}:
            self._policies = self._log.policies()


CHECKED_TILES = 2
"""So many tiles at the end of the tree are compared with the events they were made of."""


class SealedTree:
    """A ledger's tree up to its newest head, and how it goes on."""

    def __init__(self, base: HeadRow | None, growth: GrowingTree, positions: Sequence[int]) -> None:
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
    return TileRow(level, number, body, pack_positions(own), own[-1])


def load_tree(log: SealedLog) -> SealedTree:
    """The tree as it stands. Raises SealBroken where its tiles, its newest head or its last events do not fit each other."""
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
        raise SealBroken(f"the tiles do not give the root that was signed for size {head.size}", size=head.size)
    _check_nothing_beyond(session, head.size)
    last = _check_events(session, head, ledger_id)
    return SealedTree(head, growth, last if head.size % TILE_HASHES else ())


def _check_note(head: HeadRow, ledger_id: str, book: KeyBook) -> None:
    """A head is what its note says, and one of the ledger's own keys has signed that."""
    stated = LogHead(origin_of(ledger_id), head.size, bytes(head.root))
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


def _check_events(session: Session, head: HeadRow, ledger_id: str) -> tuple[int, ...]:
    """The last events are those that were sealed; retention may have taken some. Answers the last tile's positions."""
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
        raise SealBroken(f"the last leaf is not at position {head.pos}, as its head has it", pos=head.pos)
    found = session.leaves_between(min(sealed) - 1, head.pos, len(sealed) + 1)
    _compare_leaves(leaf_page(found, session.policy_texts(), ledger_id), sealed)
    return positions


def _compare_leaves(page: LeafPage, sealed: Mapping[int, bytes]) -> None:
    for found, pos in zip(page.hashes, page.positions, strict=True):
        if pos not in sealed:
            raise SealBroken(f"what stands at position {pos} was never sealed, though later things were", pos=pos)
        if sealed[pos] != found:
            raise SealBroken(f"what stands at position {pos} is not what was sealed there", pos=pos)


log = logging.getLogger("holdfast.seal")

DUTY = "seal"
EVERY_SECONDS = 1.0
EVERY_EVENTS = 1_000
HEAD_SECONDS_MIN = 0.2
"""However much happens, heads are this far apart: each costs a commit, which others wait for."""
WAIT_SECONDS_MIN = 0.5
WAIT_SECONDS_MAX = 30.0
OUTAGE_SECONDS = 5.0
WAIT_SLICE_SECONDS = 1.0


class SealStep(NamedTuple):
    """What one step did."""

    sealed: int
    """Events and changes of keys that came into the tree."""
    size: int
    """Of the tree, now."""
    more: bool
    """There is more to be done at once."""


class Sealer:
    """Seals everything that happens, with the server's key that the ledger was opened with.

    A head is signed `every` second or `every_events` events, whichever comes first. Any number of sealers may stand by: a duty
    sees to it that one works at a time, and the tree itself that two could never fork it. Before it adds anything, a sealer
    checks what is there; where that is not what was signed it raises SealBroken and adds nothing.
    """

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
        self._duties = DutyLeases(duties or ledger, {DUTY: DUTY}, self._log.nonce(), duty_ttl, self._log.monotonic)
        self._leaves = LeafReader(self._log)
        self._keys = HeadKeyring(self._log)
        self._tree: SealedTree | None = None
        self._outage = Outage(log, "seal")
        self.newest: HeadRow | None = None
        """The newest head that this sealer has signed, or found and checked."""
        self.anchor_service = AnchorService(anchors, lambda: self.newest, anchor_every, self._log.monotonic)

    def tick(self) -> SealStep | None:
        """One step: whatever has settled, up to a limit, under a new head. None where it is somebody else's turn."""
        return self._step() if self._duties.holds(DUTY) else None

    def seal_all(self, progress: Callable[[int], None] | None = None) -> SealStep | None:
        """Steps until everything that has settled is sealed; `progress` is told how much that is. None where it is somebody
        else's turn."""
        total = 0
        while (done := self.tick()) is not None:
            total += done.sealed
            if progress is not None:
                progress(total)
            if not (done.sealed or done.more):
                return done._replace(sealed=total)
        return None

    def run(self, stop: threading.Event) -> None:
        """Seal until `stop` is set; an outage of the store is waited out. Raises SealBroken, and Forbidden without a good key."""
        waiter = self._log.waiter()
        ticker = Ticker([self.anchor_service], name="holdfast-anchors") if self.anchor_service.anchors else None
        if ticker is not None:
            ticker.start()
        try:
            while not stop.is_set():
                self._serve(waiter, stop)
        finally:
            waiter.close()
            self._duties.release()
            if ticker is not None:
                ticker.close()

    def close(self) -> None:
        """Let another sealer take over at once, and anchor the newest head. `run` ends with it."""
        self._duties.release()
        self.anchor_service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Waiting

    def _serve(self, waiter: Waiter, stop: threading.Event) -> None:
        """Steps until the store is out of reach or somebody wants an end."""
        wait_seconds = WAIT_SECONDS_MIN
        try:
            while not stop.is_set():
                done = self.tick()
                self._outage.over()
                if done is not None and done.more:
                    continue
                woken = self._wait(waiter, stop, wait_seconds)
                wait_seconds = WAIT_SECONDS_MIN if woken else min(2 * wait_seconds, WAIT_SECONDS_MAX)
                if woken and done is not None:
                    self._wait_for_more(stop)
        except Unavailable as error:
            if not error.retryable:
                raise
            self._outage.began(error)
            stop.wait(OUTAGE_SECONDS)

    def _wait(self, waiter: Waiter, stop: threading.Event, seconds: float) -> bool:
        """True as soon as the bell rings or the duty becomes ours; False after so many seconds, or when somebody wants an end."""
        while seconds > 0 and not stop.is_set():
            slice_seconds = min(seconds, WAIT_SLICE_SECONDS, self._duties.renew_seconds)
            if waiter.wait(slice_seconds) or self._duties.renew():
                return True
            seconds -= slice_seconds
        return False

    def _wait_for_more(self, stop: threading.Event) -> None:
        """Let some more come, so that they share a head: for as long as it may take, or as many as it may be."""
        left, pace = self._every, min(HEAD_SECONDS_MIN, self._every)
        while left > 0 and not stop.wait(pace):
            left -= pace
            if self._tree is None or self._log.last_pos() - self._tree.pos >= self._every_events:
                return

    # Sealing

    def _step(self) -> SealStep:
        tree = self._tree
        # Whatever goes wrong on the way, the tree in memory may be ahead of the one that is kept: it is then read anew.
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
        """Add leaves to the tree and sign its new head; False where somebody else has sealed meanwhile."""
        base, pos = tree.base, page.positions[-1]
        key = self._keys.key_for(pos)
        rows = tree.add(page)
        root = tree.root()
        note = sign_head(LogHead(origin_of(self._log.ledger_id), tree.size, root), key)
        head = HeadRow(tree.size, pos, root, note)
        if not self._log.seal(rows, head, base):
            log.warning("somebody else has sealed beyond size %d: beginning again", 0 if base is None else base.size)
            return False
        tree.base = self.newest = head
        return True
