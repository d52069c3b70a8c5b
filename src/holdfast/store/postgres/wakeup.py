"""Wake-ups by NOTIFY, at most one every few milliseconds: within the transaction if there was none recently, else after it."""

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg

from holdfast.errors import HoldfastError, Unavailable
from holdfast.store.base import Contention, StatementFailed

INTERVAL_SECONDS = 0.005
INTERVAL_SECONDS_MAX = 0.025
"""The interval grows up to this under constant load, because woken workers have work then."""
INLINE_PAUSE_SECONDS = 1.0
CLOSE_SECONDS = 5
POLL_SECONDS = 0.5
"""How often a listener without a connection makes its caller poll."""
NO_QUEUE = ""
"""The payload of a notification about new events when no queue has new work."""


class Notifier:
    """Sends notifications of one process for one ledger.

    If there was no notification for a while, a caller sends NOTIFY within its own transaction, without another message or a
    thread. Not every transaction does so, because the server commits transactions with NOTIFY one at a time. `notify` sends the
    others from a thread, in separate transactions.
    """

    def __init__(self, name: str, notify: Callable[[Sequence[str]], None]) -> None:
        self.name = name
        self._notify = notify
        self._pending: set[str] = set()
        self._parked = threading.Lock()
        """The thread waits for this lock, and a caller with a notification releases it. An Event would stay locked forever if a
        caller is interrupted within `set`."""
        self._parked.acquire()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._next_at = float("-inf")
        self._inline_paused_until = float("-inf")

    def may_notify_inline(self) -> bool:
        """Return whether the caller may notify within its own transaction. If so, the interval starts now."""
        now = time.monotonic()
        with self._mutex:
            if self._pending or now < max(self._next_at, self._inline_paused_until):
                return False
            self._next_at = now + INTERVAL_SECONDS
        return True

    def pause_inline(self) -> None:
        """Allow no notification within callers' transactions for INLINE_PAUSE_SECONDS."""
        self._inline_paused_until = time.monotonic() + INLINE_PAUSE_SECONDS

    def notify(self, queues: Collection[str], *, later: bool = False) -> None:
        """Notify from the thread. With `later`, wait one interval first: it is not urgent and would slow down what runs now."""
        with self._mutex:
            if later and not self._pending:
                self._next_at = max(self._next_at, time.monotonic() + INTERVAL_SECONDS)
            self._pending.update(queues or (NO_QUEUE,))
        self._wake()
        if self._thread is None:
            self._start()

    def _wake(self) -> None:
        if self._parked.locked():
            with contextlib.suppress(RuntimeError):  # another thread has released it
                self._parked.release()

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=f"holdfast-notify-{self.name}", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        interval = INTERVAL_SECONDS
        while True:
            interval = INTERVAL_SECONDS if self._parked.locked() else min(2 * interval, INTERVAL_SECONDS_MAX)
            self._parked.acquire()
            if not self._closed:
                time.sleep(max(0.0, self._next_at - time.monotonic()))
            with self._mutex:
                queues, self._pending = self._pending, set()
                self._next_at = time.monotonic() + interval
            if queues:
                with contextlib.suppress(HoldfastError, Contention, StatementFailed):
                    self._notify(sorted(queues))
            elif self._closed:
                return
            if self._closed:
                self._wake()

    def close(self) -> None:
        """Send pending notifications and end the thread. A process may exit right after its last enqueue."""
        atexit.unregister(self.close)
        self._closed = True
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=CLOSE_SECONDS)


class NotificationListener:
    """Waits with LISTEN on its own connection. If that fails or `connect` is None, its caller polls every half second."""

    def __init__(
        self, connect: "Callable[[], psycopg.Connection[Any]] | None", channel: str, timeouts: Callable[[], int], *, events: bool
    ) -> None:
        """`timeouts` returns how often connections to the server timed out. After a new timeout this one reconnects too."""
        self._connect = connect
        self._channel = channel
        self._timeouts = timeouts
        self._timeouts_before = timeouts()
        self._events = events
        self._closed = False
        self._connection: psycopg.Connection[Any] | None = None
        self._listen()

    def _listen(self) -> None:
        self._timeouts_before = self._timeouts()
        if self._connect is None:
            return
        with contextlib.suppress(HoldfastError, psycopg.Error):
            connection = self._connect()
            connection.execute(f"LISTEN {self._channel}")
            self._connection = connection

    def wait(self, timeout: float) -> bool:
        if self._closed:
            raise Unavailable("this waiter is closed", retryable=False)
        if self._timeouts() != self._timeouts_before:
            self._drop()
        if self._connection is None:
            time.sleep(min(timeout, POLL_SECONDS))
            self._listen()
            return True
        deadline = time.monotonic() + timeout
        try:
            while (left := deadline - time.monotonic()) >= 0:
                notified = {notice.payload for notice in self._connection.notifies(timeout=left, stop_after=1)}
                if notified and (self._events or notified != {NO_QUEUE}):
                    return True
        except psycopg.Error:
            self._drop()
            return True
        return False

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
