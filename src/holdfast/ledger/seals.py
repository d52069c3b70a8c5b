"""The sealed log: what a sealer reads and adds, and the verbs that show it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core.proof import tiles
from holdfast.core.proof.book import KeyChange
from holdfast.core.proof.leaves import event_leaf
from holdfast.errors import NotFound
from holdfast.ledger import admit
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.desk import Desk
from holdfast.ledger.face import Event, public_event, to_datetime
from holdfast.ledger.keyring import Keyring
from holdfast.ledger.sweep import Entropy
from holdfast.store.base import EventFilter, Session, Store, Waiter
from holdfast.store.leaves import leaf_row
from holdfast.store.seals import SettledRows, SignedHead, TileRow

T = TypeVar("T")

PROVEN_MAX = 1_000_000


class TreeHead(msgspec.Struct, frozen=True):
    """The tree over the first `size` things that happened, as it was signed. `note` is the signed form, for others' tools."""

    size: int
    pos: int
    """The position of the last leaf."""
    root: bytes
    note: str
    at: datetime


class ProvenEvent(msgspec.Struct, frozen=True):
    """An event and what shows that it is in the tree: leaf number `index`, and the hashes beside its way to the root."""

    event: Event
    leaf: bytes
    index: int
    proof: list[bytes]


class Inclusion(msgspec.Struct, frozen=True):
    """What can be shown of one job with the head alone."""

    ledger_id: str
    job_id: int
    head: TreeHead
    events: list[ProvenEvent]
    unsealed: int
    """Events that are newer than the head."""


class SealedLog:
    """A sealer's side of the ledger. Safe to use from many threads."""

    def __init__(
        self, store: Store, pipeline: CommitPipeline, entropy: Entropy, monotonic: Callable[[], float], ring: Keyring
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._entropy = entropy
        self.ledger_id = store.ledger_id
        self.monotonic = monotonic
        self.ring = ring
        """The secret keys of this process."""

    def nonce(self) -> str:
        return self._entropy.nonce()

    def page(self, after: int, limit: int) -> SettledRows:
        """What comes next in the total order, none of which can still be overtaken."""
        return self._store.settled_rows(after, limit)

    def policies(self) -> dict[int, str]:
        return self._store.peek(lambda session: session.policy_texts())

    def key_log(self) -> list[KeyChange]:
        return self._store.peek(lambda session: session.key_log())

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on one snapshot."""
        return self._store.read(work)

    def last_pos(self) -> int:
        """The newest position that was drawn."""
        return self._store.peek(lambda session: session.last_pos())

    def seal(self, rows: Sequence[TileRow], head: SignedHead, base: SignedHead | None) -> bool:
        """False where `base` is no longer the newest head: somebody else has sealed meanwhile, and nothing is changed."""
        return self._pipeline.transact(lambda session: session.seal(rows, head, base))

    def waiter(self) -> Waiter:
        """Make it before looking, so that nothing that comes in between is missed."""
        return self._store.waiter(events=True)


class Sealed(Desk):
    """The verbs on the sealed log. They only read: a sealer is what adds to it."""

    @property
    def sealed_log(self) -> SealedLog:
        """What a sealer works with."""
        return SealedLog(self._store, self._pipeline, self._entropy, self._monotonic, self.ring)

    def head(self) -> TreeHead | None:
        """The newest signed head; None where nothing was ever sealed."""
        found = self._store.peek(lambda session: session.last_head())
        return None if found is None else _shown(found)

    def heads(self, *, after: int = 0, limit: int = limits.PAGE_MAX) -> list[TreeHead]:
        """Signed heads by size. The next page is `after=` the last size of this one."""
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return [_shown(head) for head in self._store.peek(lambda session: session.heads(after, limit))]

    def inclusion(self, job_id: int) -> Inclusion:
        """A job's events with proofs that they are in the tree of the newest head, all as of one moment."""
        job_id = admit.job_id(job_id)
        return self._store.read(lambda session: _inclusion(session, self.id, job_id))


def _inclusion(session: Session, ledger_id: str, job_id: int) -> Inclusion:
    head, rows = session.last_head(), session.leaf_rows(job_id)
    if not rows:
        raise NotFound(f"there is no job {job_id}", job_id=job_id)
    if head is None:
        raise NotFound("nothing was ever sealed here: run holdfast seal", job_id=job_id)
    policies, tile = session.policy_texts(), tile_reader(session.tile)
    shown = {event.rev: public_event(event) for event in session.events(EventFilter(job_id=job_id, limit=PROVEN_MAX))}
    proven = []
    for row in rows:
        index = session.leaf_index(row[0]) if row[0] <= head.pos else None
        if index is not None:
            leaf = event_leaf(leaf_row(row, policies, ledger_id))
            proven.append(ProvenEvent(shown[row[2]], leaf, index, tiles.inclusion_proof(tile, index, head.size)))
    return Inclusion(ledger_id, job_id, _shown(head), proven, len(rows) - len(proven))


def tile_reader(read: Callable[[int, int], TileRow | None]) -> tiles.Tile:
    """Reads each tile once; one that is missing as an empty one."""
    known: dict[tuple[int, int], bytes] = {}

    def tile(level: int, number: int) -> bytes:
        if (level, number) not in known:
            found = read(level, number)
            known[level, number] = b"" if found is None else found.hashes
        return known[level, number]

    return tile


def _shown(head: SignedHead) -> TreeHead:
    return TreeHead(head.size, head.pos, bytes(head.root), head.note, to_datetime(head.at))
