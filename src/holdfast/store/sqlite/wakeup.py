"""Waking other processes on the same machine: one byte into a file, seen through inotify.

Behind it stands a slow look at the database's data_version, for systems without inotify and for commits by other means. Where the
bell is heard, such a commit counts only if it brought an event: duties and signs of life are no work for anybody.
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
"""How often the data_version is looked at where inotify works."""
POLL_SECONDS = 0.025
"""And where it does not."""


class WakeFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def touch(self) -> None:
        """Always at the start, so that the file stays one byte long. A bell that cannot ring must not fail a commit."""
        with self._mutex:
            if self._fd is not None:
                with contextlib.suppress(OSError):
                    os.pwrite(self._fd, b"!", 0)

    def close(self) -> None:
        """Not while somebody rings: the number of a closed file may be another file's by then."""
        with self._mutex:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def close_forked(self) -> None:
        """In a child, where the mutex may belong to a thread that is not here."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class FileWaiter:
    """`check` raises once the ledger's files are gone: nothing would ever move in those that the connection has open."""

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
    """A descriptor that becomes readable when the file is written to; None where the system has no inotify."""
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
