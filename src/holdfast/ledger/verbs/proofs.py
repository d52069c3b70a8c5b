"""Verbs on keys and on the sealed log."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core.model import Actor, Role
from holdfast.errors import Forbidden, NotFound, SignatureInvalid, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.public import Event, public_event, to_datetime
from holdfast.ledger.signing import Keyring
from holdfast.ledger.sweep import Entropy
from holdfast.proof import tiles
from holdfast.proof.encoding import from_hex
from holdfast.proof.key_book import ENROLLED, REVOKED, Enrolment, KeyBook, KeyChange, refuse_key_change
from holdfast.proof.keys import KeyRole, PublicKey, SecretKey
from holdfast.proof.leaves import event_leaf
from holdfast.store.base import EventFilter, Session, Store, Waiter
from holdfast.store.sealing import HeadRow, StableRows, TileRow, leaf_row

PublicLike = PublicKey | bytes | str
"""A public key as it is, as its 32 bytes, or as 64 hex digits."""


class KeyRecord(msgspec.Struct, frozen=True):
    """A key of the ledger. What it signed counts at positions after `enrolled_pos` and before `revoked_pos`."""

    key_id: str
    role: KeyRole
    name: str
    public: str
    """64 hex digits."""
    enrolled_pos: int
    enrolled_at: datetime
    enrolled_by: str
    revoked_pos: int | None
    revoked_at: datetime | None
    revoked_by: str | None
    vouched_by: str
    """The id of the key that vouched for its enrolment: its own for the first."""
    revocation_vouched_by: str | None


class KeyVerbs(LedgerBase):
    def keys(self) -> list[KeyRecord]:
        """Every key that was ever enrolled, in that order."""
        return [_public_key(key) for key in self._store.read_statement(self._books.latest)]

    def enrol_key(self, public: PublicLike, *, role: str, name: str, actor: str | Actor | None = None) -> KeyRecord:
        """From now on this key may sign for `name`.

        The first key of a ledger must be a server's whose secret this process has; later ones are vouched for by a key of a
        server that it has, or of an operator where it is not a server's key. A key that is enrolled like this already is answered
        as it is.
        """
        key, whose, who = admit_public(public), _role(role), limits.check_name("name", name)
        return self._change(actor, lambda amendment: amendment.enrol(key, whose, who))

    def revoke_key(self, key_id: str, *, actor: str | Actor | None = None) -> KeyRecord:
        """From now on nothing that this key signs is accepted; what it has signed before stays good. It is not taken back."""
        limits.check_name("key_id", key_id)
        return self._change(actor, lambda amendment: amendment.revoke(key_id))

    def rotate_key(self, key_id: str, public: PublicLike, *, actor: str | Actor | None = None) -> KeyRecord:
        """Enrol a key in another one's place, for the same role and name, and revoke that one: both or neither."""
        limits.check_name("key_id", key_id)
        key = admit_public(public)
        if key.key_id == key_id:
            raise ValidationError("a key is rotated to another one", field="public")
        return self._change(actor, lambda amendment: amendment.rotate(key_id, key))

    def check_key(self, worker: str) -> None:
        """Raises SignatureInvalid, which says what is lacking, unless this process has a good key of a worker of this name."""
        lack = self.ring.lack(self._store.read_statement(self._books.latest), limits.check_name("worker", worker))
        if lack is not None:
            raise SignatureInvalid(lack, why="worker_key", worker=worker)

    def _change(self, actor: str | Actor | None, decide: "Callable[[_Amendment], Enrolment]") -> KeyRecord:
        who = validate.actor(actor, Role.OPERATOR, self._actor)
        found = self._pipeline.transact(lambda session: decide(_Amendment(session, self.ring, self.id, who)))
        self._store.wake([])
        return _public_key(found)


class _Amendment:
    """Changes of the book in one transaction, which nobody else changes meanwhile."""

    def __init__(self, session: Session, ring: Keyring, ledger_id: str, who: Actor) -> None:
        session.lock_keys()
        self._session = session
        self._book = KeyBook(session.key_log())
        self._ring = ring
        self._ledger_id = ledger_id
        self._who = who

    def enrol(self, public: PublicKey, role: str, name: str) -> Enrolment:
        known = self._book.find(public.key_id)
        if known is not None and self._book.valid(public.key_id, role, name):
            return known
        return self._write(ENROLLED, public.key_id, role, name, public.public)

    def revoke(self, key_id: str) -> Enrolment:
        known = self._known(key_id)
        return self._write(REVOKED, key_id, known.role, known.name, known.public) if known.valid() else known

    def rotate(self, key_id: str, public: PublicKey) -> Enrolment:
        known = self._known(key_id)
        if not known.valid() and not self._book.valid(public.key_id, known.role, known.name):
            raise Forbidden(f"the key {key_id} was revoked, and is not rotated any more", action="Enrol the new key by itself.")
        made = self.enrol(public, known.role, known.name)
        self.revoke(key_id)
        return made

    def _known(self, key_id: str) -> Enrolment:
        known = self._book.find(key_id)
        if known is None:
            raise NotFound(f"there is no key {key_id!r}", key_id=key_id)
        return known

    def _write(self, change: str, key_id: str, role: str, name: str, public: bytes) -> Enrolment:
        signer = self._signer(key_id, role)
        draft = KeyChange(0, change, key_id, role, name, public, self._session.now(), str(self._who), signer.key_id)
        objects = refuse_key_change(self._book, draft)
        if objects is not None:
            raise Forbidden(objects.why, action=objects.action, key_id=key_id)
        signed = msgspec.structs.replace(draft, signature=signer.sign(draft.message(self._ledger_id)))
        pos = self._session.add_key_change(signed)
        return self._book.add(msgspec.structs.replace(signed, pos=pos))

    def _signer(self, key_id: str, role: str) -> SecretKey:
        """The first key of all vouches for itself."""
        found = self._ring.voucher(self._book, self._who.name, role) if self._book else self._ring.secret(key_id)
        if found is None and self._book:
            who = "a server" if role == KeyRole.SERVER else "a server or an operator"
            action = f"Open the ledger with an enrolled key of {who} (keys=, HOLDFAST_KEYS, --key)."
            raise Forbidden("no key here may vouch for a change of keys", action=action, key_id=key_id)
        if found is None:
            action = "Open the ledger with a new server's key (keys=, HOLDFAST_KEYS, --key), and enrol that one first."
            raise Forbidden("the first key of a ledger is one whose secret is here", action=action, key_id=key_id)
        return found


def admit_public(given: Any) -> PublicKey:
    if isinstance(given, PublicKey):
        return given
    if isinstance(given, bytes):
        return PublicKey(given)
    if isinstance(given, str):
        return PublicKey(from_hex("public", given))
    raise ValidationError(f"public must be a public key, its bytes or its hex digits, not {type(given).__name__}", field="public")


def _role(given: Any) -> str:
    try:
        return KeyRole(given).value
    except (ValueError, TypeError, RecursionError):
        raise ValidationError(f"role must be one of {', '.join(KeyRole)}", field="role") from None


def _public_key(key: Enrolment) -> KeyRecord:
    return KeyRecord(
        key_id=key.key_id,
        role=KeyRole(key.role),
        name=key.name,
        public=key.public.hex(),
        enrolled_pos=key.enrolled_pos,
        enrolled_at=to_datetime(key.enrolled_at),
        enrolled_by=key.enrolled_by,
        revoked_pos=key.revoked_pos,
        revoked_at=None if key.revoked_at is None else to_datetime(key.revoked_at),
        revoked_by=key.revoked_by,
        vouched_by=key.vouched_by,
        revocation_vouched_by=key.revocation_vouched_by,
    )


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

    def page(self, after: int, limit: int) -> StableRows:
        """What comes next in the total order, none of which can still be overtaken."""
        return self._store.stable_rows(after, limit)

    def policies(self) -> dict[int, str]:
        return self._store.read_statement(lambda session: session.policy_texts())

    def key_log(self) -> list[KeyChange]:
        return self._store.read_statement(lambda session: session.key_log())

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on one snapshot."""
        return self._store.read(work)

    def last_pos(self) -> int:
        """The newest position that was drawn."""
        return self._store.read_statement(lambda session: session.last_pos())

    def seal(self, rows: Sequence[TileRow], head: HeadRow, base: HeadRow | None) -> bool:
        """False where `base` is no longer the newest head: somebody else has sealed meanwhile, and nothing is changed."""
        return self._pipeline.transact(lambda session: session.seal(rows, head, base))

    def waiter(self) -> Waiter:
        """Make it before looking, so that nothing that comes in between is missed."""
        return self._store.waiter(events=True)


class SealVerbs(LedgerBase):
    """The verbs on the sealed log. They only read: a sealer is what adds to it."""

    @property
    def sealed_log(self) -> SealedLog:
        """What a sealer works with."""
        return SealedLog(self._store, self._pipeline, self._entropy, self._monotonic, self.ring)

    def head(self) -> TreeHead | None:
        """The newest signed head; None where nothing was ever sealed."""
        found = self._store.read_statement(lambda session: session.last_head())
        return None if found is None else _public_head(found)

    def heads(self, *, after: int = 0, limit: int = limits.PAGE_MAX) -> list[TreeHead]:
        """Signed heads by size. The next page is `after=` the last size of this one."""
        limits.check_integer("after", after, 0, limits.JOB_ID_MAX)
        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return [_public_head(head) for head in self._store.read_statement(lambda session: session.heads(after, limit))]

    def inclusion(self, job_id: int) -> Inclusion:
        """A job's events with proofs that they are in the tree of the newest head, all as of one moment."""
        job_id = validate.job_id(job_id)
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
    return Inclusion(ledger_id, job_id, _public_head(head), proven, len(rows) - len(proven))


def tile_reader(read: Callable[[int, int], TileRow | None]) -> tiles.ReadTile:
    """Reads each tile once; one that is missing as an empty one."""
    known: dict[tuple[int, int], bytes] = {}

    def tile(level: int, number: int) -> bytes:
        if (level, number) not in known:
            found = read(level, number)
            known[level, number] = b"" if found is None else found.hashes
        return known[level, number]

    return tile


def _public_head(head: HeadRow) -> TreeHead:
    return TreeHead(head.size, head.pos, bytes(head.root), head.note, to_datetime(head.at))
