"""Leases of supervised commands: renewed while the command runs, ended with its outcome."""

import logging
import math
import os
import threading
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.core.liveness import episode_id
from holdfast.core.model import FailureStage, Fence, Policy, ReasonCode, Status
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
from holdfast.keeping.service import Service
from holdfast.ledger import Ledger
from holdfast.supervise.heartbeats import ReceivedHeartbeat

log = logging.getLogger("holdfast.supervise")


class Lease(Service):
    """A lease that is renewed while a command runs. Each tick sends a heartbeat, in a thread of its own."""

    name = "lease"

    def __init__(self, job_id: int, monotonic: Callable[[], float], wake: Callable[[], None]) -> None:
        self.job_id = job_id
        self._monotonic = monotonic
        self._wake_loop = wake
        self._lock = threading.Lock()
        self._unsent: dict[str, Any] = {}
        """Fields of the child's heartbeats that were not sent yet."""
        self.expires_at = float("inf")
        """On this process's clock, counted from before the last answered heartbeat. After it, another holder may have the job."""
        self.lost = False
        self._ended = False
        """The outcome is recorded. Heartbeats are refused from now on."""
        self.cancel_requested = False

    def _start_renewing(self, policy: Policy, began: float, every_s_max: float = math.inf) -> None:
        """Start from the lease that a call beginning at `began` was granted. Heartbeats are at most `every_s_max` apart."""
        self._silence_max_s = min(policy.lease_ttl_ms, policy.stall_after_ms) / 1_000
        self.every_s = min(policy.heartbeat_interval_ms / 1_000, self._silence_max_s / 3, every_s_max)
        self._set_expiry(began)

    def _set_expiry(self, began: float) -> None:
        self.expires_at = began + self._silence_max_s
        self._due_at = began + self.every_s / 2

    def queue_fields(self, heartbeat: ReceivedHeartbeat) -> None:
        """Send the fields of the child's heartbeat with the next heartbeat to the ledger."""
        with self._lock:
            self._unsent |= heartbeat.fields

    @property
    def has_unsent_fields(self) -> bool:
        """Whether the child has reported fields that were not sent yet."""
        return bool(self._unsent)

    def tick(self) -> None:
        """Send a heartbeat, unless the lease was just renewed and there are no unsent fields."""
        began = self._monotonic()
        if self.lost or self._ended or (began < self._due_at and not self._unsent):
            return
        with self._lock:
            fields, self._unsent = self._unsent, {}
        try:
            cancel_requested = self._beat(fields)
        except Unavailable:
            with self._lock:
                self._unsent = fields | self._unsent
            raise
        except (ValidationError, LimitExceeded) as error:  # the fields are dropped, and the next heartbeat is a plain one
            log.warning("the fields of a heartbeat were refused", extra={"job_id": self.job_id, "error": error.message})
        except HoldfastError as error:
            if not self._ended:
                log.warning("lease lost", extra={"job_id": self.job_id, "error": error.code})
                self.mark_lost()
        else:
            self._set_expiry(began)
            if cancel_requested and not self.cancel_requested:
                self.cancel_requested = True
                self._wake_loop()

    @abstractmethod
    def _beat(self, fields: dict[str, Any]) -> bool:
        """Send one heartbeat. Return whether the job's cancellation was requested."""

    def mark_lost(self) -> None:
        self.lost = True
        self._wake_loop()


class JobLease(Lease):
    """The lease of a run's job. The run holds it, so a later supervisor of the same run holds it too."""

    def __init__(
        self, ledger: Ledger, job_id: int, worker: str, incarnation: str, monotonic: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        super().__init__(job_id, monotonic, wake)
        self._ledger = ledger
        self._worker = worker
        self._incarnation = incarnation

    def claim(self) -> None:
        """Claim and start the job. Raise the ledger's error if it cannot be claimed."""
        self._check_key()
        began = self._monotonic()
        job = self._ledger.claim_job(self.job_id, self._worker, incarnation=self._incarnation)
        assert job.fence is not None and job.policy is not None
        self.fence: Fence = job.fence
        if job.status is Status.CLAIMED:
            self._ledger.start(self.fence)
        self._start_renewing(job.policy, began)
        self.cancel_requested = job.cancel_requested_at is not None

    def _check_key(self) -> None:
        """Raise SignatureInvalid if the job must be signed and there is no key: the result could not be recorded."""
        job = self._ledger.get(self.job_id)
        policies = [self._ledger.policy_of(self.job_id), *([job.policy] if job.owner is not None and job.policy else [])]
        if all(policy.signed == "none" for policy in policies):
            return
        try:
            self._ledger.check_key(self._worker)
        except SignatureInvalid as error:
            message = f"job {self.job_id} has to be signed by worker {self._worker!r}: {error.message}"
            raise SignatureInvalid(message, job_id=self.job_id, **error.context) from None

    def _beat(self, fields: dict[str, Any]) -> bool:
        beat = self._ledger.heartbeat(self.fence, **fields)
        if beat.status is Status.STALLED:
            self._ledger.resume(self.fence)
        return beat.cancel_requested

    @property
    def episode(self) -> bytes:
        return episode_id(self.fence)

    # The ends of the lease. Each may be sent again after a lost answer.

    def complete(self, result: bytes | None) -> None:
        value = None if result is None else msgspec.Raw(result)
        self._ledger.complete(self.fence, value, request_id=self._request_id("complete"))
        self._ended = True

    def fail(self, error: dict[str, Any], *, retryable: bool, **details: Any) -> None:
        self._ledger.fail(self.fence, error, retryable=retryable, request_id=self._request_id("fail"), **details)
        self._ended = True

    def release(self) -> None:
        self._ledger.release(self.fence, request_id=self._request_id("release"))
        self._ended = True

    def acknowledge_cancel(self) -> None:
        self._ledger.acknowledge_cancel(self.fence, request_id=self._request_id("cancel"))
        self._ended = True

    def _request_id(self, verb: str) -> str:
        return f"{self._incarnation}-{self.fence.job_id}-{self.fence.attempt}-{verb}"


def record_job_end(lease: JobLease, reason: TerminalReason, result: Path, error: dict[str, Any]) -> None:
    """Send the unsent fields, then end the job. Raise the ledger's refusal. May be called again after Unavailable."""
    if lease.has_unsent_fields:
        lease.tick()
    if lease.lost:
        raise FenceLost(f"the lease of job {lease.fence.job_id} is lost", job_id=lease.fence.job_id)
    body = read_result(result)
    if lease.cancel_requested and body is None:
        lease.acknowledge_cancel()
    elif reason is TerminalReason.CLEAN_EXIT or (lease.cancel_requested and body is not None):
        _complete_or_fail(lease, body)
    elif reason is TerminalReason.OPERATOR_SHUTDOWN:
        lease.release()
    else:
        code = ReasonCode.TIMEOUT if reason is TerminalReason.STALL_TIMEOUT else None
        lease.fail(error, retryable=reason is not TerminalReason.UNRECOVERABLE_ERROR, reason_code=code)


def _complete_or_fail(lease: JobLease, result: bytes | None) -> None:
    """Complete the job. If the result is invalid or a validator refuses it, fail the job; without a retry, unless the
    error is retryable."""
    try:
        lease.complete(result)
    except (ValidationError, LimitExceeded, RefusedByValidator) as error:
        fields = {"type": type(error).__name__, "message": error.message}
        if error.retryable:
            lease.fail(fields, retryable=True, failure_stage=FailureStage.OUTPUT)
        else:
            lease.fail(fields, retryable=False, reason_code=ReasonCode.VALIDATION_FAILED, failure_stage=FailureStage.OUTPUT)
        raise


def read_result(path: Path) -> bytes | None:
    """Return what the command has written, up to one byte more than the limit; None if it is empty or not a regular file."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(PAYLOAD_BYTES_MAX + 1) or None
