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
    """The heads in a file that a sealer wrote them to, or in one that holds a single note.

    A sealer that was killed while it wrote leaves part of a note behind. `on_skipped` is told each part that is no whole head.
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
        raise ValidationError(f"{name} holds no head", field="head")
    if on_skipped is not None:
        for other in filter(str.strip, others):
            on_skipped(other)
    return found


def _read_whole_head(note: str, name: str) -> LocatedHead | None:
    """The head in a note, unless it cannot be read or ends within its only signature."""
    try:
        found = read_head(note, 0, name)
    except HoldfastError:
        return None
    return found if any(len(line.signature) == SIGNATURE_BYTES for line in found.note.signatures) else None


class HeadSigners:
    """The servers' keys of a file, found by the hash that a head's signature names its key by.

    So a head costs as much as it has signatures, however many keys the file has. A hash has four bytes: somebody with much
    time can make keys that share one, and of those only the first few are tried.
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
        """The key that has signed a head whose last leaf is at `pos`, if one has that may."""
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
        findings.add(found.line, found.rule, f"{found.title} is not signed by a server's key that was good there")
        return None


class VerifyOptions(msgspec.Struct, frozen=True):
    """What is asked for. Without `trusted`, nothing can come out as intact."""

    trusted: TrustedKeys | None = None
    anchors: Sequence[LocatedHead] = ()
    allow_unsealed: bool = False
    allow_gone: bool = True
    require_signed: SignedLevel = "none"
    """What the policy of every attempt has to want at least."""


class HeadCheck:
    """The heads of a file, and the older ones that were given: compared with the leaves once these are all there."""

    def __init__(self, origin: str, keys: KeyCheck, leaves: LeafCheck, wishes: VerifyOptions, findings: Findings) -> None:
        self._origin, self._keys, self._leaves, self._wishes, self._findings = origin, keys, leaves, wishes, findings
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
        """How many leaves the newest head seals. `line` is the file's last."""
        if self.count > VERIFY_HEADS_MAX:
            self._findings.add(line, "head", f"the file has {self.count} heads; {VERIFY_HEADS_MAX} can be checked")
        for before, found in pairwise(self._heads):
            if found.head.size <= before.head.size:
                self._findings.add(found.line, "order", f"{found.title} follows the one of {before.head.size}")
        if self.newest is None:
            self._findings.add(line, "head", "no head is in the file: nothing vouches for it")
        return self._check_places() if self._leaves.is_proof else self._check_tree()

    def _check_tree(self) -> int:
        tree, heads = self._leaves.tree, [*self._wishes.anchors, *self._heads]
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
        """A job's proof has no tree: of the heads that were given one has to be the very head that it leads to."""
        anchors = self._wishes.anchors
        for found in anchors:
            if found.head.size == own.head.size and found.head != own.head:
                self._findings.add(0, "anchor", f"{found.title} is not the one of that size that the proof leads to")
                return
        if anchors and all(found.head != own.head for found in anchors):
            self._findings.add(0, "own head", f"{own.title}, which the proof leads to, is not among those that were given")

    def _check_signers(self, heads: Sequence[tuple[LocatedHead, int]]) -> None:
        """Each head is signed by a key that was good there, and the last one by a key that whoever is trusted vouches for."""
        known = HeadSigners(self._origin, self._keys.book)
        signers = [known.of(found, pos, self._findings) for found, pos in heads]
        if self._wishes.trusted is None or not signers or signers[-1] is None:
            return
        newest, key_id = heads[-1][0], signers[-1].key_id
        if key_id not in self._keys.trusted_key_ids():
            self._findings.add(newest.line, "trust", f"{newest.title} is signed by a key that no trusted key vouches for")
        elif self._keys.is_over(key_id) and not self._is_kept(newest):
            detail = f"{newest.title} is signed by the key {key_id}, which is revoked by now: whoever has it could have made this"
            self._findings.add(newest.line, "trust", detail)

    def _is_kept(self, newest: LocatedHead) -> bool:
        """Whether a head that was given, and is compared with the leaves or with this one, seals all that this one does."""
        if self._leaves.is_proof:
            return any(found.head == newest.head for found in self._wishes.anchors)
        return any(found.head.size >= newest.head.size for found in self._wishes.anchors)
