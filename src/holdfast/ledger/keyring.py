"""The secret keys of this process, and the book that says what they are good for."""

from collections.abc import Iterable, Iterator

from holdfast.core.proof.book import Book
from holdfast.core.proof.keyfile import KeyFile
from holdfast.core.proof.keys import KeyRole, SecretKey
from holdfast.errors import ValidationError
from holdfast.store.base import Session


class Keyring:
    """Secret keys by whose they are. One role and name may have several, while they are being rotated."""

    def __init__(self, keys: Iterable[KeyFile] = ()) -> None:
        self._keys: dict[str, KeyFile] = {}
        for key in keys:
            if key.secret is None:
                raise ValidationError(f"the key {key.key_id} has no secret to sign with", field="keys", key_id=key.key_id)
            self._keys[key.key_id] = key

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[KeyFile]:
        """In the order they were given."""
        return iter(self._keys.values())

    def __repr__(self) -> str:
        return f"Keyring({', '.join(f'{key.role.value} {key.name!r} {key.key_id}' for key in self)})"

    def secret(self, key_id: str) -> SecretKey | None:
        found = self._keys.get(key_id)
        return None if found is None else found.secret

    def find(self, book: Book, role: KeyRole, name: str | None = None) -> SecretKey | None:
        """A key that may sign for this role, and for this name where one is given: the last one that the book has good."""
        good = [key.secret for key in self if key.role is role and book.valid(key.key_id, role, name)]
        return good[-1] if good else None

    def lack(self, book: Book, worker: str) -> str | None:
        """Why nothing here may sign for a worker of this name; None where something may."""
        if self.find(book, KeyRole.WORKER, worker) is not None:
            return None
        own = [key.key_id for key in self if (key.role, key.name) == (KeyRole.WORKER, worker)]
        if own:
            state = "is not enrolled" if book.find(own[-1]) is None else "was revoked"
            return f"the key {own[-1]} of worker {worker!r} that is here {state}"
        loaded = ", ".join(f"{key.role.value} {key.name}" for key in self)
        return f"there is no key of worker {worker!r} here (loaded: {loaded or 'none'})"

    @property
    def worker(self) -> str | None:
        """The name that its keys of workers have, if they all have one."""
        names = {key.name for key in self if key.role is KeyRole.WORKER}
        return names.pop() if len(names) == 1 else None

    def server(self, book: Book) -> SecretKey | None:
        """What signs for the system, and heads."""
        return self.find(book, KeyRole.SERVER)

    def voucher(self, book: Book, name: str, role: str) -> SecretKey | None:
        """What vouches for a change of a key of this role: the operator's own key, else a server's, else any operator's.

        For a server's key, only a server's.
        """
        if role == KeyRole.SERVER:
            return self.server(book)
        return self.find(book, KeyRole.OPERATOR, name) or self.server(book) or self.find(book, KeyRole.OPERATOR)


class Books:
    """The book as this process has read it last."""

    def __init__(self) -> None:
        self._book = Book()

    @property
    def known(self) -> Book:
        """As it was read last: it may have changed since."""
        return self._book

    def current(self, session: Session) -> Book:
        """The book as it stands, and will until the transaction ends. Ask before positions are drawn for what was signed."""
        book, stand = self._book, session.keys_stand()
        if book.stand != stand:
            book = self._book = Book(session.key_log())
        return book

    def latest(self, session: Session) -> Book:
        """The book as it is now: somebody may change it at any time."""
        book = self._book = Book(session.key_log())
        return book
