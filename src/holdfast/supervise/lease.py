"""The job that a run is for: claimed by id, renewed as long as the run goes on, settled when it ends."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.model import Fence, Policy, Status
from holdfast.core.receipts import episode_id
from holdfast.errors import HoldfastError, LimitExceeded, SignatureInvalid, Unavailable, ValidationError
from holdfast.ledger import Beat, Ledger
from holdfast.supervise.ears import Heard

log = logging.getLogger("holdfast.supervise")


class Lease:
    """Held by the run, whichever process supervises it. A service: its tick is a beat, from a thread of its own."""

    name = "lease"

    def __init__(
        self, ledger: Ledger, job_id: int, worker: str, incarnation: str, monotonic: Callable[[], float], ring: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._job_id = job_id
        self._worker = worker
        self._incarnation = incarnation
        self._monotonic = monotonic
        self._ring = ring
        self._told: dict[str, Any] = {}
        self.expires = float("inf")
        """By this process's own clock, since before the last beat that was answered. Later, somebody else may have the job."""
        self.lost = False
        self._settled = False
        self.cancel_requested = False

    def claim(self) -> None:
        """Raises what the ledger says where the job cannot be had."""
        self._check_key()
        began = self._monotonic()
        job = self._ledger.claim_job(self._job_id, self._worker, incarnation=self._incarnation)
        assert job.fence is not None and job.policy is not None
        self.fence: Fence = job.fence
        self._policy: Policy = job.policy
        self.every_s = min(job.policy.heartbeat_interval_ms, self._silence_ms / 3) / 1_000
        if job.status is Status.CLAIMED:
            self._ledger.start(self.fence)
        self._renewed(began)
        self.cancel_requested = job.cancel_requested_at is not None

    def _check_key(self) -> None:
        """What would be refused for want of a signature is not begun: the program's work would be on no record."""
        job = self._ledger.get(self._job_id)
        policies = [self._ledger.policy_of(self._job_id), *([job.policy] if job.owner is not None and job.policy else [])]
        if all(policy.signed == "none" for policy in policies):
            return
        try:
            self._ledger.check_key(self._worker)
        except SignatureInvalid as refused:
            words = f"job {self._job_id} has to be signed by worker {self._worker!r}: {refused.message}"
            raise SignatureInvalid(words, job_id=self._job_id, **refused.context) from None

    def _renewed(self, began: float) -> None:
        self.expires = began + self._silence_ms / 1_000

    @property
    def _silence_ms(self) -> int:
        return min(self._policy.lease_ttl_ms, self._policy.stall_after_ms)

    @property
    def episode(self) -> bytes:
        return episode_id(self.fence)

    def hear(self, heard: Heard) -> None:
        """What the child told goes with the next beat."""
        self._told = {**self._told, **{name: value for name, value in msgspec.structs.asdict(heard).items() if value is not None}}

    def tick(self) -> None:
        if self.lost or self._settled:
            return
        began, told = self._monotonic(), self._told
        self._told = {}
        try:
            beat = self._ledger.heartbeat(self.fence, **told)
            self._answered(beat, began)
        except Unavailable:
            self._told = {**told, **self._told}
            raise
        except (ValidationError, LimitExceeded) as error:  # what was told is dropped, and the next beat is a plain one
            log.warning("a beat was refused for what it said", extra={"job_id": self._job_id, "error": error.message})
        except HoldfastError as error:
            if not self._settled:
                log.warning("lease lost", extra={"job_id": self._job_id, "error": error.code})
                self.lose()

    def _answered(self, beat: Beat, began: float) -> None:
        if beat.status is Status.STALLED:
            self._ledger.resume(self.fence)
        self._renewed(began)
        if beat.cancel_requested and not self.cancel_requested:
            self.cancel_requested = True
            self._ring()

    def lose(self) -> None:
        self.lost = True
        self._ring()

    def close(self) -> None:
        """A lease is settled, not dropped."""

    # How it ends; each may be sent again after a lost answer

    def complete(self, result: bytes | None) -> None:
        value = None if result is None else msgspec.Raw(result)
        self._ledger.complete(self.fence, value, request_id=self._request("complete"))
        self._settled = True

    def fail(self, error: dict[str, Any], *, retryable: bool, **why: Any) -> None:
        self._ledger.fail(self.fence, error, retryable=retryable, request_id=self._request("fail"), **why)
        self._settled = True

    def release(self) -> None:
        self._ledger.release(self.fence, request_id=self._request("release"))
        self._settled = True

    def acknowledge_cancel(self) -> None:
        self._ledger.acknowledge_cancel(self.fence, request_id=self._request("cancel"))
        self._settled = True

    def _request(self, verb: str) -> str:
        return f"{self._incarnation}-{self.fence.job_id}-{self.fence.attempt}-{verb}"
