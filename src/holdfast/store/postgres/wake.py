"""Waking other processes: NOTIFY after the commit, at most once a queue every few milliseconds, from a thread of its own."""

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from holdfast.errors import HoldfastError, Unavailable

APART_SECONDS = 0.005
APART_SECONDS_MAX = 0.025
"""Rings follow each other less closely while there is something to ring all the time: whoever was woken has work then."""
CLOSE_SECONDS = 5
POLL_SECONDS = 0.5
"""How long a listener that cannot listen waits before it lets its owner look for itself."""
NOTHING = ""
"""The name rung when no queue has new work but followers have something to read."""


class Bell:
    def __init__(self, name: str, ring: Callable[[Sequence[str]], None]) -> None:
        self._name = name
        self._ring = ring
        self._pending: set[str] = set()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._closed = False

    def ring(self, queues: Sequence[str]) -> None:
        with self._mutex:
            self._pending.update(queues or (NOTHING,))
        if not self._due.is_set():
            self._due.set()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=f"holdfast-bell-{self._name}", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        apart = APART_SECONDS
        while True:
            apart = min(2 * apart, APART_SECONDS_MAX) if self._due.is_set() else APART_SECONDS
            self._due.wait()
            self._due.clear()
            with self._mutex:
                queues, self._pending = self._pending, set()
            if queues:
                with contextlib.suppress(HoldfastError):
                    self._ring(sorted(queues))
            elif self._closed:
                return
            if not self._closed:
                time.sleep(apart)
            else:
                self._due.set()

    def close(self) -> None:
        """What is still to be rung is rung first: a process may end right after its last enqueue."""
        atexit.unregister(self.close)
        self._closed = True
        self._due.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=CLOSE_SECONDS)


class Listener:
    """LISTEN on a connection of its own; where that fails, the owner is sent to look every half second."""

    def __init__(self, connect: "Callable[[], psycopg.Connection[Any]]", channel: str, *, events: bool) -> None:
        self._connect = connect
        self._channel = channel
        self._events = events
        self._closed = False
        self._connection: psycopg.Connection[Any] | None = None
        self._listen()

    def _listen(self) -> None:
        with contextlib.suppress(HoldfastError, psycopg.Error):
            connection = self._connect()
            connection.execute(f"LISTEN {self._channel}")
            self._connection = connection

    def wait(self, timeout: float) -> bool:
        if self._closed:
            raise Unavailable("this waiter is closed", retryable=False)
        if self._connection is None:
            time.sleep(min(timeout, POLL_SECONDS))
            self._listen()
            return True
        deadline = time.monotonic() + timeout
        try:
            while (left := deadline - time.monotonic()) >= 0:
                rung = {notice.payload for notice in self._connection.notifies(timeout=left, stop_after=1)}
                if rung and (self._events or rung != {NOTHING}):
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
