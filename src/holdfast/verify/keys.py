"""The file's own book of keys: each change vouched for, and all of them in agreement with the keys that are trusted."""

from holdfast.core.proof import trust
from holdfast.core.proof.book import ENROLLED, REVOKED, Book, KeyChange
from holdfast.core.proof.keys import KeyRole
from holdfast.verify.findings import Findings
from holdfast.verify.trusted import Trusted
from holdfast.verify.wording import shown


class KeyCheck:
    """Reads changes of keys in their order. `book` is what they have come to so far."""

    def __init__(self, ledger_id: str, trusted: Trusted | None, findings: Findings) -> None:
        self._ledger_id = ledger_id
        self._trusted = trusted
        self._trusted_stand = 0 if trusted is None else trusted.stand
        self._findings = findings
        self._last = 0
        self._rooted: set[str] = set()
        self._enrolled: list[KeyChange] = []
        self.book = Book()

    def feed(self, line: int, change: KeyChange) -> None:
        wrong = trust.problem(self._ledger_id, self.book, change, self._last)
        self._last = max(self._last, change.pos)
        if wrong is None:
            self.book.add(change)
            wrong = self._disagrees(change)
            if change.change == ENROLLED:
                self._enrolled.append(change)
                if self._is_trusted(change):
                    self._rooted.add(change.key_id)
        if wrong is not None:
            known = self.book.find(change.key_id)
            if known is not None:
                wrong = wrong.replace(repr(known.name), shown(known.name))
            self._findings.add(line, "keys", f"key {change.key_id:.80}, {change.change:.20}: {wrong}", pos=change.pos)

    @property
    def workers(self) -> int:
        """How many keys of workers there are, whether good or revoked."""
        return sum(change.role == KeyRole.WORKER for change in self._enrolled)

    def _disagrees(self, change: KeyChange) -> str | None:
        """Whether whoever knows the keys would have known of this."""
        trusted = self._trusted
        if trusted is None or not trusted.keys:
            return None
        known = trusted.keys.get(change.key_id)
        if known is None:
            return "the trusted keys do not have it, though they are newer" if change.pos <= self._trusted_stand else None
        if (known.role, known.name, known.public) != (change.role, change.name, change.public.hex()):
            return f"it is that of the {known.role} {shown(known.name)}"
        pos = known.enrolled_pos if change.change == ENROLLED else known.revoked_pos
        if pos == change.pos or (pos is None and change.pos > self._trusted_stand):
            return None
        return f"it was {change.change} " + ("not at all by then" if pos is None else f"at position {pos}")

    def _is_trusted(self, change: KeyChange) -> bool:
        trusted = self._trusted
        if trusted is None:
            return False
        if trusted.server is not None:
            return change.role == KeyRole.SERVER and change.public == trusted.server.public
        known = trusted.keys.get(change.key_id)
        return known is not None and (known.enrolled_pos, known.public) == (change.pos, change.public.hex())

    def finish(self, line: int, last_pos: int) -> list[int]:
        """Tell which changes are missing that happened before `last_pos`. Answers their positions."""
        missing: list[int] = []
        if self._trusted is None:
            return missing
        for known in self._trusted.keys.values():
            found = self.book.find(known.key_id)
            if found is None and known.enrolled_pos <= last_pos:
                self._findings.add(line, "keys", f"key {known.key_id} was {ENROLLED} at {known.enrolled_pos}, but not here")
                missing.append(known.enrolled_pos)
            revoked_pos = known.revoked_pos
            if found is not None and revoked_pos is not None and revoked_pos <= last_pos and found.revoked_pos is None:
                self._findings.add(line, "keys", f"key {known.key_id} was {REVOKED} at {revoked_pos}, but not here")
                missing.append(revoked_pos)
        return missing

    def rooted(self) -> set[str]:
        """The keys that are trusted, and those that follow from them: enrolled by one that is, or by one that follows.

        Not those that came before: that they were enrolled once does not tell whether they are good still, as their revocation
        may be among what is gone.
        """
        found = set(self._rooted)
        for change in self._enrolled:
            if change.signer in found:
                found.add(change.key_id)
        return found

    def is_over(self, key_id: str) -> bool:
        """Whether whoever knows the keys knows that this one is revoked by now, whatever the file says."""
        known = None if self._trusted is None else self._trusted.keys.get(key_id)
        return known is not None and known.revoked_pos is not None
