"""The lines of an export, and of one job's proof. Each line is a JSON object of one kind, in exactly one form.

An export has, in this order: a header; policies, events, key changes and hashes of deleted leaves, in the total order; the jobs'
rows; the signed heads; an end line with the counts. A job's proof has the same for one job, each event with its inclusion proof.
"""

from typing import Annotated, Any, Literal

import msgspec

from holdfast.core.limits import JOB_ID_MAX, REV_MAX, TIME_US_MAX
from holdfast.core.model import EventRecord, EventType, Flow, JobRecord, Micros, Policy, Status
from holdfast.errors import ValidationError
from holdfast.proof.key_book import KeyChange
from holdfast.proof.leaves import event_leaf
from holdfast.proof.merkle import SIZE_MAX

UNSET = msgspec.UNSET
Number = Annotated[int, msgspec.Meta(ge=1, le=JOB_ID_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)]
Rev = Annotated[int, msgspec.Meta(ge=0, le=REV_MAX)]
At = Annotated[Micros, msgspec.Meta(ge=0, le=TIME_US_MAX)]
Hex32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Hex64 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]
_Unset = msgspec.UnsetType
RowFields = dict[str, str | int | bool | list[int] | Flow | None]
"""The fields of a job's row by name."""
_LISTS = frozenset({"depends_on", "waits_for"})
"""The fields of a row that are lists of job ids."""


class _ExportRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class ExportHeader(_ExportRecord, frozen=True, kw_only=True):
    """The first line. Exactly one of `holdfast_export` and `holdfast_proof` is set."""

    holdfast_export: Literal[1] | _Unset = UNSET
    holdfast_proof: Literal[1] | _Unset = UNSET
    ledger: str
    origin: str
    exported_at: At
    version: str


class EventLine(_ExportRecord, frozen=True, gc=False):
    """An event with everything that its leaf is made of.

    Payload and statement are the exact bytes as text. Fields that are None are left out. Only a job's first event has the
    correlation id and the trace id.
    """

    pos: Number
    job_id: Number
    rev: Rev
    type: EventType
    received_at: At
    actor: str
    attempt: Rev
    to_status: Status
    from_status: Status | None = None
    at: At | None = None
    reason: str | None = None
    request_id: str | None = None
    cause: str | None = None
    payload: str | None = None
    policy: Number | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    key_id: str | None = None
    signature: Hex64 | None = None
    statement: str | None = None

    def leaf(self, policy: str | None) -> bytes:
        """Return the bytes of the event's leaf. `policy` is the text of the policy that the event refers to."""
        return event_leaf(
            (self.pos, self.job_id, self.rev, self.type, self.received_at, self.at, self.actor, self.attempt, self.from_status,
             self.to_status, self.reason, self.request_id, self.cause, _bytes(self.payload), policy, self.correlation_id,
             self.trace_id, self.key_id, None if self.signature is None else bytes.fromhex(self.signature),
             _bytes(self.statement))
        )  # fmt: skip


class KeyLine(_ExportRecord, frozen=True):
    """A change of the key book."""

    pos: Number
    change: str
    key_id: str
    role: str
    name: str
    public: Hex32
    at: At
    by: str
    signer: str
    signature: Hex64

    def change_of(self) -> KeyChange:
        fields = msgspec.structs.asdict(self)
        return KeyChange(**fields | {"public": bytes.fromhex(self.public), "signature": bytes.fromhex(self.signature)})


class GoneLine(_ExportRecord, frozen=True):
    """A leaf whose event retention has deleted. Only its hash is left."""

    pos: Number
    hash: Hex32


class SealedLine(_ExportRecord, frozen=True):
    """The hash that the ledger's tree has for the event in the line before, if that differs from the event's own leaf.

    The hash is not trusted. With all these hashes in place, the tree must have the signed root.
    """

    pos: Number
    hash: Hex32


class PolicyLine(_ExportRecord, frozen=True):
    """A policy as the ledger stores it. It comes before the first line that refers to it."""

    id: Number
    body: str


class LeafProof(_ExportRecord, frozen=True):
    """In a job's proof: the index of the line's leaf in the head's tree, and its inclusion proof."""

    index: Count
    proof: Annotated[list[Hex32], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=list)


class UnreadableLine(_ExportRecord, frozen=True):
    """A job whose row cannot be read, because another program has written to the database."""

    job_id: Number
    why: str


class EndLine(_ExportRecord, frozen=True):
    """The number of lines of each kind."""

    events: Count = 0
    jobs: Count = 0
    keys: Count = 0
    heads: Count = 0
    gone: Count = 0


class ExportLine(_ExportRecord, frozen=True):
    """Any line but the first. Exactly one kind is set. In a job's proof, `leaf` has its place in the tree."""

    event: EventLine | _Unset = UNSET
    key: KeyLine | _Unset = UNSET
    gone: GoneLine | _Unset = UNSET
    sealed: SealedLine | _Unset = UNSET
    policy: PolicyLine | _Unset = UNSET
    job: RowFields | _Unset = UNSET
    unreadable: UnreadableLine | _Unset = UNSET
    head: str | _Unset = UNSET
    end: EndLine | _Unset = UNSET
    leaf: LeafProof | _Unset = UNSET


_encode = msgspec.json.Encoder().encode
_lines: msgspec.json.Decoder[ExportLine] = msgspec.json.Decoder(ExportLine)
_headers: msgspec.json.Decoder[ExportHeader] = msgspec.json.Decoder(ExportHeader)


def encode_line(line: ExportHeader | ExportLine) -> bytes:
    return _encode(line) + b"\n"


def read_header(body: bytes) -> ExportHeader:
    """Return the header in a file's first line."""
    found: ExportHeader = _decode_line(_headers, body)
    if (found.holdfast_export is UNSET) == (found.holdfast_proof is UNSET):
        raise ValidationError("this is neither a Holdfast export nor a Holdfast proof")
    return found


def read_line(body: bytes) -> ExportLine:
    """Return the content of a line. Raise ValidationError if another reader could understand it differently."""
    found: ExportLine = _decode_line(_lines, body)
    kinds = (
        found.event, found.key, found.gone, found.sealed, found.policy, found.job, found.unreadable, found.head, found.end
    )  # fmt: skip
    if kinds.count(UNSET) != len(kinds) - 1:
        raise ValidationError("a line must be of exactly one kind")
    if found.leaf is not UNSET and found.event is UNSET and found.key is UNSET:
        raise ValidationError("only events and changes of keys have a place in the tree")
    if isinstance(found.job, dict) and any(isinstance(value, list) and name not in _LISTS for name, value in found.job.items()):
        raise ValidationError("a field of the row is a list, which Holdfast does not write there")
    return found


def _decode_line(decoder: Any, body: bytes) -> Any:
    try:
        found = decoder.decode(body)
        encoded = encode_line(found)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValidationError(f"the line cannot be read: {error}") from None
    if encoded != body:
        raise ValidationError("the line is not spelled as Holdfast writes it: it was written by something else, or cut off")
    return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


# Rows

_LEFT_OUT = frozenset({"token"})
_FIELDS = frozenset(JobRecord.__struct_fields__) - _LEFT_OUT
_BODIES = frozenset({"args", "last_error", "result", "checkpoint", "override"})
_DEFAULTS = dict(zip(reversed(JobRecord.__struct_fields__), reversed(JobRecord.__struct_defaults__), strict=False))


def job_fields(job: JobRecord, policy_id: int | None) -> dict[str, Any]:
    """Return the exported fields of a row: no token, bytes as text, the policy by its id, and no defaults."""
    found: dict[str, Any] = {}
    for name in JobRecord.__struct_fields__:
        value = getattr(job, name)
        if name in _LEFT_OUT or name == "policy" or (name in _DEFAULTS and value == _DEFAULTS[name]):
            continue
        found[name] = value.decode("utf-8", "replace") if name in _BODIES else value
    return found if policy_id is None else found | {"policy": policy_id}


def job_from_fields(fields: dict[str, Any], policy: Policy | None) -> JobRecord:
    """Return the row for the fields of a line. `policy` is the one that the line refers to."""
    if not fields.keys() <= _FIELDS:
        raise ValidationError(f"a row has no field {min(fields.keys() - _FIELDS)!r:.80}")
    values = {name: value for name, value in fields.items() if name != "policy"}
    for name in _BODIES & values.keys():
        values[name] = str(values[name]).encode()
    try:
        found: JobRecord = msgspec.convert(values, type=JobRecord)
    except msgspec.ValidationError as error:
        raise ValidationError(f"the row cannot be read: {error}") from None
    return msgspec.structs.replace(found, policy=policy)


def event_from_line(line: EventLine, actor: Any, policy: Policy | None, correlation_id: str, trace_id: str | None) -> EventRecord:
    """Return the event of a line, together with what the line only refers to."""
    return EventRecord(
        line.job_id, line.rev, line.type, line.received_at, actor, line.attempt, line.from_status, line.to_status, line.reason,
        line.request_id, line.cause, _bytes(line.payload), policy, line.at, line.pos, correlation_id, trace_id, 1, line.key_id,
        None if line.signature is None else bytes.fromhex(line.signature), _bytes(line.statement),
    )  # fmt: skip
