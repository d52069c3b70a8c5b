"""Contexts for tests that call a handler directly, without a ledger or a worker. They record all calls of the handler."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core import model as m
from holdfast.errors import ValidationError
from holdfast.ledger import Beat, HeldJob, Job, validate
from holdfast.ledger.public import to_datetime
from holdfast.testing.clock import DEFAULT_START
from holdfast.worker.context import AsyncContext, Context
from holdfast.worker.handlers import Handler

T = TypeVar("T")

_NOW = round(DEFAULT_START.timestamp()) * 1_000_000


class EnqueuedCall(NamedTuple):
    """A job that the handler enqueued, or an undo step that it registered."""

    kind: str
    args: dict[str, Any]
    options: dict[str, Any]


class _FakeRuntime:
    """Replaces the worker's runtime for a context."""

    def __init__(self) -> None:
        self.enqueued: list[EnqueuedCall] = []

    def monotonic(self) -> float:
        return 0.0

    def poll_cancel(self, context: Context) -> None:
        """Do nothing: the test calls `cancel`."""

    renew_overdue = poll_cancel

    def resolve_handler(self, handler: Any, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return _resolve_handler(handler, (), args)

    def enqueue_child(
        self, parent: Job, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Job:
        kind, arguments = _resolve_handler(handler, args, kwargs)
        self.enqueued.append(EnqueuedCall(kind, arguments, dict(options)))
        return Job(parent.id + len(self.enqueued), _record(parent.id + len(self.enqueued), kind, arguments, m.Status.QUEUED))

    async def run_in_thread(self, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return verb(*args, **kwargs)


class _RecordingContext(Context):
    """The recording part of both contexts."""

    def __init__(
        self,
        *,
        attempt: int = 1,
        checkpoint: Any = msgspec.UNSET,
        kind: str = "test",
        args: Mapping[str, Any] | None = None,
        job_id: int = 1,
    ) -> None:
        """Create the context of this attempt. `checkpoint` is that of an earlier attempt; the handler finds it in `restored`."""
        limits.check_integer("attempt", attempt, 1, limits.INTEGER_MAX)
        record = _record(job_id, kind, dict(args or {}), m.Status.RUNNING)
        held = msgspec.structs.replace(
            record,
            attempt=attempt,
            phase=m.Phase.EXECUTING,
            owner="test",
            incarnation="test",
            token="test",  # noqa: S106 - not a real secret
            claimed_at=_NOW,
            started_at=_NOW,
            last_beat_at=_NOW,
            progressed_at=_NOW,
            policy=m.Policy(),
            checkpoint=None if checkpoint is msgspec.UNSET else msgspec.json.encode(checkpoint),
        )
        self._fake_runtime = _FakeRuntime()
        fence = m.Fence(job_id, attempt, "test", "test", "test")
        super().__init__(HeldJob(held, fence), None, self._fake_runtime, 1.0, float("inf"), 0.0)  # type: ignore[arg-type]
        self.told: list[dict[str, Any]] = []
        """The arguments of `progress` and `beat` calls, in order."""
        self.checkpoints: list[Any] = []
        self.undo_steps: list[EnqueuedCall] = []
        self.assist_requested = False

    @property
    def enqueued(self) -> list[EnqueuedCall]:
        """The jobs that the handler enqueued, in order."""
        return self._fake_runtime.enqueued

    def cancel(self) -> None:
        """Request a cancel: from now on `cancelled` is true and `check_cancelled` raises JobCancelled."""
        self.cancel_requested = True

    def queue_fields(self, fields: Mapping[str, Any]) -> None:
        self.told.append(dict(fields))

    def _send_beat(self, **fields: Any) -> Beat:
        checked = validate.beat(**{"stage": None, "progress": None, "assist_requested": None, **fields})
        if "checkpoint" in fields:
            self.checkpoints.append(fields["checkpoint"])
        elif "undo" in fields:
            self.undo_steps.append(EnqueuedCall(fields["undo"]["kind"], fields["undo"]["args"], {}))
        elif checked.assist_requested is not None:
            self.assist_requested = checked.assist_requested
        else:
            self.told.append(fields)
        at = to_datetime(_NOW)
        return Beat(self.job.id, self.job.rev, m.Status.RUNNING, at, self.cancel_requested, at)


class FakeContext(_RecordingContext):
    """A context for a `def` handler: `send(FakeContext(attempt=2), to="ada")`."""


class FakeAsyncContext(_RecordingContext, AsyncContext):  # type: ignore[misc]
    """A context for an `async def` handler."""

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job]:  # type: ignore[override]
        return AsyncContext._enqueue(self, handler, args, kwargs)  # noqa: SLF001 - of a base class


def _resolve_handler(handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Check the arguments of a handler as an app does. For a kind given by name they are not checked."""
    if isinstance(handler, str):
        return handler, dict(kwargs)
    found = getattr(handler, "__holdfast_handler__", None)
    if not isinstance(found, Handler):
        raise ValidationError(f"{getattr(handler, '__qualname__', repr(handler)):.200} is not a handler", field="handler")
    return found.kind, found.signature.admit(found.signature.bind_arguments(args, kwargs))


def _record(job_id: int, kind: str, args: dict[str, Any], status: m.Status) -> m.JobRecord:
    return m.JobRecord(
        id=job_id,
        queue="default",
        kind=kind,
        status=status,
        rev=1,
        attempt=0,
        priority=0,
        available_at=_NOW,
        created_at=_NOW,
        updated_at=_NOW,
        args=msgspec.json.encode(args),
        correlation_id=f"test-{job_id}",
    )
