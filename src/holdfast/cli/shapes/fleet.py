"""Answers about those who work, and the programs that are supervised."""

from datetime import datetime

from holdfast.cli.shapes.base import Shape
from holdfast.core.liveness import HealthVerdict
from holdfast.core.restart import TerminalReason
from holdfast.ledger import WorkerRecord
from holdfast.ledger.runs import RunState


class Workers(Shape, frozen=True):
    workers: list[WorkerRecord]
    now: datetime


class WorkedTogether(Shape, frozen=True):
    """With `--workers`: how many there were, and how often one was started again."""

    workers: int
    restarts: int


class Worked(Shape, frozen=True):
    worker: str


class Swept(Shape, frozen=True):
    events: dict[str, int]
    """How many events of each type were made."""
    unsigned: int
    """Jobs that were left alone for want of a server's key."""


class Receipt(Shape, frozen=True):
    """A `LivenessHeartbeatReceiptV1`; its hashes are 32 numbers each."""

    run_id: str
    episode_id: list[int]
    emitted_at_tick: int
    time_envelope_ref: list[int]
    health_verdict: HealthVerdict
    restart_count: int
    max_restarts: int
    uptime_ms: int
    detail: str | None


class Gated(Shape, frozen=True):
    job_id: int
    receipt: Receipt


class Run(Shape, frozen=True):
    run: RunState


class Runs(Shape, frozen=True):
    runs: list[RunState]
    now: datetime


class Ended(Shape, frozen=True):
    run_id: str
    restarts: int
    last_exit: int | None
    reason: TerminalReason
    receipt: Receipt | None


class Beaten(Shape, frozen=True):
    beat: bool


class Demonstrated(Shape, frozen=True):
    ledger: str
    jobs: int
    events: int
    recorded_by: dict[str, int]
    silence_s: float
    recovery_s: float
    recovery_s_max: float
