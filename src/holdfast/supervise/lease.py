"""Leases of supervised commands: renewed while the command runs, ended with its outcome."""

import logging
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.core.liveness import episode_id
from holdfast.core.model import FailureStage, Policy, ReasonCode, Status
from holdfast.core.restart import TerminalReason
from holdfast.errors import (
    FenceLost,
    HoldfastError,
    LimitExceeded,
    RefusedByValidator,
    SignatureInvalid,
    Unavailable,
    ValidationError,
)
from holdfast.files.regular import open_regular
from holdfast.keeping.leases import Fields, KeptLease, LeaseKeeper
from holdfast.ledger import Beat, Job, Ledger

log = logging.getLogger("holdfast.supervise")


class CommandLease(KeptLease, LeaseKeeper["CommandLease"]):
    """A lease that is renewed while a command runs, and its keeper. `wake_loop` is called when it is lost or cancelled."""

    log = log

    def __init__(self, job_id: int, monotonic: Callable[[], float], wake_loop: Callable[[], None]) -> None:
        LeaseKeeper.__init__(self, monotonic)
        self.job_id = job_id
        self._wake_loop = wake_loop

    def _set_times(self, policy: Policy, began: float, period_max: float = math.inf) -> None:
        """Start from the lease that a call beginning at `began` was granted. Heartbeats are at most `period_max` apart."""
        ttl = min(policy.lease_ttl_ms, policy.stall_after_ms) / 1_000
        KeptLease.__init__(self, min(policy.heartbeat_interval_ms / 1_000, ttl / 3, period_max), ttl, began)

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"job_id": self.job_id}

    def leases(self) -> Collection["CommandLease"]:
        return () if self.lost or self.is_settling else (self,)

    def send(self, beats: Sequence[tuple["CommandLease", Fields | None]], left_s: float) -> Sequence[Beat | HoldfastError]:
        return [self._send(fields or {}) for _, fields in beats]

    @abstractmethod
    def _send(self, fields: Fields) -> Beat:
        """Send one heartbeat."""

    def send_unsent(self) -> None:
        """Send the fields that the command has reported last. Raise Unavailable if the ledger is out of reach."""
        if self.has_unsent:
            [answer] = self.beat([self])
            if isinstance(answer, Unavailable):
                raise answer

    def _interrupt(self) -> None:
        self._wake_loop()


class JobLease(CommandLease):
    """The lease of a run's job. The run holds it, so a later supervisor of the same run holds it too."""

    sends_fields_early = False

    def __init__(
        self, ledger: Ledger, job_id: int, worker: str, incarnation: str, monotonic: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        super().__init__(job_id, monotonic, wake)
        self.ledger = ledger
        self._worker = worker
        self._incarnation = incarnation

    def claim(self) -> None:
        """Claim and start the job. Raise the ledger's error if it cannot be claimed."""
        self._check_key()
        began = self.monotonic()
        job = self.ledger.claim_job(self.job_id, self._worker, incarnation=self._incarnation)
        assert job.policy is not None
        self.fence = job.fence
        if job.status is Status.CLAIMED:
            self.ledger.start(self.fence)
        self._set_times(job.policy, began)
        self.cancel_requested = job.cancel_requested_at is not None

    def _check_key(self) -> None:
        """Raise SignatureInvalid if the job must be signed and there is no key: the result could not be recorded."""
        job = self.ledger.get(self.job_id)
        policies = [self.ledger.policy_of(self.job_id), *([job.policy] if job.owner is not None and job.policy else [])]
        if all(policy.signed == "none" for policy in policies):
            return
        try:
            self.ledger.check_key(self._worker)
        except SignatureInvalid as error:
            message = f"job {self.job_id} has to be signed by worker {self._worker!r}: {error.message}"
            raise SignatureInvalid(message, job_id=self.job_id, **error.context) from None

    def _send(self, fields: Fields) -> Beat:
        return self.ledger.heartbeat(self.fence, **fields)

    def resume(self, lease: CommandLease) -> Job:
        return self.ledger.resume(self.fence)

    @property
    def episode(self) -> bytes:
        return episode_id(self.fence)

    def end(self, verb: Callable[..., Any], *arguments: Any, **details: Any) -> None:
        """End the lease with a verb of the ledger. It may be sent again after a lost answer."""
        request_id = f"{self._incarnation}-{self.fence.job_id}-{self.fence.attempt}-{verb.__name__}"
        verb(self.fence, *arguments, request_id=request_id, **details)
        self.is_settling = True


def record_job_end(lease: JobLease, reason: TerminalReason, result: Path, error: dict[str, Any]) -> None:
    """Send the unsent fields, then end the job. Raise the ledger's refusal. May be called again after Unavailable."""
    lease.send_unsent()
    if lease.lost:
        raise FenceLost(f"the lease of job {lease.fence.job_id} is lost", job_id=lease.fence.job_id)
    body = read_result(result)
    if lease.cancel_requested and body is None:
        lease.end(lease.ledger.acknowledge_cancel)
    elif reason is TerminalReason.CLEAN_EXIT or (lease.cancel_requested and body is not None):
        _complete_or_fail(lease, body)
    elif reason is TerminalReason.OPERATOR_SHUTDOWN:
        lease.end(lease.ledger.release)
    else:
        code = ReasonCode.TIMEOUT if reason is TerminalReason.STALL_TIMEOUT else None
        lease.end(lease.ledger.fail, error, retryable=reason is not TerminalReason.UNRECOVERABLE_ERROR, reason_code=code)


def _complete_or_fail(lease: JobLease, result: bytes | None) -> None:
    """Complete the job. If the result is invalid or a validator refuses it, fail the job; without a retry, unless the
    error is retryable."""
    try:
        lease.end(lease.ledger.complete, None if result is None else msgspec.Raw(result))
    except (ValidationError, LimitExceeded, RefusedByValidator) as error:
        fields = {"type": type(error).__name__, "message": error.message}
        code = None if error.retryable else ReasonCode.VALIDATION_FAILED
        stage = FailureStage.OUTPUT
        lease.end(lease.ledger.fail, fields, retryable=error.retryable, reason_code=code, failure_stage=stage)
        raise


def read_result(path: Path) -> bytes | None:
    """Return what the command has written, up to one byte more than the limit; None if it is empty or not a regular file."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(PAYLOAD_BYTES_MAX + 1) or None
