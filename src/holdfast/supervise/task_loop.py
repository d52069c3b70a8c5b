"""`holdfast task run`: claim a task, run the command on it, renew the claim, record the outcome."""

import contextlib
import hashlib
import logging
import os
import selectors
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import msgspec

from holdfast.agent import Agent, Brief, Task
from holdfast.agent.selection import IdleReason
from holdfast.core.model import Policy
from holdfast.errors import (
    Conflict,
    InvalidTransition,
    LeaseConflictError,
    NotClaimable,
    Unavailable,
)
from holdfast.keeping import supervised
from holdfast.keeping.duty import Duty
from holdfast.keeping.outage import Outage
from holdfast.keeping.service import Service, ServiceLoop
from holdfast.keeping.signals import STOP_SIGNALS, SignalReader
from holdfast.ledger import Ledger
from holdfast.services.presence import SupervisorHeartbeat
from holdfast.supervise import keeper, task_attempt
from holdfast.supervise.event_loop import FORWARDED_SIGNALS
from holdfast.supervise.heartbeats import HeartbeatListener, ReceivedHeartbeat
from holdfast.supervise.task_attempt import RETRY_SECONDS, AttemptOutcome, TaskAttempt, TaskLease

log = logging.getLogger("holdfast.supervise")

LOCK_SECONDS = 15.0
"""How long the lock of a killed process blocks the next process of the same agent and session."""
IDLE_SECONDS = 1.0
"""How often an agent that waits for tasks looks for one."""
_RUN_VARIABLES = ("HOLDFAST_RUN", "HOLDFAST_JOB", "HOLDFAST_RESULT")
"""Variables of an outer supervisor. They are not about the task."""


class TaskSelection(NamedTuple):
    """The tasks to claim, and the length of the claims."""

    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    ttl_ms: int


class SessionLock(Service):
    """The right to run tasks for an agent and a session: two processes of one session would run a task twice."""

    name = "turn"
    every_s = LOCK_SECONDS / 3
    duty: Duty

    def __init__(self, ledger: Ledger, agent: Agent, holder: str, wake: Callable[[], None]) -> None:
        self._ledger, self._wake_loop = ledger, wake
        self.duty_name = f"task run/{hashlib.sha256(f'{agent.session}/{agent.name}'.encode()).hexdigest()[:32]}"
        self.duty = Duty(ledger, self.duty_name, holder, LOCK_SECONDS)
        self.lost = False
        self.was_left = False
        """The last process did not release the lock, so it was killed or is frozen."""

    def take(self) -> bool:
        self.was_left = self._ledger.supervision.was_left(self.duty_name)
        return self.duty.take()

    def tick(self) -> None:
        if not self.lost and not self.duty.take():
            self.lost = True
            self._wake_loop()


class TaskLoop:
    """Runs the command on one task of the agent after another. `report` is called when a task begins and ends."""

    def __init__(
        self,
        ledger: Ledger,
        agent: Agent,
        command: Sequence[str],
        selection: TaskSelection,
        *,
        url: str,
        grace_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._ledger, self.agent, self.command, self._selection = ledger, agent, command, selection
        self._url, self.grace_s, self._report = url, grace_s, report
        self.monotonic = ledger.supervision.monotonic
        self.nonce = ledger.supervision.nonce()
        self._outage = Outage(log, "looking for tasks")
        self.stopping = 0
        """The number of signals to stop."""
        self.idle_reason: IdleReason | None = None
        """Why there was no task when the loop ended."""
        self._attempt: TaskAttempt | None = None

    def run(self, *, once: bool, wait: bool) -> dict[AttemptOutcome, int]:
        """Run tasks until there is none now; with `wait` until a signal arrives; with `once` at most one task.

        Return the number of tasks by outcome.
        """
        self.preexisting = frozenset(keeper.descendants(os.getpid()))
        keeper.adopt_orphans()
        done: dict[AttemptOutcome, int] = dict.fromkeys(get_args(AttemptOutcome), 0)
        with contextlib.ExitStack() as stack:
            self.signals = stack.enter_context(SignalReader(FORWARDED_SIGNALS, self.monotonic))
            self.selector = stack.enter_context(selectors.DefaultSelector())
            self.selector.register(self.signals, selectors.EVENT_READ, self._on_signals)
            self.lock = SessionLock(self._ledger, self.agent, self.nonce, self.signals.wake)
            if not self._wait_for_lock():
                return done
            services = ServiceLoop([self.lock, *([SupervisorHeartbeat()] if supervised.is_supervised() else [])], name="task-run")
            stack.callback(services.close)
            services.start()
            self.listener = stack.enter_context(HeartbeatListener(f"{self._ledger.id}/{self.lock.duty_name}", self._on_heartbeat))
            self.listener.register(self.selector)
            while not self.stopping and not self.lock.lost:
                claimed = self._claim_next(wait=wait)
                if claimed is not None:
                    done[self._run_task(claimed)] += 1
                    if once:
                        break
                elif wait:
                    self.pause(IDLE_SECONDS)
                else:
                    break
        if self.lock.lost:
            raise self._conflict()
        return done

    def _wait_for_lock(self) -> bool:
        """Wait for the lock. Return False if a signal to stop arrives first."""
        if self.lock.take():
            return True
        deadline = self.monotonic() + LOCK_SECONDS + 1
        self.report(f"Waiting for another process that runs tasks as {self.agent.name}; up to {LOCK_SECONDS + 1:.0f} s.")
        while not self.lock.take():
            if self.monotonic() >= deadline:
                raise self._conflict()
            self.pause(RETRY_SECONDS)
            if self.stopping:
                return False
        return True

    def _conflict(self) -> Conflict:
        return Conflict(f"another process runs tasks as {self.agent.name} in the session {self.agent.session}")

    def _claim_next(self, *, wait: bool) -> "_ClaimedTask | None":
        """Return the next task with its full contents. Return None if there is none.

        With `wait`, also return None if the ledger is out of reach and a retry may succeed. If an answer is lost, no request id
        is needed: the next call finds the claimed task.
        """
        began, self.idle_reason = self.monotonic(), None
        try:
            brief = self._resume()
            if self.lock.was_left:
                brief = self._take_new_attempt(brief)
                self.lock.was_left = False
            task = brief.task
            if task is None:
                self.idle_reason = brief.nothing
                return None
            if not isinstance(task.omitted, msgspec.UnsetType):
                task = self.agent.get(task.id)
            policy = self._ledger.get(task.id).policy
        except Unavailable as error:
            if not (wait and error.retryable):
                raise
            self._outage.began(error)
            return None
        self._outage.over()
        return _ClaimedTask(msgspec.structs.replace(brief, task=task), task, policy, began)

    def _resume(self) -> Brief:
        queues, kinds, ttl_ms = self._selection
        return self.agent.resume(queues=queues, kinds=kinds, ttl=ttl_ms / 1_000)

    def _take_new_attempt(self, brief: Brief) -> Brief:
        """Start a new attempt of a task that the last process had started.

        That process may be frozen and its command may still run. Its writes for the older attempt are refused.
        """
        task = brief.task
        if task is None or brief.why not in ("focus", "running", "claimed"):
            return brief
        self.agent.release(task.id, attempt=task.attempt, reason="another process continues it")
        with contextlib.suppress(LeaseConflictError, NotClaimable, InvalidTransition):
            self.agent.start(task.id, ttl=self._selection.ttl_ms / 1_000)
        return self._resume()

    def _run_task(self, claimed: "_ClaimedTask") -> AttemptOutcome:
        """Run the command on one task."""
        task = claimed.task
        self.report(f"Task {task.id} ({task.kind}) begins, attempt {task.attempt}.")
        outcome: AttemptOutcome = "lost"
        summary = ""
        if claimed.policy is not None:
            lease = TaskLease(self.agent, task, claimed.policy, claimed.began, self.monotonic, self.signals.wake)
            self._attempt = TaskAttempt(self, lease)
            try:
                outcome = self._attempt.run(claimed.brief, self._environment(task))
                summary = self._attempt.summary
            finally:
                self._attempt = None
        self.report(f"Task {task.id}: {summary or f'{outcome}.'}")
        return outcome

    def _environment(self, task: Task) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _RUN_VARIABLES} | self.listener.environment()
        return env | {
            "HOLDFAST_URL": self._url,
            "HOLDFAST_AGENT": self.agent.name,
            "HOLDFAST_SESSION": self.agent.session,
            "HOLDFAST_TASK": str(task.id),
            "HOLDFAST_ATTEMPT": str(task.attempt),
        }

    def _on_heartbeat(self, heartbeat: ReceivedHeartbeat) -> None:
        if self._attempt is not None:
            self._attempt.on_heartbeat(heartbeat)

    def _on_signals(self) -> None:
        for number in self.signals.read():
            if number in STOP_SIGNALS:
                self.stopping += 1
            if self._attempt is not None:
                self._attempt.forward_signal(number)

    def report(self, line: str) -> None:
        """Report a line. Skip it if standard error is full or closed, so that it cannot block or end a task."""
        if task_attempt.is_stderr_writable():
            with contextlib.suppress(OSError):
                self._report(line)

    def pause(self, seconds: float | None) -> None:
        """Wait until there is something to read, or the time is over, and handle it."""
        for key, _ in self.selector.select(seconds):
            key.data()


class _ClaimedTask(NamedTuple):
    brief: Brief
    task: Task
    policy: Policy | None
    """None if the agent no longer holds the task."""
    began: float
    """When the call that claimed the task began."""
