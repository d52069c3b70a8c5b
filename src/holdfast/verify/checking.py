"""Verifying a file offline: from its lines, the keys that are trusted and the heads that were anchored, and nothing else."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import BinaryIO

import msgspec

from holdfast.core.model import Actor, Policy
from holdfast.core.proof.exported import (
    UNSET,
    EndLine,
    EventLine,
    Header,
    KeyLine,
    LeafPlace,
    Line,
    PolicyLine,
    event_of,
    job_of,
)
from holdfast.core.proof.leaves import key_leaf
from holdfast.core.proof.merkle import Hash
from holdfast.core.proof.notes import origin_of
from holdfast.errors import HoldfastError, ValidationError
from holdfast.verify.findings import Checked, Findings, Verdict
from holdfast.verify.heads import check_ascending, signer_of
from holdfast.verify.jobs import Jobs
from holdfast.verify.keys import KeyCheck
from holdfast.verify.reading import header_of, lines_of
from holdfast.verify.tree import Leaves, Places, SignedHead, read_head
from holdfast.verify.trusted import Trusted

ACTORS_MAX = 10_000
HEADS_MAX = 100_000
PROGRESS_LINES = 10_000
_LEAVES, _ROWS, _HEADS, _END = range(4)
_PARTS = ("leaves", "rows", "heads", "the end")
_policy: msgspec.json.Decoder[Policy] = msgspec.json.Decoder(Policy)


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
        if isinstance(line, ValidationError):
            check.unread(number, line)
        else:
            check.feed(number, line)
        if progress is not None and number % PROGRESS_LINES == 0:
            progress(number)
    return check.verdict()


class _Check:
    """One file, line by line."""

    def __init__(self, header: Header, wishes: Wishes, findings: Findings) -> None:
        self._header, self._wishes, self._findings = header, wishes, findings
        self._origin = origin_of(header.ledger)
        self._is_proof = header.holdfast_proof is not UNSET
        self._keys = KeyCheck(header.ledger, wishes.trusted, findings)
        self._jobs = Jobs(header.ledger, self._keys.book)
        self._leaves, self._places = Leaves(), Places()
        self._policies: dict[int, tuple[str, Policy | None]] = {}
        self._actors: dict[str, Actor] = {}
        self._heads: list[SignedHead] = []
        self._events = self._rows = self._changes = self._gone = self._notes = self._signatures = 0
        self._unplaced = 0
        self._first_unsealed: int | None = None
        self._part, self._line, self._pos, self._job_id = _LEAVES, 1, 0, 0
        if header.origin != self._origin:
            findings.add(1, "file", "the header's ledger and origin do not belong together")
        if wishes.trusted is not None and wishes.trusted.origin != self._origin:
            findings.add(1, "keys", f"the file is of {self._origin:.80}, the trusted keys of {wishes.trusted.origin:.80}")

    def unread(self, number: int, error: ValidationError) -> None:
        self._line = number
        self._leaves.skip()
        self._findings.add(number, "file", error.message)

    def feed(self, number: int, line: Line) -> None:
        self._line = number
        if not isinstance(line.event, msgspec.UnsetType):
            self._enter(_LEAVES)
            self._event(line.event, line.leaf)
        elif not isinstance(line.policy, msgspec.UnsetType):
            self._enter(_LEAVES)
            self._policy(line.policy)
        elif not isinstance(line.key, msgspec.UnsetType):
            self._enter(_LEAVES)
            self._key(line.key, line.leaf)
        elif not isinstance(line.gone, msgspec.UnsetType):
            self._enter(_LEAVES)
            self._take(line.gone.pos, bytes.fromhex(line.gone.hash), UNSET)
            self._gone += 1
            if not self._wishes.allow_gone:
                self._findings.add(number, "gone", "a leaf of which only the hash is left", pos=line.gone.pos)
        elif not isinstance(line.job, msgspec.UnsetType):
            self._enter(_ROWS)
            self._row(line.job)
        elif not isinstance(line.unreadable, msgspec.UnsetType):
            self._enter(_ROWS)
            self._rows += 1
            self._findings.add(number, "fold", f"the row could not be read: {line.unreadable.why}", job_id=line.unreadable.job_id)
        elif not isinstance(line.head, msgspec.UnsetType):
            self._enter(_HEADS)
            self._head(line.head)
        elif not isinstance(line.end, msgspec.UnsetType):
            self._enter(_END)
            self._end(line.end)

    def _enter(self, part: int) -> None:
        """Parts come one after another, and nothing after the end."""
        if part < self._part or self._part == _END:
            self._findings.add(self._line, "order", f"a line that belongs to {_PARTS[part]} among {_PARTS[self._part]}")
            return
        if part > _ROWS >= self._part:
            self._without_rows()
        self._part = part

    # Leaves

    def _take(self, pos: int, leaf: Hash, place: LeafPlace | msgspec.UnsetType) -> None:
        if pos <= self._pos:
            self._findings.add(self._line, "order", f"position {pos} follows {self._pos}", pos=pos)
        self._pos = max(self._pos, pos)
        if not self._is_proof:
            self._leaves.add(leaf, pos)
        elif isinstance(place, msgspec.UnsetType):
            self._unplaced += 1
            self._first_unsealed = self._first_unsealed or self._line
        else:
            self._places.add(self._line, pos, leaf, place)

    def _event(self, line: EventLine, place: LeafPlace | msgspec.UnsetType) -> None:
        self._events += 1
        self._signatures += line.signature is not None
        text, policy = self._policy_of(line.policy, line.job_id)
        self._take(line.pos, sha256(b"\0" + line.leaf(text)).digest(), place)
        actor = self._actor(line.actor)
        if actor is None:
            self._findings.add(
                self._line, "role", f"{line.actor!r:.80} is nobody", job_id=line.job_id, rev=line.rev, pos=line.pos
            )
            return
        if line.correlation_id is None:
            correlation_id, trace_id = self._jobs.correlation(line.job_id)
        else:
            correlation_id, trace_id = line.correlation_id, line.trace_id
        for wrong in self._jobs.feed(event_of(line, actor, policy, correlation_id, trace_id)):
            self._findings.add(self._line, wrong.rule, wrong.detail, job_id=wrong.job_id, rev=wrong.rev, pos=line.pos)

    def _actor(self, text: str) -> Actor | None:
        found = self._actors.get(text)
        if found is None:
            try:
                found = Actor.parse(text)
            except ValueError:
                return None
            if str(found) != text:
                return None
            if len(self._actors) >= ACTORS_MAX:
                self._actors.clear()
            self._actors[text] = found
        return found

    def _policy(self, line: PolicyLine) -> None:
        self._leaves.skip()
        if line.id in self._policies:
            self._findings.add(self._line, "policy", f"policy {line.id} is told twice")
            return
        try:
            self._policies[line.id] = (line.body, _policy.decode(line.body))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._findings.add(self._line, "policy", f"policy {line.id} cannot be read: {error}")
            self._policies[line.id] = (line.body, None)

    def _policy_of(self, number: int | None, job_id: int) -> tuple[str | None, Policy | None]:
        if number is None:
            return None, None
        found = self._policies.get(number)
        if found is None:
            self._findings.add(self._line, "policy", f"policy {number} was never told", job_id=job_id)
            return None, None
        return found

    def _key(self, line: KeyLine, place: LeafPlace | msgspec.UnsetType) -> None:
        self._changes += 1
        change = line.change_of()
        leaf = key_leaf(*msgspec.structs.astuple(change))
        self._take(line.pos, sha256(b"\0" + leaf).digest(), place)
        self._keys.feed(self._line, change)

    # Rows, heads, the end

    def _row(self, fields: dict[str, str | int | bool | None]) -> None:
        self._rows += 1
        number = fields.get("policy")
        try:
            if not isinstance(number, int | None) or isinstance(number, bool):
                raise ValidationError("the row's policy is no number")
            row = job_of(fields, self._policy_of(number, 0)[1])
        except ValidationError as error:
            self._findings.add(self._line, "file", error.message)
            return
        if row.id <= self._job_id:
            self._findings.add(self._line, "order", f"job {row.id} follows {self._job_id}", job_id=row.id)
        self._job_id = max(self._job_id, row.id)
        for wrong in self._jobs.close(row):
            self._findings.add(self._line, wrong.rule, wrong.detail, job_id=wrong.job_id, rev=wrong.rev)

    def _without_rows(self) -> None:
        for job_id in self._jobs:
            self._findings.add(self._line, "row", "it has events, but no row", job_id=job_id)

    def _head(self, note: str) -> None:
        self._notes += 1
        if self._notes > HEADS_MAX:
            return
        try:
            self._heads.append(read_head(note, self._line))
        except HoldfastError as error:
            self._findings.add(self._line, "head", error.message)

    def _end(self, line: EndLine) -> None:
        counted = EndLine(self._events, self._rows, self._changes, self._notes, self._gone)
        for name in EndLine.__struct_fields__:
            said, found = getattr(line, name), getattr(counted, name)
            if said != found:
                self._findings.add(self._line, "count", f"the file ends with {said} {name}, but has {found}")

    # What only the whole file shows

    def verdict(self) -> Verdict:
        if self._part != _END:
            self._findings.add(self._line, "file", "the file ends before its end: it was cut off")
        if self._notes > HEADS_MAX:
            self._findings.add(self._line, "head", f"the file has {self._notes} heads; {HEADS_MAX} can be checked")
        self._keys.finish(self._line, self._pos)
        check_ascending(self._heads, self._findings)
        newest = self._heads[-1] if self._heads else None
        sealed = (self._check_places if self._is_proof else self._check_tree)(newest)
        if self._wishes.trusted is None:
            self._findings.add(self._line, "trust", "no keys were given: the file vouches for itself only")
        unsealed = self._unplaced if self._is_proof else len(self._leaves) - sealed
        if unsealed and not self._wishes.allow_unsealed:
            first = self._first_unsealed if self._is_proof else self._leaves.line_of(sealed)
            self._findings.add(first or self._line, "unsealed", f"{unsealed} from here on are not sealed yet")
        return self._told(newest, sealed, unsealed)

    def _told(self, newest: SignedHead | None, sealed: int, unsealed: int) -> Verdict:
        checked = Checked(
            events=self._events, jobs=self._rows, keys=self._changes, gone=self._gone, signatures=self._signatures,
            leaves=len(self._places) if self._is_proof else len(self._leaves), heads=self._notes,
            anchors=len(self._wishes.anchors),
        )  # fmt: skip
        return Verdict(
            "proof" if self._is_proof else "export", self._header.ledger, checked, sealed, unsealed,
            None if newest is None else newest.head.root.hex(), self._findings.total, self._findings.first(),
        )  # fmt: skip

    def _check_tree(self, newest: SignedHead | None) -> int:
        """How many leaves the newest head seals."""
        if newest is None:
            self._findings.add(self._line, "head", "no head is in the file: nothing vouches for it")
        heads = [*self._wishes.anchors, *self._heads]
        self._leaves.check(heads, self._findings)
        for found in heads:
            if found.head.size <= len(self._leaves):
                self._check_signer(found, self._leaves.pos_of(found.head.size - 1) if found.head.size else 0, newest)
        return 0 if newest is None else min(newest.head.size, len(self._leaves))

    def _check_places(self, newest: SignedHead | None) -> int:
        if self._wishes.anchors:
            self._findings.add(self._line, "anchor", "a job's proof has no tree to compare with an older head: verify an export")
        if newest is None:
            self._findings.add(self._line, "head", "a proof without a head proves nothing")
            return 0
        self._check_signer(newest, self._places.last_pos, newest)
        self._places.check(newest.head, self._findings)
        return newest.head.size

    def _check_signer(self, found: SignedHead, pos: int, newest: SignedHead | None) -> None:
        signer = signer_of(found, self._origin, self._keys, pos, self._findings)
        is_weak = signer is not None and self._wishes.trusted is not None and not self._keys.is_rooted(signer)
        if found is newest and is_weak:
            self._findings.add(found.line, "trust", f"{found.title} is signed by a key that no trusted key vouches for")
