"""Verifying a file offline: from its lines, the keys that are trusted and the heads that were anchored, and nothing else."""

import re
from collections.abc import Callable
from typing import BinaryIO

import msgspec
from msgspec import UnsetType

from holdfast.core.model import Job
from holdfast.core.proof.exported import EndLine, ForOtherReaders, Header, Line, Unreadable, job_of
from holdfast.core.proof.notes import origin_of
from holdfast.errors import ValidationError
from holdfast.verify.findings import Checked, Findings, Verdict
from holdfast.verify.heads import HeadCheck, Wishes
from holdfast.verify.keys import KeyCheck
from holdfast.verify.leaves import LeafCheck
from holdfast.verify.reading import BadLine, header_of, lines_of
from holdfast.verify.wording import in_words, shown

PROGRESS_LINES = 10_000
_LEAVES, _ROWS, _HEADS, _END = range(4)
_FIELDS = frozenset(Job.__struct_fields__)
_EXCEPTION = re.compile(r"\w*(Error|Exception)\b")
"""How the reason for an unreadable row begins in exports of older versions."""
_PARTS = ("leaves", "rows", "heads", "the end")


def verify_file(file: BinaryIO, wishes: Wishes, progress: Callable[[int], None] | None = None) -> Verdict:
    """What can be said of an export or a job's proof. `progress` is told how many lines were read."""
    findings = Findings()
    try:
        header = header_of(file)
    except ForOtherReaders as error:
        findings.add(1, "dialect", error.message)
        return Verdict("none", None, Checked(), 0, 0, None, findings.total, findings.first())
    except ValidationError as error:
        findings.torn(1, error.message)
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
        self._keys = KeyCheck(header.ledger, wishes.trusted, findings)
        self._leaves = LeafCheck(header, self._keys, findings, wishes.require_signed)
        self._heads = HeadCheck(self._origin, self._keys, self._leaves, wishes, findings)
        self._rows = 0
        self._part, self._line, self._job_id = _LEAVES, 1, 0
        if header.origin != self._origin:
            findings.add(1, "file", "the header's ledger and origin do not belong together")
        if wishes.trusted is not None and wishes.trusted.origin != self._origin:
            findings.add(1, "keys", f"the file is of {self._origin:.80}, the trusted keys of {wishes.trusted.origin:.80}")

    def feed(self, number: int, line: Line | BadLine) -> None:
        self._line = number
        if isinstance(line, BadLine):
            self._leaves.tree.skip()
            self._findings.torn(number, line.message, line.job_id, line.rev, line.event)
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
        elif not isinstance(line.sealed, UnsetType):
            self._enter(_LEAVES)
            self._leaves.sealed(number, line.sealed)
        elif not isinstance(line.unreadable, UnsetType):
            self._enter(_ROWS)
            self._unreadable(line.unreadable)
        elif not isinstance(line.head, UnsetType):
            self._enter(_HEADS)
            self._heads.add(number, line.head)
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
                raise ValidationError("the row cannot be read: its policy is no number")
            row = job_of(fields, None)
        except ValidationError as error:
            self._bad_row(fields, error.message)
            return
        row = msgspec.structs.replace(row, policy=self._leaves.policy_of(self._line, number, row.id, row.rev)[1])
        self._told_job(row.id)
        wrongs = self._leaves.jobs.close(row)
        fits = wrongs is not None and len(wrongs) <= 1
        self._leaves.missing.row(self._line, row.id, row.rev, fits=fits)
        for wrong in wrongs or ():
            self._findings.add(self._line, wrong.rule, wrong.detail, job_id=wrong.job_id, rev=wrong.rev)

    def _bad_row(self, fields: dict[str, str | int | bool | None], message: str) -> None:
        """A row with a field that is none, or has a value that it cannot have."""
        id_ = fields.get("id")
        job_id = id_ if type(id_) is int else None
        others = sorted(fields.keys() - _FIELDS)
        detail = f"the row has a field {shown(others[0])}, which no job has" if others else _in_row(message, fields)
        self._findings.add(self._line, "file", detail, job_id=job_id)

    def _unreadable(self, line: Unreadable) -> None:
        self._rows += 1
        self._told_job(line.job_id)
        self._leaves.jobs.drop(line.job_id)
        if self._leaves.missing.unreadable(self._line, line.job_id):
            return
        why = "" if _EXCEPTION.match(line.why) else f": {shown(line.why)}"
        self._findings.add(self._line, "fold", f"its row does not fit its history{why}", job_id=line.job_id)

    def _told_job(self, job_id: int) -> None:
        if job_id <= self._job_id:
            self._findings.add(self._line, "order", f"job {job_id} follows {self._job_id}", job_id=job_id)
        self._job_id = max(self._job_id, job_id)

    def _end(self, line: EndLine) -> None:
        leaves = self._leaves
        counted = EndLine(leaves.events, self._rows, leaves.changes, self._heads.count, leaves.gone)
        for name in EndLine.__struct_fields__:
            said, found = getattr(line, name), getattr(counted, name)
            if said != found:
                self._findings.add(self._line, "count", f"the file ends with {said} {name}, but has {found}")

    # What only the whole file shows

    def verdict(self) -> Verdict:
        if self._part != _END:
            self._findings.torn(self._line, "the file ends before its end: it was cut off")
        for pos in self._keys.finish(self._line, self._leaves.pos):
            self._leaves.missing.key(pos)
        sealed = self._heads.finish(self._line)
        self._leaves.missing.tell(sealed, self._findings)
        if self._wishes.trusted is None:
            self._findings.add(self._line, "trust", "no keys were given: the file vouches for itself only")
        unsealed, first = self._leaves.newer_than(sealed)
        if unsealed and not self._wishes.allow_unsealed:
            self._findings.add(first, "unsealed", f"{unsealed} from here on are not sealed yet")
        return self._told(sealed, unsealed)

    def _told(self, sealed: int, unsealed: int) -> Verdict:
        leaves, newest = self._leaves, self._heads.newest
        size, anchors = len(leaves.places if leaves.is_proof else leaves.tree), len(self._wishes.anchors)
        return Verdict(
            "proof" if leaves.is_proof else "export", self._header.ledger,
            Checked(leaves.events, self._rows, leaves.changes, leaves.gone, leaves.missing.deleted, leaves.signatures, size,
                    self._heads.count, anchors, leaves.attempts, leaves.unsigned_attempts, self._keys.workers),
            sealed, unsealed, None if newest is None else newest.head.root.hex(),
            self._findings.total, self._findings.first(),
        )  # fmt: skip


def _in_row(message: str, fields: dict[str, str | int | bool | None]) -> str:
    return f"the row cannot be read: {in_words(message, fields)}"
