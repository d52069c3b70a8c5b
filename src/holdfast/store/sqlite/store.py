"""A store in a SQLite file: WAL, synchronous=FULL, and one writer at a time, with a fair file lock among processes."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from holdfast.core.model import EventRecord, Micros
from holdfast.errors import SchemaTooNew, Unavailable, ValidationError
from holdfast.store.base import Lane, Schema, StatementFailed, Waiter
from holdfast.store.callers import unsupported_connection
from holdfast.store.events import EventFilter
from holdfast.store.policies import RowCache
from holdfast.store.sealing import StableRows
from holdfast.store.session import Session
from holdfast.store.sqlite import forks
from holdfast.store.sqlite.copies import copied
from holdfast.store.sqlite.files import FREE_SPACE_ACTION, LedgerFiles, check_path, file_id, has_moved, is_full, open_error
from holdfast.store.sqlite.session import SQL, SqliteSession
from holdfast.store.sqlite.wakeup import FileWaiter, WakeFile
from holdfast.store.sqlite.write_lock import WriteLock
from holdfast.store.statements import migrations
from holdfast.watch.tally import edge_of

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

T = TypeVar("T")

BUSY_MS = 10_000
"""How long a writer waits for another program's connection that holds SQLite's own lock."""
IDLE_READERS_MAX = 8
LOG_BYTES_MAX = 64 << 20
"""The size to which the file of the write-ahead log is cut when SQLite starts the log again."""
CHECKPOINT_SECONDS, CHECKPOINT_WAIT_MS = 5.0, 200
"""How often a writer looks at the size of the log, and how long it waits for readers if the log is larger than that."""
USE_APSW = (
    "Use an apsw connection to the ledger's file. Two SQLite libraries on one file break its locks, so sqlite3 is not accepted, "
    "nor are libraries that use it: SQLAlchemy, Django, aiosqlite. With those, keep the ledger in PostgreSQL."
)


class SqliteStore:
    """A ledger in a SQLite file. Connections are opened when first needed: one for writing, a few for reading."""

    def __init__(self, path: Path, clock: Callable[[], Micros], draw_id: Callable[[], str], *, create: bool = True) -> None:
        self.path = path.absolute()
        self._files = LedgerFiles(self.path)
        self._clock = clock
        self.patience = BUSY_MS / 1_000
        self._cache = RowCache()
        self._noted = 0
        """The position up to which this process has seen stored time blocks."""
        self._writer: apsw.Connection | None = None
        self._checkpoint_at = 0.0
        """When the size of the log is examined next, on the monotonic clock."""
        self._readers: list[apsw.Connection] = []
        self._pid = os.getpid()
        self._wake_files: list[WakeFile] = []
        self._lock: WriteLock | None = None
        _raise_trim_threshold()
        forks.check_file(self._files.path)
        forks.register_store(self)
        try:
            with forks.using_sqlite():
                is_there = check_path(path, create)
            self._lock = WriteLock(self.path, self._files)
            self._work_wake_file = self._open_wake_file(f"{path}-wake")
            self._event_wake_file = self._open_wake_file(f"{path}-tail")
            self.ledger_id = (self._current_ledger_id() if is_there else None) or self._migrate(draw_id)
        except (OSError, apsw.Error) as error:
            self.close()
            raise open_error(path, error) from error
        except BaseException:
            self.close()
            raise

    def _open_wake_file(self, path: str) -> WakeFile:
        self._wake_files.append(WakeFile(Path(path)))
        return self._wake_files[-1]

    # Connections

    def _connect(self) -> apsw.Connection:
        """Open a connection. Only the first one of this ledger may create the file."""
        before = file_id(self._files.path)
        flags = apsw.SQLITE_OPEN_READWRITE | (0 if self._files.are_known else apsw.SQLITE_OPEN_CREATE)
        self._files.check()
        connection = apsw.Connection(self._files.path, flags=flags)
        forks.register_connection(connection)
        connection.create_scalar_function("holdfast_edge_of", edge_of, 1, deterministic=True)  # type: ignore[arg-type]
        try:
            connection.set_busy_timeout(BUSY_MS)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16384", "wal_autocheckpoint = 4000"):
                connection.pragma(*pragma.split(" = "))
            connection.pragma("journal_size_limit", LOG_BYTES_MAX)
            # SQLite opens the log with the first read.
            connection.pragma("schema_version")
            self._files.opened(connection.db_filename("main"), before)
        except BaseException:
            connection.close()
            raise
        return connection

    def _take_writer(self) -> apsw.Connection:
        """Return the connection for writing. Only a caller with the write lock may write."""
        if self._writer is None:
            self._writer = self._connect()
        return self._writer

    def _usable_lock(self) -> WriteLock:
        """Return the write lock, not taken yet. Raise Unavailable after a fork: SQLite's locks do not survive one."""
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)
        if self._lock is None or self._lock.is_closed:
            raise Unavailable("this ledger is closed", retryable=False)
        return self._lock

    def _session(self, connection: apsw.Connection) -> SqliteSession:
        return SqliteSession(connection, self.ledger_id, self._cache, self._clock)

    # The contract

    def take_changed_groups(self) -> Sequence[int]:
        return self._cache.take_changed_groups() if self._cache.changed_groups else ()

    def lanes(self) -> Sequence[Lane]:
        return ("work",)

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        committing = False
        try:
            lock = self._usable_lock()
            if lock.is_mine():
                raise Unavailable("this thread is in the middle of a transaction already", retryable=False)
            with lock.mutex:
                try:
                    lock.take()
                    forks.enter()
                    try:
                        connection = self._writer or self._take_writer()
                        try:
                            connection.execute("BEGIN IMMEDIATE")
                            session = SqliteSession(connection, self.ledger_id, self._cache, self._clock)
                            answer = work(session)
                            noted = session.note_times(self._noted)
                            committing = True
                            connection.execute("COMMIT")
                        except BaseException:
                            self._roll_back(connection)
                            raise
                    finally:
                        forks.leave()
                    self._files.check_after_commit()
                    self._cache.update(session)
                    self._noted = noted
                    if time.monotonic() >= self._checkpoint_at:
                        self._limit_log(connection)
                finally:
                    lock.drop()
        except (apsw.Error, OSError) as error:
            raise _translate_error(error, committing) from error
        if session.wakes is not None:
            self.wake(session.wakes)
        return answer

    def transact_enqueue(self, work: Callable[[Session], T]) -> T:
        """Run an ordinary transaction: without a server there is no message to save."""
        return self.transact("work", work)

    def _roll_back(self, connection: apsw.Connection) -> None:
        """Roll back a failed transaction. If that fails too, discard the connection."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._writer = None
            with contextlib.suppress(apsw.Error):
                connection.close()
            self._files.forget_log()

    def _limit_log(self, connection: apsw.Connection) -> None:
        """Let the next writer start the write-ahead log again, if the log has become large. The caller has the write lock.

        SQLite does that by itself as soon as a commit finds no reader that began before it. This waits for such readers for
        a short time. An error is ignored: the transaction is committed, and the next one fails too if something is wrong.
        """
        self._checkpoint_at = time.monotonic() + CHECKPOINT_SECONDS
        with contextlib.suppress(OSError, apsw.Error), forks.using_sqlite():
            if Path(connection.filename_wal).stat().st_size > LOG_BYTES_MAX:
                connection.set_busy_timeout(CHECKPOINT_WAIT_MS)
                try:
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                finally:
                    connection.set_busy_timeout(BUSY_MS)

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        if not isinstance(connection, apsw.Connection):
            raise unsupported_connection(connection, "an apsw.Connection", USE_APSW)
        try:
            connection.in_transaction  # noqa: B018 - raises if the connection is closed
        except apsw.ConnectionClosedError:
            raise ValidationError("connection is closed", field="connection") from None
        if os.path.realpath(connection.db_filename("main")) != os.path.realpath(self.path):
            raise ValidationError(f"connection is not to this ledger's file, {self.path}", field="connection")
        if not connection.in_transaction:
            raise ValidationError("connection has no open transaction", field="connection")
        self._files.check()
        if has_moved(connection):
            raise ValidationError(f"connection is to a file that {self.path} no longer names: open it again", field="connection")
        own_cache = RowCache()
        own_cache.profiles.update(self._cache.profiles)
        try:
            with forks.using_sqlite(), connection:
                connection.execute(SQL["take_lock"])
                answer = work(SqliteSession(connection, self.ledger_id, own_cache, self._clock))
        except apsw.Error as error:
            raise _translate_error(error, committing=False) from error
        return answer

    def read(self, work: Callable[[Session], T]) -> T:
        return self._read(work, begin=True)

    def read_long(self, work: Callable[[Session], T]) -> T:
        """Read a copy of the file, if there is room for one on the disk."""
        self._usable_lock()
        try:
            with forks.using_sqlite(), contextlib.closing(self._connect()) as connection, copied(connection, self.path) as copy:
                self._files.check()
                if copy is not None:
                    return work(self._session(copy))
        except (apsw.Error, OSError) as error:
            raise _translate_error(error, committing=False) from error
        return self.read(work)

    def read_statement(self, work: Callable[[Session], T]) -> T:
        return self._read(work, begin=False)

    def write_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        """Run an ordinary transaction: without a server there is no round trip to save."""
        return self.transact("work", work)

    def _read(self, work: Callable[[Session], T], *, begin: bool) -> T:
        self._usable_lock()
        forks.enter()
        try:
            connection = self._take_reader()
            try:
                if begin:
                    connection.execute("BEGIN")
                session = self._session(connection)
                answer = work(session)
                if begin:
                    connection.execute("COMMIT")
                self._files.check_if_due(time.monotonic())
            except BaseException:
                connection.close()
                raise
        except (apsw.Error, OSError) as error:
            raise _translate_error(error, committing=False) from error
        finally:
            forks.leave()
        self._cache.update(session)
        if len(self._readers) < IDLE_READERS_MAX and self._lock is not None and not self._lock.is_closed:
            self._readers.append(connection)
        else:
            connection.close()
        return answer

    def _take_reader(self) -> apsw.Connection:
        with contextlib.suppress(IndexError):
            return self._readers.pop()
        return self._connect()

    def lock_holder(self, job_id: int | None = None, seconds: float = 0.0) -> str | None:
        """Return None: SQLite has no locks on single jobs."""
        return None

    def vitals(self) -> "StoreHealth":
        from holdfast.store.sqlite.vitals import vitals

        self._usable_lock()
        try:
            with forks.using_sqlite(), contextlib.closing(self._connect()) as connection:
                return vitals(connection, self.path)
        except (apsw.Error, OSError) as error:
            raise _translate_error(error, committing=False) from error

    def stable_pos(self) -> int:
        return self.read_statement(lambda session: session.last_pos())

    def stable_events(self, after: int, limit: int) -> list[EventRecord]:
        """Return the next events. With one writer at a time, every visible event is stable."""
        return self.read(lambda session: session.events(EventFilter(after=after, limit=limit)))

    def stable_rows(self, after: int, limit: int) -> StableRows:
        def work(session: Session) -> StableRows:
            assert isinstance(session, SqliteSession)
            newest = session.last_pos()
            return session.leaves_between(after, newest, limit)

        return self.read(work)

    def wake(self, queues: Collection[str]) -> None:
        self._event_wake_file.touch()
        if queues:
            self._work_wake_file.touch()

    def waiter(self, *, events: bool) -> Waiter:
        self._usable_lock()
        with forks.using_sqlite():
            return FileWaiter(
                (self._event_wake_file if events else self._work_wake_file).path, self._connect(), self._check_files
            )

    def _check_files(self) -> None:
        self._usable_lock()
        self._files.check()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._lock is not None:
            self._lock.close()
        for connection in [*self._readers, *([self._writer] if self._writer else [])]:
            with forks.using_sqlite(), contextlib.suppress(apsw.ThreadingViolationError):
                connection.close()
        self._readers, self._writer = [], None
        self._files.close()
        for wake_file in self._wake_files:
            wake_file.close()

    def close_forked(self) -> None:
        if self._lock is not None:
            self._lock.close_forked()
        self._files.close()
        for wake_file in self._wake_files:
            wake_file.close_forked()

    # Schema

    def _current_ledger_id(self) -> str | None:
        """Return the ledger's id if its schema is the newest. In that case nothing has to be written and no lock is needed."""
        newest = migrations("holdfast.store.sqlite")[-1].version
        with forks.using_sqlite():
            ledger_id = _ledger_id_at(self._take_writer(), newest)
        if ledger_id is not None:
            self.schema = Schema(newest, newest, ())
        return ledger_id

    def _migrate(self, draw_id: Callable[[], str]) -> str:
        known = migrations("holdfast.store.sqlite")
        with self._usable_lock().held(), forks.using_sqlite():
            if (ledger_id := self._current_ledger_id()) is not None:
                return ledger_id
            connection = self._take_writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("CREATE TABLE IF NOT EXISTS holdfast_schema (version INTEGER PRIMARY KEY) STRICT")
                newest = connection.execute("SELECT coalesce(max(version), 0) FROM holdfast_schema").get
                if newest > known[-1].version:
                    raise SchemaTooNew(
                        f"{self.path} has schema {newest}; this version of Holdfast supports {known[-1].version}",
                        found=newest,
                        known=known[-1].version,
                    )
                missing = [one for one in known if one.version > newest]
                self.schema = Schema(newest, known[-1].version, tuple(one.name for one in missing))
                for migration in missing:
                    connection.execute(migration.text)
                    connection.execute("INSERT INTO holdfast_schema (version) VALUES (?)", (migration.version,))
                connection.execute(
                    "INSERT INTO holdfast_meta (name, value) VALUES ('ledger_id', ?) ON CONFLICT DO NOTHING", (draw_id(),)
                )
                found: str = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'ledger_id'").get
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            return found


def _ledger_id_at(connection: apsw.Connection, version: int) -> str | None:
    """Return the ledger's id if its schema has this version."""
    try:
        if connection.execute("SELECT max(version) FROM holdfast_schema").get != version:
            return None
        found: str | None = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'ledger_id'").get
    except apsw.SQLError:
        return None
    return found


@cache
def _raise_trim_threshold() -> None:
    """Allocate and free one large block, once a process. A second one would be taken from the heap and stay there.

    glibc returns memory at the top of the heap to the system as soon as 128 KiB are free there. SQLite's B-tree balancing
    allocates and frees about that much for each row that it deletes from a small index. At the top of the heap that costs 150 µs
    of page faults a row. glibc raises the threshold to twice the largest block that was freed.
    """
    bytearray(8 << 20)


_STATEMENT_ERRORS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError, apsw.SQLError)


def _translate_error(error: Exception, committing: bool) -> Exception:
    """Return the contract's error for an error of the driver.

    If a commit fails for lack of space, nothing was written. If it fails with an I/O error, the next recovery may still restore
    the transaction, so the outcome is unknown.
    """
    if isinstance(error, apsw.BusyError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_BUSY_SNAPSHOT:
        return Unavailable("the transaction read before it wrote, and others wrote meanwhile: roll back and use BEGIN IMMEDIATE")
    if isinstance(error, _STATEMENT_ERRORS):
        return StatementFailed(str(error))
    unknown = committing and isinstance(error, apsw.IOError)
    refused = Unavailable(f"the ledger's file cannot be used: {error}", outcome="unknown" if unknown else "none")
    if is_full(error):
        refused.action = FREE_SPACE_ACTION
    return refused


__all__ = ["SQL", "SqliteStore"]
