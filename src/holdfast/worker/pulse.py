"""What an attempt knows by itself of its newest beat."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.core.liveness import LivenessHeartbeatReceiptV1
from holdfast.core.model import Fence, Micros, Status
from holdfast.core.model import Job as Record
from holdfast.core.receipts import receipt_of
from holdfast.ledger import Beat, Change
from holdfast.ledger.face import to_micros


class Pulse(NamedTuple):
    """The newest beat that the ledger has answered. A new one replaces it as a whole: beats come from several threads."""

    sent: float
    """When it was sent, by the worker's monotonic clock: it may be a little older by that, and never younger."""
    at: Micros
    status: Status
    started_at: Micros | None
    stage: str | None
    progress: int | None

    @classmethod
    def of(cls, job: Record, sent: float) -> "Pulse":
        assert job.last_beat_at is not None
        return cls(sent, job.last_beat_at, job.status, job.started_at, job.stage, job.progress)

    def after(self, answer: Beat, sent: float, told: Mapping[str, Any]) -> "Pulse":
        """With a beat's answer; an older one that comes late changes nothing."""
        at = to_micros(answer.at)
        if at < self.at:
            return self
        stage, progress = told.get("stage", self.stage), told.get("progress", self.progress)
        return self._replace(sent=sent, at=at, status=answer.status, stage=stage, progress=progress)

    def begun(self, change: Change, sent: float) -> "Pulse":
        at = to_micros(change.at)
        return self._replace(sent=sent, at=at, status=change.status, started_at=at)

    def now(self, monotonic: float) -> Micros:
        """The ledger's time, as far as it can be told from here."""
        return self.at + max(0, round((monotonic - self.sent) * 1_000_000))

    def record_of(self, job: Record) -> Record:
        """The job as it was when this beat was answered. Whether it makes progress is the ledger's to judge."""
        assert job.policy is not None
        return msgspec.structs.replace(
            job,
            status=self.status,
            last_beat_at=self.at,
            started_at=self.started_at,
            stage=self.stage,
            progress=self.progress,
            progressed_at=None,
            lease_expires_at=self.at + job.policy.lease_ttl_ms * 1_000,
            revived_at=self.at if self.status is Status.STALLED else None,
        )

    def receipt(self, job: Record, fence: Fence) -> LivenessHeartbeatReceiptV1 | None:
        """Of the attempt behind `fence`, dated by this beat."""
        held = msgspec.structs.replace(self.record_of(job), token=fence.token)
        return receipt_of(held, self.at)
