"""The key book of a ledger: which keys may sign for which actors, and between which positions.

It is stored as a log of changes. Each change is signed by a key that vouches for it. `refuse_key_change` has the rules.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.core.limits import check_name
from holdfast.core.model import Micros
from holdfast.errors import HoldfastError, ValidationError
from holdfast.proof.encoding import canonical
from holdfast.proof.keys import KeyRole, PublicKey, key_id_of, verify

KEY_DOMAIN = b"holdfast key v1\n"
"""The prefix of the signed message of a key change, so that no other signature can be used as one."""
ENROLLED, REVOKED = "enrolled", "revoked"
CHANGE_SIGNERS = {
    KeyRole.SERVER: frozenset({KeyRole.SERVER.value}),
    KeyRole.OPERATOR: frozenset({KeyRole.SERVER.value, KeyRole.OPERATOR.value}),
    KeyRole.WORKER: frozenset({KeyRole.SERVER.value, KeyRole.OPERATOR.value}),
}
"""The roles whose keys may vouch for a key of each role. An operator who could enrol a server key could sign heads with it."""


class KeyChange(msgspec.Struct, frozen=True):
    """One recorded change of the key book. It has not been checked."""

    pos: int
    """The position in the total order of events and key changes. 0 until it has one."""
    change: str
    key_id: str
    role: str
    name: str
    public: bytes
    at: Micros
    by: str
    signer: str
    """The key that signs the change."""
    signature: bytes = b""

    def message(self, ledger_id: str) -> bytes:
        """Return the bytes that `signer` signs."""
        return KEY_DOMAIN + canonical(
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
    """A key in the book. Its signatures are valid at positions after `enrolled_pos` and before `revoked_pos`."""

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
    """The key that vouched for its enrolment. The first key vouches for itself."""
    revocation_vouched_by: str | None = None

    def valid(self, pos: int | None = None) -> bool:
        """Return whether the key is valid at a position, by default at the next one."""
        if pos is None:
            return self.revoked_pos is None
        return self.enrolled_pos < pos and (self.revoked_pos is None or pos < self.revoked_pos)


def _is_valid_server_key(key: Enrolment) -> bool:
    return key.role == KeyRole.SERVER and key.valid()


def may_sign_head(key: Enrolment, pos: int) -> bool:
    """Return whether the key may sign a head whose last leaf is at `pos`. It must be enrolled and not revoked in that tree."""
    return key.role == KeyRole.SERVER and key.enrolled_pos <= pos and (key.revoked_pos is None or pos < key.revoked_pos)


class KeyBook:
    """The keys of a ledger. It does not check the changes that it is made of: `check_key_changes` does."""

    __slots__ = ("_keys", "_publics", "last_change_pos", "servers")

    def __init__(self, changes: Iterable[KeyChange] = ()) -> None:
        self._keys: dict[str, Enrolment] = {}
        self._publics: dict[str, PublicKey] = {}
        self.servers = 0
        """The number of server keys that are not revoked."""
        self.last_change_pos = 0
        """The position of the newest change."""
        for change in changes:
            self.add(change)

    def add(self, change: KeyChange) -> Enrolment:
        """Apply a change and return the key after it. This is not thread-safe: no other thread may use the book meanwhile."""
        self.last_change_pos = change.pos
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
        self.servers += _is_valid_server_key(made) - (before is not None and _is_valid_server_key(before))
        self._keys[change.key_id] = made
        return made

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Enrolment]:
        """Iterate over all keys, including revoked ones, in the order of their enrolment."""
        return iter(self._keys.values())

    def find(self, key_id: str) -> Enrolment | None:
        return self._keys.get(key_id)

    def valid(self, key_id: str, role: str, name: str | None = None, pos: int | None = None) -> bool:
        """Return whether the key may sign for this role, and for this name if one is given, at `pos` or now."""
        found = self._keys.get(key_id)
        return found is not None and found.role == role and name in (None, found.name) and found.valid(pos)

    def vouches(self, key_id: str, role: str) -> bool:
        """Return whether the key may vouch for the next change of a key of this role."""
        found = self._keys.get(key_id)
        return found is not None and found.role in CHANGE_SIGNERS[KeyRole(role)] and found.valid()

    def public_key(self, key_id: str) -> PublicKey:
        """Return the key to check signatures with. It is made once per key."""
        found = self._publics.get(key_id)
        if found is None:
            found = self._publics[key_id] = PublicKey(self._keys[key_id].public)
        return found


class KeyChangeRefusal(NamedTuple):
    """Why a change is not allowed, and what to do instead."""

    why: str
    action: str


class KeyProblem(NamedTuple):
    """A problem with one recorded change."""

    pos: int
    key_id: str
    detail: str


def check_key_changes(ledger_id: str, changes: Iterable[KeyChange]) -> list[KeyProblem]:
    """Return all problems of a ledger's key changes, in their order. A wrong change has no effect on later ones.

    An empty list means that all keys follow from the first one. The caller must know whether the first one is the ledger's.
    """
    book, found, last = KeyBook(), [], 0
    for change in changes:
        wrong = key_change_problem(ledger_id, book, change, last)
        if wrong is None:
            book.add(change)
        else:
            found.append(KeyProblem(change.pos, change.key_id, wrong))
        last = max(last, change.pos)
    return found


def key_change_problem(ledger_id: str, book: KeyBook, change: KeyChange, last: int) -> str | None:
    """Return what is wrong with the next change, or None. `last` is the position of the change before it."""
    if change.pos <= last:
        return "the changes are not in the order of their positions"
    refusal = refuse_key_change(book, change)
    if refusal is not None:
        return refusal.why
    signer = book.public_key(change.signer) if book else PublicKey(change.public)
    try:
        message = change.message(ledger_id)
    except ValidationError:
        return "the signed message cannot be reconstructed"
    return None if verify(signer, message, change.signature) else f"the signature of {change.signer} does not fit"


def refuse_key_change(book: KeyBook, change: KeyChange) -> KeyChangeRefusal | None:
    """Return why `book` must not accept this change next, or None. Signature and position are not checked here."""
    return _malformed(change) or _not_allowed(book, change) or _not_signed_by_allowed(book, change)


def _malformed(change: KeyChange) -> KeyChangeRefusal | None:
    action = "Make a new key."
    if change.change not in (ENROLLED, REVOKED):
        return KeyChangeRefusal("a key is enrolled or revoked, and nothing else", action)
    if change.role not in set(KeyRole):
        return KeyChangeRefusal(f"a key's role is one of {', '.join(KeyRole)}", action)
    try:
        check_name("name", change.name)
        PublicKey(change.public)
    except HoldfastError as error:
        if "field" not in error.context:  # the key may be fine: it cannot be checked without PyNaCl
            raise
        return KeyChangeRefusal(error.message, action)
    return None if key_id_of(change.public) == change.key_id else KeyChangeRefusal("the key's id does not fit the key", action)


def _not_allowed(book: KeyBook, change: KeyChange) -> KeyChangeRefusal | None:
    known = book.find(change.key_id)
    if change.change == ENROLLED:
        return None if known is None else _enrolled_already(known)
    if known is None:
        return KeyChangeRefusal(f"the key {change.key_id} was never enrolled", "See which keys there are.")
    if (known.role, known.name, known.public) != (change.role, change.name, change.public):
        return KeyChangeRefusal(
            f"the key {change.key_id} was enrolled with another role or name", "Name the key as it was enrolled."
        )
    if not known.valid():
        return KeyChangeRefusal(f"the key {change.key_id} is revoked already", "Nothing: it stays revoked.")
    if known.role == KeyRole.SERVER and book.servers == 1:
        return KeyChangeRefusal(
            "the last server's key cannot be revoked: no key could sign for the ledger",
            "Rotate it, or enrol another server's key first.",
        )
    return None


def _enrolled_already(known: Enrolment) -> KeyChangeRefusal:
    if known.valid():
        return KeyChangeRefusal(f"the key {known.key_id} is enrolled for {known.role} {known.name!r} already", "Make a new key.")
    return KeyChangeRefusal(f"the key {known.key_id} was revoked, and stays so", "Make a new key.")


def _not_signed_by_allowed(book: KeyBook, change: KeyChange) -> KeyChangeRefusal | None:
    if not book:
        if change.role == KeyRole.SERVER and change.signer == change.key_id:
            return None
        return KeyChangeRefusal("the first key of a ledger is a server's, and vouches for itself", "Enrol a server's key first.")
    if book.vouches(change.signer, change.role):
        return None
    who = "a server" if change.role == KeyRole.SERVER else "a server or an operator"
    return KeyChangeRefusal(
        f"the key {change.signer} may not vouch for a {change.role}'s key", f"Ask with an enrolled key of {who}."
    )
