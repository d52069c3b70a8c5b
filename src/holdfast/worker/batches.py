"""The pool of a batch handler: it collects jobs of one kind, and runs them together."""

import threading
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.worker.context import Context
from holdfast.worker.runtime import WorkerRuntime, log


class BatchPool:
    """Runs one batch at a time, of at most `size` jobs. A batch that is not full waits up to `wait_s` for more jobs.

    A job that was tried before runs alone, so that it cannot make others fail again. A thread that is stuck in a batch whose
    jobs are all lost is replaced, because Python cannot stop it.
    """

    def __init__(
        self,
        size: int,
        wait_s: float,
        runtime: WorkerRuntime,
        run: Callable[[list[Context]], None],
        on_capacity: Callable[[], None],
        name: str,
    ) -> None:
        self.size = size
        self.low_water = 0
        self._wait_s = wait_s
        self._runtime = runtime
        self._run_batch = run
        self._on_capacity = on_capacity
        self._name = name
        self._waiting: deque[Context] = deque()
        self._first_at = self._submitted_at = float("-inf")
        self._running: list[Context] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, contexts: Iterable[Context]) -> None:
        with self._changed:
            self._submitted_at = self._runtime.monotonic()
            if not self._waiting:
                self._first_at = self._submitted_at
            self._waiting.extend(contexts)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=f"holdfast-batch-{self._name:.50}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        me = threading.current_thread()
        while batch := self._next_batch(me):
            self._run_batch(batch)
            with self._changed:
                if self._thread is not me:  # it was replaced
                    self._runtime.abandoned -= 1
                    log.warning("an abandoned handler has ended", extra={"kind": batch[0].job.kind})
                    return
                self._running = []
                self._first_at = self._runtime.monotonic()
            self._on_capacity()

    def _next_batch(self, me: threading.Thread) -> list[Context]:
        """Wait for jobs, and return those to run together. Return none when the pool is closed."""
        with self._changed:
            while not self._closed and self._thread is me:
                if self._waiting and (left := self._left()) <= 0:
                    self._running = self._taken()
                    return self._running
                self._changed.wait(left if self._waiting else None)
        return []

    def _left(self) -> float:
        """Return how long to wait for more jobs."""
        if len(self._waiting) >= self.size or _is_retry(self._waiting[0]):
            return 0.0
        return self._first_at + self._wait_s - self._runtime.monotonic()

    def _taken(self) -> list[Context]:
        if _is_retry(self._waiting[0]):
            return [self._waiting.popleft()]
        batch: list[Context] = []
        while self._waiting and len(batch) < self.size and not _is_retry(self._waiting[0]):
            batch.append(self._waiting.popleft())
        return batch

    def prefetch(self) -> int:
        """Return 0, or minus the size while a batch runs: jobs that are claimed then would wait for its end."""
        return -self.size if self._running else 0

    def held(self) -> int:
        with self._changed:
            return len(self._waiting) + len(self._running)

    def has_waited_since(self, moment: float) -> bool:
        return bool(self._running and self._waiting) and self._submitted_at < moment

    def take_waiting(self) -> list[Context]:
        with self._changed:
            waiting = list(self._waiting)
            self._waiting.clear()
        return waiting

    def running(self) -> list[Context]:
        with self._changed:
            return [context for context in self._running if not context.abandoned]

    def abandon(self, context: Context) -> None:
        """Give up one job of a batch. If none of the others is left either, the batch's thread is replaced."""
        with self._changed:
            context.abandoned = True
            if context not in self._running or any(not (one.abandoned or one.is_settling) for one in self._running):
                return
            self._running = []
            self._runtime.abandoned += 1
            self._start()
        log.error(
            "abandoned a batch handler that does not stop: this worker no longer holds its jobs",
            extra={"job_id": context.job.id, "kind": context.job.kind},
        )
        self._on_capacity()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _is_retry(context: Context) -> bool:
    """Return whether the job has had an attempt before that counts. One that was released does not."""
    return context.job.attempt - context.job.releases > 1
