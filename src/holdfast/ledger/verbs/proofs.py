"""Verbs for keys and for the sealed log."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core.model import Actor, Role
from holdfast.errors import Forbidden, NotFound, SignatureInvalid, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase, ServiceAccess
from holdfast.ledger.commit import CommitPipeline
from holdfast.ledger.keyring import Keyring
from holdfast.ledger.public import Event, public_event, public_record, to_datetime
from holdfast.ledger.sweep import Entropy
from holdfast.proof import tiles
from holdfast.proof.encoding import from_hex
from holdfast.proof.key_book import ENROLLED, REVOKED, Enrolment, KeyBook, KeyChange, refuse_key_change
from holdfast.proof.keys import KeyRole, PublicKey, SecretKey
from holdfast.proof.leaves import event_leaf
from holdfast.store.base import Store
from holdfast.store.events import EventFilter
from holdfast.store.sealing import HeadRow, StableRows, TileRow, leaf_row
from holdfast.store.session import Session

PublicLike = PublicKey | bytes | str
"""A public key: an object, its 32 bytes, or 64 hex digits."""


class KeyRecord(msgspec.Struct, frozen=True):
    """An enrolled key. Its signatures are valid at positions after `enrolled_pos` and before `revoked_pos`."""

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
    """The id of the key that vouched for its enrolment. The first key of a ledger vouches for itself."""
    revocation_vouched_by: str | None


class KeyVerbs(LedgerBase):
    def keys(self) -> list[KeyRecord]:
        """Return every key that was ever enrolled, in the order of enrolment."""
        return [_public_key(key) for key in self._store.read_statement(self._books.latest)]

    def enrol_key(self, public: PublicLike, *, role: str, name: str, actor: str | Actor | None = None) -> KeyRecord:
        """Enrol a key, so that it may sign for `name` from now on.

        The first key of a ledger must be a server's key, and this process must have its secret. For every later key, a server's
        key of this process vouches by its signature. Unless the new key is a server's, an operator's key can vouch as well. If
        the key is already enrolled for this role and name, its record is returned.
        """
        key, whose, who = admit_public(public), validate.choice("role", KeyRole, role).value, limits.check_name("name", name)
        return self._change(actor, lambda amendment: amendment.enrol(key, whose, who))

    def revoke_key(self, key_id: str, *, actor: str | Actor | None = None) -> KeyRecord:
        """Revoke a key: nothing that it signs from now on is accepted. Earlier signatures stay valid.

        A revocation cannot be undone.
        """
        limits.check_name("key_id", key_id)
        return self._change(actor, lambda amendment: amendment.revoke(key_id))

    def rotate_key(self, key_id: str, public: PublicLike, *, actor: str | Actor | None = None) -> KeyRecord:
        """Enrol a new key for the role and name of another one, and revoke that one, in one transaction."""
        limits.check_name("key_id", key_id)
        key = admit_public(public)
        if key.key_id == key_id:
            raise ValidationError("the new key must differ from the old one", field="public")
        return self._change(actor, lambda amendment: amendment.rotate(key_id, key))

    def check_key(self, worker: str) -> None:
        """Raise SignatureInvalid unless this process has a valid key of the worker. The message says what is missing."""
        missing = self.ring.missing_key(self._store.read_statement(self._books.latest), limits.check_name("worker", worker))
        if missing is not None:
            raise SignatureInvalid(missing, why="worker_key", worker=worker)

    def _change(self, actor: str | Actor | None, decide: "Callable[[_Amendment], Enrolment]") -> KeyRecord:
        who = validate.actor(actor, Role.OPERATOR, self._actor)
        found = self._pipeline.transact(lambda session: decide(_Amendment(session, self.ring, self.id, who)))
        self._store.wake([])
        return _public_key(found)


class _Amendment:
    """Changes of the key book in one transaction. The book is locked: no other transaction changes it."""

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
            raise Forbidden(f"the key {key_id} was revoked and cannot be rotated", action="Enrol the new key by itself.")
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
        refusal = refuse_key_change(self._book, draft)
        if refusal is not None:
            raise Forbidden(refusal.why, action=refusal.action, key_id=key_id)
        signed = msgspec.structs.replace(draft, signature=signer.sign(draft.message(self._ledger_id)))
        pos = self._session.add_key_change(signed)
        return self._book.add(msgspec.structs.replace(signed, pos=pos))

    def _signer(self, key_id: str, role: str) -> SecretKey:
        """Return the key that vouches for a change of `key_id`. The first key of a ledger vouches for itself."""
        found = self._ring.voucher(self._book, self._who.name, role) if self._book else self._ring.secret(key_id)
        if found is None and self._book:
            who = "a server" if role == KeyRole.SERVER else "a server or an operator"
            action = f"Open the ledger with an enrolled key of {who} (keys=, HOLDFAST_KEYS, --key)."
            raise Forbidden("this process has no key that may vouch for a change of keys", action=action, key_id=key_id)
        if found is None:
            action = "Open the ledger with a new server's key (keys=, HOLDFAST_KEYS, --key), and enrol that one first."
            raise Forbidden("this process does not have the secret of the first key", action=action, key_id=key_id)
        return found


def admit_public(given: Any) -> PublicKey:
    if isinstance(given, PublicKey):
        return given
    if isinstance(given, bytes):
        return PublicKey(given)
    if isinstance(given, str):
        return PublicKey(from_hex("public", given))
    raise ValidationError(f"public must be a public key, its bytes or its hex digits, not {type(given).__name__}", field="public")


def _public_key(key: Enrolment) -> KeyRecord:
    return public_record(KeyRecord, key, role=KeyRole(key.role), public=key.public.hex())


T = TypeVar("T")

PROVEN_MAX = 1_000_000


class TreeHead(msgspec.Struct, frozen=True):
    """A signed head of the tree over the first `size` leaves. `note` is the signed text, in the format of other tools."""

    size: int
    pos: int
    """The position of the last leaf."""
    root: bytes
    note: str
    at: datetime


class ProvenEvent(msgspec.Struct, frozen=True):
    """An event with the proof that it is in the tree: its leaf number, `index`, and the hashes beside the path to the root."""

    event: Event
    leaf: bytes
    index: int
    proof: list[bytes]
    sealed_payload: str | None = None
    """The exact text of the payload. The leaf has its SHA-256. A heartbeat that retention has pruned has only its hash."""


class Inclusion(msgspec.Struct, frozen=True):
    """The events of one job, with proofs that need only the head to be checked."""

    ledger_id: str
    job_id: int
    head: TreeHead
    events: list[ProvenEvent]
    unsealed: int
    """Events that are newer than the head."""


class SealedLog(ServiceAccess):
    """The interface of the ledger for sealers. Safe to use from many threads."""

    def __init__(
        self, store: Store, pipeline: CommitPipeline, entropy: Entropy, monotonic: Callable[[], float], ring: Keyring
    ) -> None:
        super().__init__(store, pipeline, entropy, monotonic)
        self.ring = ring
        """The secret keys of this process."""

    def page(self, after: int, limit: int) -> StableRows:
        """Return the next rows in the total order. No later commit can add a row before them."""
        return self._store.stable_rows(after, limit)

    def policies(self) -> dict[int, str]:
        return self._store.read_statement(lambda session: session.policy_texts())

    def key_log(self) -> list[KeyChange]:
        return self._store.read_statement(lambda session: session.key_log())

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on one snapshot."""
        return self._store.read(work)

    def events_after(self, pos: int) -> int:
        """Count the events after a position. The count stops at a limit."""
        return self._store.read_statement(lambda session: session.events_after(pos))

    def seal(self, rows: Sequence[TileRow], head: HeadRow, base: HeadRow | None) -> bool:
        """Write a head. If `base` is no longer the newest head, change nothing and return False: another sealer was faster."""
        return self._pipeline.transact(lambda session: session.seal(rows, head, base))


class SealVerbs(LedgerBase):
    """The verbs for the sealed log. They only read: a sealer writes it."""

    @property
    def sealed_log(self) -> SealedLog:
        """The interface for sealers."""
        return SealedLog(self._store, self._pipeline, self._entropy, self._monotonic, self.ring)

    def head(self) -> TreeHead | None:
        """Return the newest signed head, or None if nothing was ever sealed."""
        found = self._store.read_statement(lambda session: session.last_head())
        return None if found is None else _public_head(found)

    def heads(self, *, after: int = 0, limit: int = limits.PAGE_MAX) -> list[TreeHead]:
        """Return signed heads by size. For the next page, pass the last size of this one as `after`."""
        validate.page(after, limit)
        return [_public_head(head) for head in self._store.read_statement(lambda session: session.heads(after, limit))]

    def inclusion(self, job_id: int) -> Inclusion:
        """Return a job's events with proofs that they are in the tree of the newest head, read from one snapshot."""
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
        index = session.leaf_index(row.pos) if row.pos <= head.pos else None
        if index is not None:
            leaf = event_leaf(leaf_row(row, policies, ledger_id))
            # Bytes that are not UTF-8 were tampered with: what replaces them does not have the hash in the leaf.
            text = None if row.payload is None else bytes(row.payload).decode(errors="replace")
            proven.append(ProvenEvent(shown[row.rev], leaf, index, tiles.inclusion_proof(tile, index, head.size), text))
    return Inclusion(ledger_id, job_id, _public_head(head), proven, len(rows) - len(proven))


def tile_reader(read: Callable[[int, int], TileRow | None]) -> tiles.ReadTile:
    """Return a function that reads each tile once. A missing tile is read as empty."""
    known: dict[tuple[int, int], bytes] = {}

    def tile(level: int, number: int) -> bytes:
        if (level, number) not in known:
            found = read(level, number)
            known[level, number] = b"" if found is None else found.hashes
        return known[level, number]

    return tile


def _public_head(head: HeadRow) -> TreeHead:
    return TreeHead(head.size, head.pos, bytes(head.root), head.note, to_datetime(head.at))
