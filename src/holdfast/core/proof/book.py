"""The book of a ledger's keys: who may sign, from which position on, and until which.

It is kept as a log of changes, each vouched for by a key. What may be changed, and by whom, is in `trust`.
"""

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.core.model import Micros
from holdfast.core.proof.canonical import canonical
from holdfast.core.proof.keys import KeyRole, PublicKey

DOMAIN = b"holdfast key v1\n"
"""What a change's message begins with, so that no other signature can be taken for one."""
ENROLLED, REVOKED = "enrolled", "revoked"
VOUCHING = {
    KeyRole.SERVER: frozenset({KeyRole.SERVER.value}),
    KeyRole.OPERATOR: frozenset({KeyRole.SERVER.value, KeyRole.OPERATOR.value}),
    KeyRole.WORKER: frozenset({KeyRole.SERVER.value, KeyRole.OPERATOR.value}),
}
"""Whose keys may vouch for keys of each role. An operator who could enrol a server's key could sign heads with it."""


class KeyChange(msgspec.Struct, frozen=True):
    """One change of the book, as it was recorded. Nothing about it has been checked."""

    pos: int
    """In the same total order as the events; 0 while it has none."""
    change: str
    key_id: str
    role: str
    name: str
    public: bytes
    at: Micros
    by: str
    signer: str
    """The key that vouches for the change."""
    signature: bytes = b""

    def message(self, ledger_id: str) -> bytes:
        """The bytes that `signer` signs."""
        return DOMAIN + canonical(
            {
                "ledger": ledger_id,
                "change": self.change,
                "key_id": self.key_id,
                "role": str(self.role),
                "name": self.name,
                "public": self.public.hex(),
                "at": self.at,
            }
        )


class Enrolment(msgspec.Struct, frozen=True):
    """A key in the book. What it signs counts at positions after `enrolled_pos` and before `revoked_pos`."""

    key_id: str
    role: str
    name: str
    public: bytes
    enrolled_pos: int
    enrolled_at: Micros
    enrolled_by: str
    revoked_pos: int | None = None
    revoked_at: Micros | None = None
    revoked_by: str | None = None
    vouched_by: str = ""
    """The key that vouched for its enrolment; the first vouches for itself."""
    revocation_vouched_by: str | None = None

    def valid(self, pos: int | None = None) -> bool:
        """At a position; without one, at the next that is drawn."""
        if pos is None:
            return self.revoked_pos is None
        return self.enrolled_pos < pos and (self.revoked_pos is None or pos < self.revoked_pos)


def _is_serving(key: Enrolment) -> bool:
    return key.role == KeyRole.SERVER and key.valid()


def may_sign_head(key: Enrolment, pos: int) -> bool:
    """Whether the key may sign a head whose last leaf is at `pos`: it is enrolled in that tree, and not revoked in it."""
    return key.role == KeyRole.SERVER and key.enrolled_pos <= pos and (key.revoked_pos is None or pos < key.revoked_pos)


class Book:
    """The keys of a ledger. It believes the changes it is made of: `trust.check` is for who does not."""

    __slots__ = ("_keys", "_publics", "servers", "stand")

    def __init__(self, changes: Iterable[KeyChange] = ()) -> None:
        self._keys: dict[str, Enrolment] = {}
        self._publics: dict[str, PublicKey] = {}
        self.servers = 0
        """How many keys of servers are not revoked."""
        self.stand = 0
        """The position of the newest change."""
        for change in changes:
            self.add(change)

    def add(self, change: KeyChange) -> Enrolment:
        """The key as it is after the change. For a book that nobody else reads yet."""
        self.stand = change.pos
        if change.change == REVOKED:
            made = msgspec.structs.replace(
                self._keys[change.key_id],
                revoked_pos=change.pos,
                revoked_at=change.at,
                revoked_by=change.by,
                revocation_vouched_by=change.signer,
            )
        else:
            names = change.key_id, change.role, change.name, change.public
            made = Enrolment(*names, change.pos, change.at, change.by, vouched_by=change.signer)
        before = self._keys.get(change.key_id)
        self.servers += _is_serving(made) - (before is not None and _is_serving(before))
        self._keys[change.key_id] = made
        return made

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Enrolment]:
        """In the order they were enrolled, the revoked ones too."""
        return iter(self._keys.values())

    def find(self, key_id: str) -> Enrolment | None:
        return self._keys.get(key_id)

    def valid(self, key_id: str, role: str, name: str | None = None, pos: int | None = None) -> bool:
        """Whether the key may sign for this role, and for this name where one is given, at `pos` or now."""
        found = self._keys.get(key_id)
        return found is not None and found.role == role and name in (None, found.name) and found.valid(pos)

    def vouches(self, key_id: str, role: str) -> bool:
        """Whether the key may vouch for the next change, of a key of this role."""
        found = self._keys.get(key_id)
        return found is not None and found.role in VOUCHING[KeyRole(role)] and found.valid()

    def public_key(self, key_id: str) -> PublicKey:
        """To check signatures with. Made once for each key that is in the book."""
        found = self._publics.get(key_id)
        if found is None:
            found = self._publics[key_id] = PublicKey(self._keys[key_id].public)
        return found
