"""What all parts of a running worker share."""

import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.core.model import EventType, Status
from holdfast.errors import HoldfastError, ValidationError
from holdfast.ledger import Event, Job, Ledger, validate
from holdfast.telemetry.logs import JobFields, log_step
from holdfast.telemetry.tracing import current_traceparent
from holdfast.worker import undo
from holdfast.worker.context import Context
from holdfast.worker.handlers import Handler, HandlerRegistry

T = TypeVar("T")

log = logging.getLogger("holdfast.worker")


class WorkerRuntime:
    """A worker from its first claim to its last answer."""

    def __init__(self, ledger: Ledger, registry: HandlerRegistry, name: str, monotonic: Callable[[], float]) -> None:
        self.ledger = ledger
        self.registry = registry
        self.name = name
        self.monotonic = monotonic
        self.served: dict[str, Handler] = {}
        """The handlers whose jobs this worker claims, by kind."""
        self.leases: dict[int, Context] = {}
        """Every attempt this worker holds, by job, until the ledger has its outcome."""
        self.wake = threading.Event()
        """Set when a beat should not wait for its time."""
        self.stopping = threading.Event()
        self._log_lock = threading.Lock()
        self.abandoned = 0
        """Threads given up on: told to stop, their jobs taken from them, and still running."""
        self.on_slot_freed: Callable[[], None] = _do_nothing
        """Called when a job of a kind with a limit of its own is no longer held."""

    def serve(self, queues: Collection[str], without: Collection[str] = ()) -> list[Handler]:
        """The handlers whose jobs are claimed from these queues: all of the app's, since a job may be enqueued to any queue, and
        the ledger's own.

        `without` are kinds that are served only if their handler declares one of the queues.
        """
        declared = {handler.queue for handler in self.registry}
        if not declared:
            raise ValidationError("there are no handlers: register some with @app.handler() first", field="queues")
        if not queues:
            raise ValidationError(f"queues names no queue; handlers are for {', '.join(sorted(declared)):.200}", field="queues")
        if undeclared := sorted(set(queues) - declared):
            said = f"no handler declares the queue{'s' if len(undeclared) > 1 else ''} {', '.join(undeclared):.200}"
            known = ", ".join(sorted(declared))
            log.warning(
                "%s, only %.200s: jobs are there only if they were enqueued with that queue",
                said,
                known,
                extra={"worker": self.name},
            )
        served = [handler for handler in self.registry if handler.queue in queues or handler.kind not in without]
        if not served:
            raise ValidationError(f"there is no key here to sign what is done for {', '.join(without):.200}", field="keys")
        served.append(undo.undo_handler(self))
        self.served = {handler.kind: handler for handler in served}
        return served

    def wake_heartbeats(self) -> None:
        if not self.wake.is_set():
            self.wake.set()

    def on_progress_sent(self, words: dict[str, Any]) -> None:
        """A handler has told this with a beat of its own."""

    def renew_overdue(self, context: Context) -> None:
        """A lease that nobody has renewed in time may be over, whatever the ledger would say: nothing is done about it here."""

    def poll_cancel(self, context: Context) -> None:
        """A handler asks whether it should stop. Beats have told it already."""

    async def run_in_thread(self, verb: Callable[..., T], *args: Any, **given: Any) -> T:
        """In a thread, so that the loop goes on. A worker without async handlers has no use for asyncio."""
        import asyncio

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def deliver(found: T | None, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_exception(error) if error is not None else answer.set_result(found)  # type: ignore[arg-type]

        def run() -> None:
            try:
                found, error = context.run(verb, *args, **given), None
            except BaseException as raised:  # noqa: BLE001 - the one who awaits it gets it
                found, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                loop.call_soon_threadsafe(deliver, found, error)

        # Not the loop's own executor: a process does not end before all threads of that have.
        threading.Thread(target=run, name="holdfast-beside", daemon=True).start()
        return await answer

    def hold(self, *contexts: Context) -> None:
        self.leases.update([(context.fence.job_id, context) for context in contexts])
        if len(self.leases) <= len(contexts):
            # Beats sleep while nothing is held: woken before there is something to see, they would go to sleep again.
            self.wake_heartbeats()

    def forget(self, context: Context) -> None:
        """No more beats for it. A job may have come back to this very worker meanwhile."""
        if self.leases.get(context.fence.job_id) is context:
            self.leases.pop(context.fence.job_id, None)
            if context.handler.concurrency is not None:
                self.on_slot_freed()

    def log_started(self, contexts: Sequence[Context]) -> None:
        """Log that these attempts were claimed and started. The level is looked at once for all of them."""
        if log.isEnabledFor(logging.INFO):
            for context in contexts:
                job = context.job
                waited = None if job.claimed_at is None else job.claimed_at - max(job.available_at, job.created_at)
                wait_ms = None if waited is None else max(0, round(waited.total_seconds() * 1_000))
                log_step(log, logging.INFO, "started", JobFields(job, self.name), "started", wait_ms=wait_ms)

    def log_lost(self, context: Context, said: str, ledger: Ledger, refusal: HoldfastError | None = None) -> None:
        """Log once that an attempt has lost its job: at info if the job was cancelled, else a warning that says `said`."""
        with self._log_lock:
            if context.is_loss_logged:
                return
            context.is_loss_logged = True
        fields = dict(JobFields(context.job, self.name, context.traceparent))
        refusal = refusal or context.refusal
        status = None if refusal is None else refusal.context.get("status")
        events = _cancel_events(ledger, context.job.id) if status in (None, Status.CANCELLED.value) else []
        if status != Status.CANCELLED.value and not any(event.type is EventType.CANCELLED for event in events):
            log.warning(said, extra=fields if refusal is None else {**fields, "error": refusal.message})
            return
        actor, reason = _cancelled_by(events)
        words = "cancelled" + (f" by {actor}" if actor else "") + (f": {reason}" if reason else "")
        duration_ms = None if context.began < 0 else round((self.monotonic() - context.began) * 1_000, 3)
        log_step(log, logging.INFO, "cancelled", fields, words, duration_ms=duration_ms, actor=actor, reason=reason)

    # What contexts ask for

    @staticmethod
    def check_progress(stage: str | None, progress: int | None) -> None:
        validate.beat(stage, progress, None)

    def resolve_handler(self, handler: Any, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        found = self.registry.find(handler)
        return found.kind, found.signature.admit(args)

    def enqueue_child(
        self, parent: Job, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Job:
        given: dict[str, Any] = {"correlation_id": parent.correlation_id}
        if parent.trace_id is not None and current_traceparent() is None:
            given["trace_id"] = parent.trace_id
        named = self.registry.find(handler).signature.bind_arguments(args, kwargs)
        return self.ledger.enqueue(**self.registry.item(handler, named, {**given, **options}))


def _cancel_events(ledger: Ledger, job_id: int) -> list[Event]:
    """Who has cancelled a job, and why. Nothing where the ledger does not answer."""
    with contextlib.suppress(HoldfastError):
        return ledger.events(job_id, types=[EventType.CANCEL_REQUESTED, EventType.CANCELLED])
    return []


def _cancelled_by(events: Sequence[Event]) -> tuple[str | None, str | None]:
    """The actor who wanted the cancel, and the reason. The grace of a soft cancel ends in the system's name."""
    if not events:
        return None, None
    found = events[0] if events[-1].actor.startswith("system:") else events[-1]
    return found.actor, found.reason


def _do_nothing() -> None:
    return None
