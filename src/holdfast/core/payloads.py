"""What an event of each type carries, beyond its envelope. Everything the fold needs is here or in the envelope."""

import re
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.core.model import EventRecord, EventType, Micros, StallReason

UNSET = msgspec.UNSET
OptionalJson = msgspec.Raw | msgspec.UnsetType
"""JSON kept as it came, or nothing."""
_encoder = msgspec.json.Encoder()


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    def encode(self) -> bytes:
        return _encoder.encode(self)


class EnqueuedPayload(Payload, frozen=True):
    """The last field stays the last: statements look for the choice at the end of the payload, where no args can feign it."""

    queue: str
    kind: str
    args: msgspec.Raw
    priority: int = 0
    available_at: Micros | None = None
    delay_us: int = 0
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    tier: str | None = None
    policy: OptionalJson = UNSET
    replay_of: int | None = None
    depends_on: tuple[int, ...] = ()
    on_dependency_failure: str = "wait"

    def available_from(self, enqueued_at: Micros) -> Micros:
        """When the job is available as far as it is up to the caller."""
        return enqueued_at + self.delay_us if self.available_at is None else self.available_at

    def wanted_at(self, enqueued_at: Micros) -> Micros | None:
        """The same for a job that has to wait for others; None for any other."""
        return self.available_from(enqueued_at) if self.depends_on else None


class UndoStep(Payload, frozen=True):
    """How to take back one thing that a job has done."""

    kind: str
    args: msgspec.Raw


class BeatPayload(Payload, frozen=True):
    stage: str | None = None
    progress: int | None = None
    assist_requested: bool | None = None
    checkpoint: OptionalJson = UNSET
    undo: UndoStep | msgspec.UnsetType = UNSET
    pruned: str | None = None
    """Where retention took the beat's contents: their SHA-256."""

    @property
    def is_plain(self) -> bool:
        """Carries nothing but stage and progress, and no wish: what the hot statements know."""
        return self.checkpoint is UNSET and self.undo is UNSET and not self.assist_requested


class StalledPayload(Payload, frozen=True):
    """Who held the job, when it was last heard of, and when the stall was found. Older histories lack holder and detection time.

    A server that signs a stall in our shape signs the hash of this, so the order of the fields is part of the format.
    """

    holder: str | None = None
    incarnation: str | None = None
    last_beat_at: Micros | None = None
    lease_expires_at: Micros | None = None
    detected_at: Micros | None = None
    """The event's `at`: the signer's time where the stall is signed by the one who found it, the ledger's otherwise."""
    error: OptionalJson = UNSET
    failure_stage: str | None = None
    """Where it broke; always there with an error, except in older histories."""
    reason_code: str | None = None


class RequeuedPayload(Payload, frozen=True):
    available_at: Micros
    released: bool = False
    """Its holder has handed it back. Older histories say so by the event's reason alone."""


class UnblockedPayload(Payload, frozen=True):
    available_at: Micros


class MovedPayload(Payload, frozen=True):
    """The queue that the job is in now, and the one it was in."""

    queue: str
    from_queue: str


class ReprioritisedPayload(Payload, frozen=True, omit_defaults=False):
    priority: int
    from_priority: int


class RescheduledPayload(Payload, frozen=True):
    available_at: Micros
    from_at: Micros


class SucceededPayload(Payload, frozen=True):
    result: msgspec.Raw


class FailedPayload(Payload, frozen=True):
    """Older histories have the error only."""

    error: msgspec.Raw
    failure: Literal["permanent", "exhausted"] | None = None
    """Whether no retry would have mended it, or no attempt was left."""
    failure_stage: str | None = None
    reason_code: str | None = None
    """Of an exhausted job: the reason that a dead letter would have."""


class CancelledPayload(Payload, frozen=True):
    comment: str | None = None
    """What the holder said of its exit. The event's reason is that of the cancel."""
    error: OptionalJson = UNSET
    """What went wrong, where the holder failed while it was being cancelled."""
    failure_stage: str | None = None
    reason_code: str | None = None


class DeadLetteredPayload(Payload, frozen=True, omit_defaults=False):
    """Everything a person needs, in one place; null is said, not left out."""

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
    EventType.SUCCEEDED: SucceededPayload,
    EventType.FAILED: FailedPayload,
    EventType.CANCELLED: CancelledPayload,
    EventType.DEAD_LETTERED: DeadLetteredPayload,
}
"""Types that are not here carry no payload."""

_decoders = {shape: msgspec.json.Decoder(shape) for shape in PAYLOAD_TYPES.values()}

P = TypeVar("P", bound=Payload)


def decode(shape: type[P], body: bytes | None) -> P:
    """The payload behind `body`; none at all reads as an empty one."""
    found: Any = _decoders[shape].decode(body or b"{}")
    return found  # type: ignore[no-any-return]


def result_payload(result: bytes) -> bytes:
    """The payload of `succeeded` around a result, without decoding it."""
    return b'{"result":' + result + b"}"


def is_release(requeued: EventRecord) -> bool:
    """Whether a `requeued` event records that the holder handed the job back."""
    return requeued.reason == StallReason.RELEASED or decode(RequeuedPayload, requeued.payload).released


NO_BEAT = BeatPayload()


def checkpoint_of(body: bytes | None) -> bytes | None:
    """The checkpoint that a beat with this payload carries."""
    return None if body is None else json_bytes(decode(BeatPayload, body).checkpoint)


def undo_step(body: bytes) -> UndoStep | None:
    """The undo step that a beat with this payload carries."""
    found = decode(BeatPayload, body).undo if UNDO_BYTES in body else UNSET
    return None if isinstance(found, msgspec.UnsetType) else found


UNDO_BYTES = b'"undo":'
"""No beat carries an undo step without these bytes in its payload."""


def beat_payload(beat: BeatPayload) -> bytes | None:
    return None if beat == NO_BEAT else beat.encode()


_PRUNED = re.compile(rb'\{"pruned":"([0-9a-f]{64})"\}')


def pruned_sha256(payload: bytes) -> str | None:
    """What a beat that was pruned has left of its payload: the hash, and not a byte beside it that could pass for contents."""
    found = _PRUNED.fullmatch(payload)
    return None if found is None else found[1].decode()


class _CounterBinding(msgspec.Struct):
    counter: int | None = None


class _CounterRecord(_CounterBinding):
    binding: _CounterBinding | None = None


_counter_decoder = msgspec.json.Decoder(_CounterRecord)


def counter_of(statement: bytes) -> int | None:
    """The signer's count in a statement that was accepted, in either shape."""
    found = _counter_decoder.decode(statement)
    return found.counter if found.binding is None else found.binding.counter
