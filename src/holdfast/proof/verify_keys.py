"""Check the key changes of a file against trusted keys."""

from typing import Any

import msgspec

from holdfast.errors import ValidationError
from holdfast.proof import key_book
from holdfast.proof.encoding import from_hex
from holdfast.proof.findings import Findings, decode_or_none, describe_decode_error, format_untrusted
from holdfast.proof.key_book import ENROLLED, REVOKED, KeyBook, KeyChange
from holdfast.proof.keys import KeyRole, PublicKey
from holdfast.proof.notes import origin_of, parse_key

KEYS_FILE_VERSION = 1


class TrustedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as `holdfast key export` writes it."""

    key_id: str
    role: KeyRole
    name: str
    public: str
    enrolled_pos: int
    revoked_pos: int | None = None


class _KeysFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    holdfast_keys: int
    ledger: str
    keys: list[TrustedKey]
    vkey: str | None = None


class TrustedKeys(msgspec.Struct, frozen=True):
    """The trusted keys: all keys of a ledger at one time, or only the key that signs its heads."""

    origin: str
    keys: dict[str, TrustedKey] = msgspec.field(default_factory=dict)
    """By key id. It is empty if only `server` is known."""
    server: PublicKey | None = None

    @property
    def newest_pos(self) -> int:
        """The position up to which all key changes are known."""
        found = [pos for key in self.keys.values() for pos in (key.enrolled_pos, key.revoked_pos) if pos is not None]
        return max(found, default=0)


def parse_trusted(text: str) -> TrustedKeys:
    """Return the keys in the output of `holdfast key export`, with or without --json, or in the line of a note key."""
    text = text.strip()
    if not text.startswith("{"):
        server = parse_key(text)
        return TrustedKeys(server.name, server=server.public)
    try:
        value: Any = msgspec.json.decode(text)
        if isinstance(value, dict) and "schema_version" in value:
            value = value.get("data")
            if isinstance(value, dict):
                value.pop("file", None)
        found = msgspec.convert(value, type=_KeysFile)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValidationError(
            f"this is not a Holdfast key export: {describe_decode_error(str(error), decode_or_none(text))}", field="keys"
        ) from None
    if found.holdfast_keys != KEYS_FILE_VERSION:
        raise ValidationError(f"this is not a key export of version {KEYS_FILE_VERSION}", field="keys")
    if not found.keys:
        raise ValidationError("there is no key in the file: the ledger had none when it was exported", field="keys")
    for key in found.keys:
        if PublicKey(from_hex("public", key.public)).key_id != key.key_id:
            raise ValidationError(f"the id of the key {key.key_id:.80} does not match the key", field="keys")
    return TrustedKeys(origin_of(found.ledger), {key.key_id: key for key in found.keys})


class KeyCheck:
    """Check key changes in their order. `book` has the result of the changes so far."""

    def __init__(self, ledger_id: str, trusted: TrustedKeys | None, findings: Findings) -> None:
        self._ledger_id = ledger_id
        self._trusted = trusted
        self._trusted_pos = 0 if trusted is None else trusted.newest_pos
        self._findings = findings
        self._last = 0
        self._rooted: set[str] = set()
        self._enrolled: list[KeyChange] = []
        self.book = KeyBook()

    def feed(self, line: int, change: KeyChange) -> None:
        wrong = key_book.key_change_problem(self._ledger_id, self.book, change, self._last)
        self._last = max(self._last, change.pos)
        if wrong is None:
            self.book.add(change)
            wrong = self._trust_problem(change)
            if change.change == ENROLLED:
                self._enrolled.append(change)
                if self._is_trusted(change):
                    self._rooted.add(change.key_id)
        if wrong is not None:
            known = self.book.find(change.key_id)
            if known is not None:
                wrong = wrong.replace(repr(known.name), format_untrusted(known.name))
            self._findings.add(line, "keys", f"key {change.key_id:.80}, {change.change:.20}: {wrong}", pos=change.pos)

    @property
    def workers(self) -> int:
        """The number of worker keys, including revoked ones."""
        return sum(change.role == KeyRole.WORKER for change in self._enrolled)

    def _trust_problem(self, change: KeyChange) -> str | None:
        """Return how a change contradicts the trusted keys, or None."""
        trusted = self._trusted
        if trusted is None or not trusted.keys:
            return None
        known = trusted.keys.get(change.key_id)
        if known is None:
            return "the trusted keys do not have it, though they are newer" if change.pos <= self._trusted_pos else None
        if (known.role, known.name, known.public) != (change.role, change.name, change.public.hex()):
            return f"according to the trusted keys it belongs to the {known.role} {format_untrusted(known.name)}"
        pos = known.enrolled_pos if change.change == ENROLLED else known.revoked_pos
        if pos == change.pos or (pos is None and change.pos > self._trusted_pos):
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
        """Report the changes up to `last_pos` that the trusted keys have and the file lacks. Return their positions."""
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

    def trusted_key_ids(self) -> set[str]:
        """Return the trusted keys and those that follow from them: enrolled by a trusted key, or by one that follows.

        Keys from before the trusted ones are not included. They were enrolled once, but their revocation may be among the
        deleted leaves.
        """
        found = set(self._rooted)
        for change in self._enrolled:
            if change.signer in found:
                found.add(change.key_id)
        return found

    def is_over(self, key_id: str) -> bool:
        """Return whether this key is revoked according to the trusted keys, regardless of the file."""
        known = None if self._trusted is None else self._trusted.keys.get(key_id)
        return known is not None and known.revoked_pos is not None
