"""Every way Holdfast says no: one tree, each leaf with a stable code.

`code` never changes once released. `retryable` says whether the same call may succeed later without anything else
changing. `fault` names whose move it is: the caller's, a rival's (somebody else holds what was asked for), the store's.
"""

from typing import Any, ClassVar, Literal, Protocol

Fault = Literal["caller", "rival", "store"]


class HoldfastError(Exception):
    """The root. `context` holds the facts behind the message, `action` what to do next."""

    code: ClassVar[str] = "error"
    retryable: bool = False
    http_status: ClassVar[int] = 500
    fault: ClassVar[Fault] = "caller"
    action: str = ""
    request_id: str | None = None
    """Of the command that was refused, where the command line sent it."""

    def __init__(self, message: str, *, action: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        if action is not None:
            self.action = action


class NotFound(HoldfastError):
    code = "not_found"
    http_status = 404
    action = "Check the id or the name."


class ValidationError(HoldfastError):
    """The request itself is malformed. Handlers raise it too, for input that no retry will mend."""

    code = "validation_error"
    http_status = 400
    action = "Correct the request and send it again."


class UnsupportedConnection(ValidationError):
    """A job cannot be enqueued in the transaction of this connection: its driver, in `context`, is not one the store can use."""

    code = "unsupported_connection"
    action = "Use a connection of a driver that the message names."


class LimitExceeded(HoldfastError):
    """A number in the request is past its limit; `context` has both."""

    code = "limit_exceeded"
    http_status = 413
    action = "Stay within the limit: send less, or split the request."


class Conflict(HoldfastError):
    """The job is not in the state the caller said it was in."""

    code = "conflict"
    retryable = True
    http_status = 409
    fault = "rival"
    action = "Read the job again and decide anew."


class InvalidTransition(HoldfastError):
    code = "invalid_transition"
    http_status = 409
    action = "The job's status or phase does not allow this. Read the job again: holdfast explain JOB says what can be done."


class NotStalledYet(HoldfastError):
    code = "not_stalled_yet"
    retryable = True
    http_status = 409
    action = "Wait until the limit in the context has passed."


class IdempotencyConflict(HoldfastError):
    code = "idempotency_conflict"
    http_status = 422
    action = "Draw a new request id for a new request."


class LeaseConflictError(HoldfastError):
    """Somebody else holds what you want."""

    code = "lease_conflict"
    retryable = True
    http_status = 409
    fault = "rival"
    action = "Work on something else, or wait for the lease to end."


class FenceLost(LeaseConflictError):
    """Your lease is over: the job has moved on without you. Stop all side effects."""

    code = "fence_lost"
    retryable = False
    action = "Stop working on this job; nothing you write for it will be accepted."


class NotClaimable(HoldfastError):
    code = "not_claimable"
    retryable = True
    http_status = 409
    action = "The context says what the job waits for."


class RefusedByValidator(HoldfastError):
    """A validator or a conflict detector refused a result. The job stays running; a worker ends its attempt."""

    code = "refused_by_validator"
    http_status = 422
    action = "The message says why. The job is still yours: complete it with another result, or fail it."


class ResultTimeout(HoldfastError, TimeoutError):
    """The job has not ended within the time that `result` was given. It goes on; `context` has its status."""

    code = "result_timeout"
    retryable = True
    http_status = 504
    fault = "rival"
    action = "Ask again, with more time. holdfast explain JOB says what the job waits for."


class NoResult(HoldfastError):
    """The job has ended and has no result: it failed, was dead-lettered or cancelled. `context` has its status and last error."""

    code = "no_result"
    http_status = 409
    action = "Mend the cause, then replay the job."


class GateDenied(HoldfastError):
    """What is known of a worker does not permit it to go on; `context` has the reason, the detail and the receipt."""

    code = "gate_denied"
    http_status = 403
    action = "Do not take the step. A fresh beat mends silence; whatever else is wrong needs another attempt."


_SIGNATURE_ACTIONS = {
    "counter": "Do nothing if this statement was recorded before. Otherwise sign it anew, with a higher counter.",
    "skew": "Set the signer's clock and the ledger's by one source, then sign anew.",
    "signature": "Send the statement exactly as it was signed, or sign it anew with the key that keyId names.",
    "payload": "Send the content whose hash was signed, or sign the hash of this content.",
    "ledger": "Send it to the ledger that it names, or sign anew with the id of this one.",
}
"""What to do, by `why`, where it is not about the key."""


class SignatureInvalid(HoldfastError):
    """An event has to be signed and is not, or what was signed is not what is asked for. `context["why"]` says which.

    `retryable` is True where the signature that lacks is the server's: another process has that key, or will; and where two
    clocks are too far apart.
    """

    code = "signature_invalid"
    http_status = 403
    action = "Sign with an enrolled key of the signer's own name; open the ledger with keys=… so that verbs sign by themselves."

    def __init__(self, message: str, *, retryable: bool = False, **context: Any) -> None:
        super().__init__(message, **context)
        self.retryable = retryable
        self.action = _SIGNATURE_ACTIONS.get(context.get("why", ""), self.action)


class Forbidden(HoldfastError):
    """The caller may not do this; `action` says who may, where that is known."""

    code = "forbidden"
    http_status = 403


class SealBroken(HoldfastError):
    """The sealed log is not what was signed: somebody has changed it, or lost a part of it. Nothing more is sealed."""

    code = "seal_broken"
    http_status = 500
    action = "Keep the database as it is: verify it, compare it with an anchored head, restore what was sealed."


class Unavailable(HoldfastError):
    """The store cannot be reached or cannot write.

    `outcome` is "none" where nothing was changed, "unknown" where the answer was lost on its way back: then the same call
    with the same request id settles it. `locked` is True where the store works and only a job or a name that this call needs
    is locked by another transaction.
    """

    code = "unavailable"
    retryable = True
    http_status = 503
    fault = "store"
    action = "Ask again; with the same request_id where the outcome is unknown."

    def __init__(
        self,
        message: str,
        *,
        outcome: Literal["none", "unknown"] = "none",
        retryable: bool = True,
        locked: bool = False,
        **context: Any,
    ) -> None:
        super().__init__(message, outcome=outcome, **context)
        self.outcome = outcome
        self.locked = locked
        self.retryable = retryable
        """False where this very object will never work again: it was closed, or opened before a fork."""


class NoLedger(HoldfastError):
    """Nothing at that url is a ledger yet, and whoever asked would not have one made."""

    code = "no_ledger"
    http_status = 503
    fault = "store"
    action = "Check the url. Whatever writes makes a ledger: holdfast job enqueue, or holdfast migrate."


class TransientError(HoldfastError):
    """Raised by a handler: it went wrong this time, and another try may go well. `retry_after` says when (seconds, "30s").

    `reason_code` and `failure_stage` are recorded with the attempt, and with the job's end if this was its last attempt.
    """

    code = "transient_error"
    retryable = True
    action = "Nothing: it is tried again by itself while attempts are left."

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: Any = None,
        reason_code: str | None = None,
        failure_stage: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message, **context)
        self.retry_after = retry_after
        self.reason_code = reason_code
        self.failure_stage = failure_stage


class PermanentError(HoldfastError):
    """Raised by a handler: no retry will mend it. With a `reason_code` the job is dead-lettered, otherwise it has failed.

    `failure_stage` is recorded in both cases.
    """

    code = "permanent_error"
    action = "Mend the cause, then replay the job."

    def __init__(
        self,
        message: str = "",
        *,
        reason_code: str | None = None,
        failure_stage: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message, **context)
        self.reason_code = reason_code
        self.failure_stage = failure_stage


class JobCancelled(HoldfastError):
    """Raised by a handler, or by `job.check_cancelled()` in it: somebody asked for the job to stop, and it has."""

    code = "cancelled"
    http_status = 409
    fault = "rival"
    action = "Nothing: the job is recorded as cancelled."


class SchemaTooNew(HoldfastError):
    code = "schema_too_new"
    http_status = 503
    fault = "store"
    action = "Upgrade this Holdfast: the ledger was written by a newer one."


class Refusal(Protocol):
    """Whatever says no."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def context(self) -> dict[str, Any]: ...
    @property
    def action(self) -> str: ...


def error_fields(refusal: Refusal) -> dict[str, Any]:
    """A refusal as programs are told of it, by whichever way they asked."""
    return {
        "error": refusal.message,
        "error_code": refusal.code,
        "error_context": refusal.context,
        "suggested_action": refusal.action,
    }
