"""Copies of a ledger's file for reads that take long.

SQLite cannot start its write-ahead log again while a read transaction is open on it. A long read of the file itself would make
the log grow by all that is written meanwhile, and a slow reader of its output would make it worse. A copy is made at the speed of
the disk, and has no log.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw

from holdfast.store.sqlite import forks

ROOM_BYTES = 1 << 30
"""What stays free on the disk beside a copy."""


@contextlib.contextmanager
def copied(connection: apsw.Connection, path: Path) -> Iterator[apsw.Connection | None]:
    """Give a connection to a copy of the file that `connection` has open, or None if there is no room for one.

    The copy is in a new folder beside the file, which only this user may read. It is deleted as soon as it is open.
    """
    copy = _copy(connection, path)
    try:
        yield copy
    finally:
        if copy is not None:
            copy.close()


def _copy(connection: apsw.Connection, path: Path) -> apsw.Connection | None:
    size = connection.pragma("page_count") * connection.pragma("page_size")
    if shutil.disk_usage(path.parent).free < size + ROOM_BYTES:
        return None
    with (
        contextlib.suppress(OSError, apsw.FullError),
        tempfile.TemporaryDirectory(prefix=f"{path.name}-copy-", dir=path.parent) as folder,
    ):
        file = str(Path(folder) / "copy.db")
        connection.execute("VACUUM INTO ?", (file,))
        copy = apsw.Connection(file, flags=apsw.SQLITE_OPEN_READONLY)
        forks.register_connection(copy)
        # SQLite opens the file itself with the first read.
        copy.pragma("schema_version")
        return copy
    return None
