"""Check the Merkle tree over a file's leaves, and find events that were deleted or moved."""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from holdfast.proof.export_format import LeafProof
from holdfast.proof.findings import Findings
from holdfast.proof.leaves import LEAF_VERSION
from holdfast.proof.merkle import HASH_BYTES, Frontier, Hash, verify_inclusion
from holdfast.proof.notes import LogHead, Note, parse_head, read_note

CHANGED_MAX = 10_000
"""The most events that are reported one by one as sealed with another hash. Beyond that, only the range is reported."""
FIRST_LINE = 2
"""The line of the first leaf, after the header."""


class LocatedHead(msgspec.Struct, frozen=True):
    """A head and its place: a line of the file, or an anchor file of this name."""

    head: LogHead
    note: Note
    line: int
    anchor: str | None = None

    @property
    def rule(self) -> str:
        return "head" if self.anchor is None else "anchor"

    @property
    def leaf_rule(self) -> str:
        """The broken rule if the leaves are not those that the head was signed over."""
        return "tree" if self.anchor is None else "anchor"

    @property
    def title(self) -> str:
        return f"the head of size {self.head.size}" + ("" if self.anchor is None else f" in {self.anchor}")


def read_head(note: str, line: int, anchor: str | None = None) -> LocatedHead:
    found = read_note(note)
    return LocatedHead(parse_head(found.text), found, line, anchor)


class EventLocation(NamedTuple):
    """The place of an event that may differ from the sealed one."""

    line: int
    pos: int
    job_id: int
    rev: int
    type: str


class LeafHashes:
    """The hashes and positions of an export's leaves, forty bytes each."""

    def __init__(self) -> None:
        self._hashes = bytearray()
        self._positions = array("q")
        self._skips: list[int] = []
        self._changed: dict[int, tuple[Hash, EventLocation]] = {}
        """By index: the sealed hash, and the event that is there now."""

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, leaf: Hash, pos: int) -> None:
        self._hashes += leaf
        self._positions.append(pos)

    def skip(self) -> None:
        """Count a line among the leaves that is not a leaf."""
        self._skips.append(len(self))

    def sealed(self, leaf: Hash, event: EventLocation) -> None:
        """Record the hash with which, according to the file, the newest leaf was sealed."""
        if len(self._changed) < CHANGED_MAX:
            self._changed[len(self) - 1] = (leaf, event)

    def line_of(self, index: int) -> int:
        return FIRST_LINE + index + bisect_right(self._skips, index)

    def pos_of(self, index: int) -> int:
        return self._positions[index]

    def _between(self, first: int, end: int) -> Iterator[Hash]:
        found = self._hashes
        return (bytes(found[at : at + HASH_BYTES]) for at in range(first * HASH_BYTES, end * HASH_BYTES, HASH_BYTES))

    def check(self, heads: Sequence[LocatedHead], findings: Findings) -> None:
        """Compare the tree, at the size of each head, with the signed root.

        Only the first head that differs is reported, because all later ones then differ too. A file with `sealed` lines is never
        intact, even if no head differs.
        """
        self._check(heads, findings)
        for _, event in self._changed.values():
            _report_event(
                event, "sealed", "the file says that another event was sealed in its place; no head shows that", findings
            )

    def _check(self, heads: Sequence[LocatedHead], findings: Findings) -> None:
        frontier, sound = Frontier(), 0
        for found in sorted(heads, key=lambda found: (found.head.size, found.line)):
            size = found.head.size
            if size > len(self):
                self._report_short(found, sound, findings)
                return
            frontier.append(self._between(frontier.size, size))
            if frontier.root() != found.head.root:
                self._report_difference(found, sound, findings)
                return
            sound = size

    def _report_short(self, found: LocatedHead, sound: int, findings: Findings) -> None:
        """Report that leaves are missing. The first `sound` leaves are verified."""
        detail = f"{found.title} was signed over more than the {len(self)} leaves that are here"
        if sound == len(self):
            older = "" if found.anchor is None else ", or the file is older than that head"
            findings.add(self.line_of(sound), found.leaf_rule, f"{detail}: from here on, they were cut off{older}")
        else:
            first_line, last_line = self.line_of(sound), self.line_of(len(self) - 1)
            findings.add(last_line, found.leaf_rule, f"{detail}; {sound} are sound", from_line=first_line)

    def _report_difference(self, found: LocatedHead, sound: int, findings: Findings) -> None:
        if self._report_changed(found, findings):
            return
        last = found.head.size - 1
        if last < sound:
            findings.add(found.line, found.rule, f"{found.title} has another root than the tree at that size")
            return
        detail = f"the tree of {found.head.size} leaves is not the one that {found.title} was signed over"
        first_line, last_line = self.line_of(sound), self.line_of(last)
        findings.add(last_line, found.leaf_rule, f"{detail}; that of {sound} leaves is sound", from_line=first_line)

    def _report_changed(self, found: LocatedHead, findings: Findings) -> bool:
        """Report exactly which events were changed, if the tree with their sealed hashes has the signed root."""
        size = found.head.size
        changed = {index: self._changed[index] for index in self._changed if index < size}
        frontier = Frontier()
        frontier.append(changed[n][0] if n in changed else leaf for n, leaf in enumerate(self._between(0, size)))
        if not changed or frontier.root() != found.head.root:
            return False
        for index, (_, event) in changed.items():
            detail = f"it was changed after it was sealed: {found.title} was signed over another event"
            _report_event(event, "changed", detail, findings)
            del self._changed[index]
        return True


def _report_event(event: EventLocation, rule: str, detail: str, findings: Findings) -> None:
    line, pos, job_id, rev, type_ = event
    findings.add(line, rule, detail, job_id=job_id, rev=rev, pos=pos, event=str(type_))


class ProvenLeaf(NamedTuple):
    """A leaf of a job's proof, with its place in the file and in the tree. A key change has no job."""

    line: int
    pos: int
    leaf: Hash
    place: LeafProof
    job_id: int | None
    rev: int | None


class ProvenLeaves:
    """The leaves of a job's proof, each with its own inclusion proof."""

    def __init__(self) -> None:
        self._found: list[ProvenLeaf] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def last_pos(self) -> int:
        """The newest sealed position."""
        return max((found.pos for found in self._found), default=0)

    def add(self, found: ProvenLeaf) -> None:
        self._found.append(found)

    def check(self, head: LogHead, findings: Findings) -> None:
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


GAPS_MAX = 10_000
"""Gaps in the jobs' revisions that are examined."""
CANDIDATES_MAX = 100
"""Hashes that are examined for each gap."""
NEWEST_MAX = 1_000
"""Events at the end of the file that may have been moved there."""
LEAF_BYTES_MAX = 16_384
"""Events with a longer leaf are not examined."""
TRIES_MAX = 100_000
"""Positions that are tried for all moved events together."""
_POS_MAX = 2**63 - 1


class _RevisionGap(NamedTuple):
    """Revisions of a job that the file lacks between two positions."""

    line: int
    job_id: int
    first: int
    last: int
    after: int
    before: int
    why: str


class MissingEvents:
    """Find deleted and moved events: match leaves of which only the hash is left with revisions that jobs lack.

    Retention deletes only whole jobs, so it leaves no such gaps.
    """

    def __init__(self) -> None:
        self._lines = array("q")
        self._positions = array("q")
        self._hashes = bytearray()
        self._taken: set[int] = set()
        """Positions of leaves that retention did not delete."""
        self._last: dict[int, tuple[int, int]] = {}
        """The newest revision of each job, and its position."""
        self._gaps: list[_RevisionGap] = []
        self._newest: deque[tuple[int, EventLocation, bytes]] = deque(maxlen=NEWEST_MAX)
        self._unplaced = 0
        self._emptied: list[tuple[int, int]] = []

    @property
    def deleted(self) -> int:
        """The number of leaves that retention did not delete.

        If a job has no event left, it is the number of all leaves, because the job may have had any number of events.
        """
        return len(self._positions) if self._emptied else min(len(self._positions), len(self._taken) + self._unplaced)

    def gone(self, line: int, pos: int, leaf: Hash) -> None:
        if not self._positions or pos > self._positions[-1]:
            self._lines.append(line)
            self._positions.append(pos)
            self._hashes += leaf

    def event(self, index: int, event: EventLocation, leaf: bytes) -> None:
        """Add an event. `leaf` are the bytes that are hashed, `index` is its place in the tree."""
        rev, pos = self._last.get(event.job_id, (0, 0))
        if event.rev > rev + 1:
            why = f"event {event.rev} follows event {rev}" if rev else f"its events begin with event {event.rev}"
            self._gap(_RevisionGap(event.line, event.job_id, rev + 1, event.rev - 1, pos, event.pos, why))
        if event.rev > rev:
            self._last[event.job_id] = (event.rev, event.pos)
        if self._positions and len(leaf) <= LEAF_BYTES_MAX:
            self._newest.append((index, event, leaf))

    def row(self, line: int, job_id: int, rev: int, *, fits: bool) -> None:
        """Add a job's row, which is at `rev`. If it agrees with its events except for `rev`, the row itself was changed."""
        last, pos = self._last.get(job_id, (0, 0))
        if rev > last and not fits:
            self._gap(_RevisionGap(line, job_id, last + 1, rev, pos, _POS_MAX, f"the job's row is at event {rev}"))

    def unreadable(self, line: int, job_id: int) -> bool:
        """Add a job whose row cannot be read. Return whether all of its events are missing, which `report` then reports."""
        if job_id in self._last or not self._positions or len(self._emptied) >= GAPS_MAX:
            return False
        self._emptied.append((line, job_id))
        return True

    def key(self, pos: int) -> None:
        """Record that the key change at this position is missing."""
        at = bisect_left(self._positions, pos)
        if at < len(self._positions) and self._positions[at] == pos:
            self._taken.add(pos)

    def _gap(self, gap: _RevisionGap) -> None:
        if len(self._gaps) < GAPS_MAX:
            self._gaps.append(gap)

    # After the last line

    def report(self, sealed: int, findings: Findings) -> None:
        """Report deleted and moved events. `sealed` is how many leaves the newest head seals."""
        moved = set(self._moved(sealed, findings))
        gaps = [gap for gap in self._gaps if (gap.job_id, gap.first) not in moved and not self._is_filled(gap)]
        unclear = [gap for gap in gaps if not self._report_placed(gap, findings)]
        for gap in unclear:
            if not self._report_placed(gap, findings):
                self._report_unplaced(gap, findings)
        self._report_emptied(findings)

    def _report_emptied(self, findings: Findings) -> None:
        """Report jobs with a row and no event. If there is one such job and one hash left, it is that of its first event."""
        left = [at for at, pos in enumerate(self._positions) if pos not in self._taken] if len(self._emptied) == 1 else []
        for line, job_id in self._emptied:
            detail = "the job has no first event: it was deleted, and the job has no other events"
            if len(left) == 1:
                pos = self._positions[left[0]]
                findings.add(self._lines[left[0]], "deleted", detail, job_id=job_id, rev=1, pos=pos)
            else:
                findings.add(line, "deleted", detail, job_id=job_id)

    def _is_filled(self, gap: _RevisionGap) -> bool:
        """Return whether the missing events came after the row in the file."""
        return gap.before == _POS_MAX and self._last.get(gap.job_id, (0, 0))[0] >= gap.first

    def _report_placed(self, gap: _RevisionGap, findings: Findings) -> bool:
        """Report the events of a gap with their positions, if exactly as many hashes are left there as events are missing."""
        free = self._free(gap)
        if len(free) != gap.last - gap.first + 1:
            return False
        for rev, at in enumerate(free, start=gap.first):
            self._taken.add(self._positions[at])
            detail = _describe_deletion(rev, f"the tree has its hash, and {gap.why}")
            findings.add(self._lines[at], "deleted", detail, job_id=gap.job_id, rev=rev, pos=self._positions[at])
        return True

    def _report_unplaced(self, gap: _RevisionGap, findings: Findings) -> None:
        count = gap.last - gap.first + 1
        if len(self._free(gap)) < count:
            return  # never sealed, or the file was changed later: other checks of revisions and tree report that
        self._unplaced += count
        for rev in range(gap.first, gap.last + 1):
            detail = _describe_deletion(rev, f"its hash is one of several that are left in the tree, and {gap.why}")
            findings.add(gap.line, "deleted", detail, job_id=gap.job_id, rev=rev)

    def _free(self, gap: _RevisionGap) -> list[int]:
        """Return the first hashes between the gap's neighbours that belong to no other event."""
        start, end = bisect_right(self._positions, gap.after), bisect_left(self._positions, gap.before)
        return [at for at in range(start, min(end, start + CANDIDATES_MAX)) if self._positions[at] not in self._taken]

    def _moved(self, sealed: int, findings: Findings) -> Iterator[tuple[int, int]]:
        """Report events after the newest head that were sealed at another position.

        With that position, the hash of such an event equals a hash that is left.
        """
        tries = TRIES_MAX
        for index, event, leaf in self._newest:
            if index < sealed:
                continue
            start, rest = _split_leaf(leaf, event.pos)
            for at in range(len(self._positions) - 1, -1, -1):
                tries -= 1
                if tries < 0:
                    return
                pos = self._positions[at]
                if sha256(b"\0" + start + b"%d" % pos + rest).digest() == self._hash(at):
                    self._taken.add(pos)
                    detail = f"the sealed event at position {pos} is missing there: it was moved to position {event.pos}"
                    findings.add(
                        event.line, "changed", detail, job_id=event.job_id, rev=event.rev, pos=event.pos, event=str(event.type)
                    )
                    yield event.job_id, event.rev
                    break

    def _hash(self, at: int) -> bytes:
        return bytes(self._hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES])


def _describe_deletion(rev: int, why: str) -> str:
    return f"the job has no first event: it was deleted; {why}" if rev == 1 else f"it was deleted after it was sealed: {why}"


def _split_leaf(leaf: bytes, pos: int) -> tuple[bytes, bytes]:
    """Return a leaf's bytes before and after its position. The position comes after kind and version."""
    start = b'["event",%d,' % LEAF_VERSION
    return start, leaf[len(start) + len(str(pos)) :]
