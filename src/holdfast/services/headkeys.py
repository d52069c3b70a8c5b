"""Whose key may sign a head of the tree."""

from collections.abc import Sequence

from holdfast.core.proof import trust
from holdfast.core.proof.book import Book, KeyChange, may_sign_head
from holdfast.core.proof.keys import SecretKey
from holdfast.errors import Forbidden, SealBroken
from holdfast.ledger.seals import SealedLog


class HeadKeys:
    """The keys of this process that are good for heads, by a book that is read again when it has changed."""

    def __init__(self, log: SealedLog) -> None:
        self._log = log
        self._book: Book | None = None

    def forget(self) -> None:
        """Keys have changed."""
        self._book = None

    def key_for(self, pos: int) -> SecretKey:
        """What signs the head whose last leaf is at `pos`: the last key given, where several may."""
        if self._book is None:
            self._book = sound_book(self._log.ledger_id, self._log.key_log())
        for held in reversed(list(self._log.ring)):
            known = self._book.find(held.key_id)
            if known is not None and held.secret is not None and may_sign_head(known, pos):
                return held.secret
        action = "Open the ledger with an enrolled key of a server (keys=, HOLDFAST_KEYS, --key)."
        raise Forbidden(f"no key here may sign the head at position {pos}", action=action, pos=pos)


def sound_book(ledger_id: str, changes: Sequence[KeyChange]) -> Book:
    """The book of these changes, if each was vouched for."""
    problems = trust.check(ledger_id, changes)
    if problems:
        pos, key_id, detail = problems[0]
        raise SealBroken(f"the change of key {key_id} at position {pos} does not hold: {detail}", pos=pos, key_id=key_id)
    return Book(changes)
