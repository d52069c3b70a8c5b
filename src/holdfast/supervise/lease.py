"""Leases of supervised commands: renewed while the command runs, settled when it ends."""

import logging
import math
import os
import threading
from abc import ABC, abstractmethod
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
from holdfast.ledger import Ledger
from holdfast.regular_file import open_regular
from holdfast.supervise.heartbeats import ReceivedHeartbeat

log = logging.getLogger("holdfast.supervise")


class Lease(ABC):
    """A lease that is renewed as long as a command runs. A service: its tick is a beat, from a thread of its own."""

    name = "lease"

    def __init__(self, job_id: int, monotonic: Callable[[], float], wake: Callable[[], None]) -> None:
        self.job_id = job_id
        self._monotonic = monotonic
        self._wake_loop = wake
        self._lock = threading.Lock()
        self._unsent: dict[str, Any] = {}
        self.expires_at = float("inf")
        """By this process's own clock, since before the last beat that was answered. Later, another holder may have the job."""
        self.lost = False
        self._settled = False
        self.cancel_requested = False

    def _start_renewing(self, policy: Policy, began: float, every_s_max: float = math.inf) -> None:
        """The lease was granted by a call that began then. No two beats are further apart than `every_s_max`."""
        self._silence_s = min(policy.lease_ttl_ms, policy.stall_after_ms) / 1_000
        self.every_s = min(policy.heartbeat_interval_ms / 1_000, self._silence_s / 3, every_s_max)
        self._set_expiry(began)

    def _set_expiry(self, began: float) -> None:
        self.expires_at = began + self._silence_s
        self._due = began + self.every_s / 2

    def add_news(self, heard: ReceivedHeartbeat) -> None:
        """What the child told goes with the next beat."""
        with self._lock:
            self._unsent |= heard.fields

    @property
    def has_news(self) -> bool:
        """The child has told something that was not sent yet."""
        return bool(self._unsent)

    def tick(self) -> None:
        """Without news, a lease that was just renewed is left alone."""
        began = self._monotonic()
        if self.lost or self._settled or (began < self._due and not self._unsent):
            return
        with self._lock:
            fields, self._unsent = self._unsent, {}
        try:
            cancel_requested = self._beat(fields)
        except Unavailable:
            with self._lock:
                self._unsent = fields | self._unsent
            raise
        except (ValidationError, LimitExceeded) as error:  # what was told is dropped, and the next beat is a plain one
            log.warning("a beat was refused for what it said", extra={"job_id": self.job_id, "error": error.message})
        except HoldfastError as error:
            if not self._settled:
                log.warning("lease lost", extra={"job_id": self.job_id, "error": error.code})
                self.mark_lost()
        else:
            self._set_expiry(began)
            if cancel_requested and not self.cancel_requested:
                self.cancel_requested = True
                self._wake_loop()

    @abstractmethod
    def _beat(self, fields: dict[str, Any]) -> bool:
        """Send one beat. True if the job is to be cancelled."""

    def mark_lost(self) -> None:
        self.lost = True
        self._wake_loop()

    def close(self) -> None:  # noqa: B027 - for a Ticker, which closes what it ticks
        """A lease is settled, not dropped."""


class JobLease(Lease):
    """The job that a run is for: held by the run, whichever process supervises it."""

    def __init__(
        self, ledger: Ledger, job_id: int, worker: str, incarnation: str, monotonic: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        super().__init__(job_id, monotonic, wake)
        self._ledger = ledger
        self._worker = worker
        self._incarnation = incarnation

    def claim(self) -> None:
        """Raises what the ledger says where the job cannot be had."""
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
        """What would be refused for want of a signature is not begun: the program's work would be on no record."""
        job = self._ledger.get(self.job_id)
        policies = [self._ledger.policy_of(self.job_id), *([job.policy] if job.owner is not None and job.policy else [])]
        if all(policy.signed == "none" for policy in policies):
            return
        try:
            self._ledger.check_key(self._worker)
        except SignatureInvalid as refused:
            words = f"job {self.job_id} has to be signed by worker {self._worker!r}: {refused.message}"
            raise SignatureInvalid(words, job_id=self.job_id, **refused.context) from None

    def _beat(self, fields: dict[str, Any]) -> bool:
        beat = self._ledger.heartbeat(self.fence, **fields)
        if beat.status is Status.STALLED:
            self._ledger.resume(self.fence)
        return beat.cancel_requested

    @property
    def episode(self) -> bytes:
        return episode_id(self.fence)

    # How it ends; each may be sent again after a lost answer

    def complete(self, result: bytes | None) -> None:
        value = None if result is None else msgspec.Raw(result)
        self._ledger.complete(self.fence, value, request_id=self._request_id("complete"))
        self._settled = True

    def fail(self, error: dict[str, Any], *, retryable: bool, **why: Any) -> None:
        self._ledger.fail(self.fence, error, retryable=retryable, request_id=self._request_id("fail"), **why)
        self._settled = True

    def release(self) -> None:
        self._ledger.release(self.fence, request_id=self._request_id("release"))
        self._settled = True

    def acknowledge_cancel(self) -> None:
        self._ledger.acknowledge_cancel(self.fence, request_id=self._request_id("cancel"))
        self._settled = True

    def _request_id(self, verb: str) -> str:
        return f"{self._incarnation}-{self.fence.job_id}-{self.fence.attempt}-{verb}"


def settle_job(lease: JobLease, reason: TerminalReason, result: Path, error: dict[str, Any]) -> None:
    """Send what was told last, then the end. Raises what the ledger refuses. May be called again after Unavailable."""
    if lease.has_news:
        lease.tick()
    if lease.lost:
        raise FenceLost(f"the lease of job {lease.fence.job_id} is lost", job_id=lease.fence.job_id)
    found = read_result(result)
    if lease.cancel_requested and found is None:
        lease.acknowledge_cancel()
    elif reason is TerminalReason.CLEAN_EXIT or (lease.cancel_requested and found is not None):
        _complete_or_fail(lease, found)
    elif reason is TerminalReason.OPERATOR_SHUTDOWN:
        lease.release()
    else:
        code = ReasonCode.TIMEOUT if reason is TerminalReason.STALL_TIMEOUT else None
        lease.fail(error, retryable=reason is not TerminalReason.UNRECOVERABLE_ERROR, reason_code=code)


def _complete_or_fail(lease: JobLease, result: bytes | None) -> None:
    """A result that cannot be kept, or that a validator refuses, is a failure that no retry mends."""
    try:
        lease.complete(result)
    except (ValidationError, LimitExceeded, RefusedByValidator) as error:
        said = {"type": type(error).__name__, "message": error.message}
        if error.retryable:
            lease.fail(said, retryable=True, failure_stage=FailureStage.OUTPUT)
        else:
            lease.fail(said, retryable=False, reason_code=ReasonCode.VALIDATION_FAILED, failure_stage=FailureStage.OUTPUT)
        raise


def read_result(path: Path) -> bytes | None:
    """What the command has written, a little more than fits at most; None where it has written nothing, or no plain file."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(PAYLOAD_BYTES_MAX + 1) or None
