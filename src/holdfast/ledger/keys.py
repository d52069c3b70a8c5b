"""Verbs on keys: who may sign.

Each is idempotent by nature, so none takes a request id: a key that is enrolled, or revoked, is not so a second time.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core import limits
from holdfast.core.model import Actor, Role
from holdfast.core.proof.book import ENROLLED, REVOKED, Book, Enrolment, KeyChange
from holdfast.core.proof.keys import KeyRole, PublicKey, SecretKey
from holdfast.core.proof.spelling import from_hex
from holdfast.core.proof.trust import objection
from holdfast.errors import Forbidden, NotFound, SignatureInvalid, ValidationError
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk
from holdfast.ledger.face import to_datetime
from holdfast.ledger.keyring import Keyring
from holdfast.store.base import Session

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


class Keys(Desk):
    def keys(self) -> list[KeyRecord]:
        """Every key that was ever enrolled, in that order."""
        return [_shown(key) for key in self._store.peek(self._books.latest)]

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
        lack = self.ring.lack(self._store.peek(self._books.latest), limits.check_name("worker", worker))
        if lack is not None:
            raise SignatureInvalid(lack, why="worker_key", worker=worker)

    def _change(self, actor: str | Actor | None, decide: "Callable[[_Amendment], Enrolment]") -> KeyRecord:
        who = admit.actor(actor, Role.OPERATOR, self._actor)
        found = self._pipeline.transact(lambda session: decide(_Amendment(session, self.ring, self.id, who)))
        self._store.wake([])
        return _shown(found)


class _Amendment:
    """Changes of the book in one transaction, which nobody else changes meanwhile."""

    def __init__(self, session: Session, ring: Keyring, ledger_id: str, who: Actor) -> None:
        session.lock_keys()
        self._session = session
        self._book = Book(session.key_log())
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
        objects = objection(self._book, draft)
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


def _shown(key: Enrolment) -> KeyRecord:
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
