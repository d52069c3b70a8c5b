"""The keys of this process, the key book as it was last read, and the counters of statements."""

import threading
from collections.abc import Iterable, Iterator

from holdfast.core.limits import SKEW_US_MAX
from holdfast.core.model import Micros
from holdfast.errors import ValidationError
from holdfast.proof.key_book import KeyBook
from holdfast.proof.keys import KeyFile, KeyRole, SecretKey
from holdfast.store.session import Session


class Keyring:
    """Secret keys, each with its role and name. One role and name may have several keys during a rotation."""

    def __init__(self, keys: Iterable[KeyFile] = (), owner: str = "this process") -> None:
        self._owner = owner
        self._keys: dict[str, KeyFile] = {}
        for key in keys:
            if key.secret is None:
                raise ValidationError(f"the key {key.key_id} has no secret to sign with", field="keys", key_id=key.key_id)
            self._keys[key.key_id] = key

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[KeyFile]:
        """Iterate in the order in which the keys were given."""
        return iter(self._keys.values())

    def __repr__(self) -> str:
        return f"Keyring({', '.join(f'{key.role.value} {key.name!r} {key.key_id}' for key in self)})"

    def secret(self, key_id: str) -> SecretKey | None:
        found = self._keys.get(key_id)
        return None if found is None else found.secret

    def find(self, book: KeyBook, role: KeyRole, name: str | None = None) -> SecretKey | None:
        """Return the last key that is valid in the book for this role, and for this name if one is given."""
        valid = [key.secret for key in self if key.role is role and book.valid(key.key_id, role, name)]
        return valid[-1] if valid else None

    def missing_key(self, book: KeyBook, worker: str) -> str | None:
        """Return why no key of this ring may sign for the worker of this name, or None if one may."""
        if self.find(book, KeyRole.WORKER, worker) is not None:
            return None
        own = [key.key_id for key in self if (key.role, key.name) == (KeyRole.WORKER, worker)]
        if own:
            state = "is not enrolled" if book.find(own[-1]) is None else "was revoked"
            return f"the key {own[-1]} of worker {worker!r}, which {self._owner} has, {state}"
        loaded = ", ".join(f"{key.role.value} {key.name}" for key in self)
        return f"{self._owner} has no key of worker {worker!r} (loaded: {loaded or 'none'})"

    def of_server(self) -> "Keyring":
        """Return the keys that a server may use. It signs for the system, never for a worker or an operator."""
        return Keyring([key for key in self if key.role is KeyRole.SERVER], owner="the server")

    @property
    def worker(self) -> str | None:
        """The name of its worker keys, if they all have the same one."""
        names = {key.name for key in self if key.role is KeyRole.WORKER}
        return names.pop() if len(names) == 1 else None

    def server(self, book: KeyBook) -> SecretKey | None:
        """Return the key that signs for the system, and that signs heads."""
        return self.find(book, KeyRole.SERVER)

    def voucher(self, book: KeyBook, name: str, role: str) -> SecretKey | None:
        """Return the key that vouches for a change of a key of this role.

        It is the key of the operator `name`, else a server's, else any operator's. For a server's key, only a server's vouches.
        """
        if role == KeyRole.SERVER:
            return self.server(book)
        return self.find(book, KeyRole.OPERATOR, name) or self.server(book) or self.find(book, KeyRole.OPERATOR)


class KeyBookCache:
    """The key book as this process has last read it."""

    def __init__(self) -> None:
        self._book = KeyBook()

    @property
    def known(self) -> KeyBook:
        """The book as it was last read. It may have changed since."""
        return self._book

    def current(self, session: Session) -> KeyBook:
        """Return the book, locked against changes until the transaction ends.

        Call this before the transaction draws positions for signed events.
        """
        book = self._book
        if book.last_change_pos != session.last_key_change():
            book = self._book = KeyBook(session.key_log())
        return book

    def latest(self, session: Session) -> KeyBook:
        """Read the book. It is not locked: another transaction may change it at any time."""
        book = self._book = KeyBook(session.key_log())
        return book


class StatementCounters:
    """The counters of the statements that this process signs. They increase, for each worker."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._newest: dict[str, int] = {}
        """The newest counter of each worker, by name."""

    def next(self, worker: str, at: Micros, last: int) -> int:
        """Return a counter above all that this process has signed for `worker`, and above `last`, the newest of the job.

        It is at least the time `at`, so that it also increases over a restart. A counter that is too far ahead of the time to be
        accepted is continued only for the job whose `last` it is.
        """
        ahead_max = at + SKEW_US_MAX
        with self._mutex:
            own = self._newest.get(worker, 0) + 1
            count = max(own if own <= ahead_max else 0, last + 1, at)
            if count <= ahead_max:
                self._newest[worker] = count
            return count
