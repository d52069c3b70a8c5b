"""Liveness receipts and the gate: whether what is known of a worker permits it to go on.

The gate fails closed. Only a healthy, fresh receipt within its restart limit passes; whatever is missing, malformed or
unclear is denied. A tick is whatever unit both sides count in; the ledger's is one millisecond of its own time.
"""

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core import bounded
from holdfast.errors import GateDenied, ValidationError

MAX_RUN_ID_LENGTH = 256
"""UTF-8 bytes."""
MAX_HEARTBEAT_DETAIL_LENGTH = 512
"""UTF-8 bytes."""
MAX_LIVENESS_DENIAL_DETAIL_LENGTH = 512
"""UTF-8 bytes."""


class HealthVerdict(StrEnum):
    """What is thought of a worker. Only `HEALTHY` passes the gate."""

    HEALTHY = "healthy"
    STALLED = "stalled"
    CRASHED = "crashed"
    AMBIGUOUS = "ambiguous"


class LivenessDenialReason(StrEnum):
    UNHEALTHY_VERDICT = "unhealthy_verdict"
    STALE_HEARTBEAT = "stale_heartbeat"
    RESTART_LIMIT_EXCEEDED = "restart_limit_exceeded"
    AMBIGUOUS_STATE = "ambiguous_state"


class LivenessHeartbeatReceiptV1(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was known of one run at one tick.

    Numbers and hashes out of range are refused when it is made. Texts may be too long then: such a receipt does not have
    valid bounds, is never written as JSON, and the gate calls it ambiguous.
    """

    run_id: str
    episode_id: bytes
    emitted_at_tick: int
    time_envelope_ref: bytes
    health_verdict: HealthVerdict
    restart_count: int
    max_restarts: int
    uptime_ms: int
    detail: str | None = None

    def __post_init__(self) -> None:
        bounded.check_string("run_id", self.run_id)
        bounded.check_hash("episode_id", self.episode_id)
        bounded.check_u64("emitted_at_tick", self.emitted_at_tick)
        bounded.check_hash("time_envelope_ref", self.time_envelope_ref)
        bounded.check_choice("health_verdict", self.health_verdict, HealthVerdict)
        bounded.check_u32("restart_count", self.restart_count)
        bounded.check_u32("max_restarts", self.max_restarts)
        bounded.check_u64("uptime_ms", self.uptime_ms)
        if self.detail is not None:
            bounded.check_string("detail", self.detail)

    def has_valid_bounds(self) -> bool:
        """Whether both texts are valid Unicode within their limits."""
        return bounded.fits(self.run_id, MAX_RUN_ID_LENGTH) and bounded.fits(self.detail or "", MAX_HEARTBEAT_DETAIL_LENGTH)

    def to_object(self) -> dict[str, Any]:
        """The receipt as JSON has it, its hashes as arrays of numbers."""
        found = msgspec.structs.asdict(self) | {"health_verdict": str(self.health_verdict)}
        return found | {"episode_id": list(self.episode_id), "time_envelope_ref": list(self.time_envelope_ref)}

    def to_json(self) -> str:
        """What `from_json` gives back unchanged. Raises ValidationError where the bounds are broken."""
        if not self.has_valid_bounds():
            raise ValidationError("a receipt whose texts are too long has no JSON", field="receipt")
        return bounded.write(self.to_object())

    @classmethod
    def from_json(cls, text: str | bytes) -> "LivenessHeartbeatReceiptV1":
        """Raises ValidationError or LimitExceeded for anything but the JSON of a receipt."""
        *required, optional = cls.__struct_fields__
        found = bounded.read_object("receipt", text, required, [optional])
        found["run_id"] = bounded.read_text("run_id", found["run_id"], MAX_RUN_ID_LENGTH)
        found["episode_id"] = bounded.read_hash("episode_id", found["episode_id"])
        found["time_envelope_ref"] = bounded.read_hash("time_envelope_ref", found["time_envelope_ref"])
        found["health_verdict"] = bounded.read_choice("health_verdict", found["health_verdict"], HealthVerdict)
        if found.get("detail") is not None:
            found["detail"] = bounded.read_text("detail", found["detail"], MAX_HEARTBEAT_DETAIL_LENGTH)
        return cls(**found)


class LivenessGateDenial(GateDenied):
    """The gate's no: why in one word, and in a sentence of at most 512 bytes."""

    def __init__(self, reason: LivenessDenialReason, detail: str) -> None:
        self.reason = bounded.check_choice("reason", reason, LivenessDenialReason)
        self.detail = bounded.truncate(bounded.check_string("detail", detail), MAX_LIVENESS_DENIAL_DETAIL_LENGTH)
        super().__init__(self.detail, reason=self.reason.value, detail=self.detail)

    @classmethod
    def new(cls, reason: LivenessDenialReason, detail: str) -> "LivenessGateDenial":
        """A denial whose detail is cut, between characters, to what fits."""
        return cls(reason, detail)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LivenessGateDenial) and (self.reason, self.detail) == (other.reason, other.detail)

    def __hash__(self) -> int:
        return hash((self.reason, self.detail))

    def to_json(self) -> str:
        return bounded.write({"reason": self.reason, "detail": self.detail})

    @classmethod
    def from_json(cls, text: str | bytes) -> "LivenessGateDenial":
        """Raises ValidationError or LimitExceeded for anything but the JSON of a denial; a long detail is not cut here."""
        found = bounded.read_object("denial", text, ["reason", "detail"])
        reason = bounded.read_choice("reason", found["reason"], LivenessDenialReason)
        return cls(reason, bounded.read_text("detail", found["detail"], MAX_LIVENESS_DENIAL_DETAIL_LENGTH))


def check_liveness_for_progression(
    heartbeat: LivenessHeartbeatReceiptV1 | None, current_tick: int, max_heartbeat_age_ticks: int
) -> None:
    """Returns if `heartbeat` is healthy, fresh and within its restart limit; raises LivenessGateDenial otherwise.

    Looked at in this order: whether there is a receipt with valid bounds, its verdict, whether it is dated further in the
    future than it may be old, its age, its restarts. What is exactly at a limit passes.
    """
    now = bounded.check_u64("current_tick", current_tick)
    age_max = bounded.check_u64("max_heartbeat_age_ticks", max_heartbeat_age_ticks)
    if not isinstance(heartbeat, LivenessHeartbeatReceiptV1):
        raise LivenessGateDenial(LivenessDenialReason.AMBIGUOUS_STATE, "there is no receipt")
    if not heartbeat.has_valid_bounds():
        raise LivenessGateDenial(LivenessDenialReason.AMBIGUOUS_STATE, "the receipt's texts are too long or not valid Unicode")
    _check_verdict(heartbeat)
    age = now - heartbeat.emitted_at_tick
    if -age > age_max:
        words = f"the receipt is dated {-age} ticks in the future; at most {age_max} are believed"
        raise LivenessGateDenial(LivenessDenialReason.AMBIGUOUS_STATE, words)
    if age > age_max:
        raise LivenessGateDenial(LivenessDenialReason.STALE_HEARTBEAT, f"the receipt is {age} ticks old; the limit is {age_max}")
    if heartbeat.restart_count > heartbeat.max_restarts:
        words = f"{heartbeat.restart_count} restarts; the limit is {heartbeat.max_restarts}"
        raise LivenessGateDenial(LivenessDenialReason.RESTART_LIMIT_EXCEEDED, words)


def _check_verdict(heartbeat: LivenessHeartbeatReceiptV1) -> None:
    verdict = heartbeat.health_verdict
    if verdict is HealthVerdict.HEALTHY:
        return
    ambiguous = verdict is HealthVerdict.AMBIGUOUS
    reason = LivenessDenialReason.AMBIGUOUS_STATE if ambiguous else LivenessDenialReason.UNHEALTHY_VERDICT
    raise LivenessGateDenial(reason, f"{verdict.value}: {heartbeat.detail}" if heartbeat.detail else verdict.value)
