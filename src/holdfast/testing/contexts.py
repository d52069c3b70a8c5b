"""Contexts for a test that calls a handler directly: no ledger, no worker, everything the handler says kept for the test."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.core import limits
from holdfast.core import model as m
from holdfast.errors import ValidationError
from holdfast.ledger import Beat, Job, validate
from holdfast.ledger.public import to_datetime
from holdfast.testing.clock import DEFAULT_START
from holdfast.worker.context import AsyncContext, Context
from holdfast.worker.handlers import Handler

T = TypeVar("T")

_NOW = round(DEFAULT_START.timestamp()) * 1_000_000


class EnqueuedCall(NamedTuple):
    """A job that the handler made, or a step that it registered to be undone."""

    kind: str
    args: dict[str, Any]
    options: dict[str, Any]


class _FakeRuntime:
    """What a context otherwise asks its worker for."""

    def __init__(self) -> None:
        self.enqueued: list[EnqueuedCall] = []

    def monotonic(self) -> float:
        return 0.0

    def poll_cancel(self, context: Context) -> None:
        """Whether it should stop, the test says."""

    renew_overdue = poll_cancel

    def check_progress(self, stage: str | None, progress: int | None) -> None:
        validate.beat(stage, progress, None)

    def resolve_handler(self, handler: Any, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return _resolve_handler(handler, (), args)

    def enqueue_child(
        self, parent: Job, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Job:
        kind, given = _resolve_handler(handler, args, kwargs)
        self.enqueued.append(EnqueuedCall(kind, given, dict(options)))
        return Job(parent.id + len(self.enqueued), _record(parent.id + len(self.enqueued), kind, given, m.Status.QUEUED))

    async def run_in_thread(self, verb: Callable[..., T], *args: Any, **given: Any) -> T:
        return verb(*args, **given)


class _RecordingContext(Context):
    """What both kinds of contexts have for the test."""

    def __init__(
        self,
        *,
        attempt: int = 1,
        checkpoint: Any = msgspec.UNSET,
        kind: str = "test",
        args: Mapping[str, Any] | None = None,
        job_id: int = 1,
    ) -> None:
        """As in the attempt with this number. `checkpoint` is what an earlier one has left, in `restored`."""
        limits.check_integer("attempt", attempt, 1, limits.INTEGER_MAX)
        record = _record(job_id, kind, dict(args or {}), m.Status.RUNNING)
        held = msgspec.structs.replace(
            record,
            attempt=attempt,
            phase=m.Phase.EXECUTING,
            owner="test",
            incarnation="test",
            token="test",  # noqa: S106 - it opens nothing
            claimed_at=_NOW,
            started_at=_NOW,
            last_beat_at=_NOW,
            progressed_at=_NOW,
            policy=m.Policy(),
            checkpoint=None if checkpoint is msgspec.UNSET else msgspec.json.encode(checkpoint),
        )
        self._fake_runtime = _FakeRuntime()
        fence = m.Fence(job_id, attempt, "test", "test", "test")
        super().__init__(Job(job_id, held, fence=fence), None, self._fake_runtime, 1.0, float("inf"), 0.0)  # type: ignore[arg-type]
        self.told: list[dict[str, Any]] = []
        """What `progress` and `beat` said, in order."""
        self.checkpoints: list[Any] = []
        self.undo_steps: list[EnqueuedCall] = []
        self.assist_requested = False

    @property
    def enqueued(self) -> list[EnqueuedCall]:
        """The jobs that it made, in order."""
        return self._fake_runtime.enqueued

    def cancel(self) -> None:
        """From here on the handler is asked to stop: `cancelled` is true, `check_cancelled` raises JobCancelled."""
        self.cancel_requested = True

    def queue_progress(self, unsent: dict[str, Any]) -> None:
        self.told.append(unsent)

    def _send_beat(self, **told: Any) -> Beat:
        checked = validate.beat(**{"stage": None, "progress": None, "assist_requested": None, **told})
        if "checkpoint" in told:
            self.checkpoints.append(told["checkpoint"])
        elif "undo" in told:
            self.undo_steps.append(EnqueuedCall(told["undo"]["kind"], told["undo"]["args"], {}))
        elif checked.assist_requested is not None:
            self.assist_requested = checked.assist_requested
        else:
            self.told.append(told)
        at = to_datetime(_NOW)
        return Beat(self.job.id, self.job.rev, m.Status.RUNNING, at, self.cancel_requested, at)


class FakeContext(_RecordingContext):
    """For a `def` handler: `send(FakeContext(attempt=2), to="ada")`."""


class FakeAsyncContext(_RecordingContext, AsyncContext):  # type: ignore[misc]
    """For an `async def` handler."""

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job]:  # type: ignore[override]
        return AsyncContext._enqueue(self, handler, args, kwargs)  # noqa: SLF001 - its own


def _resolve_handler(handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A handler's arguments are checked as an app checks them; of a kind alone nothing is known."""
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
