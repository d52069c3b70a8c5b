"""Signals that stop a program, and the end of a parent process. Uses the standard library alone.

A Python signal handler runs only when the main thread next executes bytecode. That may be never, if the main thread waits and the
system delivers the signal to another thread. A handler can also run between any two instructions, and the locks of an Event are
not safe for that. So handlers do nothing here, and the numbers of the signals are read from a socket.
"""

import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Self

REPEAT_SECONDS = 0.2
"""Signals to stop within this time after another one count as the same request."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


def _is_main_thread() -> bool:
    """Return whether this is the main thread. Only that thread can set signal handlers."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _written_to(writer: socket.socket, numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Handle these signals within the block: write the number of each to the socket."""
    previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    previous_handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)


class _RepeatFilter:
    def __init__(self, stopping: Collection[int], monotonic: Callable[[], float]) -> None:
        self._stopping = stopping
        self._monotonic = monotonic
        self._stopped_at = float("-inf")

    def is_repeated(self, number: int) -> bool:
        """Return whether this signal and an earlier one are the same request to stop."""
        if number not in self._stopping:
            return False
        now = self._monotonic()
        if now - self._stopped_at <= REPEAT_SECONDS:
            return True
        self._stopped_at = now
        return False


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[signal.Signals], object], *, hangup: bool = True) -> Iterator[None]:
    """Call `stop` in a thread on each SIGTERM and SIGINT within the block, without repeated ones.

    With `hangup`, also call it on SIGHUP, unless the program ignores that (nohup) or has its own handler.
    Only the main thread can receive signals. In another thread this does nothing.
    """
    if not _is_main_thread():
        yield
        return
    has_hangup = hangup and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    stopping = {*STOP_SIGNALS, signal.SIGHUP} if has_hangup else {*STOP_SIGNALS}
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def listen() -> None:
        repeats = _RepeatFilter(stopping, time.monotonic)
        while numbers := reader.recv(64):
            for number in numbers:
                if number in stopping and not repeats.is_repeated(number):
                    stop(signal.Signals(number))

    listener = threading.Thread(target=listen, name="holdfast-signals", daemon=True)
    listener.start()
    try:
        with _written_to(writer, stopping):
            yield
    finally:
        # Closing alone would not end the listener while a process that a handler forked keeps a copy of the socket open.
        writer.shutdown(socket.SHUT_RDWR)
        writer.close()
        listener.join()
        reader.close()


class SignalReader:
    """Reads signals for a selector inside the context: STOP_SIGNALS, and those of `others` that are not ignored.

    `stopping` are the signals that ask for an end. Of two of them in quick succession, only the first is read.
    """

    def __init__(
        self,
        others: Iterable[signal.Signals],
        monotonic: Callable[[], float],
        stopping: Collection[signal.Signals] = STOP_SIGNALS,
    ) -> None:
        self._others = others
        self._repeats = _RepeatFilter(stopping, monotonic)
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._resources = contextlib.ExitStack()

    def fileno(self) -> int:
        return self._ours.fileno()

    def wake(self) -> None:
        """Wake the loop's selector. May be called from any thread."""
        with contextlib.suppress(BlockingIOError):
            self._theirs.send(b"\0")

    def read(self) -> list[signal.Signals]:
        """Return the signals that have arrived, without repeated ones."""
        try:
            numbers = self._ours.recv(1 << 10)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in numbers if number and not self._repeats.is_repeated(number)]

    def __enter__(self) -> Self:
        self._resources.enter_context(self._ours)
        self._resources.enter_context(self._theirs)
        if _is_main_thread():
            others = [number for number in self._others if signal.getsignal(number) is not signal.SIG_IGN]
            self._resources.enter_context(_written_to(self._theirs, (*STOP_SIGNALS, *others)))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Restore the handlers, also in a forked child."""
        self._resources.close()


def signal_when_parent_dies(number: signal.Signals) -> None:
    """Have the kernel send this signal to this process when its parent ends. Only on Linux."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
