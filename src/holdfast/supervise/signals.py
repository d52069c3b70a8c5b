"""Signals as something to select on: none interrupts anything."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection
from typing import Any, Self

from holdfast.services.echoes import ECHO_SECONDS

STOPPING = (signal.SIGTERM, signal.SIGINT)
FORWARDED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH, signal.SIGCONT)


class Signals:
    """Within, the signals above are read here. What this process was started to ignore stays ignored, but for those to stop.

    `stopping` are the signals that mean an end: of two that come in quick succession only the first is read.
    """

    def __init__(self, monotonic: Callable[[], float], stopping: Collection[signal.Signals] = STOPPING) -> None:
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

    def ring(self) -> None:
        """From any thread: there is something to look at."""
        with contextlib.suppress(BlockingIOError):
            self._theirs.send(b"\0")

    def read(self) -> list[signal.Signals]:
        """What has come; of echoes only the first."""
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
            for number in (*STOPPING, *FORWARDED):
                if number in STOPPING or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
        self._ours.close()
        self._theirs.close()
