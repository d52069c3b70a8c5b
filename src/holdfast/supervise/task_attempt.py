"""One run of a command on a task: its claim, its output, its end and the recorded outcome."""

import contextlib
import errno
import os
import select
import selectors
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.agent import Agent, Brief, Task
from holdfast.agent.tasks import beat_of
from holdfast.core import limits, strict_json
from holdfast.core.model import FailureStage, Policy, ReasonCode, Status
from holdfast.errors import (
    HoldfastError,
    LimitExceeded,
    RefusedByValidator,
    Unavailable,
    ValidationError,
)
from holdfast.keeping.leases import Fields
from holdfast.keeping.service import ServiceLoop
from holdfast.keeping.signals import STOP_SIGNALS
from holdfast.ledger import Beat
from holdfast.supervise.event_loop import InputPipe, Timers
from holdfast.supervise.heartbeats import ReceivedHeartbeat
from holdfast.supervise.lease import CommandLease
from holdfast.supervise.process import CommandProcess

if TYPE_CHECKING:
    from holdfast.supervise.task_loop import TaskLoop


class StderrWriter:
    """Writes to standard error and buffers what does not fit while its reader does not read."""

    def __init__(self) -> None:
        self._buffer = b""

    @property
    def has_buffered(self) -> bool:
        """Whether something is buffered."""
        return bool(self._buffer)

    def write(self, chunk: bytes) -> None:
        self._buffer += chunk
        self.flush()

    def flush(self) -> None:
        """Write as much as fits. If the reader has closed its end, drop the output."""
        while self._buffer and is_stderr_writable():
            piece, self._buffer = self._buffer[: select.PIPE_BUF], self._buffer[select.PIPE_BUF :]
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(piece)
                sys.stderr.buffer.flush()

    def drop(self) -> None:
        self._buffer = b""


def is_stderr_writable() -> bool:
    """Return whether standard error takes `PIPE_BUF` bytes at once. A writable pipe has room for that many."""
    poll = select.poll()
    try:
        poll.register(sys.stderr.fileno(), select.POLLOUT)
    except OSError:  # not a file: a write does not block
        return True
    return bool(poll.poll(0))


TRANSIENT_EXIT_CODE = 75
"""The exit code of a command that asks for a retry; EX_TEMPFAIL of sysexits.h."""
BEAT_SECONDS_MAX = 15.0
"""The longest time between two heartbeats, and so until a requested cancellation is noticed."""
FIELDS_SECONDS = 0.1
"""How soon a line on descriptor 3 is sent. Lines that arrive meanwhile are sent with it."""
FULL_SECONDS = 0.05
"""When to retry writing to a full standard error."""
UNREAD_SECONDS = 2.0
"""How long the end of a task waits for the reader of standard error."""
ERROR_BYTES_MAX = 4_096
"""How many bytes of the end of standard error are recorded with a failure."""
RETRY_SECONDS = 0.5
"""When to retry a ledger that is out of reach."""


class CommandNotStarted(Exception):
    """The command could not be started. `errno` says why."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


AttemptOutcome = Literal["succeeded", "failed", "released", "lost"]
"""`failed` is about this attempt; a retry may follow. `lost` means that the outcome could not be recorded."""

_AFTER_FAILURE = {
    Status.QUEUED: "it is tried again",
    Status.FAILED: "it is not tried again",
    Status.DEAD_LETTERED: "it is dead-lettered",
    Status.CANCELLED: "it is cancelled",
}


class TaskLease(CommandLease):
    """An agent's claim on a task, renewed and ended by the agent's verbs."""

    def __init__(
        self, agent: Agent, task: Task, policy: Policy, began: float, monotonic: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        super().__init__(task.id, monotonic, wake)
        self._agent, self.attempt = agent, task.attempt
        self.cancel_requested = task.cancel_requested
        self._set_times(policy, began, BEAT_SECONDS_MAX)

    def _send(self, fields: Fields) -> Beat:
        return beat_of(self._agent.heartbeat(self.job_id, attempt=self.attempt, **fields))

    def end(self, verb: Callable[..., Task], request_id: str, *arguments: Any, **details: Any) -> Task:
        """End the claim with a verb of the agent. It may be sent again after a lost answer, with the same request id."""
        return verb(self._agent, self.job_id, *arguments, attempt=self.attempt, request_id=request_id, **details)


class TaskAttempt:
    """One run of the command on one task."""

    def __init__(self, loop: "TaskLoop", lease: TaskLease) -> None:
        self._loop, self._lease = loop, lease
        self._beats = ServiceLoop([lease])
        self._timers = Timers(loop.monotonic)
        self._child: CommandProcess | None = None
        self._stopping = False
        """The command got a signal to stop."""
        self._killed = False
        self._output = self._errors = b""
        self._stderr = StderrWriter()
        self._is_refusal_reported = False
        self.summary = ""
        """The recorded outcome and the reason of a failure."""

    def run(self, brief: Brief, env: dict[str, str]) -> AttemptOutcome:
        """Run the command to its end and record the outcome.

        If the command cannot be started, release the task and raise CommandNotStarted.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._beats.close)
            self._beats.start()
            pipes = [
                stack.enter_context(contextlib.closing(InputPipe(on_data))) for on_data in (self._on_output, self._on_errors)
            ]
            for pipe in pipes:
                self._register(pipe)
                stack.callback(self._unregister, pipe)
            self._error_pipe = pipes[1]
            self._loop.listener.discard()
            try:
                child = self._child = stack.enter_context(contextlib.closing(self._start(brief, env, *pipes)))
            except OSError as error:
                number = error.errno or errno.EIO
            else:
                self._wait_for_exit(child)
                number = child.errno
            self._beats.close()
            for pipe in pipes:
                pipe.read_remaining()
            self._flush_errors()
            self._loop.listener.read_remaining()
            outcome = self._record_outcome(None if self._child is None else self._child.exit_code, not_run=bool(number))
        if number:
            raise CommandNotStarted(number)
        return outcome

    def _register(self, pipe: InputPipe) -> None:
        self._loop.selector.register(pipe.read_fd, selectors.EVENT_READ, pipe.read)

    def _unregister(self, pipe: InputPipe) -> None:
        with contextlib.suppress(KeyError):
            self._loop.selector.unregister(pipe.read_fd)

    def _start(self, brief: Brief, env: dict[str, str], output: InputPipe, errors: InputPipe) -> CommandProcess:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(msgspec.json.encode(brief) + b"\n")
            stdin.seek(0)
            return CommandProcess(
                self._loop.command,
                self._loop.grace_s,
                env,
                timers=self._timers,
                beat_fd=self._loop.listener.write_fd,
                preexisting=self._loop.preexisting,
                streams=(stdin.fileno(), output.write_fd, errors.write_fd),
            )

    def _wait_for_exit(self, child: CommandProcess) -> None:
        """Wait until no process of the command is left."""
        self._loop.selector.register(child.channel, selectors.EVENT_READ, child.read_messages)
        try:
            while not child.has_ended:
                self._check_lease()
                self._loop.pause(self._timers.timeout_s())
                self._timers.run_due()
        finally:
            self._loop.selector.unregister(child.channel)

    def _check_lease(self) -> None:
        """Kill the command if another agent may hold the task. Stop it if cancellation was requested."""
        lease, left_s = self._lease, self._lease.expires - self._loop.monotonic()
        if not lease.lost and (left_s <= 0 or self._loop.lock.lost):
            lease.mark_lost()
        if lease.lost:
            if not self._killed:
                self._loop.report(f"Task {lease.job_id} is no longer {self._loop.agent.name}'s. The command is killed.")
                self._kill()
            return
        if lease.cancel_requested:
            self._stop(signal.SIGTERM)
        self._timers.call_later(left_s, self._check_lease)

    # Input from the command

    def on_heartbeat(self, heartbeat: ReceivedHeartbeat) -> None:
        if heartbeat.refused is not None and not self._is_refusal_reported:
            self._is_refusal_reported = True
            self._loop.report(f"Task {self._lease.job_id}: a line on descriptor 3 is not recorded: {heartbeat.refused}.")
        self._lease.queue_fields(heartbeat.fields)
        if self._lease.has_unsent:
            self._timers.call_within(FIELDS_SECONDS, self._beats.wake)

    def _on_output(self, chunk: bytes) -> None:
        """Keep the output up to one byte more than the limit, so that a too long output is noticed."""
        if len(self._output) <= limits.PAYLOAD_BYTES_MAX:
            self._output = (self._output + chunk)[: limits.PAYLOAD_BYTES_MAX + 1]

    def _on_errors(self, chunk: bytes) -> None:
        """Pass the errors on. While the reader of standard error does not read, read no more from the command."""
        self._errors = (self._errors + chunk)[-ERROR_BYTES_MAX:]
        self._stderr.write(chunk)
        if self._stderr.has_buffered:
            self._unregister(self._error_pipe)
            self._timers.call_later(FULL_SECONDS, self._forward_errors)

    def _forward_errors(self) -> None:
        self._stderr.flush()
        if self._stderr.has_buffered:
            self._timers.call_later(FULL_SECONDS, self._forward_errors)
        else:
            self._register(self._error_pipe)

    def _flush_errors(self) -> None:
        """After the command has ended, wait two seconds for the reader, then drop what is left."""
        deadline = self._loop.monotonic() + UNREAD_SECONDS
        while self._stderr.has_buffered and not self._loop.stopping and self._loop.monotonic() < deadline:
            self._loop.pause(FULL_SECONDS)
            self._stderr.flush()
        self._stderr.drop()

    # Signals to the command

    def forward_signal(self, number: signal.Signals) -> None:
        """Pass a signal on. The first signal to stop starts the grace; the second kills the command."""
        if number not in STOP_SIGNALS:
            if self._child is not None:
                self._child.signal(number)
        elif self._loop.stopping > 1:
            self._kill()
        else:
            self._stop(number)

    def _stop(self, number: signal.Signals) -> None:
        if self._child is not None and not self._stopping:
            self._child.stop(number)
        self._stopping = True

    def _kill(self) -> None:
        if self._child is not None and not self._killed:
            self._child.kill()
        self._stopping = self._killed = True

    # Recording the outcome

    def _record_outcome(self, code: int | None, *, not_run: bool) -> AttemptOutcome:
        lease = self._lease
        if lease.lost:
            return "lost"
        if not_run or (self._stopping and code != 0):
            return self._record("released", self._release)
        if code == 0:
            try:
                result = self._result()
                return self._record("succeeded", lambda request: lease.end(Agent.complete, request, result))
            except (ValidationError, LimitExceeded, RefusedByValidator) as refused:
                by_validator = isinstance(refused, RefusedByValidator)
                fields: dict[str, Any] = {
                    "message": refused.message if by_validator else f"its output cannot be kept: {refused.message}"
                }
                cause = None if refused.retryable else ReasonCode.VALIDATION_FAILED
                return self._fail(fields, retryable=refused.retryable, failure_stage=FailureStage.OUTPUT, reason_code=cause)
        by_signal = code is None or code < 0
        ended = "was ended by a signal" if by_signal else f"ended with {code}"
        tail = self._errors.decode(errors="replace").strip()
        error: dict[str, Any] = {"message": tail.rpartition("\n")[2][:500] or f"the command {ended}", "exit_code": code}
        cause = ReasonCode.INFRASTRUCTURE_FAILURE if by_signal else None
        return self._fail(
            error | ({"stderr": tail} if tail else {}), retryable=by_signal or code == TRANSIENT_EXIT_CODE, reason_code=cause
        )

    def _release(self, request: str) -> None:
        if self._lease.end(Agent.release, request).status == Status.CANCELLED:
            self.summary = "released, it is cancelled."

    def _fail(self, error: dict[str, Any], **details: Any) -> AttemptOutcome:
        def end(request: str) -> None:
            task = self._lease.end(Agent.fail, request, error, **details)
            self.summary = f"failed, {_AFTER_FAILURE[Status(task.status)]}: {error['message']}"

        return self._record("failed", end)

    def _result(self) -> Any:
        """Return the standard output: as JSON if it is JSON, else as text; None if it is empty."""
        body = self._output
        if len(body) > limits.PAYLOAD_BYTES_MAX:
            raise LimitExceeded(f"it is longer than {limits.PAYLOAD_BYTES_MAX:,} bytes")
        if not body.strip():
            return None
        try:
            strict_json.check("it", body, limits.PAYLOAD_BYTES_MAX)
        except ValidationError:
            try:
                return body.decode().removesuffix("\n")
            except UnicodeDecodeError:
                raise ValidationError("it is neither JSON nor UTF-8") from None
        return msgspec.Raw(body.strip())

    def _record(self, outcome: AttemptOutcome, end: Callable[[str], object]) -> AttemptOutcome:
        """Send the unsent fields, then the outcome. Retry both while the ledger is out of reach and the claim is valid.

        A second signal to stop ends the retries.
        """
        loop, lease = self._loop, self._lease
        request = f"{loop.nonce}-{lease.job_id}-{lease.attempt}-{outcome}"
        waiting = False
        while not lease.lost:
            try:
                lease.send_unsent()
                if not lease.lost:
                    end(request)
                    return outcome
            except Unavailable as error:
                if not error.retryable or loop.stopping > 1 or loop.monotonic() >= lease.expires:
                    loop.report(f"Task {lease.job_id}: its end could not be recorded: {error.message}.")
                    return "lost"
                if not waiting:
                    waiting = True
                    loop.report(f"Task {lease.job_id}: waiting for the ledger to record its end: {error.message}.")
                loop.pause(RETRY_SECONDS)
            except (ValidationError, LimitExceeded, RefusedByValidator):
                raise
            except HoldfastError as error:
                loop.report(f"Task {lease.job_id}: {error.code}: {error.message}.")
                return "lost"
        return "lost"
