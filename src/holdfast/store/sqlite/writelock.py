"""The right to write, shared fairly: among the threads of a process by a mutex, among processes by a lock on a file.

flock waits without an end, and trying again and again starves some of many processes. So a process that finds the lock taken
waits in flock all the same, but in a thread of its own, which the caller can stop waiting for.
"""

import _thread
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import Unavailable
from holdfast.store.sqlite.files import Files, numbers_of

WAIT_SECONDS = 10.0
"""How long a caller waits for its turn to write."""
_WAL_WRITE_LOCK = "120"
"""The byte of the -shm file that SQLite locks for the one writer, as /proc/locks prints it."""


class WriteLock:
    """`files` are those of the ledger: without them there is no turn."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = f"{path}-lock"
        self._index = f"{path}-shm"
        self._files = files
        self._changes = 0
        self._mutex = threading.RLock()
        self._fd: int | None = None
        self._numbers = (0, 0)
        self._replace(_opened(self._path))
        self._waiting: _Waiting | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The turn. Wait for other processes for WAIT_SECONDS at most, then raise Unavailable.

        Threads of this process wait for each other without a limit of their own: each of them holds the mutex for a bounded time.
        `with` lets go of it wherever an interrupt comes; a wait with a timeout would not.
        """
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as threading.Condition asks it
            raise Unavailable("this thread is in the middle of a transaction already", retryable=False)
        with self._mutex:
            try:
                self._lock(time.monotonic())
                yield
            finally:
                if self._fd is not None:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Wait for the one who writes, for WAIT_SECONDS at most."""
        taken = self._mutex.acquire(timeout=WAIT_SECONDS)
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
        if taken:
            self._mutex.release()

    def close_forked(self) -> None:
        """In a child: a descriptor that stays open here would keep the lock when the parent dies with it."""
        for fd in {self._fd, self._waiting.fd if self._waiting else self._fd}:
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = None

    @property
    def is_closed(self) -> bool:
        return self._fd is None

    def _lock(self, began: float) -> None:
        while True:
            if self._fd is None:
                raise Unavailable("this ledger is closed", retryable=False)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(began + WAIT_SECONDS)
            self._files.check_again(began)
            if self._changes == self._files.changes or numbers_of(self._path) == self._numbers:
                self._changes = self._files.changes
                return
            # The lock file was deleted or replaced, if not all of them: the other processes take turns by the new one.
            self._files.check()
            self._replace(_opened(self._path))

    def _wait(self, deadline: float) -> None:
        """Get the lock on a descriptor of its own, which then replaces ours."""
        waiting = self._waiting
        if waiting is None or not waiting.resume():
            waiting = self._waiting = _Waiting(self._path)
        try:
            if not waiting.wait(deadline - time.monotonic()):
                raise self._refusal()
            self._replace(waiting.fd)
            self._waiting = None
        except BaseException:
            if self._fd != waiting.fd:
                waiting.give_up()
            raise

    def _replace(self, fd: int) -> None:
        stale, self._fd = self._fd, fd
        self._numbers = _numbers(fd)
        if stale is not None:
            os.close(stale)

    def _refusal(self) -> Unavailable:
        holder = _holder(self._index, _WAL_WRITE_LOCK) or _holder(self._path)
        if holder is None:
            return Unavailable(f"no turn to write within {WAIT_SECONDS:.0f} s: another transaction does not end")
        stopped = _is_stopped(holder)
        who = "this process itself" if holder == os.getpid() else f"process {holder}"
        refused = Unavailable(
            f"no turn to write within {WAIT_SECONDS:.0f} s: {who} is in the middle of a transaction{' and is stopped' * stopped}",
            holder=holder,
        )
        if stopped:
            refused.action = f"Let process {holder} go on (kill -CONT {holder}) or end it; then ask again."
        else:
            refused.action = (
                f"Ask again. If it lasts, find out what process {holder} waits for: nothing can be written before it ends."
            )
        return refused


class _Waiting:
    """One thread that waits in flock. There is at most one for each lock: a later caller goes on with it."""

    def __init__(self, path: str) -> None:
        self.fd = _opened(path)
        self._mutex = threading.Lock()
        self._wanted = True
        self._ended = False
        self._failure: OSError | None = None
        self._got = threading.Lock()
        self._got.acquire()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as error:
            self._failure = error
        with self._mutex:
            self._ended = True
            if not self._wanted:
                self._drop()
        self._got.release()

    def wait(self, seconds: float) -> bool:
        """Whether the lock came in time."""
        got = self._got.acquire(timeout=max(0.0, seconds))
        if self._failure is not None:
            raise self._failure
        return got

    def resume(self) -> bool:
        """Want the lock again; False if it came meanwhile and was let go."""
        with self._mutex:
            self._wanted = not self._ended
            return self._wanted

    def give_up(self) -> None:
        """Want the lock no longer: it is let go, now or when it comes."""
        with self._mutex:
            if self._wanted and self._ended:
                self._drop()
            self._wanted = False

    def _drop(self) -> None:
        """By name: a process that was forked meanwhile may have the descriptor open too."""
        with contextlib.suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _numbers(fd: int) -> tuple[int, int]:
    there = os.fstat(fd)
    return there.st_dev, there.st_ino


def _holder(path: str, byte: str = "0") -> int | None:
    """The process that has the exclusive lock on a file, where the system says so (Linux)."""
    try:
        there = Path(path).stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    for line in lines:
        words = line.split()
        if words[1] != "->" and words[3] == "WRITE" and words[5] == place and words[6] == byte and int(words[4]) > 0:
            return int(words[4])
    return None


def _is_stopped(pid: int) -> bool:
    """Whether it was stopped by a signal or a debugger (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False
