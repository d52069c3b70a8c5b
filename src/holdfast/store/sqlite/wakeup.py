"""Wake-ups of other processes on the same machine: one byte is written to a file that waiters watch with inotify.

Waiters also poll the database's data_version slowly, for systems without inotify and for commits by other programs. If inotify
works, such a commit counts only if it added an event: changes of duties and of workers' last-seen times wake no waiter.
"""

import contextlib
import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from holdfast.errors import Unavailable
from holdfast.store.sqlite.forks import using_sqlite
from holdfast.store.sqlite.session import SQL

_IN_MODIFY = 0x2
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
CHECK_SECONDS = 1.0
"""The interval of polling the data_version if inotify works."""
POLL_SECONDS = 0.025
"""The interval of polling without inotify."""


class WakeFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def touch(self) -> None:
        """Write at offset 0, so that the file stays one byte long. A failed wake-up must not fail a commit."""
        with self._mutex:
            if self._fd is not None:
                with contextlib.suppress(OSError):
                    os.pwrite(self._fd, b"!", 0)

    def close(self) -> None:
        """Close the file. The mutex prevents a concurrent `touch` from writing to a reused descriptor."""
        with self._mutex:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def close_forked(self) -> None:
        """Close the file in a forked child, without the mutex: a thread of the parent may have locked it."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class FileWaiter:
    """Waits for the wake file. `check` raises when the ledger's files are gone: the open ones would never change again."""

    def __init__(self, path: Path, connection: apsw.Connection, check: Callable[[], None]) -> None:
        self._check = check
        self._connection = connection
        self._closed = False
        self._seen = self._data_version()
        self._newest = self._last_pos()
        self._fd = _inotify(path)

    def _data_version(self) -> int:
        with using_sqlite():
            return int(self._connection.pragma("data_version"))

    def _last_pos(self) -> int | None:
        with using_sqlite():
            newest: int | None = self._connection.execute(SQL["last_pos"]).get
        return newest

    def wait(self, timeout: float) -> bool:
        if self._closed:
            raise Unavailable("this waiter is closed", retryable=False)
        self._check()
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._was_touched(min(left, CHECK_SECONDS if self._fd is not None else POLL_SECONDS)) or self._has_new_event():
                return True
            if time.monotonic() >= deadline:
                return False

    def _was_touched(self, seconds: float) -> bool:
        if self._fd is None:
            time.sleep(seconds)
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        ready = poll.poll(seconds * 1_000)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, 65_536)
            self._seen, self._newest = self._data_version(), self._last_pos()
        return bool(ready)

    def _has_new_event(self) -> bool:
        self._check()
        version = self._data_version()
        if version == self._seen:
            return False
        newest = self._last_pos()
        moved = newest != self._newest or self._fd is None
        self._seen, self._newest = version, newest
        return moved

    def close(self) -> None:
        self._closed = True
        with using_sqlite():
            self._connection.close()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _inotify(path: Path) -> int | None:
    """Return a descriptor that becomes readable when the file is written to, or None without inotify."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(fd)
        return None
    return fd
