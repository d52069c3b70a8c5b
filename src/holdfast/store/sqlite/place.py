"""Whether a path can be a ledger's, seen before anything is made beside it."""

import contextlib
import errno
from pathlib import Path

import apsw

from holdfast.errors import NoLedger, Unavailable, ValidationError

_BUSY_MS = 10_000
_RIGHTS = (apsw.PermissionsError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.AuthError, PermissionError)


def check_place(path: Path, create: bool) -> bool:
    """Whether there is a ledger. Refuses what can never be one, and what is none yet unless one may be made there."""
    if not path.parent.is_dir():
        if create:
            raise ValidationError(f"there is no folder {path.parent}", field="url")
        raise _missing(path)
    if path.is_dir():
        raise _no_database(path)
    if _has_ledger(path):
        return True
    if not create:
        raise _missing(path)
    _check_log(path)
    return False


def _has_ledger(path: Path) -> bool:
    """Asked by a connection that cannot write: an empty file stays empty, and somebody else's database as it is.

    The file is opened by SQLite alone: closing any other descriptor would drop the locks that this process has on it.
    """
    if not path.exists() or not path.stat().st_size:
        return False
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(_BUSY_MS)
        try:
            return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_schema'").get is not None
        except apsw.NotADBError:
            raise _no_database(path) from None


def _check_log(path: Path) -> None:
    """SQLite would delete a log that has lost its database, and with it what was not copied into the database yet."""
    log = Path(f"{path}-wal")
    if not path.exists() and log.exists() and log.stat().st_size:
        lost = Unavailable(f"there is {log}, but not the database that it belongs to", retryable=False)
        lost.action = f"Put the database back to {path.absolute()}; or, if nobody needs it, delete what is left of it."
        raise lost


def _no_database(path: Path) -> ValidationError:
    return ValidationError(f"{path} is not a SQLite database", field="url")


def _missing(path: Path) -> NoLedger:
    return NoLedger(f"there is no ledger at {path.absolute()}", path=str(path.absolute()))


def is_full(error: Exception) -> bool:
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


MAKE_ROOM = "Make room on the disk that the ledger's file is on; holdfast doctor says how much there is."


def unopened(path: Path, error: Exception) -> Unavailable:
    """Why a ledger cannot be opened. Rights do not come by waiting, so that is said apart."""
    refused = Unavailable(f"cannot open {path}: {error}", retryable=not isinstance(error, _RIGHTS))
    if isinstance(error, _RIGHTS):
        refused.action = (
            "Whoever reads a ledger takes part in its locks: it must be possible to write to its file and its folder."
        )
    elif is_full(error):
        refused.action = MAKE_ROOM
    return refused
