"""An agent's loop around a command: resume, run the command on the task, keep the claim meanwhile, record what came of it."""

import contextlib
import hashlib
import os
import secrets
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal, NamedTuple, get_args

import msgspec

from holdfast.agent import Agent, Brief, Task
from holdfast.core import limits, strictjson
from holdfast.core.model import FailureStage, ReasonCode
from holdfast.errors import Conflict, HoldfastError, LimitExceeded, Unavailable, ValidationError
from holdfast.ledger import Ledger
from holdfast.supervise import keeper
from holdfast.supervise.child import Child
from holdfast.supervise.signals import STOPPING, Signals

TRANSIENT = 75
"""The exit code by which a command says that the task is worth another try; EX_TEMPFAIL of sysexits.h."""
BEAT_SECONDS_MAX = 15.0
"""How long a cancel goes unnoticed at most. Claims of less than three times as long are renewed more often."""
DUTY_SECONDS = 15.0
"""How long a process that was killed keeps the next one of the same agent and session from beginning."""
DUTY_EVERY_SECONDS = 5.0
IDLE_SECONDS = 2.0
"""How often an agent that waits for tasks looks for one."""
AGAIN_SECONDS = 0.5
LINE_BYTES_MAX = limits.CHECKPOINT_BYTES_MAX + 4_096
"""The longest line that a command may write to descriptor 3; a longer one is left out."""
ERROR_BYTES_MAX = 4_096
"""How much of the end of its standard error goes into the record of a failure."""
_CHUNK = 1 << 16


class Wish(NamedTuple):
    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    ttl_ms: int


class NotRun(Exception):
    """The command cannot be started at all. `errno` says why."""

    def __init__(self, errno: int) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno


Outcome = Literal["succeeded", "failed", "released", "lost"]
"""What became of a task: failed in this attempt, which may be followed by another; lost where nothing could be recorded."""


class TaskLoop:
    """`say` is told of each task as it begins and ends, in words."""

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
        self._ledger, self.agent, self.command, self.wish = ledger, agent, command, wish
        self._url, self.grace_s, self.say = url, grace_s, say
        self._nonce, self._requests = secrets.token_hex(6), 0
        self._duty = f"task run/{hashlib.sha256(f'{agent.session}/{agent.name}'.encode()).hexdigest()[:32]}"
        self.duty_due = 0.0
        self._stopping = 0
        self._attempt: _Attempt | None = None

    def run(self, *, once: bool, wait: bool) -> dict[Outcome, int]:
        """Until there is nothing to do now; with `wait` until a signal comes. With `once`, one task at most.

        Answers how many tasks had each outcome.
        """
        self.strangers = frozenset(keeper.descendants(os.getpid()))
        keeper.adopt_orphans()
        done: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        with Signals(time.monotonic) as signals, selectors.DefaultSelector() as self.selector:
            self._signals = signals
            self.selector.register(signals, selectors.EVENT_READ, self._hear_signals)
            self._begin()
            try:
                while not self._stopping:
                    self.renew_duty()
                    brief = self._next(wait)
                    if brief is not None and brief.task is not None:
                        done[self._do(brief, brief.task)] += 1
                        if once:
                            break
                    elif wait:
                        self.pause(IDLE_SECONDS)
                    else:
                        break
            finally:
                with contextlib.suppress(Unavailable):
                    self._ledger.drop_duty(self._duty, self._nonce)
        return done

    # One process for an agent and a session: two would be taken for one, and do one task twice

    def _begin(self) -> None:
        deadline = time.monotonic() + DUTY_SECONDS + 1
        while not self._ledger.take_duty(self._duty, self._nonce, ttl=DUTY_SECONDS):
            if self._stopping or time.monotonic() >= deadline:
                raise Conflict(f"another process runs tasks as {self.agent.name} in the session {self.agent.session}")
            self.pause(AGAIN_SECONDS)
        self.duty_due = time.monotonic() + DUTY_EVERY_SECONDS

    def renew_duty(self) -> None:
        if time.monotonic() >= self.duty_due:
            with contextlib.suppress(Unavailable):
                self._ledger.take_duty(self._duty, self._nonce, ttl=DUTY_SECONDS)
            self.duty_due = time.monotonic() + DUTY_EVERY_SECONDS

    # Tasks

    def _next(self, patient: bool) -> Brief | None:
        try:
            queues, kinds, ttl_ms = self.wish
            return self.agent.resume(queues=queues, kinds=kinds, ttl=ttl_ms / 1_000, request_id=self.request())
        except Unavailable as error:
            if not (patient and error.retryable):
                raise
            return None

    def _do(self, brief: Brief, task: Task) -> Outcome:
        self.say(f"Task {task.id} ({task.kind}) begins, attempt {task.attempt}.")
        attempt = self._attempt = _Attempt(self, task, time.monotonic() + self.wish.ttl_ms / 1_000)
        try:
            with contextlib.ExitStack() as stack:
                attempt.start(brief, stack)
                attempt.follow()
                became = attempt.settle()
        finally:
            self._attempt = None
        if attempt.errno:
            raise NotRun(attempt.errno)
        self.say(f"Task {task.id}: {became}.")
        return became

    # What an attempt uses

    def request(self) -> str:
        self._requests += 1
        return f"{self._nonce}-{self._requests}"

    def environment(self, task: Task) -> dict[str, str]:
        return {
            **os.environ,
            "HOLDFAST_URL": self._url,
            "HOLDFAST_AGENT": self.agent.name,
            "HOLDFAST_SESSION": self.agent.session,
            "HOLDFAST_TASK": str(task.id),
            "HOLDFAST_ATTEMPT": str(task.attempt),
            "HOLDFAST_BEAT_FD": str(keeper.BEAT_FD),
        }

    def _hear_signals(self) -> None:
        for number in self._signals.read():
            if number in STOPPING:
                self._stopping += 1
                if self._attempt is not None:
                    self._attempt.end(number, at_once=self._stopping > 1)
            elif self._attempt is not None:
                self._attempt.signal(number)

    def pause(self, seconds: float) -> None:
        """Until something is to be read, or the time is over."""
        for key, _ in self.selector.select(seconds):
            key.data()


class _Attempt:
    """One run of the command on one task."""

    def __init__(self, loop: TaskLoop, task: Task, expires: float) -> None:
        self._loop, self._task, self._agent = loop, task, loop.agent
        self._ttl_s = loop.wish.ttl_ms / 1_000
        self._every_s = min(self._ttl_s / 3, BEAT_SECONDS_MAX)
        self._expires = expires
        self._due = expires - self._ttl_s + self._every_s
        self._told: list[dict[str, Any]] = []
        self._unread = b""
        self._errors = b""
        self._lost = False
        self._ends = False
        """It was told to end."""
        self.errno = 0

    def start(self, brief: Brief, stack: contextlib.ExitStack) -> None:
        """The brief is its standard input. What is too long for a brief is in there all the same."""
        loop = self._loop
        task = self._task if isinstance(self._task.omitted, msgspec.UnsetType) else self._agent.get(self._task.id)
        given: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack is its context
        given.write(msgspec.json.encode(msgspec.structs.replace(brief, task=task)) + b"\n")
        given.seek(0)
        self._output: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - likewise
        with contextlib.ExitStack() as theirs:
            told, errors = (self._pipe(stack, theirs, hear) for hear in (self._hear, self._hear_errors))
            self._child = Child(
                loop.command,
                loop.grace_s,
                loop.environment(self._task),
                told=told,
                strangers=loop.strangers,
                streams=(given.fileno(), self._output.fileno(), errors),
            )
        stack.callback(self._child.close)
        loop.selector.register(self._child.channel, selectors.EVENT_READ, self._child.hear)
        stack.callback(loop.selector.unregister, self._child.channel)

    def _pipe(self, ours: contextlib.ExitStack, theirs: contextlib.ExitStack, hear: Callable[[bytes], None]) -> int:
        reads, writes = os.pipe()
        theirs.callback(os.close, writes)
        selector = self._loop.selector
        selector.register(reads, selectors.EVENT_READ, lambda: self._read(reads, hear))

        def close() -> None:
            with contextlib.suppress(KeyError):
                selector.unregister(reads)
            os.close(reads)

        ours.callback(close)
        return writes

    def _read(self, fd: int, hear: Callable[[bytes], None]) -> None:
        chunk = os.read(fd, _CHUNK)
        if chunk:
            hear(chunk)
        else:
            self._loop.selector.unregister(fd)

    def _hear(self, chunk: bytes) -> None:
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        self._unread = self._unread[: LINE_BYTES_MAX + 1]
        self._told += [told for line in lines if (told := _read_line(line)) is not None]

    def _hear_errors(self, chunk: bytes) -> None:
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        self._errors = (self._errors + chunk)[-ERROR_BYTES_MAX:]

    # While it runs

    def follow(self) -> None:
        """Keep the claim until nothing of the command is left."""
        while not self._child.over:
            self._loop.pause(max(0.0, min(self._due, self._expires, self._loop.duty_due) - time.monotonic()))
            self._loop.renew_duty()
            while (self._told or time.monotonic() >= self._due) and not self._lost and not self._child.over:
                self._beat(self._told.pop(0) if self._told else {})
            if not self._lost and time.monotonic() >= self._expires:
                self._lose("its claim could not be renewed in time")
        for told in self._told if not self._lost else []:
            self._beat(told)

    def _beat(self, told: dict[str, Any]) -> None:
        began = time.monotonic()
        self._due = began + self._every_s
        try:
            task = self._agent.heartbeat(self._task.id, attempt=self._task.attempt, request_id=self._loop.request(), **told)
        except Unavailable:
            self._due = time.monotonic() + AGAIN_SECONDS
            if told:
                self._told.insert(0, told)
        except (ValidationError, LimitExceeded) as error:
            self._loop.say(f"Task {self._task.id}: a line on descriptor 3 is left out: {error.message}.")
        except HoldfastError as error:
            self._lose(error.code)
        else:
            self._expires = began + self._ttl_s
            if task.cancel_requested:
                self.end(signal.SIGTERM)

    def _lose(self, why: str) -> None:
        self._lost = True
        self._loop.say(f"Task {self._task.id} is no longer {self._agent.name}'s: {why}. The command is ended.")
        self._child.kill()

    def signal(self, number: int) -> None:
        self._child.signal(number)

    def end(self, number: int, *, at_once: bool = False) -> None:
        if at_once:
            self._child.kill()
        elif not self._ends:
            self._child.stop(number)
        self._ends = True

    # What came of it

    def settle(self) -> Outcome:
        code, self.errno = self._child.exit_code, self._child.errno
        if self._lost:
            return "lost"
        if self.errno or (self._ends and code != 0):
            return self._recorded("released", self._agent.release)
        if code == 0:
            try:
                return self._recorded("succeeded", lambda id_, **who: self._agent.complete(id_, self._result(), **who))
            except (ValidationError, LimitExceeded) as refused:
                unkept = {"message": f"its output cannot be kept: {refused.message}"}
                return self._failed(unkept, retryable=False, failure_stage=FailureStage.OUTPUT)
        how = "was ended by a signal" if code is None or code < 0 else f"ended with {code}"
        said = self._errors.decode(errors="replace").strip()
        error: dict[str, Any] = {"message": said.rpartition("\n")[2][:500] or f"the command {how}", "exit_code": code}
        if said:
            error["stderr"] = said
        if code is None or code < 0:
            return self._failed(error, retryable=True, reason_code=ReasonCode.INFRASTRUCTURE_FAILURE)
        return self._failed(error, retryable=code == TRANSIENT)

    def _failed(self, error: dict[str, Any], **how: Any) -> Outcome:
        return self._recorded("failed", lambda id_, **who: self._agent.fail(id_, error, **how, **who))

    def _result(self) -> Any:
        """Its standard output: JSON where it is JSON, else a text; null where there is none."""
        self._output.seek(0)
        body = self._output.read(limits.PAYLOAD_BYTES_MAX + 1)
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

    def _recorded(self, became: Outcome, verb: Callable[..., object]) -> Outcome:
        """Again with the same request id while the ledger is out of reach and the claim may still hold."""
        request = self._loop.request()
        while True:
            try:
                verb(self._task.id, attempt=self._task.attempt, request_id=request)
            except Unavailable as error:
                if not error.retryable or time.monotonic() >= self._expires:
                    return "lost"
                self._loop.pause(AGAIN_SECONDS)
            except (ValidationError, LimitExceeded):
                raise
            except HoldfastError as error:
                self._loop.say(f"Task {self._task.id}: {error.code}: {error.message}.")
                return "lost"
            else:
                return became


_TOLD = ("stage", "progress", "checkpoint")


def _read_line(line: bytes) -> dict[str, Any] | None:
    """What a line on descriptor 3 says: an object with any of stage, progress and checkpoint. Anything else says nothing."""
    if len(line) > LINE_BYTES_MAX or not line.lstrip().startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        return {name: _plain(name, found[name]) for name in _TOLD if name in found} or None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _plain(name: str, value: msgspec.Raw) -> Any:
    return value if name == "checkpoint" else msgspec.json.decode(value)
