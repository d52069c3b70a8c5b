"""The files of a ledger: checks before it is opened, and checks that its paths still name the files that are open.

SQLite keeps its files open. When one of them is deleted, moved or replaced, commits go on into a file that no other process will
ever read, and SQLite reports no error. The store therefore compares the device and inode numbers of the paths with those that it
has open: before a transaction, after its commit, after reads, and once a second in a wait.
"""

import contextlib
import ctypes
import errno
import os
import time
from pathlib import Path
from typing import Literal

import apsw

from holdfast.errors import NoLedger, Unavailable, ValidationError

_ACTION = (
    "Put the original file back, and this ledger works again. Restart the process if the file was replaced on purpose. "
    "A deleted file can be recovered while a process still has it open: see 'The file is gone' in the operating guide."
)
_LOG_ACTION = (
    "Stop every process that has this ledger open, with SIGTERM and not with SIGKILL: the last one to close it copies the "
    "contents of the lost file into the database. Then start them again."
)

_FileId = tuple[int, int]


QUIET_NS, COARSE_QUIET_NS = 100_000_000, 2_500_000_000
"""If a folder's change time is older than this at a check, any later change gives a different time. File systems store times with
a resolution of 10 ms or better. If the time is a whole millisecond, the resolution may be as low as 2 s."""
LOOK_SECONDS = 0.1
"""How old the last check may be before a transaction and after a read. A commit is always checked."""


class LedgerFiles:
    """The database, its write-ahead log and the log's index, by the inode numbers that they had when they were opened.

    All of them are in one folder. While its change time stays the same, none of them was deleted, moved or replaced. So a check
    is one call of stat, or of fstat on the folder, which takes half as long.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._folder: str | None = None
        self._fd: int | None = None
        """The folder, open."""
        self._quiet: tuple[int, _FileId] | None = None
        self._looked = -LOOK_SECONDS
        self._database: _FileId | None = None
        self._opened: list[tuple[str, _FileId]] = []
        self.changes = 0
        """Incremented when something in the folder may have changed."""

    @property
    def are_known(self) -> bool:
        return self._database is not None

    def opened(self, database: str, before: _FileId | None) -> None:
        """Remember the files of an open connection, or compare them with the remembered ones.

        SQLite neither deletes nor creates them while a connection is open. `database` is the name that SQLite uses, with symbolic
        links resolved; `before` is what the path named before the connection was opened.
        """
        found = file_id(self.path)
        if found is None or before not in (None, found) or self._database not in (None, found):
            raise self._lost_error(self.path, "none")
        self._database = found
        if not self._opened:
            names = (self.path, f"{database}-wal", f"{database}-shm")
            self._folder = str(Path(database).parent) if Path(database).resolve() == Path(self.path) else None
            self._opened = [(name, file_id(name) or (0, 0)) for name in names]
            if self._folder is not None and self._fd is None:
                self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._quiet = None
        self.check()

    def forget_log(self) -> None:
        """Forget the log after the writer was closed. If that was the last connection, the next one creates a new log."""
        self._opened, self._quiet = [], None

    def check_after_commit(self) -> None:
        """Raise Unavailable if the commit went to a lost file.

        It does not detect that a parent of the folder was moved. The next transaction detects that.
        """
        quiet, fd = self._quiet, self._fd  # read once: other threads set them
        if quiet is None or fd is None or os.fstat(fd).st_ctime_ns != quiet[0]:
            self.check("unknown")

    def check(self, outcome: Literal["none", "unknown"] = "none") -> None:
        """Raise Unavailable with this outcome if a path no longer names the file that is open."""
        folder = self._folder_state()
        if folder is not None and folder == self._quiet:
            return
        self.changes += 1
        self._quiet = None
        for name, opened in self._opened:
            if file_id(name) != opened:
                self._looked = -LOOK_SECONDS
                raise self._lost_error(name, outcome)
        if folder is not None and time.time_ns() - folder[0] > (QUIET_NS if folder[0] % 1_000_000 else COARSE_QUIET_NS):
            self._quiet = folder

    def check_if_due(self, now: float) -> None:
        """Check, unless the last successful check was less than LOOK_SECONDS before `now` on the monotonic clock."""
        if now - self._looked >= LOOK_SECONDS:
            self.check()
            self._looked = now

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _folder_state(self) -> tuple[int, _FileId] | None:
        """Return the change time of the folder and its inode. A rename of the folder counts as a change."""
        if self._folder is None:
            return None
        try:
            there = os.stat(self._folder)  # noqa: PTH116 - in each transaction
        except OSError:
            return None
        return there.st_ctime_ns, (there.st_dev, there.st_ino)

    def _lost_error(self, name: str, outcome: Literal["none", "unknown"]) -> Unavailable:
        now = "is another file now" if os.path.exists(name) else "is no longer there"  # noqa: PTH110 - `name` is a str
        lost = Unavailable(
            f"{name} {now}: it was deleted, moved or replaced while the ledger was open", outcome=outcome, lost=name
        )
        lost.action = _ACTION if name == self.path else _LOG_ACTION
        return lost


def file_id(path: str) -> _FileId | None:
    """Return the device and inode numbers of a file, or None if it is not accessible."""
    try:
        there = os.stat(path)  # noqa: PTH116 - called often
    except OSError:
        return None
    return there.st_dev, there.st_ino


def has_moved(connection: apsw.Connection) -> bool:
    """Return whether SQLite reports that the connection's path no longer names the file that it has open."""
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return answer.value != 0


_BUSY_MS = 10_000
_PERMISSION_ERRORS = (apsw.PermissionsError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.AuthError, PermissionError)


def check_path(path: Path, create: bool) -> bool:
    """Return whether there is a ledger at the path. Raise if there can be none, or if there is none and `create` is false."""
    if not path.parent.is_dir():
        if create:
            raise ValidationError(f"there is no folder {path.parent}", field="url")
        raise _no_ledger_error(path)
    if path.is_dir():
        raise _no_database_error(path)
    if _has_ledger(path):
        return True
    if not create:
        raise _no_ledger_error(path)
    _check_log(path)
    return False


def _has_ledger(path: Path) -> bool:
    """Look with a read-only connection, so that an empty file or another program's database is not changed.

    Only SQLite may open the file: closing any other descriptor would drop the locks that this process has on it.
    """
    if not path.exists() or not path.stat().st_size:
        return False
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(_BUSY_MS)
        try:
            return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_schema'").get is not None
        except apsw.NotADBError:
            raise _no_database_error(path) from None


def _check_log(path: Path) -> None:
    """Raise Unavailable if there is a log without its database. SQLite would delete it, with commits that are only there."""
    log = Path(f"{path}-wal")
    if not path.exists() and log.exists() and log.stat().st_size:
        lost = Unavailable(f"there is {log}, but not the database that it belongs to", retryable=False)
        lost.action = f"Put the database back to {path.absolute()}; or, if it is not needed, delete what is left of it."
        raise lost


def _no_database_error(path: Path) -> ValidationError:
    return ValidationError(f"{path} is not a SQLite database", field="url")


def _no_ledger_error(path: Path) -> NoLedger:
    return NoLedger(f"there is no ledger at {path.absolute()}", path=str(path.absolute()))


def is_full(error: Exception) -> bool:
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


FREE_SPACE_ACTION = "Free space on the disk of the ledger's file. holdfast doctor shows how much is left."


def open_error(path: Path, error: Exception) -> Unavailable:
    """Return the error for a ledger that cannot be opened. A missing permission is not retryable."""
    refused = Unavailable(f"cannot open {path}: {error}", retryable=not isinstance(error, _PERMISSION_ERRORS))
    if isinstance(error, _PERMISSION_ERRORS):
        refused.action = "Allow writing to the ledger's file and its folder. Readers need that too, because they take locks."
    elif is_full(error):
        refused.action = FREE_SPACE_ACTION
    return refused
