"""Export the ledger as a file that `holdfast verify` can check without the ledger."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.core import payloads
from holdfast.core.limits import EXPORT_HEADS_MAX, JOB_ID_MAX
from holdfast.core.model import JobRecord, Policy
from holdfast.errors import NotFound
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.ledger.verbs.proofs import tile_reader
from holdfast.proof import tiles
from holdfast.proof.export_format import (
    UNSET,
    EndLine,
    EventLine,
    ExportHeader,
    ExportLine,
    GoneLine,
    KeyLine,
    LeafProof,
    PolicyLine,
    SealedLine,
    UnreadableLine,
    encode_line,
    job_fields,
)
from holdfast.proof.key_book import KeyChange
from holdfast.proof.merkle import HASH_BYTES
from holdfast.proof.notes import origin_of
from holdfast.proof.tiles import TILE_HASHES
from holdfast.store.rows import EventRow, default_correlation
from holdfast.store.sealing import POSITION_BYTES, HeadRow, TileRow, unpack_positions
from holdfast.store.session import Session
from holdfast.version import __version__

_policy: msgspec.json.Decoder[Policy] = msgspec.json.Decoder(Policy)


def event_line(row: Sequence[Any], ledger_id: str) -> EventLine:
    (pos, job_id, rev, kind, received_at, at, actor, attempt, from_status, to_status, reason, request_id, cause, payload,
     policy_id, correlation_id, trace_id, key_id, signature, statement) = row  # fmt: skip
    is_new = kind == "enqueued"
    return EventLine(
        pos, job_id, rev, kind, received_at, actor, attempt, to_status, from_status, at, reason, request_id, cause,
        _text_or_none(payload), policy_id, (correlation_id or default_correlation(ledger_id, job_id)) if is_new else None,
        trace_id if is_new else None, key_id, None if signature is None else signature.hex(), _text_or_none(statement),
    )  # fmt: skip


def read_policy(body: str) -> Policy | None:
    try:
        return _policy.decode(body)
    except (msgspec.MsgspecError, ValueError):
        return None


def _text_or_none(body: bytes | None) -> str | None:
    """Decode bytes as UTF-8. Non-UTF-8 bytes mean tampering: export them so that verification fails."""
    return None if body is None else body.decode("utf-8", "replace")


def key_line(change: KeyChange) -> KeyLine:
    fields = msgspec.structs.asdict(change)
    return KeyLine(**fields | {"public": change.public.hex(), "signature": change.signature.hex()})


def merge_by_position(rows: Sequence[EventRow], keys: Sequence[KeyChange]) -> list[EventRow | KeyChange]:
    """Return events and key changes in the total order."""
    return sorted([*rows, *keys], key=attrgetter("pos"))


def by_position(tile: TileRow) -> dict[int, bytes]:
    """Return the hashes of a tile's leaves by position."""
    whole = len(tile.positions or b"") // POSITION_BYTES * POSITION_BYTES
    positions = unpack_positions((tile.positions or b"")[:whole])
    hashes = [tile.hashes[at : at + HASH_BYTES] for at in range(0, len(tile.hashes), HASH_BYTES)]
    return dict(zip(positions[:TILE_HASHES], hashes, strict=False))


Write = Callable[[bytes], object]
Progress = Callable[[int, int], object]
"""Called with the current position and the last one."""
PAGE_EVENTS = 256
"""Events in a page: few enough that a page of the largest allowed payloads fits into memory."""
PAGE_JOBS = 100
_UNREADABLE = (LookupError, ValueError, msgspec.MsgspecError)


class ExportVerbs(LedgerBase):
    """The verbs that write files. They read the ledger from one snapshot and do not change it."""

    def export(self, write: Write, *, progress: Progress | None = None) -> EndLine:
        """Export the whole ledger: call `write` with each line. Return how many lines of each kind there were.

        Memory use is bounded. `progress` is called with the current position and the last one. On PostgreSQL the export is one
        read transaction: vacuum cannot remove dead rows until it ends. On SQLite it reads a copy of the file, which is made first
        if its disk has room.
        """
        validate.function("write", write)
        if progress is not None:
            validate.function("progress", progress)
        return self._store.read_long(lambda session: _Exporter(session, self.id, write).whole(progress))

    def prove(self, job_id: int, write: Write) -> EndLine:
        """Export one job: call `write` with each line. Return how many lines of each kind there were.

        The lines are the job's events with proofs that they are in the tree of the newest head, the keys, the job's row, and
        that head.
        """
        job_id = validate.job_id(job_id)
        validate.function("write", write)
        return self._store.read(lambda session: _Exporter(session, self.id, write).job(job_id))


def _hash(line: EventLine, policy: str | None) -> bytes | None:
    """Return the leaf hash of an event, or None if the event cannot be encoded because it was tampered with."""
    try:
        return sha256(b"\0" + line.leaf(policy)).digest()
    except _UNREADABLE:
        return None


def _is_readable(kind: str, payload: bytes | None) -> bool:
    """Return whether the payload has the form of this event type. A type without a payload form, or unknown, accepts any."""
    shape = {type_.value: shape for type_, shape in payloads.PAYLOAD_TYPES.items()}.get(kind)
    try:
        return shape is None or payloads.decode(shape, payload) is not None
    except _UNREADABLE:
        return False


class _Exporter:
    """Writes one file from one snapshot."""

    def __init__(self, session: Session, ledger_id: str, write: Write) -> None:
        self._session = session
        self._ledger_id = ledger_id
        self._write = write
        self._texts = session.policy_texts()
        self._ids = {policy: id_ for id_, body in self._texts.items() if (policy := read_policy(body)) is not None}
        self._written_policies: set[int] = set()
        self._counts = dict.fromkeys(EndLine.__struct_fields__, 0)

    def whole(self, progress: Progress | None) -> EndLine:
        self._begin(ExportHeader(holdfast_export=1, **self._origin()))
        last = self._session.last_pos()
        for pos in self._leaves():
            if progress is not None:
                progress(pos, last)
        self._jobs(self._all_jobs())
        self._heads(self._chosen_heads())
        return self._end()

    def job(self, job_id: int) -> EndLine:
        rows, head = self._session.leaf_rows(job_id), self._session.last_head()
        if not rows:
            raise NotFound(f"there is no job {job_id}", job_id=job_id)
        if head is None:
            raise NotFound("nothing was ever sealed here: run holdfast seal", job_id=job_id)
        self._begin(ExportHeader(holdfast_proof=1, **self._origin()))
        until = max(head.pos, rows[-1].pos)
        changes = [change for change in self._session.key_log() if change.pos <= until]
        tile = tile_reader(self._session.tile)
        for found in merge_by_position(rows, changes):
            self._leaf(found, self._place(tile, found.pos, head))
        self._jobs([[job_id]])
        self._heads([head])
        return self._end()

    def _place(self, tile: tiles.ReadTile, pos: int, head: HeadRow) -> LeafProof | msgspec.UnsetType:
        index = self._session.leaf_index(pos) if pos <= head.pos else None
        if index is None:
            return UNSET
        return LeafProof(index, [found.hex() for found in tiles.inclusion_proof(tile, index, head.size)])

    # Lines

    def _origin(self) -> dict[str, Any]:
        ledger_id, at = self._ledger_id, self._session.now()
        return {"ledger": ledger_id, "origin": origin_of(ledger_id), "exported_at": at, "version": __version__}

    def _begin(self, header: ExportHeader) -> None:
        self._write(encode_line(header))

    def _line(self, count: str, line: ExportLine) -> None:
        self._counts[count] += 1
        self._write(encode_line(line))

    def _end(self) -> EndLine:
        end = EndLine(**self._counts)
        self._write(encode_line(ExportLine(end=end)))
        return end

    def _leaf(
        self, found: EventRow | KeyChange, place: LeafProof | msgspec.UnsetType = UNSET, sealed: bytes | None = None
    ) -> None:
        """Write a leaf. `sealed` is its hash in the tree. If that differs from the event's, write it too for `verify` to find."""
        if isinstance(found, KeyChange):
            self._line("keys", ExportLine(key=key_line(found), leaf=place))
            return
        self._policy(found.policy_id)
        policy = None if found.policy_id is None else self._texts.get(found.policy_id)
        line = event_line(found, self._ledger_id)
        self._line("events", ExportLine(event=line, leaf=place))
        if sealed is not None and len(sealed) == HASH_BYTES and _hash(line, policy) != sealed:
            self._write(encode_line(ExportLine(sealed=SealedLine(line.pos, sealed.hex()))))

    def _policy(self, policy_id: int | None) -> None:
        if policy_id is not None and policy_id not in self._written_policies and policy_id in self._texts:
            self._written_policies.add(policy_id)
            self._write(encode_line(ExportLine(policy=PolicyLine(policy_id, self._texts[policy_id]))))

    # Leaves, in the total order

    def _leaves(self) -> Iterator[int]:
        """Write the leaves tile by tile, including those missing from the ledger. Then write the leaves after the tree."""
        after = number = 0
        while (tile := self._session.tile(0, number)) is not None and tile.positions:
            gone = by_position(tile)
            until = max(after, *gone)
            for found in self._between(after, until):
                pos = found.pos
                self._gone(gone, pos)
                self._leaf(found, sealed=gone.pop(pos, None))
            self._gone(gone, until + 1)
            after, number = until, number + 1
            yield after
        for found in self._between(after, JOB_ID_MAX):
            self._leaf(found)
            yield found.pos

    def _between(self, after: int, until: int) -> Iterator[EventRow | KeyChange]:
        """Yield the events and key changes at these positions, read page by page."""
        while True:
            page = self._session.leaves_between(after, until, PAGE_EVENTS)
            rows = [EventRow(*row) for row in page.events]
            yield from merge_by_position(rows, page.keys) if page.keys else rows
            if page.until >= until:
                return
            after = page.until

    def _gone(self, left: dict[int, bytes], before: int) -> None:
        """Write a line for each leaf before this position that is in the tree but no longer in the ledger."""
        for pos in [pos for pos in left if pos < before]:
            self._line("gone", ExportLine(gone=GoneLine(pos, left.pop(pos).hex())))

    # Rows and heads

    def _all_jobs(self) -> Iterator[list[int]]:
        after = 0
        while ids := self._session.job_ids(after, PAGE_JOBS):
            yield ids
            after = ids[-1]

    def _jobs(self, pages: Iterable[list[int]]) -> None:
        for ids in pages:
            without_start = self._session.without_first_event(ids)
            try:
                found = self._session.load(ids, lock=False)
            except _UNREADABLE:
                found = {}
            for id_ in ids:
                if id_ in without_start:
                    self._line("jobs", ExportLine(unreadable=UnreadableLine(id_, "the job has no first event")))
                else:
                    self._job(id_, found.get(id_))

    def _job(self, job_id: int, job: JobRecord | None) -> None:
        """Write a job's row, or why it cannot be read. A corrupted row does not affect the others."""
        try:
            if job is None:
                job = self._session.load([job_id], lock=False)[job_id]
            policy_id = None if job.policy is None else self._ids[job.policy]
        except _UNREADABLE as error:
            self._line("jobs", ExportLine(unreadable=UnreadableLine(job_id, self._why(job_id, error))))
            return
        self._line("jobs", ExportLine(job=job_fields(job, policy_id)))

    def _why(self, job_id: int, error: Exception) -> str:
        """Return why a row cannot be read: what is wrong with it, or with the events that it refers to."""
        rows = self._session.leaf_rows(job_id)
        for row in rows:
            if not _is_readable(row.type, row.payload):
                return f"the payload of its event {row.rev} cannot be read"
        unreadable = [id_ for id_, body in self._texts.items() if read_policy(body) is None]
        if unreadable:
            return f"policy {unreadable[0]} of the ledger cannot be read"
        if isinstance(error, KeyError):
            [value] = error.args
            field, what = ("policy_id", "policy") if isinstance(value, int) else ("phase", "phase")
            return f"{field} in its row is {value}, and there is no such {what}"
        if not isinstance(error, msgspec.MsgspecError):
            return "a field of its row has a value that no ledger writes"
        if any(row.type == "succeeded" for row in rows):
            return "result or checkpoint_rev in its row cannot be read"
        return "checkpoint_rev in its row names an event of another type"

    def _chosen_heads(self) -> list[HeadRow]:
        """Return the first head and the newest ones."""
        first: HeadRow | None = None
        newest: deque[HeadRow] = deque(maxlen=EXPORT_HEADS_MAX)
        after = 0
        while page := self._session.heads(after, EXPORT_HEADS_MAX):
            first = first or page[0]
            newest.extend(page)
            after = page[-1].size
        return list(newest) if first is None or first in newest else [first, *newest]

    def _heads(self, heads: Iterable[HeadRow]) -> None:
        for head in heads:
            self._line("heads", ExportLine(head=head.note))
