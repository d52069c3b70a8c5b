"""The tree over a file's leaves, and the heads that were signed over it."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.proof.checks import verify_inclusion
from holdfast.core.proof.exported import LeafPlace
from holdfast.core.proof.merkle import HASH_BYTES, Frontier, Hash
from holdfast.core.proof.notes import Head, Note, parse_head, read_note
from holdfast.verify.findings import Findings

CHANGED_MAX = 10_000
"""Events that are told to have been sealed with another hash; of more than these, only the range is told."""
FIRST_LINE = 2
"""The first leaf is there, behind the header."""


class SignedHead(msgspec.Struct, frozen=True):
    """A head and where it was found: in a line of the file, or, without one, in an anchor of this name."""

    head: Head
    note: Note
    line: int
    anchor: str | None = None

    @property
    def rule(self) -> str:
        return "head" if self.anchor is None else "anchor"

    @property
    def rule_of_leaves(self) -> str:
        """What is broken where the leaves are not those that it was signed over."""
        return "tree" if self.anchor is None else "anchor"

    @property
    def title(self) -> str:
        return f"the head of size {self.head.size}" + ("" if self.anchor is None else f" in {self.anchor}")


def read_head(note: str, line: int, anchor: str | None = None) -> SignedHead:
    found = read_note(note)
    return SignedHead(parse_head(found.text), found, line, anchor)


class Changed(NamedTuple):
    """An event that may be another one than was sealed."""

    line: int
    pos: int
    job_id: int
    rev: int
    type: str


class Leaves:
    """Hashes and positions of an export's leaves: forty bytes each."""

    def __init__(self) -> None:
        self._hashes = bytearray()
        self._positions = array("q")
        self._skips: list[int] = []
        self._changed: dict[int, tuple[Hash, Changed]] = {}
        """By index: what was sealed there, and the event that is there now."""

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, leaf: Hash, pos: int) -> None:
        self._hashes += leaf
        self._positions.append(pos)

    def skip(self) -> None:
        """A line among the leaves that is none."""
        self._skips.append(len(self))

    def sealed(self, leaf: Hash, event: Changed) -> None:
        """The newest leaf was sealed as this one, if the file is right."""
        if len(self._changed) < CHANGED_MAX:
            self._changed[len(self) - 1] = (leaf, event)

    def line_of(self, index: int) -> int:
        return FIRST_LINE + index + bisect_right(self._skips, index)

    def pos_of(self, index: int) -> int:
        return self._positions[index]

    def _between(self, first: int, end: int) -> Iterator[Hash]:
        found = self._hashes
        return (bytes(found[at : at + HASH_BYTES]) for at in range(first * HASH_BYTES, end * HASH_BYTES, HASH_BYTES))

    def check(self, heads: Sequence[SignedHead], findings: Findings) -> None:
        """Compare the tree, at each size, with the root that was signed. Told is the first one that differs: where leaves
        differ, all later ones do. Whatever else is found, a file that names other hashes than its own is not intact."""
        self._check(heads, findings)
        for _, event in self._changed.values():
            _tell_event(event, "sealed", "the file says that another event was sealed in its place; no head shows that", findings)

    def _check(self, heads: Sequence[SignedHead], findings: Findings) -> None:
        frontier, sound = Frontier(), 0
        for found in sorted(heads, key=lambda found: (found.head.size, found.line)):
            size = found.head.size
            if size > len(self):
                self._tell_short(found, sound, findings)
                return
            frontier.append(self._between(frontier.size, size))
            if frontier.root() != found.head.root:
                self._tell(found, sound, findings)
                return
            sound = size

    def _tell_short(self, found: SignedHead, sound: int, findings: Findings) -> None:
        """Leaves are missing, and those up to `sound` are not among them."""
        detail = f"{found.title} was signed over more than the {len(self)} leaves that are here"
        if sound == len(self):
            older = "" if found.anchor is None else ", or the file is older than that head"
            findings.add(self.line_of(sound), found.rule_of_leaves, f"{detail}: from here on, they were cut off{older}")
        else:
            first_line, last_line = self.line_of(sound), self.line_of(len(self) - 1)
            findings.add(last_line, found.rule_of_leaves, f"{detail}; {sound} are sound", from_line=first_line)

    def _tell(self, found: SignedHead, sound: int, findings: Findings) -> None:
        if self._tell_changed(found, findings):
            return
        last = found.head.size - 1
        if last < sound:
            findings.add(found.line, found.rule, f"{found.title} has another root than the tree has at that size")
            return
        detail = f"the tree of {found.head.size} leaves is not the one that {found.title} was signed over"
        first_line, last_line = self.line_of(sound), self.line_of(last)
        findings.add(last_line, found.rule_of_leaves, f"{detail}; that of {sound} leaves is sound", from_line=first_line)

    def _tell_changed(self, found: SignedHead, findings: Findings) -> bool:
        """Tell exactly which events were changed: with the hashes that the file names for them, the tree is the signed one."""
        size = found.head.size
        changed = {index: self._changed[index] for index in self._changed if index < size}
        frontier = Frontier()
        frontier.append(changed[n][0] if n in changed else leaf for n, leaf in enumerate(self._between(0, size)))
        if not changed or frontier.root() != found.head.root:
            return False
        for index, (_, event) in changed.items():
            detail = f"it was changed after it was sealed: {found.title} was signed over another event"
            _tell_event(event, "changed", detail, findings)
            del self._changed[index]
        return True


def _tell_event(event: Changed, rule: str, detail: str, findings: Findings) -> None:
    line, pos, job_id, rev, type_ = event
    findings.add(line, rule, detail, job_id=job_id, rev=rev, pos=pos, event=str(type_))


class Placed(NamedTuple):
    """A leaf of a job's proof: where it stands in the file, and in the tree. A change of keys is of no job."""

    line: int
    pos: int
    leaf: Hash
    place: LeafPlace
    job_id: int | None
    rev: int | None


class Places:
    """Leaves of a job's proof, each with its own way to the root."""

    def __init__(self) -> None:
        self._found: list[Placed] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def last_pos(self) -> int:
        """The newest position that is sealed."""
        return max((found.pos for found in self._found), default=0)

    def add(self, found: Placed) -> None:
        self._found.append(found)

    def check(self, head: Head, findings: Findings) -> None:
        last = -1
        for line, pos, leaf, place, job_id, rev in sorted(self._found, key=lambda found: found.pos):
            proof = [bytes.fromhex(found) for found in place.proof]
            if not verify_inclusion(leaf, place.index, head.size, proof, head.root):
                detail = f"the proof does not show it to be leaf {place.index} of {head.size}"
                findings.add(line, "leaf", detail, job_id=job_id, rev=rev, pos=pos)
            elif place.index <= last:
                detail = f"it is leaf {place.index}, but comes after leaf {last}"
                findings.add(line, "order", detail, job_id=job_id, rev=rev, pos=pos)
            last = max(last, place.index)
