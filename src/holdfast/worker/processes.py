"""Run handlers in child processes: they may block the interpreter, and they can be killed."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.core.model import Fence, ReasonCode
from holdfast.core.model import JobRecord as Record
from holdfast.core.payloads import OptionalJson
from holdfast.errors import JobCancelled, LeaseConflictError
from holdfast.proof.keys import encode_key
from holdfast.telemetry import logs
from holdfast.telemetry.tracing import current_traceparent
from holdfast.worker.attempt import AttemptRunner
from holdfast.worker.context import Context
from holdfast.worker.failures import ClassifiedError, ClassifiedFailure
from holdfast.worker.handlers import HandlerLocation
from holdfast.worker.runtime import WorkerRuntime, log
from holdfast.worker.thread_pool import ThreadPool

READ_BYTES = 1 << 16
REPLY_BYTES_MAX = 4 * PAYLOAD_BYTES_MAX
"""The longest line from a child. Results and errors have lower limits of their own, so a longer line is not a reply."""
START_RETRY_SECONDS = 1.0
"""How long a worker that cannot start a process waits before it releases the job and may claim it again."""
POLL_SECONDS = 1.0
"""How often a silent child is checked. After its death, a process that it forked may keep its end of the socket open."""


class ChildTask(msgspec.Struct, frozen=True):
    """A task for a child process."""

    number: int
    """Counts the tasks of one child. Each reply line begins with it, so that a late line is not taken for another task's."""
    location: HandlerLocation
    url: str
    worker: str
    record: Record
    fence: Fence
    ttl_s: float
    beat_age_s: float
    """The age of the newest heartbeat that the ledger has answered."""
    traceparent: str | None = None
    keys: tuple[str, ...] = ()
    """The worker's signing keys, as the text of key files. Only the child can read the socket."""


class ChildReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A child's reply: a result, a classified error, or that the handler stopped after a cancel or a lost lease."""

    result: OptionalJson = msgspec.UNSET
    failure: ClassifiedFailure | None = None
    cancelled: bool = False
    lost: bool = False
    progress: dict[str, Any] | None = None
    """Progress of the handler. The final reply comes later."""
    not_loaded: bool = False
    """The handler's module could not be loaded, so no handler has run. `failure` says why."""
    process_unusable: bool = False
    """The process has run out of memory or descriptors, or a handler tried to end it: it should not be used again."""


STOP = b'"stop"\n'
_encode = msgspec.json.Encoder().encode
_reply_decoder = msgspec.json.Decoder(ChildReply)


class HandlerNotLoaded(ClassifiedError):
    """The handler could not be loaded in this child."""


class ChildProcess:
    """One child process. It runs one task after another until this end of the socket is closed."""

    def __init__(self) -> None:
        self._socket, child_socket = socket.socketpair()
        self._mutex = threading.Lock()
        self._unread = b""
        self.tasks = 0
        """How many tasks it was given."""
        self.is_unusable = False
        """Whether it must not be given another task."""
        with child_socket:
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package
                [sys.executable, "-m", "holdfast.worker.child", str(child_socket.fileno()), *_logging_arguments()],
                stdin=subprocess.DEVNULL,
                pass_fds=[child_socket.fileno()],
                start_new_session=True,
            )

    def run(self, context: Context, task: ChildTask) -> Any:
        """Run the task and return the handler's result. Raise if the handler failed, stopped or lost its process."""
        try:
            self._send(_encode(task) + b"\n")
            while (reply := self._read_reply(task.number)).progress is not None:
                context.queue_fields(reply.progress)
        except (OSError, EOFError) as error:
            raise self._death_error() from error
        except (ValueError, msgspec.DecodeError) as error:
            # A handler has written to the socket's descriptor. Nothing that comes from it can be trusted any more.
            self.kill()
            raise _process_died("its process has written to the worker's own socket") from error
        self.is_unusable |= reply.process_unusable
        if reply.lost:
            raise LeaseConflictError("the lease is over", job_id=context.job.id)
        if reply.cancelled:
            raise JobCancelled(f"job {context.job.id} has stopped", job_id=context.job.id)
        if reply.failure is not None:
            raise (HandlerNotLoaded if reply.not_loaded else ClassifiedError)(reply.failure)
        return None if isinstance(reply.result, msgspec.UnsetType) else msgspec.json.decode(reply.result)

    def _send(self, line: bytes) -> None:
        with self._mutex:
            self._socket.sendall(line)

    def _read_reply(self, number: int) -> ChildReply:
        while True:
            task_number, _, body = self._read_line().partition(b" ")
            if int(task_number) == number:
                return _reply_decoder.decode(body)

    def _read_line(self) -> bytes:
        while b"\n" not in self._unread:
            self._unread += self._receive()
            if len(self._unread) > REPLY_BYTES_MAX:
                raise ValueError("the line is too long")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _receive(self) -> bytes:
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        while True:
            is_alive = self.alive
            if ready.poll(POLL_SECONDS * 1_000 if is_alive else 0):
                break
            if not is_alive:
                raise EOFError
        chunk = self._socket.recv(READ_BYTES)
        if not chunk:
            raise EOFError
        return chunk

    def _death_error(self) -> Exception:
        self.kill()
        code = self._process.wait()
        if code < 0:
            return _process_died(f"its process was ended by {signal.Signals(-code).name}")
        return _process_died(f"its process ended with exit code {code}")

    def interrupt(self, context: Context) -> None:
        """Kill the process and all that it has started if the lease is lost or the attempt timed out; else ask it to stop."""
        if context.lost or context.timed_out:
            self.kill()
        else:
            with contextlib.suppress(OSError):
                self._send(STOP)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process and all that it has started. It gets no more tasks, even if it has not ended yet."""
        self.is_unusable = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._socket.close()
        self.kill()
        self._process.wait()


def _logging_arguments() -> list[str]:
    """Return the arguments that make a child log like its parent; none if Holdfast did not configure the parent's logging."""
    configured = logs.configured()
    return [] if configured is None else [str(int(value)) for value in configured]


class ProcessPool(ThreadPool):
    """Child processes, each with a thread of this process that sends it tasks and waits for replies."""

    def __init__(
        self, size: int, runtime: WorkerRuntime, attempts: AttemptRunner, on_capacity: Callable[[], None], url: str
    ) -> None:
        super().__init__(size, runtime, lambda context: attempts.run(context, self._run_in_child), on_capacity, "process")
        self._url = url
        self._children: dict[int, ChildProcess] = {}
        self._closed = False

    def _run_in_child(self, context: Context) -> Any:
        try:
            return self._run_once(context)
        except HandlerNotLoaded:
            # An earlier handler may have changed the process (its environment, its limits). Try again in a new one.
            child = self._children.pop(threading.get_ident(), None)
            if child is None or child.tasks == 1:
                raise
            child.close()
        return self._run_once(context)

    def _run_once(self, context: Context) -> Any:
        thread_id = threading.get_ident()
        child = self._children.get(thread_id)
        if child is None or not child.alive:
            child = self._children[thread_id] = self._start(context)
        context.on_interrupt = child.interrupt
        if context.cancelled:
            child.interrupt(context)
        try:
            child.tasks += 1
            return child.run(context, self._make_task(context, child.tasks))
        finally:
            context.on_interrupt = None
            if not child.alive or child.is_unusable or context.lost or context.timed_out:
                child.close()
                self._children.pop(thread_id, None)

    def _start(self, context: Context) -> ChildProcess:
        """Start a child. If that fails, release the job: it is not the job's fault, and must not count as an attempt."""
        try:
            return ChildProcess()
        except OSError as error:
            log.error("cannot start a process for handlers", extra={"job_id": context.job.id, "error": str(error)})
            self._runtime.stopping.wait(START_RETRY_SECONDS)
            raise JobCancelled("no process could be started for it", job_id=context.job.id) from error

    def _make_task(self, context: Context, number: int) -> ChildTask:
        now = self._runtime.monotonic()
        left, age = max(0.0, context.expires - now), max(0.0, now - context.last_beat.sent)
        location, record, trace = context.handler.location, context.last_beat.record_of(context.job.record), current_traceparent()
        keys = tuple(map(encode_key, self._runtime.ledger.ring))
        return ChildTask(number, location, self._url, self._runtime.name, record, context.fence, left, age, trace, keys)

    def prefetch(self) -> int:
        return 0

    def abandon(self, context: Context) -> None:
        """Kill the attempt's process, which ends its thread's wait."""
        if context.on_interrupt is not None:
            context.lost = True
            context.on_interrupt(context)

    def close(self) -> None:
        super().close()
        for child in list(self._children.values()):
            child.close()


def _process_died(message: str) -> ClassifiedError:
    """Return the error for a handler whose process died. It is retryable."""
    return ClassifiedError(
        ClassifiedFailure({"type": "ProcessDied", "message": message}, True, ReasonCode.INFRASTRUCTURE_FAILURE)
    )
