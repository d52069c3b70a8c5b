"""The payloads of events, one struct per event type. Envelope and payload together have everything that the fold needs."""

import re
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.core.model import ON_FAILURE_DEFAULT, EventRecord, EventType, Flow, Micros, required_labels

UNSET = msgspec.UNSET
OptionalJson = msgspec.Raw | msgspec.UnsetType
"""JSON as the bytes that were received, or UNSET."""
_encoder = msgspec.json.Encoder()


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    def encode(self) -> bytes:
        return _encoder.encode(self)


class EnqueuedPayload(Payload, frozen=True):
    """The payload of `enqueued`.

    `on_dependency_failure` must stay the last field. SQL statements look for it at the end of the payload, where no args can
    imitate it.
    """

    queue: str
    kind: str
    args: msgspec.Raw
    priority: int = 0
    available_at: Micros | None = None
    delay_us: int = 0
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    dedupe_for_us: int = 0
    on_duplicate: str = "keep"
    postpone_max_us: int = 0
    tier: str | None = None
    policy: OptionalJson = UNSET
    replay_of: int | None = None
    flow: Flow | None = None
    group: str | None = None
    depends_on: tuple[int, ...] = ()
    on_dependency_failure: str = ON_FAILURE_DEFAULT

    def available_from(self, enqueued_at: Micros) -> Micros:
        """Return when the job is available, without regard to its dependencies."""
        return enqueued_at + self.delay_us if self.available_at is None else self.available_at

    def wanted_at(self, enqueued_at: Micros) -> Micros | None:
        """Return `available_from` for a job with dependencies, and None for any other job."""
        return self.available_from(enqueued_at) if self.depends_on else None

    def dedupe_until(self, enqueued_at: Micros) -> Micros | None:
        """Return until when the job keeps its dedupe key also after its end."""
        return enqueued_at + self.dedupe_for_us if self.dedupe_for_us else None


class EnqueuedArgs(msgspec.Struct, frozen=True):
    """The arguments in the payload of `enqueued`. The other fields are not decoded."""

    args: msgspec.Raw


class UndoStep(Payload, frozen=True):
    """One undo step of a job: the handler's kind and its args."""

    kind: str
    args: msgspec.Raw


class BeatPayload(Payload, frozen=True):
    stage: str | None = None
    progress: int | None = None
    assist_requested: bool | None = None
    checkpoint: OptionalJson = UNSET
    undo: UndoStep | msgspec.UnsetType = UNSET
    pruned: str | None = None
    """The SHA-256 of the beat's contents, if retention has deleted them."""

    @property
    def is_plain(self) -> bool:
        """Whether the hot statements can record it: there is no checkpoint, no undo step and no request for assistance."""
        return self.checkpoint is UNSET and self.undo is UNSET and not self.assist_requested


class StalledPayload(Payload, frozen=True):
    """The holder, its last heartbeat, and the time of detection.

    A server that signs a stall in Holdfast's own format signs the hash of this, so the order of the fields is part of the
    format.
    """

    holder: str
    incarnation: str
    last_beat_at: Micros
    lease_expires_at: Micros
    detected_at: Micros
    """The event's `at`: the signer's time if the actor that found the stall signed it, else the ledger's time."""
    error: OptionalJson = UNSET
    failure_stage: str | None = None
    """Where the attempt failed. It is set if there is an error."""
    reason_code: str | None = None


class RequeuedPayload(Payload, frozen=True):
    available_at: Micros
    released: bool = False
    """Whether the holder released the job."""


class UnblockedPayload(Payload, frozen=True):
    available_at: Micros


class MovedPayload(Payload, frozen=True):
    """The new queue and the old one, which may be the same. If the only worker changes, also the new one and the old one."""

    queue: str
    from_queue: str
    for_worker: str | None = None
    """The only worker that may have the job from now on, "" for any."""
    from_worker: str | None = None

    def moved(self, flow: Flow | None) -> Flow | None:
        """Return a job's options of flow control after this event."""
        if self.for_worker is None:
            return flow
        before = _NO_FLOW if flow is None else flow
        after = msgspec.structs.replace(before, requires=required_labels(self.for_worker, before.labels))
        return None if after == _NO_FLOW else after


_NO_FLOW = Flow()


class ReprioritisedPayload(Payload, frozen=True, omit_defaults=False):
    priority: int
    from_priority: int


class RescheduledPayload(Payload, frozen=True):
    available_at: Micros
    from_at: Micros


class ReplacedPayload(Payload, frozen=True, kw_only=True):
    """What a later call with the same dedupe key has changed: all these fields are those of that call."""

    args: msgspec.Raw
    priority: int = 0
    tier: str | None = None
    policy: OptionalJson = UNSET
    flow: Flow | None = None


class PostponedPayload(ReplacedPayload, frozen=True, kw_only=True):
    """The same, with the new time, the time before, and the latest time to which that call may postpone the job."""

    available_at: Micros
    from_at: Micros
    latest_at: Micros


class SucceededPayload(Payload, frozen=True):
    result: msgspec.Raw


class FailedPayload(Payload, frozen=True):
    error: msgspec.Raw
    failure: Literal["permanent", "exhausted"]
    """Whether the error was permanent, or no attempt was left."""
    failure_stage: str
    reason_code: str | None = None
    """For an exhausted job, the reason code that a dead letter would have."""


class CancelledPayload(Payload, frozen=True):
    comment: str | None = None
    """The reason that the holder gave when it acknowledged the cancel. The event's reason is that of the cancel itself."""
    error: OptionalJson = UNSET
    """The error, if the attempt failed while the job was being cancelled."""
    failure_stage: str | None = None
    reason_code: str | None = None


class DeadLetteredPayload(Payload, frozen=True, omit_defaults=False):
    """All facts that a person needs to examine a dead letter. Fields that are null are written too."""

    reason_code: str
    failure_stage: str
    last_error: msgspec.Raw
    attempts: int
    last_owner: str | None
    last_lease_expires_at: Micros | None
    correlation_id: str


def to_optional_json(body: bytes | None) -> OptionalJson:
    return UNSET if body is None else msgspec.Raw(body)


def json_bytes(value: OptionalJson) -> bytes | None:
    return None if isinstance(value, msgspec.UnsetType) else bytes(value)


NULL = b"null"


PAYLOAD_TYPES: dict[EventType, type[Payload]] = {
    EventType.ENQUEUED: EnqueuedPayload,
    EventType.HEARTBEAT: BeatPayload,
    EventType.STALLED: StalledPayload,
    EventType.REQUEUED: RequeuedPayload,
    EventType.UNBLOCKED: UnblockedPayload,
    EventType.MOVED: MovedPayload,
    EventType.REPRIORITISED: ReprioritisedPayload,
    EventType.RESCHEDULED: RescheduledPayload,
    EventType.REPLACED: ReplacedPayload,
    EventType.POSTPONED: PostponedPayload,
    EventType.SUCCEEDED: SucceededPayload,
    EventType.FAILED: FailedPayload,
    EventType.CANCELLED: CancelledPayload,
    EventType.DEAD_LETTERED: DeadLetteredPayload,
}
"""The payload of each event type. The other types carry none."""

_decoders = {shape: msgspec.json.Decoder(shape) for shape in PAYLOAD_TYPES.values()}

_args_decoder = msgspec.json.Decoder(EnqueuedArgs)

P = TypeVar("P", bound=Payload)


def decode(shape: type[P], body: bytes | None) -> P:
    """Return the payload in `body`. None is read as an empty payload."""
    found: Any = _decoders[shape].decode(body or b"{}")
    return found  # type: ignore[no-any-return]


def args_of(enqueued: bytes) -> bytes:
    """Return the arguments in the payload of `enqueued`."""
    return bytes(_args_decoder.decode(enqueued).args)


def result_payload(result: bytes) -> bytes:
    """Return the payload of `succeeded` for an encoded result, without decoding it."""
    return b'{"result":' + result + b"}"


def is_release(requeued: EventRecord) -> bool:
    """Return whether a `requeued` event records a release by the holder."""
    return decode(RequeuedPayload, requeued.payload).released


NO_BEAT = BeatPayload()


def checkpoint_of(body: bytes | None) -> bytes | None:
    """Return the checkpoint in the payload of a beat, or None."""
    return None if body is None else json_bytes(decode(BeatPayload, body).checkpoint)


def undo_step(body: bytes) -> UndoStep | None:
    """Return the undo step in the payload of a beat, or None."""
    found = decode(BeatPayload, body).undo if UNDO_BYTES in body else UNSET
    return None if isinstance(found, msgspec.UnsetType) else found


UNDO_BYTES = b'"undo":'
"""Bytes that are in the payload of every beat with an undo step."""


def beat_payload(beat: BeatPayload) -> bytes | None:
    return None if beat == NO_BEAT else beat.encode()


_PRUNED = re.compile(rb'\{"pruned":"([0-9a-f]{64})"\}')


def pruned_sha256(payload: bytes) -> str | None:
    """Return the hash in the payload of a pruned beat, or None. A payload with anything besides the hash does not count."""
    found = _PRUNED.fullmatch(payload)
    return None if found is None else found[1].decode()


class _CounterBinding(msgspec.Struct):
    counter: int | None = None


class _CounterRecord(_CounterBinding):
    binding: _CounterBinding | None = None


_counter_decoder = msgspec.json.Decoder(_CounterRecord)


def counter_of(statement: bytes) -> int | None:
    """Return the signer's counter in an accepted statement of either shape."""
    found = _counter_decoder.decode(statement)
    return found.counter if found.binding is None else found.binding.counter
