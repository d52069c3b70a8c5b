"""State and calls that all parts of a running worker share."""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from holdfast.core.model import EventType, Status
from holdfast.errors import HoldfastError, ValidationError
from holdfast.ledger import Event, Job, Ledger
from holdfast.telemetry.logs import JobFields, log_step
from holdfast.telemetry.tracing import current_traceparent
from holdfast.worker import undo
from holdfast.worker.context import Context
from holdfast.worker.handlers import Handler, HandlerRegistry

T = TypeVar("T")

log = logging.getLogger("holdfast.worker")


class WorkerRuntime:
    """The shared state of a worker: its ledger, handlers and leases."""

    def __init__(self, ledger: Ledger, registry: HandlerRegistry, name: str, monotonic: Callable[[], float]) -> None:
        self.ledger = ledger
        self.registry = registry
        self.name = name
        self.monotonic = monotonic
        self.labels: tuple[str, ...] = ()
        """What this worker has, for jobs that require it."""
        self.served: dict[str, Handler] = {}
        """The handlers for the jobs that this worker claims, by kind."""
        self.leases: dict[int, Context] = {}
        """Every attempt that this worker holds, by job id, until the ledger has its outcome."""
        self.wake = threading.Event()
        """Set when heartbeats should be sent early."""
        self.stopping = threading.Event()
        self._log_lock = threading.Lock()
        self.abandoned = 0
        """How many threads still run a handler that was abandoned."""
        self.settle_result: Callable[[Context, Any], None]
        self.settle_error: Callable[[Context, BaseException], None]
        """Settle one job of a batch. The runner of attempts sets both."""
        self.on_slot_freed: Callable[[], None] = _do_nothing
        """Called when the worker no longer holds a job whose kind has its own limit."""

    def serve(self, queues: Collection[str], without: Collection[str] = ()) -> list[Handler]:
        """Choose and return the handlers for these queues: all handlers, since a job may be enqueued to any queue, and the
        handler of undo jobs.

        `without` are kinds that are served only if their handler declares one of the queues.
        """
        declared = {handler.queue for handler in self.registry}
        if not declared:
            raise ValidationError("there are no handlers: register some with @app.handler() first", field="queues")
        if not queues:
            raise ValidationError(f"queues names no queue; handlers are for {', '.join(sorted(declared)):.200}", field="queues")
        if undeclared := sorted(set(queues) - declared):
            log.warning(
                "no handler declares the queue%s %.200s, only %.200s: jobs are there only if they were enqueued with that queue",
                "s" if len(undeclared) > 1 else "",
                ", ".join(undeclared),
                ", ".join(sorted(declared)),
                extra={"worker": self.name},
            )
        served = [handler for handler in self.registry if handler.queue in queues or handler.kind not in without]
        if not served:
            raise ValidationError(f"there is no key here to sign events of {', '.join(without):.200}", field="keys")
        served.append(undo.undo_handler(self))
        self.served = {handler.kind: handler for handler in served}
        return served

    def wake_heartbeats(self) -> None:
        if not self.wake.is_set():
            self.wake.set()

    def on_progress_sent(self, progress: dict[str, Any]) -> None:
        """Handle progress that a handler's own heartbeat has sent. There is nothing to do here."""

    def renew_overdue(self, context: Context) -> None:
        """Renew a lease that was not renewed in time. This worker does nothing: it treats such a lease as over."""

    def poll_cancel(self, context: Context) -> None:
        """Check for a cancel request. There is nothing to do here: the answers to heartbeats report it."""

    async def run_in_thread(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call the function in a thread, so that it does not block the loop. Only workers with async handlers import asyncio."""
        from holdfast.aio.thread_calls import call_in_thread

        def start(run: Callable[[], None]) -> None:
            # Not the loop's own executor: a process waits for the threads of that before it ends.
            threading.Thread(target=run, name="holdfast-beside", daemon=True).start()

        return await call_in_thread(start, partial(function, *args, **kwargs))

    def hold(self, *contexts: Context) -> None:
        self.leases.update([(context.job.id, context) for context in contexts])
        if len(self.leases) <= len(contexts):
            # The heartbeat thread sleeps while there are no leases. If it woke before this one is stored, it would sleep again.
            self.wake_heartbeats()

    def forget(self, context: Context) -> None:
        """Stop the heartbeats of an attempt. The worker may hold a newer attempt at the same job by now, which stays."""
        if self.leases.get(context.job.id) is context:
            self.leases.pop(context.job.id, None)
            if context.handler.concurrency is not None:
                self.on_slot_freed()

    def log_started(self, contexts: Sequence[Context]) -> None:
        """Log that these attempts were claimed and started. The log level is checked once for all of them."""
        if log.isEnabledFor(logging.INFO):
            for context in contexts:
                job = context.job
                waited = None if job.claimed_at is None else job.claimed_at - max(job.available_at, job.created_at)
                wait_ms = None if waited is None else max(0, round(waited.total_seconds() * 1_000))
                log_step(log, logging.INFO, "started", JobFields(job, self.name), "started", wait_ms=wait_ms)

    def log_lost(self, context: Context, message: str, ledger: Ledger, refusal: HoldfastError | None = None) -> None:
        """Log once that an attempt has lost its job: at level info if the job was cancelled, else `message` as a warning."""
        with self._log_lock:
            if context.is_loss_logged:
                return
            context.is_loss_logged = True
        fields = dict(JobFields(context.job, self.name, context.traceparent))
        refusal = refusal or context.refusal
        status = None if refusal is None else refusal.context.get("status")
        events = _cancel_events(ledger, context.job.id) if status in (None, Status.CANCELLED.value) else []
        if status != Status.CANCELLED.value and not any(event.type is EventType.CANCELLED for event in events):
            log.warning(message, extra=fields if refusal is None else {**fields, "error": refusal.message})
            return
        actor, reason = _cancelled_by(events)
        text = "cancelled" + (f" by {actor}" if actor else "") + (f": {reason}" if reason else "")
        duration_ms = None if context.began < 0 else round((self.monotonic() - context.began) * 1_000, 3)
        log_step(log, logging.INFO, "cancelled", fields, text, duration_ms=duration_ms, actor=actor, reason=reason)

    # For contexts

    def resolve_handler(self, handler: Any, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        registered = self.registry.find(handler)
        return registered.kind, registered.signature.admit(args)

    def enqueue_child(
        self, parent: Job, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Job:
        inherited: dict[str, Any] = {"correlation_id": parent.correlation_id}
        if parent.trace_id is not None and current_traceparent() is None:
            inherited["trace_id"] = parent.trace_id
        named = self.registry.find(handler).signature.bind_arguments(args, kwargs)
        return self.ledger.enqueue(**self.registry.item(handler, named, {**inherited, **options}))


def _cancel_events(ledger: Ledger, job_id: int) -> list[Event]:
    """Return the cancel events of a job, or none if the ledger does not answer."""
    with contextlib.suppress(HoldfastError):
        return ledger.events(job_id, types=[EventType.CANCEL_REQUESTED, EventType.CANCELLED])
    return []


def _cancelled_by(events: Sequence[Event]) -> tuple[str | None, str | None]:
    """Return the actor who requested the cancel, and the reason. The system actor cancels when a soft cancel's grace is over."""
    if not events:
        return None, None
    request = events[0] if events[-1].actor.startswith("system:") else events[-1]
    return request.actor, request.reason


def _do_nothing() -> None:
    return None
