"""The write lock: a mutex among the threads of a process, and a fair lock on a file among processes.

flock has no timeout, and polling it starves some of many processes. So a process that finds the lock taken waits in flock in a
separate thread, and the caller waits for that thread with a timeout.
"""

import _thread
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.errors import Unavailable
from holdfast.store.sqlite.files import LedgerFiles, file_id

WAIT_SECONDS = 10.0
"""How long a caller waits for the write lock."""
_WAL_WRITE_LOCK, _WAL_READ_LOCKS = "120", ("123", "124", "125", "126", "127")
"""The bytes of the -shm file that SQLite's writer and its readers lock, as /proc/locks prints them."""


class WriteLock:
    """The write lock of a ledger. It can only be taken while `files`, the ledger's files, are in place."""

    def __init__(self, path: Path, files: LedgerFiles) -> None:
        self._path = f"{path}-lock"
        self._index = f"{path}-shm"
        self._files = files
        self._changes = 0
        self.mutex = threading.RLock()
        """Held around `take` and `drop`, in a `with` statement, which releases it whenever an interrupt comes.

        Threads of this process wait for it without a timeout, because each of them holds it for a bounded time.
        """
        self.is_mine: Callable[[], bool] = self.mutex._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 - like threading.Condition
        """Whether this thread holds the mutex."""
        self._fd: int | None = None
        self._numbers = (0, 0)
        self._waiter: _FlockThread | None = None
        self._replace()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self.mutex:
            try:
                self.take()
                yield
            finally:
                self.drop()

    def take(self) -> None:
        """Lock the file. Raise Unavailable after WAIT_SECONDS. The calling thread must hold the mutex."""
        began = time.monotonic()
        while True:
            if self._fd is None:
                raise Unavailable("this ledger is closed", retryable=False)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(self._fd, began + WAIT_SECONDS)
            self._files.check_if_due(began)
            if self._changes == self._files.changes or file_id(self._path) == self._numbers:
                self._changes = self._files.changes
                return
            # The lock file, and maybe the others, was deleted or replaced. Other processes use the new one.
            self._files.check()
            self._replace()

    def drop(self) -> None:
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file, after waiting up to WAIT_SECONDS for a writing thread."""
        taken = self.mutex.acquire(timeout=WAIT_SECONDS)
        fd, self._fd = self._fd, None
        self._drop_waiter()
        if fd is not None:
            os.close(fd)
        if taken:
            self.mutex.release()

    def close_forked(self) -> None:
        """Close the descriptors in a forked child. Open ones would keep the lock if the parent dies while it holds it."""
        for fd in {self._fd, self._waiter.fd if self._waiter else self._fd}:
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = None

    @property
    def is_closed(self) -> bool:
        return self._fd is None

    def _wait(self, fd: int, deadline: float) -> None:
        waiter = self._waiter = self._waiter or _FlockThread(self._path)
        try:
            if not waiter.wait(deadline - time.monotonic()):
                raise self._refusal()
            # This line makes no call, so no interrupt splits it: the locked descriptor belongs to exactly one of the two objects.
            self._fd, waiter.fd, waiter.is_wanted = waiter.fd, fd, False
        except BaseException as error:
            waiter.give_up()
            if isinstance(error, OSError):
                self._drop_waiter()
            raise

    def _replace(self) -> None:
        """Open the lock file that is at the path now."""
        stale, self._fd = self._fd, _open_lock_file(self._path)
        self._numbers = _fd_id(self._fd)
        self._drop_waiter()
        if stale is not None:
            os.close(stale)

    def _drop_waiter(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.close()

    def _refusal(self) -> Unavailable:
        holder = _writer_pid(self._index, self._path)
        if holder is None:
            return Unavailable(f"could not get the write lock within {WAIT_SECONDS:.0f} s: another transaction is still open")
        stopped = _is_stopped(holder)
        process = "this process itself" if holder == os.getpid() else f"process {holder}"
        reason = f"{process} is in the middle of a transaction{' and is stopped' * stopped}"
        refused = Unavailable(f"could not get the write lock within {WAIT_SECONDS:.0f} s: {reason}", holder=holder)
        if stopped:
            refused.action = f"Continue process {holder} (kill -CONT {holder}) or end it, then retry."
        else:
            refused.action = f"Retry. If it lasts, find out what process {holder} waits for: nothing can be written meanwhile."
        return refused


class _FlockThread:
    """A thread that waits in flock on its own descriptor. When a caller stops waiting, the thread goes on for the next caller.

    It is kept for later waits, because starting a thread takes longer than most waits.
    """

    def __init__(self, path: str) -> None:
        self.fd = _open_lock_file(path)
        self._mutex = threading.Lock()
        self.is_wanted = False
        """A caller waits, or holds the lock through this descriptor."""
        self._waits = self._is_closed = False
        self._failure: OSError | None = None
        self._requested, self._got = threading.Lock(), threading.Lock()
        self._requested.acquire()
        self._got.acquire()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while not self._is_closed:
            self._requested.acquire()
            with self._mutex:
                waits = self._waits
            if waits:
                self._wait()
        os.close(self.fd)

    def _wait(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as error:
            self._failure = error
        with self._mutex:
            self._waits = False
            if self.is_wanted:
                self._got.release()
            else:
                self._unlock()

    def wait(self, seconds: float) -> bool:
        """Return whether the lock was acquired in time."""
        with self._mutex:
            self.is_wanted = True
            if not self._waits:
                self._request()
                self._waits = True
        got = self._got.acquire(timeout=max(0.0, seconds))
        if self._failure is not None:
            raise self._failure
        return got

    def give_up(self) -> None:
        """Stop waiting. The lock is released now, or as soon as it is acquired."""
        with self._mutex:
            if self.is_wanted and not self._waits:
                self._got.acquire(blocking=False)
                self._unlock()
            self.is_wanted = False

    def close(self) -> None:
        """End the thread, which closes its descriptor: now, or as soon as the lock is acquired."""
        with self._mutex:
            self._is_closed = True
            self._request()

    def _request(self) -> None:
        if self._requested.locked():
            self._requested.release()

    def _unlock(self) -> None:
        """Unlock explicitly. Closing is not enough, because a forked process may have the descriptor open too."""
        with contextlib.suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_UN)


def _open_lock_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _fd_id(fd: int) -> tuple[int, int]:
    there = os.fstat(fd)
    return there.st_dev, there.st_ino


def stopped_writer(path: Path) -> int | None:
    """Return the process that holds the write lock of this database and was stopped by a signal or a debugger."""
    writer = _writer_pid(f"{path}-shm", f"{path}-lock")
    return writer if writer is not None and _is_stopped(writer) else None


def _writer_pid(index: str, lock: str) -> int | None:
    return _lock_holder_pid(index, _WAL_WRITE_LOCK) or _lock_holder_pid(lock)


def reader_pids(path: Path) -> set[int]:
    """Return the processes that have a read transaction open on this database."""
    return {pid for kind, byte, pid in _locks(f"{path}-shm") if kind == "READ" and byte in _WAL_READ_LOCKS}


def _lock_holder_pid(path: str, byte: str = "0") -> int | None:
    """Return the process that has the exclusive lock on a file."""
    return next((pid for kind, found, pid in _locks(path) if kind == "WRITE" and found == byte), None)


def _locks(path: str) -> Iterator[tuple[str, str, int]]:
    """Yield the kind, the first byte and the process of each lock on a file. Only Linux reports them."""
    try:
        there = Path(path).stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return
    device_and_inode = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    for line in lines:
        words = line.split()
        if words[1] != "->" and words[5] == device_and_inode and int(words[4]) > 0:
            yield words[3], words[6], int(words[4])


def _is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal or a debugger. Only Linux reports it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False
