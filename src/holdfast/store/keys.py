"""The key log, as both stores keep it: every change of the keys that may sign, in the total order of the events."""

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from holdfast.core.proof.book import KeyChange


class KeyLog(ABC):
    """The part of a transaction that keys need."""

    @abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def lock_keys(self) -> None:
        """Hold off everybody who changes keys, and everybody who relies on them, until this transaction ends."""

    @abstractmethod
    def _share_keys(self) -> None:
        """Hold off whoever changes keys until this transaction ends. What is read next is as of after the wait."""

    @abstractmethod
    def _draw_pos(self) -> int:
        """The next position, for something that is no event."""

    def key_log(self) -> list[KeyChange]:
        """Every change, oldest first."""
        return [KeyChange(*row) for row in self.rows("key_log")]

    def keys_stand(self) -> int:
        """The position of the newest change, 0 where there is none; no other comes before this transaction ends.

        Ask before positions are drawn for what was signed: then a key that is revoked counts at every position below its
        revocation and at none above.
        """
        self._share_keys()
        [(pos,)] = self.rows("keys_stand")
        return int(pos)

    def add_key_change(self, change: KeyChange) -> int:
        """The position it is given. For a transaction that has locked the keys."""
        pos = self._draw_pos()
        self.rows("add_key_change", **msgspec.structs.asdict(msgspec.structs.replace(change, pos=pos)))
        return pos
