"""Timers and signals for an event loop with a selector."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection
from typing import Any, Self

from holdfast.services.signals import ECHO_SECONDS

Callback = Callable[[], None]


class Timers:
    """Timers by callback. Each callback has one time; setting it again replaces it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[Callback, float] = {}

    def call_later(self, seconds: float, callback: Callback) -> None:
        self._due[callback] = self._monotonic() + seconds

    def call_within(self, seconds: float, callback: Callback) -> None:
        """Call it after that time at the latest. An earlier time stays."""
        self._due[callback] = min(self._due.get(callback, float("inf")), self._monotonic() + seconds)

    def cancel(self, callback: Callback) -> None:
        self._due.pop(callback, None)

    def timeout_s(self) -> float | None:
        """Return the seconds until the next callback is due, None if there is none."""
        return max(0.0, min(self._due.values()) - self._monotonic()) if self._due else None

    def run_due(self) -> None:
        """Call the callbacks that are due. A callback may cancel another one that is due at the same time."""
        now = self._monotonic()
        for callback in [callback for callback, at in self._due.items() if at <= now]:
            if self._due.pop(callback, None) is not None:
                callback()


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FORWARDED_SIGNALS = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
)


class SignalReader:
    """Reads STOP_SIGNALS and FORWARDED_SIGNALS inside the context. A forwarded signal that was ignored before stays ignored.

    `stopping` are the signals that ask for an end. Of two of them in quick succession, only the first is read.
    """

    def __init__(self, monotonic: Callable[[], float], stopping: Collection[signal.Signals] = STOP_SIGNALS) -> None:
        self._monotonic = monotonic
        self._stopping = stopping
        self._stopped_at = float("-inf")
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup = -1

    def fileno(self) -> int:
        return self._ours.fileno()

    def wake(self) -> None:
        """Wake the loop's selector. May be called from any thread."""
        with contextlib.suppress(BlockingIOError):
            self._theirs.send(b"\0")

    def read(self) -> list[signal.Signals]:
        """Return the signals that have arrived, without echoes."""
        try:
            numbers = self._ours.recv(1 << 10)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in numbers if number and not self._is_echo(number)]

    def _is_echo(self, number: int) -> bool:
        if number not in self._stopping:
            return False
        now, last = self._monotonic(), self._stopped_at
        if now - last <= ECHO_SECONDS:
            return True
        self._stopped_at = now
        return False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._wakeup = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
            for number in (*STOP_SIGNALS, *FORWARDED_SIGNALS):
                if number in STOP_SIGNALS or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
        self._ours.close()
        self._theirs.close()
