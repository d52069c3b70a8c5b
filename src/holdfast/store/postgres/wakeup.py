"""Waking other processes: NOTIFY at most once every few milliseconds, with the commit where all was silent, else after it."""

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
"""Rings follow each other less closely while there is something to ring all the time: whoever was woken has work then."""
INLINE_PAUSE_SECONDS = 1.0
CLOSE_SECONDS = 5
POLL_SECONDS = 0.5
"""How long a listener that cannot listen waits before it lets its owner look for itself."""
NO_QUEUE = ""
"""The name rung when no queue has new work but followers have something to read."""


class Notifier:
    """One process's bell for one ledger. `ring` tells the server, in a transaction of its own, that queues have work.

    Who finds it silent rings in the very transaction that has something to tell: no message more, no thread. Not everybody can:
    the server lets such transactions commit one at a time.
    """

    def __init__(self, name: str, notify: Callable[[Sequence[str]], None]) -> None:
        self.name = name
        self._notify = notify
        self._pending: set[str] = set()
        self._parked = threading.Lock()
        """Its thread waits for this; whoever has something to ring lets it go. Not an Event: a caller that is interrupted within
        `set` would leave that locked for ever."""
        self._parked.acquire()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._silent_until = float("-inf")
        self._inline_paused_until = float("-inf")

    def may_notify_inline(self) -> bool:
        """Whether it has been silent for long enough to ring in the caller's own transaction; it then counts as rung."""
        now = time.monotonic()
        with self._mutex:
            if self._pending or now < max(self._silent_until, self._inline_paused_until):
                return False
            self._silent_until = now + INTERVAL_SECONDS
        return True

    def pause_inline(self) -> None:
        """For a while, let nobody ring in a transaction that matters."""
        self._inline_paused_until = time.monotonic() + INLINE_PAUSE_SECONDS

    def notify(self, queues: Collection[str], *, later: bool = False) -> None:
        """From a thread; a moment `later` where it is not urgent and would only disturb what begins now."""
        with self._mutex:
            if later and not self._pending:
                self._silent_until = max(self._silent_until, time.monotonic() + INTERVAL_SECONDS)
            self._pending.update(queues or (NO_QUEUE,))
        self._wake()
        if self._thread is None:
            self._start()

    def _wake(self) -> None:
        if self._parked.locked():
            with contextlib.suppress(RuntimeError):  # somebody else was quicker
                self._parked.release()

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=f"holdfast-bell-{self.name}", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        apart = INTERVAL_SECONDS
        while True:
            apart = INTERVAL_SECONDS if self._parked.locked() else min(2 * apart, INTERVAL_SECONDS_MAX)
            self._parked.acquire()
            if not self._closed:
                time.sleep(max(0.0, self._silent_until - time.monotonic()))
            with self._mutex:
                queues, self._pending = self._pending, set()
                self._silent_until = time.monotonic() + apart
            if queues:
                with contextlib.suppress(HoldfastError, Contention, StatementFailed):
                    self._notify(sorted(queues))
            elif self._closed:
                return
            if self._closed:
                self._wake()

    def close(self) -> None:
        """What is still to be rung is rung first: a process may end right after its last enqueue."""
        atexit.unregister(self.close)
        self._closed = True
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=CLOSE_SECONDS)


class NotificationListener:
    """LISTEN on a connection of its own; where that fails or `connect` is None, the owner is sent to look every half second."""

    def __init__(
        self, connect: "Callable[[], psycopg.Connection[Any]] | None", channel: str, timeouts: Callable[[], int], *, events: bool
    ) -> None:
        """`lost` counts how often connections to this server have gone silent: this one may have, too, and listens anew."""
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
