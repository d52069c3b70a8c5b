"""The options of verbs, as type checkers see them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from holdfast.core.model import Actor

if TYPE_CHECKING:
    from holdfast.ledger.face import Job

Duration = str | float | timedelta
"""A text such as "30s", "5m" or "500ms"; a number of seconds; or a timedelta."""


class PolicyFields(TypedDict, total=False):
    """What a policy may set. None leaves a field to the next layer."""

    heartbeat_interval: Duration | None
    missed_beats_max: int | None
    lease_ttl: Duration | None
    resume_window: Duration | None
    attempts_max: int | None
    on_exhausted: Literal["dead_letter", "fail"] | None
    backoff_base: Duration | None
    backoff_max: Duration | None
    cancel_grace: Duration | None
    progress_timeout: Duration | None
    requires_operator_coverage: bool | None
    signed: Literal["none", "liveness", "all"] | None
    lease_widened: bool | None


class HandlerOptions(TypedDict, total=False):
    """What the jobs of a handler are enqueued with."""

    priority: int | None
    delay: Duration | None
    available_at: datetime | None
    dedupe_key: str | None
    dedupe: Literal["live", "forever"] | None
    tier: str | None
    correlation_id: str | None
    trace_id: str | None
    depends_on: "Sequence[int | Job[Any]] | None"
    on_dependency_failure: Literal["wait", "cancel", "dead_letter"] | None


class EnqueueOptions(HandlerOptions, total=False):
    """What a job is enqueued with besides its kind, arguments and queue."""

    policy: PolicyFields | None


class ChildOptions(EnqueueOptions, total=False):
    """The same with the queue, where a handler's own may be left."""

    queue: str
    request_id: str | None
    actor: str | Actor | None


class CallOptions(ChildOptions, total=False):
    """The same for a call that may join an open transaction of the caller's."""

    connection: Any
