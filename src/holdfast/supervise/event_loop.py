"""Timers, pipes and forwarded signals of an event loop with a selector."""

import os
import signal
from collections.abc import Callable

Callback = Callable[[], None]
FORWARDED_SIGNALS = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
)
"""Signals that a supervisor passes on to its command, besides those that stop it."""

READ_BYTES = 1 << 16
READS_MAX = 64
"""How many reads empty a pipe or socket: more than either holds."""


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


class InputPipe:
    """A pipe that a command writes to. `on_data` is called with the data."""

    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self._on_data = on_data

    def read(self) -> bool:
        """Read once, so that a command that writes without end does not block the loop. Return False if there was nothing."""
        try:
            chunk = os.read(self.read_fd, READ_BYTES)
        except BlockingIOError:
            return False
        self._on_data(chunk)
        return True

    def read_remaining(self) -> None:
        for _ in range(READS_MAX):
            if not self.read():
                break

    def close(self) -> None:
        os.close(self.read_fd)
        os.close(self.write_fd)
