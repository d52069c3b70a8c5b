"""Handlers in child processes: they may block the interpreter, and they can be killed."""

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
"""Of one line from a child: a result, or an error, each with its own lower limit. More is not from us."""
START_RETRY_SECONDS = 1.0
"""How long a worker that cannot start a process waits before it hands the job back and may claim it again."""
POLL_SECONDS = 1.0
"""How often a silent child is looked at: what it has forked may keep its end of the socket open when it is dead."""


class ChildTask(msgspec.Struct, frozen=True):
    """What a child is given."""

    number: int
    """Counts the tasks of one child. Each line of an answer begins with it: what comes late belongs to no other task."""
    location: HandlerLocation
    url: str
    worker: str
    record: Record
    fence: Fence
    ttl_s: float
    beat_age_s: float
    """How long ago the newest beat was that its parent knows of."""
    traceparent: str | None = None
    keys: tuple[str, ...] = ()
    """What its worker signs with, as the text of key files: nobody but the child can read the socket."""


class ChildReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child answers: a result, a verdict on its error, or that it stopped as it was asked to."""

    result: OptionalJson = msgspec.UNSET
    failure: ClassifiedFailure | None = None
    cancelled: bool = False
    lost: bool = False
    progress: dict[str, Any] | None = None
    """Not an answer yet: how far it has come."""
    unloaded: bool = False
    """The handler's module could not be loaded, so no handler has run. `verdict` says why."""
    spent: bool = False
    """The process has run out of memory or descriptors, or a handler tried to end it: it should not be used again."""


STOP = b'"stop"\n'
_encode = msgspec.json.Encoder().encode
_replies = msgspec.json.Decoder(ChildReply)


class HandlerNotLoaded(ClassifiedError):
    """The handler could not be loaded in this child."""


class ChildProcess:
    """One child process; it does one task after another until this end is closed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._mutex = threading.Lock()
        self._unread = b""
        self.tasks = 0
        """How many it was given."""
        self.is_spent = False
        """It should be given no more."""
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - a module of this very package
                [sys.executable, "-m", "holdfast.worker.child", str(theirs.fileno()), *_logging_arguments()],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(self, context: Context, task: ChildTask) -> Any:
        """The result, as the handler gave it."""
        try:
            self._send(_encode(task) + b"\n")
            while (reply := self._read_reply(task.number)).progress is not None:
                context.queue_progress(reply.progress)
        except (OSError, EOFError) as error:
            raise self._death_error() from error
        except (ValueError, msgspec.DecodeError) as error:
            # A handler has written to a descriptor that is not its own. What else comes from there cannot be trusted.
            self.kill()
            said = "its process has written to the worker's own socket"
            raise _process_died(said) from error
        self.is_spent |= reply.spent
        if reply.lost:
            raise LeaseConflictError("the lease is over", job_id=context.job.id)
        if reply.cancelled:
            raise JobCancelled(f"job {context.job.id} has stopped", job_id=context.job.id)
        if reply.failure is not None:
            raise (HandlerNotLoaded if reply.unloaded else ClassifiedError)(reply.failure)
        return None if isinstance(reply.result, msgspec.UnsetType) else msgspec.json.decode(reply.result)

    def _send(self, line: bytes) -> None:
        with self._mutex:
            self._socket.sendall(line)

    def _read_reply(self, number: int) -> ChildReply:
        while True:
            of, _, body = self._read_line().partition(b" ")
            if int(of) == number:
                return _replies.decode(body)

    def _read_line(self) -> bytes:
        while b"\n" not in self._unread:
            self._unread += self._receive()
            if len(self._unread) > REPLY_BYTES_MAX:
                raise ValueError("a line without an end")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _receive(self) -> bytes:
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        while True:
            lives = self.alive
            if ready.poll(POLL_SECONDS * 1_000 if lives else 0):
                break
            if not lives:
                raise EOFError
        chunk = self._socket.recv(READ_BYTES)
        if not chunk:
            raise EOFError
        return chunk

    def _death_error(self) -> Exception:
        self.kill()
        code = self._process.wait()
        said = (
            f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with exit code {code}"
        )
        return _process_died(said)

    def interrupt(self, context: Context) -> None:
        """A wish that it stops is passed on; a lost lease or a timeout is the end of the process and of all it has started."""
        if context.lost or context.timed_out:
            self.kill()
        else:
            with contextlib.suppress(OSError):
                self._send(STOP)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process and what it has started. It is given no more tasks, even if it has not ended yet."""
        self.is_spent = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._socket.close()
        self.kill()
        self._process.wait()


def _logging_arguments() -> list[str]:
    """What a child is told so that its lines look like those of its parent; nothing where that has a setup of its own."""
    found = logs.configured()
    return [] if found is None else [found[0], str(found[1]), str(int(found[2]))]


class ProcessPool(ThreadPool):
    """A thread for each child: it hands over a task and waits for the answer."""

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
            # Where an earlier handler has spoilt the process (its environment, its limits), a new one can load it.
            child = self._children.pop(threading.get_ident(), None)
            if child is None or child.tasks == 1:
                raise
            child.close()
        return self._run_once(context)

    def _run_once(self, context: Context) -> Any:
        me = threading.get_ident()
        child = self._children.get(me)
        if child is None or not child.alive:
            child = self._children[me] = self._start(context)
        context.on_interrupt = child.interrupt
        if context.cancelled:
            child.interrupt(context)
        try:
            child.tasks += 1
            return child.run(context, self._task(context, child.tasks))
        finally:
            context.on_interrupt = None
            if not child.alive or child.is_spent or context.lost or context.timed_out:
                child.close()
                self._children.pop(me, None)

    def _start(self, context: Context) -> ChildProcess:
        """A new child. Where this process cannot start one, the job is handed back: it is not to blame, and counts no attempt."""
        try:
            return ChildProcess()
        except OSError as error:
            log.error("cannot start a process for handlers", extra={"job_id": context.job.id, "error": str(error)})
            self._runtime.stopping.wait(START_RETRY_SECONDS)
            raise JobCancelled("there is no process to run it", job_id=context.job.id) from error

    def _task(self, context: Context, number: int) -> ChildTask:
        now = self._runtime.monotonic()
        left, age = max(0.0, context.expires - now), max(0.0, now - context.last_beat.sent)
        location, record, trace = context.handler.location, context.last_beat.record_of(context.job.record), current_traceparent()
        keys = tuple(map(encode_key, self._runtime.ledger.ring))
        return ChildTask(number, location, self._url, self._runtime.name, record, context.fence, left, age, trace, keys)

    def prefetch(self) -> int:
        return 0

    def abandon(self, context: Context) -> None:
        """Its process is killed, which frees its thread by itself."""
        if context.on_interrupt is not None:
            context.lost = True
            context.on_interrupt(context)

    def close(self) -> None:
        super().close()
        for child in list(self._children.values()):
            child.close()


def _process_died(message: str) -> ClassifiedError:
    """A handler's process is lost, and with it the attempt: another one may go well."""
    return ClassifiedError(
        ClassifiedFailure({"type": "ProcessDied", "message": message}, True, ReasonCode.INFRASTRUCTURE_FAILURE)
    )
