"""Verifying a file offline: from its lines, the keys that are trusted and the heads that were anchored, and nothing else."""

from collections.abc import Callable, Sequence
from typing import BinaryIO

import msgspec
from msgspec import UnsetType

from holdfast.core.limits import VERIFY_HEADS_MAX
from holdfast.core.proof.exported import EndLine, Header, Line, Unreadable, job_of
from holdfast.core.proof.notes import origin_of
from holdfast.errors import HoldfastError, ValidationError
from holdfast.verify.findings import Checked, Findings, Verdict
from holdfast.verify.heads import check_ascending, signer_of
from holdfast.verify.keys import KeyCheck
from holdfast.verify.leaves import LeafCheck
from holdfast.verify.reading import header_of, lines_of
from holdfast.verify.tree import SignedHead, read_head
from holdfast.verify.trusted import Trusted

PROGRESS_LINES = 10_000
_LEAVES, _ROWS, _HEADS, _END = range(4)
_PARTS = ("leaves", "rows", "heads", "the end")


class Wishes(msgspec.Struct, frozen=True):
    """What is asked for. Without `trusted`, nothing can come out as intact."""

    trusted: Trusted | None = None
    anchors: Sequence[SignedHead] = ()
    allow_unsealed: bool = False
    allow_gone: bool = True


def verify_file(file: BinaryIO, wishes: Wishes, progress: Callable[[int], None] | None = None) -> Verdict:
    """What can be said of an export or a job's proof. `progress` is told how many lines were read."""
    findings = Findings()
    try:
        header = header_of(file)
    except ValidationError as error:
        findings.add(1, "file", error.message)
        return Verdict("none", None, Checked(), 0, 0, None, findings.total, findings.first())
    check = _Check(header, wishes, findings)
    for number, line in lines_of(file):
        check.feed(number, line)
        if progress is not None and number % PROGRESS_LINES == 0:
            progress(number)
    return check.verdict()


class _Check:
    """One file, line by line."""

    def __init__(self, header: Header, wishes: Wishes, findings: Findings) -> None:
        self._header, self._wishes, self._findings = header, wishes, findings
        self._origin = origin_of(header.ledger)
        self._is_proof = not isinstance(header.holdfast_proof, UnsetType)
        self._keys = KeyCheck(header.ledger, wishes.trusted, findings)
        self._leaves = LeafCheck(header, self._keys, findings)
        self._heads: list[SignedHead] = []
        self._rows = self._notes = 0
        self._part, self._line, self._job_id = _LEAVES, 1, 0
        if header.origin != self._origin:
            findings.add(1, "file", "the header's ledger and origin do not belong together")
        if wishes.trusted is not None and wishes.trusted.origin != self._origin:
            findings.add(1, "keys", f"the file is of {self._origin:.80}, the trusted keys of {wishes.trusted.origin:.80}")

    def feed(self, number: int, line: Line | ValidationError) -> None:
        self._line = number
        if isinstance(line, ValidationError):
            self._leaves.tree.skip()
            self._findings.add(number, "file", line.message)
        elif not isinstance(line.event, UnsetType):
            self._enter(_LEAVES)
            self._leaves.event(number, line.event, line.leaf)
        elif not isinstance(line.job, UnsetType):
            self._enter(_ROWS)
            self._row(line.job)
        else:
            self._feed_rare(number, line)

    def _feed_rare(self, number: int, line: Line) -> None:
        if not isinstance(line.policy, UnsetType):
            self._enter(_LEAVES)
            self._leaves.policy(number, line.policy)
        elif not isinstance(line.key, UnsetType):
            self._enter(_LEAVES)
            self._leaves.key(number, line.key, line.leaf)
        elif not isinstance(line.gone, UnsetType):
            self._enter(_LEAVES)
            self._leaves.lost(number, line.gone)
            if not self._wishes.allow_gone:
                self._findings.add(number, "gone", "a leaf of which only the hash is left", pos=line.gone.pos)
        elif not isinstance(line.unreadable, UnsetType):
            self._enter(_ROWS)
            self._unreadable(line.unreadable)
        elif not isinstance(line.head, UnsetType):
            self._enter(_HEADS)
            self._head(line.head)
        elif not isinstance(line.end, UnsetType):
            self._enter(_END)
            self._end(line.end)

    def _enter(self, part: int) -> None:
        """Parts come one after another, and nothing after the end."""
        if part < self._part or self._part == _END:
            self._findings.add(self._line, "order", f"a line that belongs to {_PARTS[part]} among {_PARTS[self._part]}")
            return
        if part > _ROWS >= self._part:
            for job_id in self._leaves.jobs:
                self._findings.add(self._line, "row", "it has events, but no row", job_id=job_id)
        self._part = part

    def _row(self, fields: dict[str, str | int | bool | None]) -> None:
        self._rows += 1
        number = fields.get("policy")
        try:
            if not isinstance(number, int | None) or isinstance(number, bool):
                raise ValidationError("the row's policy is no number")
            row = job_of(fields, None)
        except ValidationError as error:
            self._findings.add(self._line, "file", error.message)
            return
        row = msgspec.structs.replace(row, policy=self._leaves.policy_of(self._line, number, row.id, row.rev)[1])
        self._told_job(row.id)
        for wrong in self._leaves.jobs.close(row):
            self._findings.add(self._line, wrong.rule, wrong.detail, job_id=wrong.job_id, rev=wrong.rev)

    def _unreadable(self, line: Unreadable) -> None:
        self._rows += 1
        self._told_job(line.job_id)
        self._leaves.jobs.drop(line.job_id)
        self._findings.add(self._line, "fold", f"the row could not be read: {line.why}", job_id=line.job_id)

    def _told_job(self, job_id: int) -> None:
        if job_id <= self._job_id:
            self._findings.add(self._line, "order", f"job {job_id} follows {self._job_id}", job_id=job_id)
        self._job_id = max(self._job_id, job_id)

    def _head(self, note: str) -> None:
        self._notes += 1
        if self._notes > VERIFY_HEADS_MAX:
            return
        try:
            self._heads.append(read_head(note, self._line))
        except HoldfastError as error:
            self._findings.add(self._line, "head", error.message)

    def _end(self, line: EndLine) -> None:
        leaves = self._leaves
        counted = EndLine(leaves.events, self._rows, leaves.changes, self._notes, leaves.gone)
        for name in EndLine.__struct_fields__:
            said, found = getattr(line, name), getattr(counted, name)
            if said != found:
                self._findings.add(self._line, "count", f"the file ends with {said} {name}, but has {found}")

    # What only the whole file shows

    def verdict(self) -> Verdict:
        if self._part != _END:
            self._findings.add(self._line, "file", "the file ends before its end: it was cut off")
        if self._notes > VERIFY_HEADS_MAX:
            self._findings.add(self._line, "head", f"the file has {self._notes} heads; {VERIFY_HEADS_MAX} can be checked")
        self._keys.finish(self._line, self._leaves.pos)
        check_ascending(self._heads, self._findings)
        newest = self._heads[-1] if self._heads else None
        if newest is None:
            self._findings.add(self._line, "head", "no head is in the file: nothing vouches for it")
        sealed = self._check_places(newest) if self._is_proof else self._check_tree(newest)
        if self._wishes.trusted is None:
            self._findings.add(self._line, "trust", "no keys were given: the file vouches for itself only")
        return self._told(newest, sealed, self._check_unsealed(sealed))

    def _check_tree(self, newest: SignedHead | None) -> int:
        """How many leaves the newest head seals."""
        tree, heads = self._leaves.tree, [*self._wishes.anchors, *self._heads]
        tree.check(heads, self._findings)
        for found in heads:
            if found.head.size <= len(tree):
                self._check_signer(found, tree.pos_of(found.head.size - 1) if found.head.size else 0, newest)
        return 0 if newest is None else min(newest.head.size, len(tree))

    def _check_places(self, newest: SignedHead | None) -> int:
        if self._wishes.anchors:
            self._findings.add(self._line, "anchor", "a job's proof has no tree to compare with an older head: verify an export")
        if newest is None:
            return 0
        self._check_signer(newest, self._leaves.places.last_pos, newest)
        self._leaves.places.check(newest.head, self._findings)
        return newest.head.size

    def _check_signer(self, found: SignedHead, pos: int, newest: SignedHead | None) -> None:
        signer = signer_of(found, self._origin, self._keys, pos, self._findings)
        is_weak = signer is not None and self._wishes.trusted is not None and not self._keys.is_rooted(signer)
        if found is newest and is_weak:
            self._findings.add(found.line, "trust", f"{found.title} is signed by a key that no trusted key vouches for")

    def _check_unsealed(self, sealed: int) -> int:
        leaves = self._leaves
        unsealed = leaves.unplaced if self._is_proof else len(leaves.tree) - sealed
        if unsealed and not self._wishes.allow_unsealed:
            first = leaves.first_unplaced if self._is_proof else leaves.tree.line_of(sealed)
            self._findings.add(first or self._line, "unsealed", f"{unsealed} from here on are not sealed yet")
        return unsealed

    def _told(self, newest: SignedHead | None, sealed: int, unsealed: int) -> Verdict:
        leaves = self._leaves
        size = len(leaves.places) if self._is_proof else len(leaves.tree)
        anchors = len(self._wishes.anchors)
        return Verdict(
            "proof" if self._is_proof else "export", self._header.ledger,
            Checked(leaves.events, self._rows, leaves.changes, leaves.gone, leaves.signatures, size, self._notes, anchors),
            sealed, unsealed, None if newest is None else newest.head.root.hex(),
            self._findings.total, self._findings.first(),
        )  # fmt: skip
