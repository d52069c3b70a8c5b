"""An agent's loop around a command: take a task, run the command on it, keep the claim meanwhile, record the outcome."""

import contextlib
import errno
import hashlib
import logging
import os
import selectors
import signal
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from holdfast import supervised
from holdfast.agent import Agent, Brief, Task
from holdfast.agent.idle import Nothing
from holdfast.core import limits, strictjson
from holdfast.core.model import FailureStage, Policy, ReasonCode, Status
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidTransition,
    LeaseConflictError,
    LimitExceeded,
    NotClaimable,
    RefusedByValidator,
    Unavailable,
    ValidationError,
)
from holdfast.ledger import Ledger
from holdfast.services.outage import Outage
from holdfast.services.supervised import Supervised
from holdfast.services.ticker import Ticker
from holdfast.supervise import keeper, outlet
from holdfast.supervise.agenda import Agenda
from holdfast.supervise.child import KEEPER_SECONDS, Child
from holdfast.supervise.ears import Ears, Heard
from holdfast.supervise.lease import Lease
from holdfast.supervise.signals import STOPPING, Signals

log = logging.getLogger("holdfast.supervise")

TRANSIENT = 75
"""The exit code by which a command says that the task is worth another try; EX_TEMPFAIL of sysexits.h."""
BEAT_SECONDS_MAX = 15.0
"""The longest time between two heartbeats, and so until a cancel is noticed."""
NEWS_SECONDS = 0.1
"""How soon a line on descriptor 3 is sent; lines that come meanwhile go with it."""
TURN_SECONDS = 15.0
"""How long a process that was killed keeps the next one of the same agent and session from beginning."""
IDLE_SECONDS = 1.0
"""How often an agent that waits for tasks looks for one."""
AGAIN_SECONDS = 0.5
"""How soon a ledger that is out of reach is tried again."""
FULL_SECONDS = 0.05
"""How soon a standard error that was full is tried again."""
UNREAD_SECONDS = 2.0
"""How long the end of a task waits for whoever reads standard error."""
ERROR_BYTES_MAX = 4_096
"""How much of the end of its standard error goes into the record of a failure."""
_CHUNK = 1 << 16
_READS_MAX = 64
"""How often a pipe is read to empty it: more than it holds."""
_OF_A_RUN = ("HOLDFAST_RUN", "HOLDFAST_JOB", "HOLDFAST_RESULT")
"""Variables of a supervisor around this process, which say nothing about the task."""


class Wish(NamedTuple):
    """Which tasks to take, and for how long."""

    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    ttl_ms: int


class NotRun(Exception):
    """The command could not be started. `errno` says why."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


Outcome = Literal["succeeded", "failed", "released", "lost"]
"""`failed` is about this attempt: another may follow. `lost` means that nothing could be recorded."""

_AFTER_A_FAILURE = {
    Status.QUEUED: "it is tried again",
    Status.FAILED: "it is not tried again",
    Status.DEAD_LETTERED: "it is dead-lettered",
    Status.CANCELLED: "it is cancelled",
}


class TaskLease(Lease):
    """An agent's claim on a task, renewed and ended by the agent's verbs."""

    def __init__(
        self, agent: Agent, task: Task, policy: Policy, began: float, monotonic: Callable[[], float], ring: Callable[[], None]
    ) -> None:
        super().__init__(task.id, monotonic, ring)
        self._agent, self.attempt = agent, task.attempt
        self.cancel_requested = task.cancel_requested
        self._hold(policy, began, BEAT_SECONDS_MAX)

    def _beat(self, told: dict[str, Any]) -> bool:
        return self._agent.heartbeat(self.job_id, attempt=self.attempt, **told).cancel_requested

    # Each end may be sent again after a lost answer: its request id stays the same

    def complete(self, result: Any, request_id: str) -> None:
        self._agent.complete(self.job_id, result, attempt=self.attempt, request_id=request_id)

    def fail(self, error: dict[str, Any], request_id: str, **how: Any) -> Task:
        return self._agent.fail(self.job_id, error, attempt=self.attempt, request_id=request_id, **how)

    def release(self, request_id: str) -> Task:
        return self._agent.release(self.job_id, attempt=self.attempt, request_id=request_id)


class Turn:
    """The right to run tasks for an agent and a session: two processes with one name would do one task twice. A service."""

    name = "turn"
    every_s = TURN_SECONDS / 3

    def __init__(self, ledger: Ledger, agent: Agent, holder: str, ring: Callable[[], None]) -> None:
        self._ledger, self._holder, self._ring = ledger, holder, ring
        self.duty = f"task run/{hashlib.sha256(f'{agent.session}/{agent.name}'.encode()).hexdigest()[:32]}"
        self.lost = False
        self.was_left = False
        """The process before this one has not ended in order."""

    def take(self) -> bool:
        self.was_left = self._ledger.supervision.was_left(self.duty)
        return self._renew()

    def _renew(self) -> bool:
        return self._ledger.take_duty(self.duty, self._holder, ttl=TURN_SECONDS)

    def tick(self) -> None:
        if not self.lost and not self._renew():
            self.lost = True
            self._ring()

    def close(self) -> None:
        self._ledger.drop_duty(self.duty, self._holder)


class TaskLoop:
    """Runs one command after another, each on a task of the agent. `say` is told of each task as it begins and ends."""

    def __init__(
        self,
        ledger: Ledger,
        agent: Agent,
        command: Sequence[str],
        wish: Wish,
        *,
        url: str,
        grace_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._ledger, self.agent, self.command, self._wish = ledger, agent, command, wish
        self._url, self.grace_s, self._say = url, grace_s, say
        self.monotonic = ledger.supervision.monotonic
        self.nonce = ledger.supervision.nonce()
        self._outage = Outage(log, "looking for tasks")
        self.stopping = 0
        """How many signals to stop have come."""
        self.left: Nothing | None = None
        """What could not be had when the loop ended for want of a task."""
        self._attempt: _Attempt | None = None

    def run(self, *, once: bool, wait: bool) -> dict[Outcome, int]:
        """Until there is nothing to do now; with `wait` until a signal comes. With `once`, one task at most.

        Answers how many tasks had each outcome.
        """
        self.strangers = frozenset(keeper.descendants(os.getpid()))
        keeper.adopt_orphans()
        done: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        with contextlib.ExitStack() as stack:
            self.signals = stack.enter_context(Signals(self.monotonic))
            self.selector = stack.enter_context(selectors.DefaultSelector())
            self.selector.register(self.signals, selectors.EVENT_READ, self._hear_signals)
            self.turn = Turn(self._ledger, self.agent, self.nonce, self.signals.ring)
            if not self._await_turn():
                return done
            services = Ticker([self.turn, *([Supervised()] if supervised.is_supervised() else [])], name="holdfast-turn")
            stack.callback(services.close)
            services.start()
            self.ears = stack.enter_context(Ears(f"{self._ledger.id}/{self.turn.duty}", self._hear))
            self.ears.join(self.selector)
            while not self.stopping and not self.turn.lost:
                work = self._next(patient=wait)
                if work is not None:
                    done[self._do(work)] += 1
                    if once:
                        break
                elif wait:
                    self.pause(IDLE_SECONDS)
                else:
                    break
        if self.turn.lost:
            raise self._refusal()
        return done

    def _await_turn(self) -> bool:
        """False if a signal to stop came first."""
        if self.turn.take():
            return True
        deadline = self.monotonic() + TURN_SECONDS + 1
        self.say(f"Waiting for another process that runs tasks as {self.agent.name}; up to {TURN_SECONDS + 1:.0f} s.")
        while not self.turn.take():
            if self.monotonic() >= deadline:
                raise self._refusal()
            self.pause(AGAIN_SECONDS)
            if self.stopping:
                return False
        return True

    def _refusal(self) -> Conflict:
        return Conflict(f"another process runs tasks as {self.agent.name} in the session {self.agent.session}")

    def _next(self, *, patient: bool) -> "_Work | None":
        """The next task with all that it is about. None if there is none, or if the ledger is out of reach and may come back.

        A call whose answer was lost needs no request id: the next one finds the task that it has claimed.
        """
        began, self.left = self.monotonic(), None
        try:
            brief = self._resume()
            if self.turn.was_left:
                brief = self._fence_off(brief)
                self.turn.was_left = False
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
        return _Work(msgspec.structs.replace(brief, task=task), task, policy, began)

    def _resume(self) -> Brief:
        queues, kinds, ttl_ms = self._wish
        return self.agent.resume(queues=queues, kinds=kinds, ttl=ttl_ms / 1_000)

    def _fence_off(self, brief: Brief) -> Brief:
        """Take a new attempt of a task that the process before this one had begun.

        That process may be frozen, with a command that still runs. What it says of the older attempt is refused.
        """
        task = brief.task
        if task is None or brief.why not in ("focus", "running", "claimed"):
            return brief
        self.agent.release(task.id, attempt=task.attempt, reason="another process goes on with it")
        with contextlib.suppress(LeaseConflictError, NotClaimable, InvalidTransition):
            self.agent.start(task.id, ttl=self._wish.ttl_ms / 1_000)
        return self._resume()

    def _do(self, work: "_Work") -> Outcome:
        """Run the command on one task."""
        task = work.task
        self.say(f"Task {task.id} ({task.kind}) begins, attempt {task.attempt}.")
        outcome: Outcome = "lost"
        words = ""
        if work.policy is not None:
            lease = TaskLease(self.agent, task, work.policy, work.began, self.monotonic, self.signals.ring)
            self._attempt = _Attempt(self, lease)
            try:
                outcome = self._attempt.run(work.brief, self._environment(task))
                words = self._attempt.words
            finally:
                self._attempt = None
        self.say(f"Task {task.id}: {words or f'{outcome}.'}")
        return outcome

    def _environment(self, task: Task) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _OF_A_RUN} | self.ears.environment()
        return env | {
            "HOLDFAST_URL": self._url,
            "HOLDFAST_AGENT": self.agent.name,
            "HOLDFAST_SESSION": self.agent.session,
            "HOLDFAST_TASK": str(task.id),
            "HOLDFAST_ATTEMPT": str(task.attempt),
        }

    def _hear(self, heard: Heard) -> None:
        if self._attempt is not None:
            self._attempt.hear(heard)

    def _hear_signals(self) -> None:
        for number in self.signals.read():
            if number in STOPPING:
                self.stopping += 1
            if self._attempt is not None:
                self._attempt.pass_on(number)

    def say(self, words: str) -> None:
        """Not where nobody reads: a remark holds up no task, and ends none."""
        if outlet.is_ready():
            with contextlib.suppress(OSError):
                self._say(words)

    def pause(self, seconds: float | None) -> None:
        """Until something is to be read, or the time is over."""
        for key, _ in self.selector.select(seconds):
            key.data()


class _Work(NamedTuple):
    brief: Brief
    task: Task
    policy: Policy | None
    """None where the task was taken away meanwhile."""
    began: float
    """When the call began that claimed it."""


class _Pipe:
    """One of the command's output streams. `hear` gets what is read."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.reads, False)
        self._hear = hear

    def read(self) -> bool:
        """Once. False where there was nothing."""
        try:
            chunk = os.read(self.reads, _CHUNK)
        except BlockingIOError:
            return False
        self._hear(chunk)
        return True

    def catch_up(self) -> None:
        for _ in range(_READS_MAX):
            if not self.read():
                break

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


class _Attempt:
    """One run of the command on one task."""

    def __init__(self, loop: TaskLoop, lease: TaskLease) -> None:
        self._loop, self._lease = loop, lease
        self._agenda = Agenda(loop.monotonic)
        self._beats = Ticker([lease], name="holdfast-lease")
        self._child: Child | None = None
        self._ending = False
        """The command was told to end."""
        self._killed = False
        self._output = self._errors = b""
        self._outlet = outlet.Outlet()
        self._refused = False
        self.words = ""
        """How a failure was recorded, and why it failed."""

    def run(self, brief: Brief, env: dict[str, str]) -> Outcome:
        """Raises NotRun where the command cannot be started; its task is handed back then."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._beats.close)
            self._beats.start()
            pipes = [stack.enter_context(contextlib.closing(_Pipe(hear))) for hear in (self._hear_output, self._hear_errors)]
            for pipe in pipes:
                self._join(pipe)
                stack.callback(self._part, pipe)
            self._error_pipe = pipes[1]
            self._loop.ears.drain()
            try:
                child = self._child = stack.enter_context(contextlib.closing(self._start(brief, env, *pipes)))
            except OSError as error:
                number = error.errno or errno.EIO
            else:
                self._follow(child)
                number = child.errno
            self._beats.close()
            for pipe in pipes:
                pipe.catch_up()
            self._flush_errors()
            self._loop.ears.catch_up()
            outcome = self._settle(None if self._child is None else self._child.exit_code, not_run=bool(number))
        if number:
            raise NotRun(number)
        return outcome

    def _join(self, pipe: _Pipe) -> None:
        self._loop.selector.register(pipe.reads, selectors.EVENT_READ, pipe.read)

    def _part(self, pipe: _Pipe) -> None:
        with contextlib.suppress(KeyError):
            self._loop.selector.unregister(pipe.reads)

    def _start(self, brief: Brief, env: dict[str, str], output: _Pipe, errors: _Pipe) -> Child:
        with tempfile.TemporaryFile() as given:
            given.write(msgspec.json.encode(brief) + b"\n")
            given.seek(0)
            return Child(
                self._loop.command,
                self._loop.grace_s,
                env,
                told=self._loop.ears.told,
                strangers=self._loop.strangers,
                streams=(given.fileno(), output.writes, errors.writes),
            )

    def _follow(self, child: Child) -> None:
        """Until nothing of the command is left."""
        self._loop.selector.register(child.channel, selectors.EVENT_READ, child.hear)
        try:
            while not child.over:
                self._check_lease()
                self._loop.pause(self._agenda.patience_s())
                self._agenda.act()
        finally:
            self._loop.selector.unregister(child.channel)

    def _check_lease(self) -> None:
        """Kill the command if the task may be another's by now. Stop it if the task is to be cancelled."""
        lease, left_s = self._lease, self._lease.expires - self._loop.monotonic()
        if not lease.lost and (left_s <= 0 or self._loop.turn.lost):
            lease.lose()
        if lease.lost:
            if not self._killed:
                self._loop.say(f"Task {lease.job_id} is no longer {self._loop.agent.name}'s. The command is killed.")
                self._kill()
            return
        if lease.cancel_requested:
            self._stop(signal.SIGTERM)
        self._agenda.after(left_s, self._wake)

    def _wake(self) -> None:
        """The lease is looked at whenever anything comes, time included."""

    # What comes in

    def hear(self, heard: Heard) -> None:
        if heard.refused is not None and not self._refused:
            self._refused = True
            self._loop.say(f"Task {self._lease.job_id}: a line on descriptor 3 is not recorded: {heard.refused}.")
        self._lease.hear(heard)
        if self._lease.has_news:
            self._agenda.within(NEWS_SECONDS, self._beats.wake)

    def _hear_output(self, chunk: bytes) -> None:
        """One byte more than may be kept shows that there was too much."""
        if len(self._output) <= limits.PAYLOAD_BYTES_MAX:
            self._output = (self._output + chunk)[: limits.PAYLOAD_BYTES_MAX + 1]

    def _hear_errors(self, chunk: bytes) -> None:
        """Passed on. While nobody reads it, no more is read of it, and the command waits as it would without this process."""
        self._errors = (self._errors + chunk)[-ERROR_BYTES_MAX:]
        self._outlet.write(chunk)
        if self._outlet.is_full:
            self._part(self._error_pipe)
            self._agenda.after(FULL_SECONDS, self._pass_on_errors)

    def _pass_on_errors(self) -> None:
        self._outlet.flush()
        if self._outlet.is_full:
            self._agenda.after(FULL_SECONDS, self._pass_on_errors)
        else:
            self._join(self._error_pipe)

    def _flush_errors(self) -> None:
        """After the command has ended, what nobody reads is dropped before long."""
        deadline = self._loop.monotonic() + UNREAD_SECONDS
        while self._outlet.is_full and not self._loop.stopping and self._loop.monotonic() < deadline:
            self._loop.pause(FULL_SECONDS)
            self._outlet.flush()
        self._outlet.drop()

    # What goes to the command

    def pass_on(self, number: signal.Signals) -> None:
        """The first signal to stop is passed on, and the grace begins; the second kills."""
        if number not in STOPPING:
            if self._child is not None:
                self._child.signal(number)
        elif self._loop.stopping > 1:
            self._kill()
        else:
            self._stop(number)

    def _stop(self, number: signal.Signals) -> None:
        if self._child is not None and not self._ending:
            self._child.stop(number)
            self._agenda.after(self._loop.grace_s + KEEPER_SECONDS, self._overrule)
        self._ending = True

    def _kill(self) -> None:
        if self._child is not None and not self._killed:
            self._child.kill()
            self._agenda.after(KEEPER_SECONDS, self._overrule)
        self._ending = self._killed = True

    def _overrule(self) -> None:
        if self._child is not None:
            self._child.overrule()
        self._agenda.after(KEEPER_SECONDS, self._overrule)

    # What is recorded

    def _settle(self, code: int | None, *, not_run: bool) -> Outcome:
        lease = self._lease
        if lease.lost:
            return "lost"
        if not_run or (self._ending and code != 0):
            return self._record("released", self._release)
        if code == 0:
            try:
                result = self._result()
                return self._record("succeeded", lambda request: lease.complete(result, request))
            except (ValidationError, LimitExceeded, RefusedByValidator) as refused:
                by_hook = isinstance(refused, RefusedByValidator)
                said: dict[str, Any] = {
                    "message": refused.message if by_hook else f"its output cannot be kept: {refused.message}"
                }
                cause = None if refused.retryable else ReasonCode.VALIDATION_FAILED
                return self._fail(said, retryable=refused.retryable, failure_stage=FailureStage.OUTPUT, reason_code=cause)
        by_signal = code is None or code < 0
        how = "was ended by a signal" if by_signal else f"ended with {code}"
        tail = self._errors.decode(errors="replace").strip()
        error: dict[str, Any] = {"message": tail.rpartition("\n")[2][:500] or f"the command {how}", "exit_code": code}
        cause = ReasonCode.INFRASTRUCTURE_FAILURE if by_signal else None
        return self._fail(error | ({"stderr": tail} if tail else {}), retryable=by_signal or code == TRANSIENT, reason_code=cause)

    def _release(self, request: str) -> None:
        if self._lease.release(request).status == Status.CANCELLED:
            self.words = "released, it is cancelled."

    def _fail(self, error: dict[str, Any], **how: Any) -> Outcome:
        def end(request: str) -> None:
            task = self._lease.fail(error, request, **how)
            self.words = f"failed, {_AFTER_A_FAILURE[Status(task.status)]}: {error['message']}"

        return self._record("failed", end)

    def _result(self) -> Any:
        """The standard output: JSON where it is JSON, else a text; null where there is none."""
        body = self._output
        if len(body) > limits.PAYLOAD_BYTES_MAX:
            raise LimitExceeded(f"it is longer than {limits.PAYLOAD_BYTES_MAX:,} bytes")
        if not body.strip():
            return None
        try:
            strictjson.check("it", body, limits.PAYLOAD_BYTES_MAX)
        except ValidationError:
            try:
                return body.decode().removesuffix("\n")
            except UnicodeDecodeError:
                raise ValidationError("it is neither JSON nor UTF-8") from None
        return msgspec.Raw(body.strip())

    def _record(self, outcome: Outcome, end: Callable[[str], None]) -> Outcome:
        """Send what was told last, then the end. Both again while the ledger is out of reach and the claim holds.

        A second signal to stop ends the waiting.
        """
        loop, lease = self._loop, self._lease
        request = f"{loop.nonce}-{lease.job_id}-{lease.attempt}-{outcome}"
        waiting = False
        while not lease.lost:
            try:
                if lease.has_news:
                    lease.tick()
                if not lease.lost:
                    end(request)
                    return outcome
            except Unavailable as error:
                if not error.retryable or loop.stopping > 1 or loop.monotonic() >= lease.expires:
                    loop.say(f"Task {lease.job_id}: its end could not be recorded: {error.message}.")
                    return "lost"
                if not waiting:
                    waiting = True
                    loop.say(f"Task {lease.job_id}: waiting for the ledger to record its end: {error.message}.")
                loop.pause(AGAIN_SECONDS)
            except (ValidationError, LimitExceeded, RefusedByValidator):
                raise
            except HoldfastError as error:
                loop.say(f"Task {lease.job_id}: {error.code}: {error.message}.")
                return "lost"
        return "lost"
