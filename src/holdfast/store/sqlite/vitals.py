"""Health of a SQLite file: its schema, its settings, its file modes, a stopped writer, the free space on its disk."""

import os
import shutil
import stat
from pathlib import Path

import apsw

from holdfast.core.doctor.model import StoredFile, StoreHealth
from holdfast.store.sqlite.write_lock import reader_pids, stopped_writer
from holdfast.store.statements import migrations

BESIDE = ("", "-wal", "-shm", "-lock", "-wake", "-tail")
_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def vitals(connection: apsw.Connection, path: Path) -> StoreHealth:
    log = Path(f"{path}-wal")
    files = [Path(f"{path}{suffix}") for suffix in BESIDE]
    return StoreHealth(
        store="sqlite",
        version=f"SQLite {apsw.sqlite_lib_version()}",
        schema_version=connection.execute("SELECT max(version) FROM holdfast_schema").get,
        schema_known=migrations("holdfast.store.sqlite")[-1].version,
        settings={
            "journal_mode": str(connection.pragma("journal_mode")),
            "synchronous": _SYNCHRONOUS[connection.pragma("synchronous")],
        },
        files=tuple(StoredFile(str(file), stat.S_IMODE(file.stat().st_mode)) for file in files if file.exists()),
        disk_free_bytes=shutil.disk_usage(path.parent).free,
        log_bytes=log.stat().st_size if log.exists() else None,
        log_readers=tuple(sorted(reader_pids(path) - {os.getpid()})),
        stopped_writer=stopped_writer(path),
    )
