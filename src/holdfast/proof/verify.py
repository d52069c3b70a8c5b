"""Verify an export or a job's proof offline: no ledger, no clock, no network."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
from msgspec import UnsetType

from holdfast.core.limits import EXPORT_LINE_BYTES_MAX
from holdfast.core.model import JobRecord
from holdfast.errors import ValidationError
from holdfast.proof.export_format import (
    EndLine,
    ExportHeader,
    ExportLine,
    RowFields,
    UnreadableLine,
    job_from_fields,
    read_header,
    read_line,
)
from holdfast.proof.findings import (
    CheckedCounts,
    Finding,
    Findings,
    VerificationReport,
    decode_or_none,
    describe_decode_error,
    format_untrusted,
)
from holdfast.proof.notes import origin_of
from holdfast.proof.verify_events import LeafCheck, SignedLevel
from holdfast.proof.verify_heads import HeadCheck, VerifyOptions, read_anchor
from holdfast.proof.verify_keys import KeyCheck, TrustedKeys, parse_trusted

__all__ = [
    "Finding",
    "SignedLevel",
    "TrustedKeys",
    "VerificationReport",
    "VerifyOptions",
    "parse_trusted",
    "read_anchor",
    "verify_file",
]


_GZIP = b"\x1f\x8b"
_UNREAD = "the line cannot be read: "
"""The prefix of the message about a line with the wrong shape."""


class BadLine(ValidationError):
    """A line that cannot be read, and the event that it is about, if it names one."""

    def __init__(self, message: str, job_id: int | None = None, rev: int | None = None, event: str | None = None) -> None:
        super().__init__(message)
        self.job_id, self.rev, self.event = job_id, rev, event


def read_file_header(file: BinaryIO) -> ExportHeader:
    """Return the header in the first line."""
    body = file.readline(EXPORT_LINE_BYTES_MAX + 1)
    if not body:
        raise ValidationError("the file is empty")
    if body.startswith(_GZIP):
        raise ValidationError("the file is compressed: unpack it first")
    try:
        return read_header(_check_length(body))
    except ValidationError as error:
        if not error.message.startswith(_UNREAD):
            raise
        raise ValidationError("the first line is not that of a Holdfast export or proof") from None


def read_file_lines(file: BinaryIO) -> Iterator[tuple[int, ExportLine | BadLine]]:
    """Yield the number of each other line, and its content or why it cannot be read. Stop after a line that is too long."""
    number = 1
    while body := file.readline(EXPORT_LINE_BYTES_MAX + 1):
        number += 1
        try:
            yield number, read_line(_check_length(body))
        except ValidationError as error:
            yield number, _bad_line(body, error.message)
            if len(body) > EXPORT_LINE_BYTES_MAX:
                return


def _check_length(body: bytes) -> bytes:
    if len(body) > EXPORT_LINE_BYTES_MAX:
        raise ValidationError(f"the line has more than {EXPORT_LINE_BYTES_MAX} bytes: nothing after it was read")
    return body


def _bad_line(body: bytes, message: str) -> BadLine:
    """Return why a line cannot be read, in plain words."""
    if not message.startswith(_UNREAD):
        return BadLine(message)
    found = decode_or_none(body)
    if found is None:
        return BadLine("the line is not JSON: it was changed or cut off")
    words = describe_decode_error(message, found)
    event: Any = found.get("event") if isinstance(found, dict) else None
    if not isinstance(event, dict) or type(event.get("job_id")) is not int or type(event.get("rev")) is not int:
        return BadLine(f"the line cannot be read: {words}")
    return BadLine(f"the event cannot be read: {words}", event["job_id"], event["rev"], format_untrusted(event.get("type")))


PROGRESS_LINES = 10_000
_LEAVES, _ROWS, _HEADS, _END = range(4)
_ROW_FIELDS = frozenset(JobRecord.__struct_fields__)
_PARTS = ("leaves", "rows", "heads", "the end")


def verify_file(file: BinaryIO, options: VerifyOptions, progress: Callable[[int], None] | None = None) -> VerificationReport:
    """Verify an export or a job's proof. `progress` is called with the number of lines read."""
    findings = Findings()
    try:
        header = read_file_header(file)
    except ValidationError as error:
        findings.torn(1, error.message)
        return VerificationReport("none", None, CheckedCounts(), 0, 0, None, findings.total, findings.first())
    check = _FileCheck(header, options, findings)
    for number, line in read_file_lines(file):
        check.feed(number, line)
        if progress is not None and number % PROGRESS_LINES == 0:
            progress(number)
    return check.verdict()


class _FileCheck:
    """Check one file, line by line."""

    def __init__(self, header: ExportHeader, options: VerifyOptions, findings: Findings) -> None:
        self._header, self._options, self._findings = header, options, findings
        self._origin = origin_of(header.ledger)
        self._keys = KeyCheck(header.ledger, options.trusted, findings)
        self._leaves = LeafCheck(header, self._keys, findings, options.require_signed)
        self._heads = HeadCheck(self._origin, self._keys, self._leaves, options, findings)
        self._rows = 0
        self._part, self._line, self._job_id = _LEAVES, 1, 0
        if header.origin != self._origin:
            findings.add(1, "file", "the header's ledger and origin do not belong together")
        if options.trusted is not None and options.trusted.origin != self._origin:
            findings.add(1, "keys", f"the file is of {self._origin:.80}, the trusted keys of {options.trusted.origin:.80}")

    def feed(self, number: int, line: ExportLine | BadLine) -> None:
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
            self._feed_other(number, line)

    def _feed_other(self, number: int, line: ExportLine) -> None:
        if not isinstance(line.policy, UnsetType):
            self._enter(_LEAVES)
            self._leaves.policy(number, line.policy)
        elif not isinstance(line.key, UnsetType):
            self._enter(_LEAVES)
            self._leaves.key(number, line.key, line.leaf)
        elif not isinstance(line.gone, UnsetType):
            self._enter(_LEAVES)
            self._leaves.lost(number, line.gone)
            if not self._options.allow_gone:
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
        """Check that the parts of the file come in their order, and that nothing follows the end."""
        if part < self._part or self._part == _END:
            self._findings.add(self._line, "order", f"a line that belongs to {_PARTS[part]} among {_PARTS[self._part]}")
            return
        if part > _ROWS >= self._part:
            for job_id in self._leaves.jobs:
                self._findings.add(self._line, "row", "it has events, but no row", job_id=job_id)
        self._part = part

    def _row(self, fields: RowFields) -> None:
        self._rows += 1
        number = fields.get("policy")
        try:
            if not isinstance(number, int | None) or isinstance(number, bool):
                raise ValidationError("the row cannot be read: its policy is not a number")
            row = job_from_fields(fields, None)
        except ValidationError as error:
            self._bad_row(fields, error.message)
            return
        row = msgspec.structs.replace(row, policy=self._leaves.policy_of(self._line, number, row.id, row.rev)[1])
        self._check_job_order(row.id)
        wrongs = self._leaves.jobs.close(row)
        fits = wrongs is not None and len(wrongs) <= 1
        self._leaves.missing.row(self._line, row.id, row.rev, fits=fits)
        for wrong in wrongs or ():
            self._findings.add(self._line, wrong.rule, wrong.detail, job_id=wrong.job_id, rev=wrong.rev)

    def _bad_row(self, fields: RowFields, message: str) -> None:
        """Report a row with an unknown field or an invalid value."""
        id_ = fields.get("id")
        job_id = id_ if type(id_) is int else None
        others = sorted(fields.keys() - _ROW_FIELDS)
        detail = (
            f"the row has a field {format_untrusted(others[0])}, which no job has" if others else _unreadable_row(message, fields)
        )
        self._findings.add(self._line, "file", detail, job_id=job_id)

    def _unreadable(self, line: UnreadableLine) -> None:
        self._rows += 1
        self._check_job_order(line.job_id)
        self._leaves.jobs.drop(line.job_id)
        if self._leaves.missing.unreadable(self._line, line.job_id):
            return
        why = f"its row does not fit its history: {format_untrusted(line.why)}"
        self._findings.add(self._line, "fold", why, job_id=line.job_id)

    def _check_job_order(self, job_id: int) -> None:
        if job_id <= self._job_id:
            self._findings.add(self._line, "order", f"job {job_id} follows {self._job_id}", job_id=job_id)
        self._job_id = max(self._job_id, job_id)

    def _end(self, line: EndLine) -> None:
        leaves = self._leaves
        counted = EndLine(leaves.events, self._rows, leaves.changes, self._heads.count, leaves.gone)
        for name in EndLine.__struct_fields__:
            stated, found = getattr(line, name), getattr(counted, name)
            if stated != found:
                self._findings.add(self._line, "count", f"the file ends with {stated} {name}, but has {found}")

    # After the last line

    def verdict(self) -> VerificationReport:
        if self._part != _END:
            self._findings.torn(self._line, "the file has no end line: it was cut off")
        for pos in self._keys.finish(self._line, self._leaves.pos):
            self._leaves.missing.key(pos)
        sealed = self._heads.finish(self._line)
        self._leaves.missing.report(sealed, self._findings)
        if self._options.trusted is None:
            self._findings.add(self._line, "trust", "no keys were given: the file vouches for itself only")
        unsealed, first = self._leaves.newer_than(sealed)
        if unsealed and not self._options.allow_unsealed:
            self._findings.add(first, "unsealed", f"{unsealed} from here on are not sealed yet")
        return self._report(sealed, unsealed)

    def _report(self, sealed: int, unsealed: int) -> VerificationReport:
        leaves, newest = self._leaves, self._heads.newest
        size, anchors = len(leaves.places if leaves.is_proof else leaves.tree), len(self._options.anchors)
        return VerificationReport(
            "proof" if leaves.is_proof else "export", self._header.ledger,
            CheckedCounts(leaves.events, self._rows, leaves.changes, leaves.gone, leaves.missing.deleted, leaves.signatures, size,
                    self._heads.count, anchors, leaves.attempts, leaves.unsigned_attempts, self._keys.workers),
            sealed, unsealed, None if newest is None else newest.head.root.hex(),
            self._findings.total, self._findings.first(),
        )  # fmt: skip


def _unreadable_row(message: str, fields: RowFields) -> str:
    return f"the row cannot be read: {describe_decode_error(message, fields)}"
