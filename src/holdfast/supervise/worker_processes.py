"""Worker processes: one parent starts them, restarts them and forwards signals to them."""

import logging
import os
import random
import selectors
import signal
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from holdfast.core.restart import Allow, RestartController
from holdfast.keeping.signals import STOP_SIGNALS, SignalReader, signal_when_parent_dies
from holdfast.supervise.event_loop import FORWARDED_SIGNALS
from holdfast.supervise.run import RunPolicy

log = logging.getLogger("holdfast.supervise")

MISUSE = 2
"""The exit code of a command with wrong arguments. A restart would fail too."""
UNREACHABLE = 3
"""The exit code of a worker that could not reach its ledger. It is restarted until it can, and that counts as no failure."""
_WORKER_STOP_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP)
_ORDERLY_EXIT_CODES = (0, *(-number for number in _WORKER_STOP_SIGNALS), 130)
"""Exit codes after a signal to stop. A worker that the signal itself has ended had not started yet and held no job."""


class WorkerProcessesResult(NamedTuple):
    """`exit_code` is 0 if every worker stopped cleanly, UNREACHABLE if one was still waiting for its ledger."""

    exit_code: int
    restarts: int


class _WorkerSlot:
    """One worker: the pid of its process, or the time of its next start."""

    def __init__(self, number: int, policy: RunPolicy) -> None:
        self.number = number
        self.controller = RestartController(policy.config)
        self.pid: int | None = None
        self.due_at: float | None = 0.0
        """None if the worker runs or is not started again."""
        self.unreachable = 0
        """How often in a row the worker has ended because it could not reach its ledger."""


class WorkerProcesses:
    """Forks worker processes before anything is loaded, so each process loads its apps itself. There must be only one thread.

    `work` is called in each child with its number, from 1, and returns its exit code. A worker that ends is restarted after a
    backoff, within the limits of the policy; each worker has its own count. A worker that could not reach its ledger is
    restarted without a limit, after `backoff_max` at most. A signal to stop goes to all of them.
    """

    def __init__(self, count: int, work: Callable[[int], int], policy: RunPolicy | None = None) -> None:
        self._work = work
        self._policy = policy or RunPolicy()
        self._slots = [_WorkerSlot(number, self._policy) for number in range(1, count + 1)]
        self._stopping = False
        self._exit_code = 0
        self._restarts = 0

    def run(self) -> WorkerProcessesResult:
        """Run until every worker has ended and none is to be restarted. In a child this does not return."""
        before = signal.getsignal(signal.SIGCHLD)
        with (
            SignalReader(FORWARDED_SIGNALS, time.monotonic, _WORKER_STOP_SIGNALS) as signals,
            selectors.DefaultSelector() as selector,
        ):
            self._signals = signals
            signal.signal(signal.SIGCHLD, lambda *_: None)  # with a handler, the signal wakes the selector
            selector.register(signals, selectors.EVENT_READ)
            try:
                while self._start_due():
                    selector.select(self._until_due())
                    self._forward(signals.read())
                    self._reap()
            finally:
                signal.signal(signal.SIGCHLD, before)
        waited = any(slot.unreachable for slot in self._slots)
        return WorkerProcessesResult(self._exit_code or (UNREACHABLE if waited else 0), self._restarts)

    def _start_due(self) -> bool:
        """Start the workers that are due. Return False if none runs and none will be started."""
        for slot in self._slots:
            if slot.pid is None and slot.due_at is not None and time.monotonic() >= slot.due_at:
                self._start(slot)
        return any(slot.pid is not None or slot.due_at is not None for slot in self._slots)

    def _until_due(self) -> float | None:
        due = [slot.due_at for slot in self._slots if slot.pid is None and slot.due_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start(self, slot: _WorkerSlot) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run_worker(slot.number, parent)
        slot.pid, slot.due_at = pid, None
        log.info("worker started", extra={"worker_number": slot.number, "pid": pid})

    def _run_worker(self, number: int, parent: int) -> NoReturn:
        """Run a worker in its own session, so that a terminal's signals reach it only through the parent.

        On Linux it gets SIGTERM when the parent ends.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._signals.close()
        os.setsid()
        signal_when_parent_dies(signal.SIGTERM)
        if os.getppid() != parent:
            raise SystemExit(1)
        raise SystemExit(self._work(number))

    def _forward(self, numbers: list[signal.Signals]) -> None:
        for number in numbers:
            if number not in (*STOP_SIGNALS, *FORWARDED_SIGNALS):
                continue
            if number in _WORKER_STOP_SIGNALS:
                self._stop()
            for slot in self._slots:
                if slot.pid is not None:
                    os.kill(slot.pid, number)

    def _stop(self) -> None:
        """Start no more workers."""
        self._stopping = True
        for slot in self._slots:
            slot.due_at = None

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.pid is None:
                continue
            pid, status = os.waitpid(slot.pid, os.WNOHANG)
            if pid:
                slot.pid = None
                self._on_exit(slot, pid, os.waitstatus_to_exitcode(status))

    def _on_exit(self, slot: _WorkerSlot, pid: int, code: int) -> None:
        extra = {"worker_number": slot.number, "pid": pid, "exit_code": code}
        slot.unreachable = slot.unreachable + 1 if code == UNREACHABLE else 0
        if self._stopping:
            self._exit_code = self._exit_code or (0 if code in (*_ORDERLY_EXIT_CODES, UNREACHABLE) else 1)
            log.info("worker ended", extra=extra)
            return
        if code == MISUSE:
            log.error("worker cannot be started", extra=extra)
            self._stop_others(MISUSE)
            return
        if code == UNREACHABLE:
            wait_s = min(self._backoff_s(slot.unreachable), self._policy.backoff_max_ms / 1_000)
            slot.due_at = time.monotonic() + wait_s
            log.warning("worker cannot reach the ledger, and is started again", extra={**extra, "wait_ms": round(wait_s * 1_000)})
            return
        delay_s = self._next_delay(slot)
        if delay_s is None:
            log.error("worker is not started again, and the others are stopped", extra=extra)
            self._stop_others(1)
        else:
            self._restarts += 1
            slot.due_at = time.monotonic() + delay_s
            log.warning("worker ended, and is started again", extra={**extra, "wait_ms": round(delay_s * 1_000)})

    def _stop_others(self, exit_code: int) -> None:
        """Stop the other workers cleanly, so that the failure of one worker ends the parent with its exit code."""
        self._exit_code = exit_code
        self._stop()
        for slot in self._slots:
            if slot.pid is not None:
                os.kill(slot.pid, signal.SIGTERM)

    def _next_delay(self, slot: _WorkerSlot) -> float | None:
        """Return the wait before the next start, None if there have been too many."""
        decision = slot.controller.record_restart(round(time.monotonic() * 1_000))
        if not isinstance(decision, Allow):
            return None
        return self._backoff_s(decision.attempt)

    def _backoff_s(self, attempt: int) -> float:
        return self._policy.backoff_seconds(attempt, random.uniform(0.5, 1.5))  # noqa: S311 - no secret
