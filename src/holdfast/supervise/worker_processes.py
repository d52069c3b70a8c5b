"""Several worker processes that one parent starts, restarts and sends signals to."""

import ctypes
import logging
import os
import random
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from holdfast.core.restart import Allow, RestartController
from holdfast.supervise.event_loop import FORWARDED_SIGNALS, STOP_SIGNALS, SignalReader
from holdfast.supervise.run import RunPolicy

log = logging.getLogger("holdfast.supervise")

MISUSE = 2
"""The exit code of a command that was typed wrongly: no restart mends that."""
UNREACHABLE = 3
"""The exit code of a worker that could not reach its ledger: it is tried again until it can, and that counts as no failure."""
_WORKER_STOP_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP)
_ORDERLY_EXIT_CODES = (0, *(-number for number in _WORKER_STOP_SIGNALS), 130)
"""Exit codes after a signal to stop. One that ends a worker by itself came before the worker had begun: it held nothing."""
_PR_SET_PDEATHSIG = 1


class WorkerProcessesResult(NamedTuple):
    """How it ended. `exit_code` is 0 if every worker stopped in order, UNREACHABLE if one still waited for its ledger."""

    exit_code: int
    restarts: int


class _WorkerSlot:
    """One worker: its process while it runs, else when it is started next."""

    def __init__(self, number: int, policy: RunPolicy) -> None:
        self.number = number
        self.controller = RestartController(policy.config)
        self.pid: int | None = None
        self.due_at: float | None = 0.0
        """None where it is not started again."""
        self.unreachable = 0
        """How often in a row it has ended because it could not reach its ledger."""


class WorkerProcesses:
    """Forks before anything is loaded, so each process loads its apps itself. There must be one thread only.

    `work` is called in each child with its number, from 1, and returns its exit code. A worker that ends is started again after
    a backoff, within the limits of the policy; each worker has its own count. One that could not reach its ledger is started
    again without an end, after `backoff_max` at most. A signal to stop goes to all of them.
    """

    def __init__(self, count: int, work: Callable[[int], int], policy: RunPolicy | None = None) -> None:
        self._work = work
        self._policy = policy or RunPolicy()
        self._slots = [_WorkerSlot(number, self._policy) for number in range(1, count + 1)]
        self._stopping = False
        self._exit_code = 0
        self._restarts = 0

    def run(self) -> WorkerProcessesResult:
        """Until every worker has ended and none is to be started again. In a child it does not return."""
        before = signal.getsignal(signal.SIGCHLD)
        with SignalReader(time.monotonic, _WORKER_STOP_SIGNALS) as signals, selectors.DefaultSelector() as selector:
            self._signals = signals
            signal.signal(signal.SIGCHLD, lambda *_: None)  # its number wakes the selector
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
        """Start what is due. False once nothing runs and nothing will."""
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
        """A session of its own: what a terminal sends comes from the parent, once. The end of the parent stops it in order."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._signals.__exit__()
        os.setsid()
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
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
        """Start nothing any more."""
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
        told = {"worker_number": slot.number, "pid": pid, "exit_code": code}
        slot.unreachable = slot.unreachable + 1 if code == UNREACHABLE else 0
        if self._stopping:
            self._exit_code = self._exit_code or (0 if code in (*_ORDERLY_EXIT_CODES, UNREACHABLE) else 1)
            log.info("worker ended", extra=told)
            return
        if code == MISUSE:
            log.error("worker cannot be started", extra=told)
            self._stop_others(MISUSE)
            return
        if code == UNREACHABLE:
            wait_s = min(self._backoff_s(slot.unreachable), self._policy.backoff_max_ms / 1_000)
            slot.due_at = time.monotonic() + wait_s
            log.warning("worker cannot reach the ledger, and is started again", extra={**told, "wait_ms": round(wait_s * 1_000)})
            return
        decision = self._next_delay(slot)
        if decision is None:
            log.error("worker is not started again, and the others are stopped", extra=told)
            self._stop_others(1)
        else:
            self._restarts += 1
            slot.due_at = time.monotonic() + decision
            log.warning("worker ended, and is started again", extra={**told, "wait_ms": round(decision * 1_000)})

    def _stop_others(self, exit_code: int) -> None:
        """Stop the other workers in order, so that the exit of all tells what has become of one."""
        self._exit_code = exit_code
        self._stop()
        for slot in self._slots:
            if slot.pid is not None:
                os.kill(slot.pid, signal.SIGTERM)

    def _next_delay(self, slot: _WorkerSlot) -> float | None:
        """How long to wait before the next start; None where there have been too many."""
        decision = slot.controller.record_restart(round(time.monotonic() * 1_000))
        if not isinstance(decision, Allow):
            return None
        return self._backoff_s(decision.attempt)

    def _backoff_s(self, attempt: int) -> float:
        return self._policy.backoff_seconds(attempt, random.uniform(0.5, 1.5))  # noqa: S311 - no secret
