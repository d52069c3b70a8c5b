"""Check the signed heads of a file, and anchored heads."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from holdfast.core.limits import VERIFY_HEADS_MAX
from holdfast.errors import HoldfastError, SignatureInvalid, ValidationError
from holdfast.proof.findings import Findings
from holdfast.proof.key_book import Enrolment, KeyBook, may_sign_head
from holdfast.proof.keys import SIGNATURE_BYTES, KeyRole
from holdfast.proof.notes import NoteKey, key_hash, verify_note
from holdfast.proof.verify_events import LeafCheck, SignedLevel
from holdfast.proof.verify_keys import KeyCheck, TrustedKeys
from holdfast.proof.verify_tree import LocatedHead, read_head

KEYS_PER_HASH_MAX = 8
_NOTE_PATTERN = re.compile("^[^\n]+\n[0-9]{1,19}\n[^\n]{1,64}\n\n(?:— [^\n]+\n)+", re.MULTILINE)


def read_anchor(name: str, text: str, on_skipped: Callable[[str], None] | None = None) -> list[LocatedHead]:
    """Return the heads in an anchor file that a sealer wrote, or in a file with a single note.

    A sealer that was killed while writing leaves part of a note. `on_skipped` is called with each part that is not a whole head.
    """
    if not text.endswith("\n"):
        text += "\n"
    found, others, end = [], [], 0
    for part in _NOTE_PATTERN.finditer(text):
        others.append(text[end : part.start()])
        end = part.end()
        head = _read_whole_head(part[0], name)
        if head is None:
            others.append(part[0])
        else:
            found.append(head)
    others.append(text[end:])
    if not found:
        raise ValidationError(f"there is no head in {name}", field="head")
    if on_skipped is not None:
        for other in filter(str.strip, others):
            on_skipped(other)
    return found


def _read_whole_head(note: str, name: str) -> LocatedHead | None:
    """Return the head in a note, or None if it cannot be read or ends within its only signature."""
    try:
        found = read_head(note, 0, name)
    except HoldfastError:
        return None
    return found if any(len(line.signature) == SIGNATURE_BYTES for line in found.note.signatures) else None


class HeadSigners:
    """The server keys of a file, by the hash with which a head's signature names its key.

    The cost of checking a head therefore depends on its number of signatures, not on the number of keys in the file. A hash has
    only four bytes, so an attacker can make keys that share one. Of those only the first KEYS_PER_HASH_MAX are tried.
    """

    def __init__(self, origin: str, book: KeyBook) -> None:
        self._origin, self._book = origin, book
        self._keys: dict[bytes, list[Enrolment]] = {}
        for key in book:
            if key.role == KeyRole.SERVER:
                alike = self._keys.setdefault(key_hash(origin, key.public), [])
                if len(alike) < KEYS_PER_HASH_MAX:
                    alike.append(key)

    def of(self, found: LocatedHead, pos: int, findings: Findings) -> Enrolment | None:
        """Return the key that has signed a head whose last leaf is at `pos`, or None if no key that may sign it has."""
        if found.head.origin != self._origin:
            findings.add(found.line, found.rule, f"{found.title} is of {found.head.origin:.80}, not of {self._origin:.80}")
            return None
        named = dict.fromkeys(line.hash for line in found.note.signatures if line.name == self._origin)
        keys = [key for hash_ in named for key in self._keys.get(hash_, ()) if may_sign_head(key, pos)]
        for key in sorted(keys, key=lambda key: key.enrolled_pos):
            try:
                verify_note(found.note, NoteKey(self._origin, self._book.public_key(key.key_id)))
            except SignatureInvalid:
                continue
            except HoldfastError as error:
                findings.add(found.line, found.rule, f"{found.title} cannot be checked: {error.message}")
                return None
            return key
        findings.add(found.line, found.rule, f"{found.title} is not signed by a server's key that was valid there")
        return None


class VerifyOptions(msgspec.Struct, frozen=True):
    """The options of a verification. Without `trusted`, no file is reported as intact."""

    trusted: TrustedKeys | None = None
    anchors: Sequence[LocatedHead] = ()
    allow_unsealed: bool = False
    allow_gone: bool = True
    require_signed: SignedLevel = "none"
    """The least `signed` setting that the policy of every attempt must have."""


class HeadCheck:
    """Compare the heads of a file, and the anchored heads that the caller gave, with the leaves once all leaves are read."""

    def __init__(self, origin: str, keys: KeyCheck, leaves: LeafCheck, options: VerifyOptions, findings: Findings) -> None:
        self._origin, self._keys, self._leaves, self._options, self._findings = origin, keys, leaves, options, findings
        self._heads: list[LocatedHead] = []
        self.count = 0

    @property
    def newest(self) -> LocatedHead | None:
        return self._heads[-1] if self._heads else None

    def add(self, line: int, note: str) -> None:
        self.count += 1
        if self.count > VERIFY_HEADS_MAX:
            return
        try:
            self._heads.append(read_head(note, line))
        except HoldfastError as error:
            self._findings.add(line, "head", error.message)

    def finish(self, line: int) -> int:
        """Check the heads and return how many leaves the newest one seals. `line` is the file's last line."""
        if self.count > VERIFY_HEADS_MAX:
            self._findings.add(line, "head", f"the file has {self.count} heads; {VERIFY_HEADS_MAX} can be checked")
        for before, found in pairwise(self._heads):
            if found.head.size <= before.head.size:
                self._findings.add(found.line, "order", f"{found.title} follows the head of size {before.head.size}")
        if self.newest is None:
            self._findings.add(line, "head", "no head is in the file: nothing in it is sealed")
        return self._check_places() if self._leaves.is_proof else self._check_tree()

    def _check_tree(self) -> int:
        tree, heads = self._leaves.tree, [*self._options.anchors, *self._heads]
        tree.check(heads, self._findings)
        within = [found for found in heads if found.head.size <= len(tree)]
        self._check_signers([(found, tree.pos_of(found.head.size - 1) if found.head.size else 0) for found in within])
        return 0 if self.newest is None else self.newest.head.size

    def _check_places(self) -> int:
        if self.newest is None:
            return 0
        self._check_own(self.newest)
        self._check_signers([(self.newest, self._leaves.places.last_pos)])
        self._leaves.places.check(self.newest.head, self._findings)
        return self.newest.head.size

    def _check_own(self, own: LocatedHead) -> None:
        """Check that one of the anchored heads is the head of the proof. A job's proof has no tree to compare others with."""
        anchors = self._options.anchors
        for found in anchors:
            if found.head.size == own.head.size and found.head != own.head:
                self._findings.add(0, "anchor", f"{found.title} is not the one of that size that the proof leads to")
                return
        if anchors and all(found.head != own.head for found in anchors):
            self._findings.add(0, "own head", f"{own.title}, which the proof leads to, is not among those that were given")

    def _check_signers(self, heads: Sequence[tuple[LocatedHead, int]]) -> None:
        """Check that each head is signed by a key that was valid there, and the newest by one that follows from a trusted key."""
        known = HeadSigners(self._origin, self._keys.book)
        signers = [known.of(found, pos, self._findings) for found, pos in heads]
        if self._options.trusted is None or not signers or signers[-1] is None:
            return
        newest, key_id = heads[-1][0], signers[-1].key_id
        if key_id not in self._keys.trusted_key_ids():
            self._findings.add(newest.line, "trust", f"{newest.title} is signed by a key that no trusted key vouches for")
        elif self._keys.is_over(key_id) and not self._is_kept(newest):
            detail = (
                f"{newest.title} is signed by the key {key_id}, which is revoked by now: a thief of the key could have made it"
            )
            self._findings.add(newest.line, "trust", detail)

    def _is_kept(self, newest: LocatedHead) -> bool:
        """Return whether an anchored head, which is compared with the leaves or with this head, seals all that this one does."""
        if self._leaves.is_proof:
            return any(found.head == newest.head for found in self._options.anchors)
        return any(found.head.size >= newest.head.size for found in self._options.anchors)
