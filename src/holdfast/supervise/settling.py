"""How a run's end becomes its job's: completed, failed, handed back, or cancelled."""

import os
from pathlib import Path
from typing import Any

from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.core.model import FailureStage, ReasonCode
from holdfast.core.restart import TerminalReason
from holdfast.errors import FenceLost, LimitExceeded, RefusedByValidator, ValidationError
from holdfast.plainfile import open_plain
from holdfast.supervise.lease import JobLease


def settle(lease: JobLease, reason: TerminalReason, result: Path, error: dict[str, Any]) -> None:
    """Send what was told last, then the end. Raises what the ledger refuses. May be called again after Unavailable."""
    if lease.has_news:
        lease.tick()
    if lease.lost:
        raise FenceLost(f"the lease of job {lease.fence.job_id} is lost", job_id=lease.fence.job_id)
    found = read_result(result)
    if lease.cancel_requested and found is None:
        lease.acknowledge_cancel()
    elif reason is TerminalReason.CLEAN_EXIT or (lease.cancel_requested and found is not None):
        _complete(lease, found)
    elif reason is TerminalReason.OPERATOR_SHUTDOWN:
        lease.release()
    else:
        code = ReasonCode.TIMEOUT if reason is TerminalReason.STALL_TIMEOUT else None
        lease.fail(error, retryable=reason is not TerminalReason.UNRECOVERABLE_ERROR, reason_code=code)


def _complete(lease: JobLease, result: bytes | None) -> None:
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
        descriptor = open_plain(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(PAYLOAD_BYTES_MAX + 1) or None
