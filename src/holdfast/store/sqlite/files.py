"""Whether the files of an open ledger are still the ones that its path names.

SQLite keeps its files open. When one of them is deleted, moved or replaced, commits go on into a file that no other process will
ever read, and SQLite does not say so. The store therefore compares the device and inode numbers of the paths with those that it
has open: before a transaction, after its commit, after reads, and once a second in a wait.
"""

import contextlib
import ctypes
import os
import time
from pathlib import Path
from typing import Literal

import apsw

from holdfast.errors import Unavailable

_ACTION = (
    "Put the original file back, and this ledger goes on by itself. Start the process again if the file was replaced on purpose. "
    "A deleted file can be saved while a process still has it open: see 'The file is gone' in the operating guide."
)
_LOG_ACTION = (
    "Stop every process that has this ledger open, by SIGTERM and not by SIGKILL: the last one to close it copies into the "
    "database what only the lost file had. Then start them again."
)

_Numbers = tuple[int, int]


QUIET_NS, COARSE_QUIET_NS = 100_000_000, 2_500_000_000
"""A folder's time of change that is older than this at a look would be another one after any change. File systems keep times to
10 ms or better; those that keep whole milliseconds or less may keep them to 2 s only."""
LOOK_SECONDS = 0.1
"""How old the last look may be where none is needed for an acknowledgement: before a transaction, and after a read."""


class Files:
    """The database, its write-ahead log and the log's index, by the numbers that they had when they were opened.

    All of them are in one folder. While its time of change stays the same, none of them was deleted, moved or replaced, so a look
    is one call of stat, or of fstat on the folder, which costs half.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._folder: str | None = None
        self._fd: int | None = None
        """The folder, open."""
        self._quiet: tuple[int, _Numbers] | None = None
        self._looked = -LOOK_SECONDS
        self._database: _Numbers | None = None
        self._opened: list[tuple[str, _Numbers]] = []
        self.changes = 0
        """Grows when something in the folder may have changed."""

    @property
    def are_known(self) -> bool:
        return self._database is not None

    def opened(self, database: str, before: _Numbers | None) -> None:
        """Remember the files of a connection that is open, or compare them with those that are known.

        SQLite deletes and makes none of them while a connection is open. `database` is the name that SQLite uses, with symbolic
        links resolved; `before` is what the path named before the connection was opened.
        """
        found = numbers_of(self.path)
        if found is None or before not in (None, found) or self._database not in (None, found):
            raise self._lost(self.path, "none")
        self._database = found
        if not self._opened:
            names = (self.path, f"{database}-wal", f"{database}-shm")
            self._folder = str(Path(database).parent) if Path(database).resolve() == Path(self.path) else None
            self._opened = [(name, numbers_of(name) or (0, 0)) for name in names]
            if self._folder is not None and self._fd is None:
                self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._quiet = None
        self.check()

    def forget_log(self) -> None:
        """The writer was closed: where it was the last connection, the next one makes a new log. The database stays the same."""
        self._opened, self._quiet = [], None

    def check_kept(self) -> None:
        """Raise Unavailable if what was just committed is in a file that is lost.

        It does not notice that a folder further up was moved: the next transaction does.
        """
        if self._quiet is None or self._fd is None or os.fstat(self._fd).st_ctime_ns != self._quiet[0]:
            self.check("unknown")

    def check(self, outcome: Literal["none", "unknown"] = "none") -> None:
        """Raise Unavailable with this outcome if a path no longer names the file that is open."""
        folder = self._look()
        if folder is not None and folder == self._quiet:
            return
        self.changes += 1
        self._quiet = None
        for name, opened in self._opened:
            if numbers_of(name) != opened:
                self._looked = -LOOK_SECONDS
                raise self._lost(name, outcome)
        if folder is not None and time.time_ns() - folder[0] > (QUIET_NS if folder[0] % 1_000_000 else COARSE_QUIET_NS):
            self._quiet = folder

    def check_again(self, now: float) -> None:
        """The same, unless it was found to be well within LOOK_SECONDS before `now`, by the monotonic clock."""
        if now - self._looked >= LOOK_SECONDS:
            self.check()
            self._looked = now

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _look(self) -> tuple[int, _Numbers] | None:
        """When the folder was changed last, itself or what is in it. That it was renamed is a change too."""
        if self._folder is None:
            return None
        try:
            there = os.stat(self._folder)  # noqa: PTH116 - in each transaction
        except OSError:
            return None
        return there.st_ctime_ns, (there.st_dev, there.st_ino)

    def _lost(self, name: str, outcome: Literal["none", "unknown"]) -> Unavailable:
        now = "is another file now" if os.path.exists(name) else "is no longer there"  # noqa: PTH110 - a name, on the way to a message
        lost = Unavailable(
            f"{name} {now}: it was deleted, moved or replaced while the ledger was open", outcome=outcome, lost=name
        )
        lost.action = _ACTION if name == self.path else _LOG_ACTION
        return lost


def numbers_of(path: str) -> _Numbers | None:
    """The device and inode numbers of a file; None where there is none to be seen."""
    try:
        there = os.stat(path)  # noqa: PTH116 - often
    except OSError:
        return None
    return there.st_dev, there.st_ino


def has_moved(connection: apsw.Connection) -> bool:
    """Whether the path of a connection names another file than the one that it has open, as SQLite itself sees it."""
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return answer.value != 0
