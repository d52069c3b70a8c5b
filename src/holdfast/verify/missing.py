"""Events that are missing though they were sealed: deleted from their jobs, or moved to another position."""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from holdfast.core.proof.leaves import VERSION
from holdfast.core.proof.merkle import HASH_BYTES, Hash
from holdfast.verify.findings import Findings
from holdfast.verify.tree import Changed

GAPS_MAX = 10_000
"""Gaps in the jobs' revisions that are looked at."""
CANDIDATES_MAX = 100
"""Hashes that are looked at for each of them."""
NEWEST_MAX = 1_000
"""Events at the end of the file that are looked at as moved ones."""
LEAF_BYTES_MAX = 16_384
"""Of longer ones it is not looked whether they were moved."""
TRIES_MAX = 100_000
"""Positions that are tried for all of them together."""
_POS_MAX = 2**63 - 1


class _Gap(NamedTuple):
    """Revisions of a job that the file does not have, between two positions."""

    line: int
    job_id: int
    first: int
    last: int
    after: int
    before: int
    why: str


class Missing:
    """Compares the leaves of which only the hash is left with the revisions that jobs lack. Retention deletes whole jobs only."""

    def __init__(self) -> None:
        self._lines = array("q")
        self._positions = array("q")
        self._hashes = bytearray()
        self._taken: set[int] = set()
        """Positions of leaves that retention did not take."""
        self._last: dict[int, tuple[int, int]] = {}
        """The newest revision of each job, and its position."""
        self._gaps: list[_Gap] = []
        self._newest: deque[tuple[int, Changed, bytes]] = deque(maxlen=NEWEST_MAX)
        self._unplaced = 0
        self._emptied: list[tuple[int, int]] = []

    @property
    def deleted(self) -> int:
        """How many of the leaves retention did not take. All, where a job has no event left: it may have had any number."""
        return len(self._positions) if self._emptied else min(len(self._positions), len(self._taken) + self._unplaced)

    def gone(self, line: int, pos: int, leaf: Hash) -> None:
        if not self._positions or pos > self._positions[-1]:
            self._lines.append(line)
            self._positions.append(pos)
            self._hashes += leaf

    def event(self, index: int, event: Changed, leaf: bytes) -> None:
        """`leaf` is what the event's hash is made of, `index` its place in the tree."""
        rev, pos = self._last.get(event.job_id, (0, 0))
        if event.rev > rev + 1:
            why = f"event {event.rev} follows event {rev}" if rev else f"its events begin with event {event.rev}"
            self._gap(_Gap(event.line, event.job_id, rev + 1, event.rev - 1, pos, event.pos, why))
        if event.rev > rev:
            self._last[event.job_id] = (event.rev, event.pos)
        if self._positions and len(leaf) <= LEAF_BYTES_MAX:
            self._newest.append((index, event, leaf))

    def row(self, line: int, job_id: int, rev: int, *, fits: bool) -> None:
        """A job's row, which is at `rev`. One that fits its events but for `rev` was changed itself."""
        last, pos = self._last.get(job_id, (0, 0))
        if rev > last and not fits:
            self._gap(_Gap(line, job_id, last + 1, rev, pos, _POS_MAX, f"the job's row is at event {rev}"))

    def unreadable(self, line: int, job_id: int) -> bool:
        """A job whose row cannot be read. Answers whether all of its events are missing: `tell` says so."""
        if job_id in self._last or not self._positions or len(self._emptied) >= GAPS_MAX:
            return False
        self._emptied.append((line, job_id))
        return True

    def key(self, pos: int) -> None:
        """A change of keys at this position is missing."""
        at = bisect_left(self._positions, pos)
        if at < len(self._positions) and self._positions[at] == pos:
            self._taken.add(pos)

    def _gap(self, gap: _Gap) -> None:
        if len(self._gaps) < GAPS_MAX:
            self._gaps.append(gap)

    # Once all is read

    def tell(self, sealed: int, findings: Findings) -> None:
        """`sealed` is how many leaves the newest head seals."""
        moved = set(self._moved(sealed, findings))
        gaps = [gap for gap in self._gaps if (gap.job_id, gap.first) not in moved and not self._is_filled(gap)]
        unclear = [gap for gap in gaps if not self._tell_placed(gap, findings)]
        for gap in unclear:
            if not self._tell_placed(gap, findings):
                self._tell_unplaced(gap, findings)
        self._tell_emptied(findings)

    def _tell_emptied(self, findings: Findings) -> None:
        """Jobs that have a row and no event. Where one hash is left for one job, it is that of its first event."""
        left = [at for at, pos in enumerate(self._positions) if pos not in self._taken] if len(self._emptied) == 1 else []
        for line, job_id in self._emptied:
            detail = "the job has no first event: it was deleted, and the job has no other events"
            if len(left) == 1:
                pos = self._positions[left[0]]
                findings.add(self._lines[left[0]], "deleted", detail, job_id=job_id, rev=1, pos=pos)
            else:
                findings.add(line, "deleted", detail, job_id=job_id)

    def _is_filled(self, gap: _Gap) -> bool:
        """Whether the row came before the events that it seemed to lack."""
        return gap.before == _POS_MAX and self._last.get(gap.job_id, (0, 0))[0] >= gap.first

    def _tell_placed(self, gap: _Gap, findings: Findings) -> bool:
        """As many hashes are left between the neighbours as events are missing: each has its position."""
        free = self._free(gap)
        if len(free) != gap.last - gap.first + 1:
            return False
        for rev, at in enumerate(free, start=gap.first):
            self._taken.add(self._positions[at])
            detail = _said(rev, f"the tree has its hash, and {gap.why}")
            findings.add(self._lines[at], "deleted", detail, job_id=gap.job_id, rev=rev, pos=self._positions[at])
        return True

    def _tell_unplaced(self, gap: _Gap, findings: Findings) -> None:
        count = gap.last - gap.first + 1
        if len(self._free(gap)) < count:
            return  # it was never sealed, or the file was changed later: the revisions and the tree show that
        self._unplaced += count
        for rev in range(gap.first, gap.last + 1):
            detail = _said(rev, f"its hash is one of several that are left in the tree, and {gap.why}")
            findings.add(gap.line, "deleted", detail, job_id=gap.job_id, rev=rev)

    def _free(self, gap: _Gap) -> list[int]:
        """The first hashes between the gap's neighbours that are of no other event."""
        start, end = bisect_right(self._positions, gap.after), bisect_left(self._positions, gap.before)
        return [at for at in range(start, min(end, start + CANDIDATES_MAX)) if self._positions[at] not in self._taken]

    def _moved(self, sealed: int, findings: Findings) -> Iterator[tuple[int, int]]:
        """Events behind the newest head that were sealed at another position: with that one they have the hash that is left."""
        tries = TRIES_MAX
        for index, event, leaf in self._newest:
            if index < sealed:
                continue
            start, rest = _split(leaf, event.pos)
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


def _said(rev: int, why: str) -> str:
    return f"the job has no first event: it was deleted; {why}" if rev == 1 else f"it was deleted after it was sealed: {why}"


def _split(leaf: bytes, pos: int) -> tuple[bytes, bytes]:
    """A leaf's bytes before and after its position, which follows its kind and version."""
    start = b'["event",%d,' % VERSION
    return start, leaf[len(start) + len(str(pos)) :]
