"""Several worker processes that one parent starts, keeps running and passes signals on to."""

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
from holdfast.supervise.policy import RunPolicy
from holdfast.supervise.signals import FORWARDED, STOPPING, Signals

log = logging.getLogger("holdfast.supervise")

MISUSE = 2
"""The exit code of a command that was typed wrongly: no restart mends that."""
UNREACHABLE = 3
"""The exit code of a worker that could not reach its ledger: it is tried again until it can, and that counts as no failure."""
_STOPPING = (*STOPPING, signal.SIGHUP)
_ORDERLY = (0, *(-number for number in _STOPPING), 130)
"""Exit codes after a signal to stop. One that ends a worker by itself came before the worker had begun: it held nothing."""
_PR_SET_PDEATHSIG = 1


class Kept(NamedTuple):
    """How it ended. `exit_code` is 0 if every worker stopped in order, UNREACHABLE if one still waited for its ledger."""

    exit_code: int
    restarts: int


class _Place:
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
        self._places = [_Place(number, self._policy) for number in range(1, count + 1)]
        self._stopping = False
        self._exit_code = 0
        self._restarts = 0

    def run(self) -> Kept:
        """Until every worker has ended and none is to be started again. In a child it does not return."""
        before = signal.getsignal(signal.SIGCHLD)
        with Signals(time.monotonic, _STOPPING) as signals, selectors.DefaultSelector() as selector:
            self._signals = signals
            signal.signal(signal.SIGCHLD, lambda *_: None)  # its number wakes the selector
            selector.register(signals, selectors.EVENT_READ)
            try:
                while self._start_due():
                    selector.select(self._until_due())
                    self._pass_on(signals.read())
                    self._reap()
            finally:
                signal.signal(signal.SIGCHLD, before)
        waited = any(place.unreachable for place in self._places)
        return Kept(self._exit_code or (UNREACHABLE if waited else 0), self._restarts)

    def _start_due(self) -> bool:
        """Start what is due. False once nothing runs and nothing will."""
        for place in self._places:
            if place.pid is None and place.due_at is not None and time.monotonic() >= place.due_at:
                self._start(place)
        return any(place.pid is not None or place.due_at is not None for place in self._places)

    def _until_due(self) -> float | None:
        due = [place.due_at for place in self._places if place.pid is None and place.due_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start(self, place: _Place) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_a_worker(place.number, parent)
        place.pid, place.due_at = pid, None
        log.info("worker started", extra={"worker_number": place.number, "pid": pid})

    def _be_a_worker(self, number: int, parent: int) -> NoReturn:
        """A session of its own: what a terminal sends comes from the parent, once. The end of the parent stops it in order."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._signals.__exit__()
        os.setsid()
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                raise SystemExit(1)
        raise SystemExit(self._work(number))

    def _pass_on(self, numbers: list[signal.Signals]) -> None:
        for number in numbers:
            if number not in (*STOPPING, *FORWARDED):
                continue
            if number in _STOPPING:
                self._stop()
            for place in self._places:
                if place.pid is not None:
                    os.kill(place.pid, number)

    def _stop(self) -> None:
        """Start nothing any more."""
        self._stopping = True
        for place in self._places:
            place.due_at = None

    def _reap(self) -> None:
        for place in self._places:
            if place.pid is None:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                place.pid = None
                self._ended(place, pid, os.waitstatus_to_exitcode(status))

    def _ended(self, place: _Place, pid: int, code: int) -> None:
        told = {"worker_number": place.number, "pid": pid, "exit_code": code}
        place.unreachable = place.unreachable + 1 if code == UNREACHABLE else 0
        if self._stopping:
            self._exit_code = self._exit_code or (0 if code in (*_ORDERLY, UNREACHABLE) else 1)
            log.info("worker ended", extra=told)
            return
        if code == MISUSE:
            log.error("worker cannot be started", extra=told)
            self._give_up(MISUSE)
            return
        if code == UNREACHABLE:
            wait_s = min(self._backoff_s(place.unreachable), self._policy.backoff_max_ms / 1_000)
            place.due_at = time.monotonic() + wait_s
            log.warning("worker cannot reach the ledger, and is started again", extra={**told, "wait_ms": round(wait_s * 1_000)})
            return
        decision = self._again(place)
        if decision is None:
            log.error("worker is not started again, and the others are stopped", extra=told)
            self._give_up(1)
        else:
            self._restarts += 1
            place.due_at = time.monotonic() + decision
            log.warning("worker ended, and is started again", extra={**told, "wait_ms": round(decision * 1_000)})

    def _give_up(self, exit_code: int) -> None:
        """Stop the other workers in order, so that the exit of all tells what has become of one."""
        self._exit_code = exit_code
        self._stop()
        for place in self._places:
            if place.pid is not None:
                os.kill(place.pid, signal.SIGTERM)

    def _again(self, place: _Place) -> float | None:
        """How long to wait before the next start; None where there have been too many."""
        decision = place.controller.record_restart(round(time.monotonic() * 1_000))
        if not isinstance(decision, Allow):
            return None
        return self._backoff_s(decision.attempt)

    def _backoff_s(self, attempt: int) -> float:
        return self._policy.backoff_seconds(attempt, random.uniform(0.5, 1.5))  # noqa: S311 - no secret
