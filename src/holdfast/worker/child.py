"""The main program of a child process: reads tasks from a socket, runs their handlers and sends replies.

The kernel kills it when its parent ends. The process cannot do that itself while a handler blocks the interpreter.
"""

import asyncio
import contextlib
import errno
import importlib
import inspect
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

import holdfast
from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.core.model import FailureStage
from holdfast.errors import HoldfastError, JobCancelled, LeaseConflictError
from holdfast.keeping.signals import signal_when_parent_dies
from holdfast.ledger import HeldJob, Ledger, validate
from holdfast.proof.keys import KeyFile, decode_key
from holdfast.telemetry.logs import bind_job, configure
from holdfast.telemetry.tracing import attached_to
from holdfast.worker.context import Context, LastBeat
from holdfast.worker.failures import RetryRules, classify
from holdfast.worker.handlers import Handler, HandlerLocation
from holdfast.worker.processes import READ_BYTES, STOP, ChildReply, ChildTask
from holdfast.worker.runtime import WorkerRuntime
from holdfast.worker.signature import to_plain_result

_ARGUMENTS_MIN = 2
"""The number of arguments if the parent passes no logging settings."""
_EXHAUSTED_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF}
"""Errors of a process that has no file descriptors or memory left, or has lost its descriptors."""
_task_decoder = msgspec.json.Decoder(ChildTask)
_encode = msgspec.json.Encoder().encode


class LazyLedger:
    """A ledger that is opened when it is first used. Most handlers never use it."""

    def __init__(self, url: str, keys: Sequence[KeyFile]) -> None:
        self._url = url
        self._keys = keys
        self._ledger: Ledger | None = None

    def __getattr__(self, name: str) -> Any:
        if self._ledger is None:
            self._ledger = holdfast.open(self._url, keys=self._keys)
        return getattr(self._ledger, name)


class ChildRuntime(WorkerRuntime):
    """The runtime in a child. The parent sends the heartbeats, so the child only passes progress on to it."""

    def __init__(self, ledger: Any, registry: Any, name: str, send: Callable[[ChildReply], None]) -> None:
        super().__init__(ledger, registry, name, time.monotonic)
        self._send = send
        self.context: Context | None = None

    def wake_heartbeats(self) -> None:
        progress = None if self.context is None else self.context.take_unsent()
        if progress:
            self._send(ChildReply(progress=progress))

    def on_progress_sent(self, progress: dict[str, Any]) -> None:
        """Pass the progress on to the parent too: it may still have older progress to send, which this replaces."""
        self._send(ChildReply(progress=progress))

    def renew_overdue(self, context: Context) -> None:
        """Send a heartbeat: the parent renews the lease but cannot report it to this process."""
        with contextlib.suppress(HoldfastError):
            Context.beat(context)


def _decode_keys(task: ChildTask) -> list[KeyFile]:
    return [decode_key(text) for text in task.keys]


class ChildTaskRunner:
    """Run a child's tasks, one at a time."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._tasks: SimpleQueue[bytes] = SimpleQueue()
        self._mutex = threading.Lock()
        self._context: Context | None = None
        self._stop_pending = False
        self._handlers: dict[HandlerLocation, tuple[Handler, Any]] = {}
        self._ledgers: dict[str, Any] = {}

    def work(self) -> None:
        threading.Thread(target=self._read_tasks, name="holdfast-child", daemon=True).start()
        while True:
            task = _task_decoder.decode(self._tasks.get())
            reply = self._run_task(task)
            self._context = None
            self._send(task.number, reply)

    def _send(self, number: int, reply: ChildReply) -> None:
        if os.getpid() != self._pid:
            # This process is a fork that a handler made. Only its parent may answer the task.
            os._exit(0)
        with self._mutex:
            self._channel.sendall(b"%d %b\n" % (number, _encode(reply)))

    def _read_tasks(self) -> None:
        unread = b""
        while chunk := self._channel.recv(READ_BYTES):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                if line + b"\n" == STOP:
                    self._stop()
                else:
                    self._stop_pending = False
                    self._tasks.put(line)
        os._exit(0)

    def _stop(self) -> None:
        self._stop_pending = True
        if self._context is not None:
            self._context.cancel_requested = True

    def _run_task(self, task: ChildTask) -> ChildReply:
        try:
            handler, registry = self._load_handler(task)
        except Exception as error:  # noqa: BLE001 - importing a user's module can raise anything
            return ChildReply(failure=classify(error, RetryRules(), FailureStage.INPUT), not_loaded=True)
        context = self._make_context(task, handler, registry)
        try:
            args = handler.signature.read(task.record.args)
            with attached_to(task.traceparent), bind_job(context.job, task.worker, task.traceparent):
                result = handler.call(context, args)
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
            return _reply_with_result(result, handler)
        except JobCancelled:
            return ChildReply(cancelled=True)
        except LeaseConflictError as error:
            if error.context.get("job_id") == task.record.id:
                return ChildReply(lost=True)
            return ChildReply(failure=classify(error, handler.rules))
        except BaseException as error:  # noqa: BLE001 - any exception of a handler is the outcome of its job
            if isinstance(error, MemoryError):
                traceback.clear_frames(error.__traceback__)
            return ChildReply(failure=classify(error, handler.rules), process_unusable=_makes_process_unusable(error))

    def _make_context(self, task: ChildTask, handler: Handler, registry: Any) -> Context:
        ledger = self._ledgers.setdefault(task.url, LazyLedger(task.url, _decode_keys(task)))
        runtime = ChildRuntime(ledger, registry, task.worker, partial(self._send, task.number))
        job, now = HeldJob(task.record, task.fence), time.monotonic()
        context = handler.context_type(job, handler, runtime, task.ttl_s, task.ttl_s, now)
        context.last_beat = LastBeat.of(task.record, now - task.beat_age_s)
        context.cancel_requested = self._stop_pending
        runtime.context = self._context = context
        return context

    def _load_handler(self, task: ChildTask) -> tuple[Handler, Any]:
        """Return the task's handler and registry. Its app may name another ledger: it is moved to the worker's."""
        loaded = self._handlers.get(task.location)
        if loaded is None:
            function = _load_function(task.location)
            function.__holdfast_app__.move(task.url, keys=_decode_keys(task))
            loaded = self._handlers[task.location] = (function.__holdfast_handler__, function.__holdfast_app__.registry)
        return loaded


def _makes_process_unusable(error: BaseException) -> bool:
    """Return whether the error may affect the next handler in this process."""
    return (
        isinstance(error, MemoryError)
        or not isinstance(error, Exception)
        or (isinstance(error, OSError) and error.errno in _EXHAUSTED_ERRNOS)
    )


def _reply_with_result(result: Any, handler: Handler) -> ChildReply:
    """Return the reply for a result. It is checked here: the JSON between the two processes is lenient, and would change values
    that strict JSON refuses."""
    try:
        plain = to_plain_result(result)
        if handler.check_result is not None:
            handler.check_result(plain)
        return ChildReply(result=msgspec.Raw(validate.json_value("result", plain, PAYLOAD_BYTES_MAX)))
    except Exception as error:  # noqa: BLE001 - any error here means that the result cannot be recorded
        return ChildReply(failure=classify(error, RetryRules(), FailureStage.OUTPUT))


def _load_function(location: HandlerLocation) -> Any:
    """Return the handler's function. A main program is run again under another name, so that its `if __name__ == …` is false."""
    if location.path is None:
        target: Any = importlib.import_module(location.module)
    else:
        sys.path.insert(0, str(Path(location.path).parent))
        target = type("Main", (), runpy.run_path(location.path, run_name="__holdfast_main__"))
    for name in location.name.split("."):
        target = getattr(target, name)
    return target


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A signal that stops a worker may reach its children too. The worker decides when this process ends. Programs that a handler
    # starts do not inherit a function, unlike SIG_IGN.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
    signal_when_parent_dies(signal.SIGKILL)
    if len(sys.argv) > _ARGUMENTS_MIN:
        as_json, level, to_stdout = map(int, sys.argv[_ARGUMENTS_MIN:])
        configure(bool(as_json), level, stream=sys.stdout if to_stdout else None)
    with contextlib.suppress(OSError):
        ChildTaskRunner(socket.socket(fileno=int(sys.argv[1]))).work()


if __name__ == "__main__":
    main()
