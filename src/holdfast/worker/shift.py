"""What all parts of a running worker share."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.ledger import Job, Ledger, admit
from holdfast.telemetry.tracing import current_traceparent
from holdfast.worker.context import Context
from holdfast.worker.registry import Registry

log = logging.getLogger("holdfast.worker")


class Shift:
    """A worker from its first claim to its last answer."""

    def __init__(self, ledger: Ledger, registry: Registry, name: str, monotonic: Callable[[], float]) -> None:
        self.ledger = ledger
        self.registry = registry
        self.name = name
        self.monotonic = monotonic
        self.leases: dict[int, Context] = {}
        """Every attempt this worker holds, by job, until the ledger has its outcome."""
        self.news = threading.Event()
        """Set when a beat should not wait for its time."""
        self.stopping = threading.Event()
        self.abandoned = 0
        """Threads given up on: told to stop, their jobs taken from them, and still running."""
        self.let_go: Callable[[], None] = _nothing
        """Called when a job of a kind with a limit of its own is no longer held."""

    def ring(self) -> None:
        if not self.news.is_set():
            self.news.set()

    def overdue(self, context: Context) -> None:
        """A lease that nobody has renewed in time may be over, whatever the ledger would say: nothing is done about it here."""

    def hold(self, context: Context) -> None:
        if not self.leases:
            self.ring()
        self.leases[context.job.id] = context

    def forget(self, context: Context) -> None:
        """No more beats for it. A job may have come back to this very worker meanwhile."""
        if self.leases.get(context.job.id) is context:
            self.leases.pop(context.job.id, None)
            if context.handler.concurrency is not None:
                self.let_go()

    # What contexts ask for

    @staticmethod
    def check_news(stage: str | None, progress: int | None) -> None:
        admit.beat(stage, progress, None)

    def named(self, handler: Any, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        found = self.registry.find(handler)
        return found.kind, found.signature.admit(args)

    def enqueue_child(self, parent: Job, handler: Any, args: Mapping[str, Any]) -> Job:
        given: dict[str, Any] = {"correlation_id": parent.correlation_id}
        if parent.trace_id is not None and current_traceparent() is None:
            given["trace_id"] = parent.trace_id
        return self.ledger.enqueue(**self.registry.item(handler, args, given))


def _nothing() -> None:
    return None
