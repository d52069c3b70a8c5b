"""All exceptions of Holdfast. They form one tree, and each leaf has a stable code.

`code` never changes once released. `retryable` is True if the same call may succeed later without any other change. `fault`
says where the cause is: the caller, a rival (another actor holds or changed what the call needs), or the store.
"""

from typing import Any, ClassVar, Literal, Protocol

Fault = Literal["caller", "rival", "store"]


class HoldfastError(Exception):
    """The base class. `context` holds the facts behind the message, `action` says what to do next."""

    code: ClassVar[str] = "error"
    retryable: bool = False
    http_status: ClassVar[int] = 500
    fault: ClassVar[Fault] = "caller"
    action: str = ""
    request_id: str | None = None
    """The request id of the refused command, if the command line sent it."""

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
    """The request itself is malformed. Handlers raise it too, for input that no retry can fix."""

    code = "validation_error"
    http_status = 400
    action = "Correct the request and send it again."


class UnsupportedConnection(ValidationError):
    """A job cannot be enqueued in this connection's transaction: the store cannot use its driver, which is in `context`."""

    code = "unsupported_connection"
    action = "Use a connection of a driver that the message names."


class LimitExceeded(HoldfastError):
    """A number in the request is past its limit. `context` has both."""

    code = "limit_exceeded"
    http_status = 413
    action = "Stay within the limit: send less, or split the request."


class Conflict(HoldfastError):
    """The job is not in the state the caller said it was in."""

    code = "conflict"
    retryable = True
    http_status = 409
    fault = "rival"
    action = "Read the job again, then decide what to do."


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
    action = "Use a new request id for a new request."


class LeaseConflictError(HoldfastError):
    """Another worker holds the job."""

    code = "lease_conflict"
    retryable = True
    http_status = 409
    fault = "rival"
    action = "Work on something else, or wait for the lease to end."


class FenceLost(LeaseConflictError):
    """The caller's attempt is over, and the job has moved on. The caller must stop all side effects."""

    code = "fence_lost"
    retryable = False
    action = "Stop working on this job; nothing you write for it will be accepted."


class NotClaimable(HoldfastError):
    code = "not_claimable"
    retryable = True
    http_status = 409
    action = "The context says what the job waits for."


class RefusedByValidator(HoldfastError):
    """A validator or a conflict detector refused a result. The job stays running. The worker has to end the attempt."""

    code = "refused_by_validator"
    http_status = 422
    action = "The message says why. The job is still yours: complete it with another result, or fail it."


class ResultTimeout(HoldfastError, TimeoutError):
    """The job did not end within the timeout of `result`. The job goes on. `context` has its status."""

    code = "result_timeout"
    retryable = True
    http_status = 504
    fault = "rival"
    action = "Call again with a longer timeout. holdfast explain JOB says what the job waits for."


class NoResult(HoldfastError):
    """The job failed, was dead-lettered or cancelled, and has no result. `context` has its status and last error."""

    code = "no_result"
    http_status = 409
    action = "Fix the cause, then replay the job."


class GateDenied(HoldfastError):
    """The liveness gate does not allow the worker to go on. `context` has the reason, the detail and the receipt."""

    code = "gate_denied"
    http_status = 403
    action = "Do not take the step. If the worker was only silent, send a fresh beat. Any other reason needs another attempt."


_SIGNATURE_ACTIONS = {
    "counter": "Do nothing if this statement was recorded before. Otherwise sign it again, with a higher counter.",
    "skew": "Set the signer's clock and the ledger's clock by the same source, then sign again.",
    "signature": "Send the statement exactly as it was signed, or sign it again with the key that keyId names.",
    "payload": "Send the content whose hash was signed, or sign the hash of this content.",
    "ledger": "Send it to the ledger that it names, or sign it again with the id of this ledger.",
}
"""What to do, by `why`, if the cause is not the key."""


class SignatureInvalid(HoldfastError):
    """An event must be signed and is not, or the signed statement does not match the request. `context["why"]` says which.

    `retryable` is True in two cases: the server's signature is missing, because another process may have that key, or the
    clocks of signer and ledger are too far apart.
    """

    code = "signature_invalid"
    http_status = 403
    action = "Sign with an enrolled key of the signer's own name; open the ledger with keys=… so that verbs sign by themselves."

    def __init__(self, message: str, *, retryable: bool = False, **context: Any) -> None:
        super().__init__(message, **context)
        self.retryable = retryable
        self.action = _SIGNATURE_ACTIONS.get(context.get("why", ""), self.action)


class Forbidden(HoldfastError):
    """The caller may not do this. `action` says who may, if that is known."""

    code = "forbidden"
    http_status = 403


class SealBroken(HoldfastError):
    """The sealed log differs from what was signed: it was changed, or a part of it was lost. Sealing stops."""

    code = "seal_broken"
    http_status = 500
    action = "Do not change the database. Verify it, compare it with an anchored head, then restore what was sealed."


class Unavailable(HoldfastError):
    """The store cannot be reached or cannot write.

    `outcome` is "none" if nothing was changed, and "unknown" if the answer was lost. After an unknown outcome the caller can
    safely repeat the call with the same request id. `locked` is True if the store works, but another transaction has locked a
    job or a name that this call needs.
    """

    code = "unavailable"
    retryable = True
    http_status = 503
    fault = "store"
    action = "Call again. If the outcome is unknown, use the same request_id."

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
        """False if this object can never work again because it was closed, or opened before a fork."""


class NoLedger(HoldfastError):
    """There is no ledger at this url, and the caller did not allow one to be created."""

    code = "no_ledger"
    http_status = 503
    fault = "store"
    action = "Check the url. To make a ledger there, run holdfast migrate, or enqueue a job: holdfast job enqueue."


class Unauthenticated(HoldfastError):
    """A server does not know the caller. The text is the same for a missing, unknown, expired and revoked token."""

    code = "unauthenticated"
    http_status = 401
    action = "Send a valid token: Authorization: Bearer TOKEN. An admin makes one with holdfast token new."


class MethodNotAllowed(HoldfastError):
    code = "method_not_allowed"
    http_status = 405
    action = "Use one of the methods in the header Allow."


class RequestTimeout(HoldfastError):
    """A server did not get the whole request in time."""

    code = "request_timeout"
    retryable = True
    http_status = 408
    action = "Send the whole request sooner, or a smaller one."


class UnsupportedMediaType(HoldfastError):
    code = "unsupported_media_type"
    http_status = 415
    action = "Send JSON with the header Content-Type: application/json, plain or compressed with gzip."


class Misdirected(HoldfastError):
    """A request names a host that a server does not serve."""

    code = "misdirected"
    http_status = 421
    action = "Use the server's own name, or start the server with --allowed-host NAME."


class TooManyRequests(HoldfastError):
    """The caller has more requests under way, or sends more a second, than a server lets it."""

    code = "too_many_requests"
    retryable = True
    http_status = 429
    action = "Send the request again after the seconds in the header Retry-After."


class HeaderTooLarge(HoldfastError):
    code = "header_too_large"
    http_status = 431
    action = "Send fewer and shorter headers."


class InternalError(HoldfastError):
    """A server has failed in a way that it does not tell. Its log has the rest, under the same instance."""

    code = "internal"
    http_status = 500
    fault = "store"
    action = "Look into the server's log for the instance."


class TransientError(HoldfastError):
    """Raised by a handler to be retried. `retry_after` is the delay before the next attempt (seconds, or a text like "30s").

    `reason_code` and `failure_stage` are recorded with the attempt. If it was the last attempt, they are recorded with the
    job's end too.
    """

    code = "transient_error"
    retryable = True
    action = "Nothing: the job is retried automatically while attempts are left."

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
    """Raised by a handler to fail without a retry. With a `reason_code` the job is dead-lettered, otherwise it is failed.

    `failure_stage` is recorded in both cases.
    """

    code = "permanent_error"
    action = "Fix the cause, then replay the job."

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
    """Raised by a handler, or by `job.check_cancelled()` in it, to stop after a cancel was requested."""

    code = "cancelled"
    http_status = 409
    fault = "rival"
    action = "Nothing: the job is recorded as cancelled."


class SchemaTooNew(HoldfastError):
    code = "schema_too_new"
    http_status = 503
    fault = "store"
    action = "Upgrade this Holdfast: the ledger was written by a newer one."


class ServerTooOld(HoldfastError):
    code = "server_too_old"
    http_status = 503
    fault = "store"
    action = "Upgrade PostgreSQL, or use another server."


class Refusal(Protocol):
    """The attributes that every refusal has, an exception or a stored answer."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def context(self) -> dict[str, Any]: ...
    @property
    def action(self) -> str: ...


def error_fields(refusal: Refusal) -> dict[str, Any]:
    """Return the fields of a refusal as the command line and the MCP server answer them."""
    return {
        "error": refusal.message,
        "error_code": refusal.code,
        "error_context": refusal.context,
        "suggested_action": refusal.action,
    }
