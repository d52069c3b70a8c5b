"""`holdfast task run`: claim a task, run the command on it, renew the claim, record the outcome."""

import contextlib
import hashlib
import logging
import os
import selectors
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import msgspec

from holdfast import supervised
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
from holdfast.ledger import Ledger
from holdfast.services.presence import SupervisorHeartbeat
from holdfast.services.ticker import Outage, Ticker
from holdfast.supervise import keeper, task_attempt
from holdfast.supervise.event_loop import STOP_SIGNALS, SignalReader
from holdfast.supervise.heartbeats import HeartbeatListener, ReceivedHeartbeat
from holdfast.supervise.task_attempt import RETRY_SECONDS, AttemptOutcome, TaskAttempt, TaskLease

log = logging.getLogger("holdfast.supervise")

LOCK_SECONDS = 15.0
"""How long a process that was killed keeps the next one of the same agent and session from beginning."""
IDLE_SECONDS = 1.0
"""How often an agent that waits for tasks looks for one."""
_RUN_VARIABLES = ("HOLDFAST_RUN", "HOLDFAST_JOB", "HOLDFAST_RESULT")
"""Variables of a supervisor around this process, which say nothing about the task."""


class TaskSelection(NamedTuple):
    """Which tasks to take, and for how long."""

    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    ttl_ms: int


class SessionLock:
    """The right to run tasks for an agent and a session: two processes with one name would do one task twice. A service."""

    name = "turn"
    every_s = LOCK_SECONDS / 3

    def __init__(self, ledger: Ledger, agent: Agent, holder: str, wake: Callable[[], None]) -> None:
        self._ledger, self._holder, self._wake_loop = ledger, holder, wake
        self.duty = f"task run/{hashlib.sha256(f'{agent.session}/{agent.name}'.encode()).hexdigest()[:32]}"
        self.lost = False
        self.was_left = False
        """The process before this one has not ended in order."""

    def take(self) -> bool:
        self.was_left = self._ledger.supervision.was_left(self.duty)
        return self._renew()

    def _renew(self) -> bool:
        return self._ledger.take_duty(self.duty, self._holder, ttl=LOCK_SECONDS)

    def tick(self) -> None:
        if not self.lost and not self._renew():
            self.lost = True
            self._wake_loop()

    def close(self) -> None:
        self._ledger.drop_duty(self.duty, self._holder)


class TaskLoop:
    """Runs one command after another, each on a task of the agent. `report` is told of each task as it begins and ends."""

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
        """How many signals to stop have come."""
        self.left: IdleReason | None = None
        """What could not be had when the loop ended for want of a task."""
        self._attempt: TaskAttempt | None = None

    def run(self, *, once: bool, wait: bool) -> dict[AttemptOutcome, int]:
        """Until there is nothing to do now; with `wait` until a signal comes. With `once`, one task at most.

        Answers how many tasks had each outcome.
        """
        self.preexisting = frozenset(keeper.descendants(os.getpid()))
        keeper.adopt_orphans()
        done: dict[AttemptOutcome, int] = dict.fromkeys(get_args(AttemptOutcome), 0)
        with contextlib.ExitStack() as stack:
            self.signals = stack.enter_context(SignalReader(self.monotonic))
            self.selector = stack.enter_context(selectors.DefaultSelector())
            self.selector.register(self.signals, selectors.EVENT_READ, self._on_signals)
            self.lock = SessionLock(self._ledger, self.agent, self.nonce, self.signals.wake)
            if not self._wait_for_lock():
                return done
            services = Ticker([self.lock, *([SupervisorHeartbeat()] if supervised.is_supervised() else [])], name="holdfast-turn")
            stack.callback(services.close)
            services.start()
            self.listener = stack.enter_context(HeartbeatListener(f"{self._ledger.id}/{self.lock.duty}", self._on_heartbeat))
            self.listener.register(self.selector)
            while not self.stopping and not self.lock.lost:
                work = self._claim_next(patient=wait)
                if work is not None:
                    done[self._run_task(work)] += 1
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
        """False if a signal to stop came first."""
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

    def _claim_next(self, *, patient: bool) -> "_ClaimedTask | None":
        """The next task with all that it is about. None if there is none, or if the ledger is out of reach and may come back.

        A call whose answer was lost needs no request id: the next one finds the task that it has claimed.
        """
        began, self.left = self.monotonic(), None
        try:
            brief = self._resume()
            if self.lock.was_left:
                brief = self._take_new_attempt(brief)
                self.lock.was_left = False
            task = brief.task
            if task is None:
                self.left = brief.nothing
                return None
            if not isinstance(task.omitted, msgspec.UnsetType):
                task = self.agent.get(task.id)
            policy = self._ledger.get(task.id).policy
        except Unavailable as error:
            if not (patient and error.retryable):
                raise
            self._outage.began(error)
            return None
        self._outage.over()
        return _ClaimedTask(msgspec.structs.replace(brief, task=task), task, policy, began)

    def _resume(self) -> Brief:
        queues, kinds, ttl_ms = self._selection
        return self.agent.resume(queues=queues, kinds=kinds, ttl=ttl_ms / 1_000)

    def _take_new_attempt(self, brief: Brief) -> Brief:
        """Take a new attempt of a task that the process before this one had begun.

        That process may be frozen, with a command that still runs. What it says of the older attempt is refused.
        """
        task = brief.task
        if task is None or brief.why not in ("focus", "running", "claimed"):
            return brief
        self.agent.release(task.id, attempt=task.attempt, reason="another process goes on with it")
        with contextlib.suppress(LeaseConflictError, NotClaimable, InvalidTransition):
            self.agent.start(task.id, ttl=self._selection.ttl_ms / 1_000)
        return self._resume()

    def _run_task(self, work: "_ClaimedTask") -> AttemptOutcome:
        """Run the command on one task."""
        task = work.task
        self.report(f"Task {task.id} ({task.kind}) begins, attempt {task.attempt}.")
        outcome: AttemptOutcome = "lost"
        words = ""
        if work.policy is not None:
            lease = TaskLease(self.agent, task, work.policy, work.began, self.monotonic, self.signals.wake)
            self._attempt = TaskAttempt(self, lease)
            try:
                outcome = self._attempt.run(work.brief, self._environment(task))
                words = self._attempt.summary
            finally:
                self._attempt = None
        self.report(f"Task {task.id}: {words or f'{outcome}.'}")
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

    def _on_heartbeat(self, heard: ReceivedHeartbeat) -> None:
        if self._attempt is not None:
            self._attempt.on_heartbeat(heard)

    def _on_signals(self) -> None:
        for number in self.signals.read():
            if number in STOP_SIGNALS:
                self.stopping += 1
            if self._attempt is not None:
                self._attempt.forward_signal(number)

    def report(self, words: str) -> None:
        """Leave the remark out if standard error is full or closed: it must not hold up or end a task."""
        if task_attempt.is_stderr_writable():
            with contextlib.suppress(OSError):
                self._report(words)

    def pause(self, seconds: float | None) -> None:
        """Until something is to be read, or the time is over."""
        for key, _ in self.selector.select(seconds):
            key.data()


class _ClaimedTask(NamedTuple):
    brief: Brief
    task: Task
    policy: Policy | None
    """None where the task was taken away meanwhile."""
    began: float
    """When the call began that claimed it."""
