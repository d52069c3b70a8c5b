"""The book of a ledger's keys: who may sign, from which position on, and until which.

It is kept as a log of changes, each vouched for by a key. What may be changed, and by whom, is in `trust`.
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
"""What a change's message begins with, so that no other signature can be taken for one."""
ENROLLED, REVOKED = "enrolled", "revoked"
CHANGE_SIGNERS = {
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


def _is_valid_server_key(key: Enrolment) -> bool:
    return key.role == KeyRole.SERVER and key.valid()


def may_sign_head(key: Enrolment, pos: int) -> bool:
    """Whether the key may sign a head whose last leaf is at `pos`: it is enrolled in that tree, and not revoked in it."""
    return key.role == KeyRole.SERVER and key.enrolled_pos <= pos and (key.revoked_pos is None or pos < key.revoked_pos)


class KeyBook:
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
        self.servers += _is_valid_server_key(made) - (before is not None and _is_valid_server_key(before))
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
        return found is not None and found.role in CHANGE_SIGNERS[KeyRole(role)] and found.valid()

    def public_key(self, key_id: str) -> PublicKey:
        """To check signatures with. Made once for each key that is in the book."""
        found = self._publics.get(key_id)
        if found is None:
            found = self._publics[key_id] = PublicKey(self._keys[key_id].public)
        return found


class KeyChangeRefusal(NamedTuple):
    """Why a change may not be, and what to do instead."""

    why: str
    action: str


class KeyProblem(NamedTuple):
    """What is wrong with one recorded change."""

    pos: int
    key_id: str
    detail: str


def check_key_changes(ledger_id: str, changes: Iterable[KeyChange]) -> list[KeyProblem]:
    """Everything wrong with a ledger's changes of keys, in their order. A change that is wrong has no effect on those after it.

    An empty list says that all keys follow from the first one; whether that one is the ledger's, the reader must know.
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
    """What is wrong with a change that comes next, `last` being the position of the one before it; None where it holds."""
    if change.pos <= last:
        return "the changes are not in the order of their positions"
    objects = refuse_key_change(book, change)
    if objects is not None:
        return objects.why
    signer = book.public_key(change.signer) if book else PublicKey(change.public)
    try:
        message = change.message(ledger_id)
    except ValidationError:
        return "what was signed cannot be told"
    return None if verify(signer, message, change.signature) else f"the signature of {change.signer} does not fit"


def refuse_key_change(book: KeyBook, change: KeyChange) -> KeyChangeRefusal | None:
    """Why `book` must not take this change next; its signature and its position are another matter."""
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
        if "field" not in error.context:  # nothing is wrong with the key: it cannot be looked at here
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
        return KeyChangeRefusal(f"the key {change.key_id} was enrolled for somebody else", "Name the key as it was enrolled.")
    if not known.valid():
        return KeyChangeRefusal(f"the key {change.key_id} is revoked already", "Nothing: it stays revoked.")
    if known.role == KeyRole.SERVER and book.servers == 1:
        return KeyChangeRefusal(
            "the last server's key is not revoked: nobody could sign for the ledger",
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
