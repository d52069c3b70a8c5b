"""Liveness receipts and the gate, which decides whether a worker may take its next step.

The gate fails closed. Only a healthy, fresh receipt within its restart limit passes. A missing, malformed or ambiguous one is
denied. A tick is the unit of time that both sides use. The ledger's tick is one millisecond of its own time.
"""

import hashlib
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core import strict_json
from holdfast.core.deadlines import counted_attempts, progress_limit, stall_limit
from holdfast.core.model import HELD, Fence, JobRecord, Micros, StallReason, Status
from holdfast.core.text import truncate_bytes
from holdfast.errors import GateDenied, ValidationError

MAX_RUN_ID_LENGTH = 256
"""UTF-8 bytes."""
MAX_HEARTBEAT_DETAIL_LENGTH = 512
"""UTF-8 bytes."""
MAX_LIVENESS_DENIAL_DETAIL_LENGTH = 512
"""UTF-8 bytes."""


class HealthVerdict(StrEnum):
    """The health of a worker. Only `HEALTHY` passes the gate."""

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
    """The state of one run at one tick.

    The constructor refuses numbers and hashes out of range. It accepts texts that are too long, but such a receipt does not
    have valid bounds: it cannot be written as JSON, and the gate treats it as ambiguous.
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
        strict_json.check_string("run_id", self.run_id)
        strict_json.check_hash("episode_id", self.episode_id)
        strict_json.check_u64("emitted_at_tick", self.emitted_at_tick)
        strict_json.check_hash("time_envelope_ref", self.time_envelope_ref)
        strict_json.check_choice("health_verdict", self.health_verdict, HealthVerdict)
        strict_json.check_u32("restart_count", self.restart_count)
        strict_json.check_u32("max_restarts", self.max_restarts)
        strict_json.check_u64("uptime_ms", self.uptime_ms)
        if self.detail is not None:
            strict_json.check_string("detail", self.detail)

    def has_valid_bounds(self) -> bool:
        """Return whether both texts are valid Unicode within their limits."""
        return strict_json.fits_utf8(self.run_id, MAX_RUN_ID_LENGTH) and strict_json.fits_utf8(
            self.detail or "", MAX_HEARTBEAT_DETAIL_LENGTH
        )

    def to_object(self) -> dict[str, Any]:
        """Return the fields of the receipt's JSON form. Hashes are arrays of numbers."""
        found = msgspec.structs.asdict(self) | {"health_verdict": str(self.health_verdict)}
        return found | {"episode_id": list(self.episode_id), "time_envelope_ref": list(self.time_envelope_ref)}

    def to_json(self) -> str:
        """Return JSON from which `from_json` makes an equal receipt. Raise ValidationError if the bounds are not valid."""
        if not self.has_valid_bounds():
            raise ValidationError("a receipt whose texts are too long has no JSON form", field="receipt")
        return strict_json.encode_record(self.to_object())

    @classmethod
    def from_json(cls, text: str | bytes) -> "LivenessHeartbeatReceiptV1":
        """Return the receipt in `text`. Raise ValidationError or LimitExceeded if it is not the JSON of a receipt."""
        *required, optional = cls.__struct_fields__
        found = strict_json.read_object("receipt", text, required, [optional])
        found["run_id"] = strict_json.read_text("run_id", found["run_id"], MAX_RUN_ID_LENGTH)
        found["episode_id"] = strict_json.read_hash("episode_id", found["episode_id"])
        found["time_envelope_ref"] = strict_json.read_hash("time_envelope_ref", found["time_envelope_ref"])
        found["health_verdict"] = strict_json.read_choice("health_verdict", found["health_verdict"], HealthVerdict)
        if found.get("detail") is not None:
            found["detail"] = strict_json.read_text("detail", found["detail"], MAX_HEARTBEAT_DETAIL_LENGTH)
        return cls(**found)


class LivenessGateDenial(GateDenied):
    """The gate's refusal, with a reason and a detail of at most 512 bytes."""

    def __init__(self, reason: LivenessDenialReason, detail: str) -> None:
        self.reason = strict_json.check_choice("reason", reason, LivenessDenialReason)
        self.detail = truncate_bytes(strict_json.check_string("detail", detail), MAX_LIVENESS_DENIAL_DETAIL_LENGTH)
        super().__init__(self.detail, reason=self.reason.value, detail=self.detail)

    @classmethod
    def new(cls, reason: LivenessDenialReason, detail: str) -> "LivenessGateDenial":
        """Return a denial whose detail is cut, between characters, to the limit."""
        return cls(reason, detail)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LivenessGateDenial) and (self.reason, self.detail) == (other.reason, other.detail)

    def __hash__(self) -> int:
        return hash((self.reason, self.detail))

    def to_json(self) -> str:
        return strict_json.encode_record({"reason": self.reason, "detail": self.detail})

    @classmethod
    def from_json(cls, text: str | bytes) -> "LivenessGateDenial":
        """Return the denial in `text`. Raise ValidationError or LimitExceeded if it is not the JSON of a denial.

        A detail that is too long is refused, not cut.
        """
        found = strict_json.read_object("denial", text, ["reason", "detail"])
        reason = strict_json.read_choice("reason", found["reason"], LivenessDenialReason)
        return cls(reason, strict_json.read_text("detail", found["detail"], MAX_LIVENESS_DENIAL_DETAIL_LENGTH))


def check_liveness_for_progression(
    heartbeat: LivenessHeartbeatReceiptV1 | None, current_tick: int, max_heartbeat_age_ticks: int
) -> None:
    """Return None if `heartbeat` is healthy, fresh and within its restart limit, else raise LivenessGateDenial.

    The checks are, in this order: there is a receipt with valid bounds; its verdict; it is not dated further in the future than
    its maximum age; its age; its restarts. A value exactly at a limit passes.
    """
    now = strict_json.check_u64("current_tick", current_tick)
    age_max = strict_json.check_u64("max_heartbeat_age_ticks", max_heartbeat_age_ticks)
    if not isinstance(heartbeat, LivenessHeartbeatReceiptV1):
        raise LivenessGateDenial(LivenessDenialReason.AMBIGUOUS_STATE, "there is no receipt")
    if not heartbeat.has_valid_bounds():
        raise LivenessGateDenial(LivenessDenialReason.AMBIGUOUS_STATE, "the receipt's texts are too long or not valid Unicode")
    _check_verdict(heartbeat)
    age = now - heartbeat.emitted_at_tick
    if -age > age_max:
        words = f"the receipt is dated {-age} ticks in the future; the limit is {age_max}"
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


TICK_US = 1_000
"""A tick is one millisecond of ledger time."""
EPISODE_DOMAIN = b"holdfast episode v1\n"
BEAT_DOMAIN = b"holdfast beat v1\n"


def tick(at: Micros) -> int:
    return at // TICK_US


def receipt_of(job: JobRecord, now: Micros) -> LivenessHeartbeatReceiptV1 | None:
    """Return the receipt of the worker that holds `job`, or held it until it stalled; None for any other job.

    The receipt has the time and the state of the attempt's newest heartbeat. Only the verdict depends on `now`: the same row
    gives the same receipt as long as `now` does not cross one of the job's limits.
    """
    policy = job.policy
    if job.status not in {*HELD, Status.STALLED} or policy is None or job.token is None or job.last_beat_at is None:
        return None
    verdict, detail = _verdict(job, now)
    beaten_at, started_at = job.last_beat_at, job.started_at or job.last_beat_at
    return LivenessHeartbeatReceiptV1(
        run_id=f"{job.id}-{job.attempt}",
        episode_id=episode_id(Fence(job.id, job.attempt, job.token)),
        emitted_at_tick=tick(beaten_at),
        time_envelope_ref=beat_ref(job),
        health_verdict=verdict,
        restart_count=counted_attempts(job) - 1,
        max_restarts=policy.attempts_max - 1,
        uptime_ms=max(0, beaten_at - started_at) // 1_000,
        detail=detail,
    )


def check_gate(job: JobRecord, receipt: LivenessHeartbeatReceiptV1 | None, now: Micros) -> LivenessHeartbeatReceiptV1:
    """Return `receipt` if it passes the gate at `now`. Its maximum age is the policy's `stall_after`."""
    age_max = 0 if job.policy is None else job.policy.stall_after_ms
    try:
        check_liveness_for_progression(receipt, tick(now), age_max)
    except LivenessGateDenial as denial:
        detail = denial.detail if receipt is not None else f"no worker holds it, it is {job.status.value}"
        raise GateDenied(
            f"job {job.id} may not proceed: {detail}",
            job_id=job.id,
            reason=denial.reason.value,
            detail=detail,
            receipt=None if receipt is None else receipt.to_object(),
        ) from denial
    assert receipt is not None
    return receipt


def episode_id(fence: Fence) -> bytes:
    """Return the SHA-256 of the domain and of job, attempt and token in ASCII, each followed by a line feed.

    The token cannot be read from it.
    """
    return hashlib.sha256(EPISODE_DOMAIN + f"{fence.job_id}\n{fence.attempt}\n{fence.token}\n".encode()).digest()


def beat_ref(job: JobRecord) -> bytes:
    """Return the SHA-256 of the domain and a JSON array without blanks: job, attempt, time of the beat, stage, progress."""
    beat = [job.id, job.attempt, job.last_beat_at, job.stage, job.progress]
    return hashlib.sha256(BEAT_DOMAIN + msgspec.json.encode(beat)).digest()


def _verdict(job: JobRecord, now: Micros) -> tuple[HealthVerdict, str | None]:
    if job.status is Status.STALLED:
        if job.revived_at is not None:
            return HealthVerdict.AMBIGUOUS, "a beat came after the stall"
        crashed = job.stall_reason == StallReason.WORKER_ERROR
        return HealthVerdict.CRASHED if crashed else HealthVerdict.STALLED, job.stall_reason
    if now > stall_limit(job):
        return HealthVerdict.STALLED, "silent past its stall limit"
    limit = progress_limit(job)
    if limit is not None and now > limit:
        return HealthVerdict.STALLED, "no progress past its limit"
    return HealthVerdict.HEALTHY, None
