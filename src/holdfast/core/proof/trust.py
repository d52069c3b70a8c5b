"""Who may change the book of keys, and how to check that nobody else did.

The first key of a ledger is a server's and vouches for itself; every later change is signed by a key that is good at that
position: a server's, or an operator's where the key that is changed is not a server's. So whoever knows the first key can check
all others, and trusts nobody else.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.limits import check_name
from holdfast.core.proof.book import ENROLLED, REVOKED, Book, Enrolment, KeyChange
from holdfast.core.proof.keys import KeyRole, PublicKey, key_id_of, verify
from holdfast.errors import HoldfastError, ValidationError


class Objection(NamedTuple):
    """Why a change may not be, and what to do instead."""

    why: str
    action: str


class KeyProblem(NamedTuple):
    """What is wrong with one recorded change."""

    pos: int
    key_id: str
    detail: str


def check(ledger_id: str, changes: Iterable[KeyChange]) -> list[KeyProblem]:
    """Everything wrong with a ledger's changes of keys, in their order. A change that is wrong has no effect on those after it.

    An empty list says that all keys follow from the first one; whether that one is the ledger's, the reader must know.
    """
    book, found, last = Book(), [], 0
    for change in changes:
        wrong = problem(ledger_id, book, change, last)
        if wrong is None:
            book.add(change)
        else:
            found.append(KeyProblem(change.pos, change.key_id, wrong))
        last = max(last, change.pos)
    return found


def problem(ledger_id: str, book: Book, change: KeyChange, last: int) -> str | None:
    """What is wrong with a change that comes next, `last` being the position of the one before it; None where it holds."""
    if change.pos <= last:
        return "the changes are not in the order of their positions"
    objects = objection(book, change)
    if objects is not None:
        return objects.why
    signer = book.public_key(change.signer) if book else PublicKey(change.public)
    try:
        message = change.message(ledger_id)
    except ValidationError:
        return "what was signed cannot be told"
    return None if verify(signer, message, change.signature) else f"the signature of {change.signer} does not fit"


def objection(book: Book, change: KeyChange) -> Objection | None:
    """Why `book` must not take this change next; its signature and its position are another matter."""
    return _malformed(change) or _unlawful(book, change) or _unvouched(book, change)


def _malformed(change: KeyChange) -> Objection | None:
    action = "Make a new key."
    if change.change not in (ENROLLED, REVOKED):
        return Objection("a key is enrolled or revoked, and nothing else", action)
    if change.role not in set(KeyRole):
        return Objection(f"a key's role is one of {', '.join(KeyRole)}", action)
    try:
        check_name("name", change.name)
        PublicKey(change.public)
    except HoldfastError as error:
        if "field" not in error.context:  # nothing is wrong with the key: it cannot be looked at here
            raise
        return Objection(error.message, action)
    return None if key_id_of(change.public) == change.key_id else Objection("the key's id does not fit the key", action)


def _unlawful(book: Book, change: KeyChange) -> Objection | None:
    known = book.find(change.key_id)
    if change.change == ENROLLED:
        return None if known is None else _known_already(known)
    if known is None:
        return Objection(f"the key {change.key_id} was never enrolled", "See which keys there are.")
    if (known.role, known.name, known.public) != (change.role, change.name, change.public):
        return Objection(f"the key {change.key_id} was enrolled for somebody else", "Name the key as it was enrolled.")
    if not known.valid():
        return Objection(f"the key {change.key_id} is revoked already", "Nothing: it stays revoked.")
    if known.role == KeyRole.SERVER and book.servers == 1:
        return Objection(
            "the last server's key is not revoked: nobody could sign for the ledger",
            "Rotate it, or enrol another server's key first.",
        )
    return None


def _known_already(known: Enrolment) -> Objection:
    if known.valid():
        return Objection(f"the key {known.key_id} is enrolled for {known.role} {known.name!r} already", "Make a new key.")
    return Objection(f"the key {known.key_id} was revoked, and stays so", "Make a new key.")


def _unvouched(book: Book, change: KeyChange) -> Objection | None:
    if not book:
        if change.role == KeyRole.SERVER and change.signer == change.key_id:
            return None
        return Objection("the first key of a ledger is a server's, and vouches for itself", "Enrol a server's key first.")
    if book.vouches(change.signer, change.role):
        return None
    who = "a server" if change.role == KeyRole.SERVER else "a server or an operator"
    return Objection(f"the key {change.signer} may not vouch for a {change.role}'s key", f"Ask with an enrolled key of {who}.")
