"""Check the events, key changes and policies of a file, and the histories of its jobs."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Literal, get_args

import msgspec

from holdfast.core.audit import Audit, Violation
from holdfast.core.model import HELD, Actor, EventRecord, EventType, JobRecord, Policy, Status
from holdfast.proof.export_format import (
    EventLine,
    ExportHeader,
    GoneLine,
    KeyLine,
    LeafProof,
    PolicyLine,
    SealedLine,
    event_from_line,
)
from holdfast.proof.findings import Findings, decode_or_none, describe_decode_error, format_untrusted, without_decoder_text
from holdfast.proof.key_book import KeyBook
from holdfast.proof.leaves import key_leaf
from holdfast.proof.merkle import Hash
from holdfast.proof.signing import SignatureCheck
from holdfast.proof.verify_keys import KeyCheck
from holdfast.proof.verify_tree import EventLocation, LeafHashes, MissingEvents, ProvenLeaf, ProvenLeaves

_BODIES = ("args", "last_error", "result", "checkpoint", "override")
_BODY_BYTES_MAX = 64
_COMPACT_BYTES_MAX = 65_536
"""The largest job that a ledger writes, with a thousand dependencies, has about 25,000 bytes."""
_ACTIVE = HELD | {Status.STALLED}
"""Statuses in which the next signature depends on earlier ones, so the audit must be kept."""
_MARK = b"\xff"
"""A byte that valid UTF-8 never has, so a marked hash cannot be equal to a real text."""
_FOLD_ERRORS = (msgspec.MsgspecError, LookupError, ValueError, TypeError, AttributeError, AssertionError, ArithmeticError)


class _CompactJob(JobRecord, frozen=True, array_like=True):
    """A job in a compact encoding of a few hundred bytes."""


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_CompactJob] = msgspec.msgpack.Decoder(_CompactJob)


class _IdleJob:
    """A job that is not held, in compact form. It may still be claimed or get a note, and its row comes later in the file."""

    __slots__ = ("body", "is_incomplete", "policy")

    def __init__(self, audit: Audit, job: JobRecord) -> None:
        self.is_incomplete = audit.is_incomplete
        self.policy = job.policy
        self.body = _encode(_CompactJob(*msgspec.structs.astuple(msgspec.structs.replace(job, policy=None))))

    def job(self) -> JobRecord:
        return msgspec.structs.replace(JobRecord(*msgspec.structs.astuple(_decoder.decode(self.body))), policy=self.policy)


class JobHistories:
    """The jobs whose events were read and whose row was not."""

    def __init__(self, ledger_id: str, book: KeyBook) -> None:
        self._ledger_id = ledger_id
        self._book = book
        self._found: dict[int, Audit | _IdleJob] = {}
        self.count = 0

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def _signatures(self) -> SignatureCheck:
        return SignatureCheck(self._book, self._ledger_id)

    def correlation(self, job_id: int) -> tuple[str, str | None]:
        """Return correlation id and trace id, which only a job's first event has."""
        found = self._found.get(job_id)
        job = None if found is None else found.job() if isinstance(found, _IdleJob) else found.job
        return ("", None) if job is None else (job.correlation_id, job.trace_id)

    def feed(self, event: EventRecord) -> list[Violation]:
        """Return what is wrong with the next event of its job. A job that cannot be folded any more gets no further findings."""
        found = self._found.get(event.job_id)
        if found is None:
            self.count += 1
            found = self._found[event.job_id] = Audit(self._signatures())
        elif isinstance(found, _IdleJob):
            found = self._found[event.job_id] = Audit(self._signatures(), found.job(), is_incomplete=found.is_incomplete)
        if found.ended:
            return []
        try:
            wrong = found.feed(event)
        except (*_FOLD_ERRORS, RecursionError):
            found.ended = True
            return [Violation(event.job_id, event.rev, "unreadable", "it has a value that Holdfast never writes")]
        job = found.job
        if job is not None and not found.ended:
            found.job = job = _with_hashed_bodies(job)
            if job.status not in _ACTIVE:
                resting = _IdleJob(found, job)
                if len(resting.body) > _COMPACT_BYTES_MAX:
                    # It is decoded and encoded again with each event, so its size is limited.
                    found.ended = True
                    return [*wrong, Violation(event.job_id, event.rev, "unreadable", "a job larger than any ledger writes")]
                self._found[event.job_id] = resting
        return wrong

    def drop(self, job_id: int) -> None:
        """Forget a job whose row cannot be compared."""
        self._found.pop(job_id, None)

    def close(self, row: JobRecord) -> list[Violation] | None:
        """Return the differences between a row and its job's events, or None if the events could not be folded.

        The job is removed.
        """
        found = self._found.pop(row.id, None)
        if found is None:
            return [Violation(row.id, row.rev, "row", "a row without events")]
        audit = Audit(None, found.job(), is_incomplete=found.is_incomplete) if isinstance(found, _IdleJob) else found
        return None if audit.ended else audit.check_row(_with_hashed_bodies(row))


def _with_hashed_bodies(job: JobRecord) -> JobRecord:
    """Return `job` with its long bodies replaced by their hashes, which is enough for a comparison."""
    long = {name: body for name in _BODIES if (body := getattr(job, name)) is not None and len(body) > _BODY_BYTES_MAX}
    if not long:
        return job
    return msgspec.structs.replace(job, **{name: _MARK + sha256(body).digest() for name, body in long.items()})


ACTORS_MAX = 10_000
POLICY_CHARACTERS_MAX = 16_384
"""Much more than any policy that a ledger writes."""
SignedLevel = Literal["none", "liveness", "all"]
"""The `signed` settings of a policy, from the least to the most."""
_LEVELS = get_args(SignedLevel)
OptionalLeafProof = LeafProof | msgspec.UnsetType
_JobRev = tuple[int | None, int | None]
"""A job and a revision."""
_policy: msgspec.json.Decoder[Policy] = msgspec.json.Decoder(Policy)


class LeafCheck:
    """Check each line by itself and each job's events one after another, and collect the leaves."""

    def __init__(self, header: ExportHeader, keys: KeyCheck, findings: Findings, require_signed: SignedLevel = "none") -> None:
        self._findings = findings
        self._required = require_signed
        self._keys = keys
        self.is_proof = not isinstance(header.holdfast_proof, msgspec.UnsetType)
        self._policies: dict[int, tuple[str, Policy | None]] = {}
        self._actors: dict[str, Actor] = {}
        self.jobs = JobHistories(header.ledger, keys.book)
        self.tree, self.places, self.missing = LeafHashes(), ProvenLeaves(), MissingEvents()
        self.events = self.changes = self.gone = self.signatures = 0
        self.attempts = self.unsigned_attempts = 0
        self.unplaced = 0
        """The number of lines of a proof that have no place in its tree."""
        self.first_unplaced = 0
        self.pos = 0
        """The newest position."""
        self._newest: EventLocation | None = None
        """The newest event."""

    def event(self, number: int, line: EventLine, place: OptionalLeafProof) -> None:
        self.events += 1
        self.signatures += line.signature is not None
        text, policy = self.policy_of(number, line.policy, line.job_id, line.rev)
        leaf = line.leaf(text)
        self._take(number, line.pos, sha256(b"\0" + leaf).digest(), place, (line.job_id, line.rev))
        self._newest = found = EventLocation(number, line.pos, line.job_id, line.rev, line.type)
        self.missing.event(len(self.tree) - 1, found, leaf)
        if line.type is EventType.CLAIMED:
            self._attempt(number, line, policy)
        actor = self._actor(line.actor)
        if actor is None:
            detail = f"its actor is {format_untrusted(line.actor)}, which is not a worker, operator or other actor of Holdfast"
            self._findings.add(number, "role", detail, job_id=line.job_id, rev=line.rev, pos=line.pos, event=str(line.type))
            return
        if line.correlation_id is None:
            correlation_id, trace_id = self.jobs.correlation(line.job_id)
            if line.trace_id is not None:  # the leaf does not cover it here, so the audit compares it with the job's
                trace_id = line.trace_id
        else:
            correlation_id, trace_id = line.correlation_id, line.trace_id
        for wrong in self.jobs.feed(event_from_line(line, actor, policy, correlation_id, trace_id)):
            self._findings.add(
                number,
                wrong.rule,
                without_decoder_text(wrong.detail),
                job_id=wrong.job_id,
                rev=wrong.rev,
                pos=line.pos,
                event=str(line.type),
            )

    def _attempt(self, number: int, line: EventLine, policy: Policy | None) -> None:
        """Check that the policy of a new attempt requires enough signatures. An unknown setting counts as "none"."""
        self.attempts += 1
        level = policy.signed if policy is not None and policy.signed in _LEVELS else "none"
        self.unsigned_attempts += level == "none"
        if _LEVELS.index(level) < _LEVELS.index(self._required):
            detail = f"attempt {line.attempt} was claimed under signed={level}, but {self._required} is required"
            self._findings.add(number, "signed", detail, job_id=line.job_id, rev=line.rev, pos=line.pos, event=str(line.type))

    def key(self, number: int, line: KeyLine, place: OptionalLeafProof) -> None:
        self.changes += 1
        change = line.change_of()
        self._take(number, line.pos, sha256(b"\0" + key_leaf(*msgspec.structs.astuple(change))).digest(), place)
        self._keys.feed(number, change)

    def lost(self, number: int, line: GoneLine) -> None:
        self.gone += 1
        leaf = bytes.fromhex(line.hash)
        self._take(number, line.pos, leaf, msgspec.UNSET)
        self.missing.gone(number, line.pos, leaf)

    def sealed(self, number: int, line: SealedLine) -> None:
        """Record the hash with which, according to the file, the event in the line before was sealed."""
        self.tree.skip()
        found = self._newest
        if self.is_proof or found is None or (found.pos, found.line) != (line.pos, number - 1):
            self._findings.add(number, "order", "a hash that was sealed, without the event that it belongs to", pos=line.pos)
            return
        self.tree.sealed(bytes.fromhex(line.hash), found)

    def policy(self, number: int, line: PolicyLine) -> None:
        self.tree.skip()
        if line.id in self._policies:
            self._findings.add(number, "policy", f"policy {line.id} is in the file twice")
            return
        if len(line.body) > POLICY_CHARACTERS_MAX:
            # Its text is hashed again for every event that refers to it, so its length is limited.
            self._findings.add(number, "policy", f"policy {line.id} has more than {POLICY_CHARACTERS_MAX} characters")
            self._policies[line.id] = ("", None)
            return
        try:
            self._policies[line.id] = (line.body, _policy.decode(line.body))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._findings.add(
                number,
                "policy",
                f"policy {line.id} cannot be read: {describe_decode_error(str(error), decode_or_none(line.body))}",
            )
            self._policies[line.id] = (line.body, None)

    def policy_of(self, number: int, policy_id: int | None, job_id: int, rev: int) -> tuple[str | None, Policy | None]:
        """Return the text of the policy that a line refers to, and the parsed policy."""
        if policy_id is None:
            return None, None
        found = self._policies.get(policy_id)
        if found is None:
            self._findings.add(number, "policy", f"policy {policy_id} is not in the file", job_id=job_id, rev=rev)
            return None, None
        return found

    def newer_than(self, sealed: int) -> tuple[int, int]:
        """Return how many leaves a head of that size does not cover, and the line of the first of them."""
        if self.is_proof:
            return self.unplaced, self.first_unplaced
        return max(0, len(self.tree) - sealed), self.tree.line_of(sealed)

    def _take(self, number: int, pos: int, leaf: Hash, place: OptionalLeafProof, about: _JobRev = (None, None)) -> None:
        if pos <= self.pos:
            self._findings.add(number, "order", f"position {pos} follows {self.pos}", pos=pos)
        self.pos = max(self.pos, pos)
        if not self.is_proof:
            self.tree.add(leaf, pos)
        elif isinstance(place, msgspec.UnsetType):
            self.unplaced += 1
            self.first_unplaced = self.first_unplaced or number
        else:
            self.places.add(ProvenLeaf(number, pos, leaf, place, *about))

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
