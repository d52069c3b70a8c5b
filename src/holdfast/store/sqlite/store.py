"""A SQLite file as a store: WAL, synchronous=FULL, one writer at a time, shared fairly between processes by a file lock."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from holdfast.core.model import Event, Micros
from holdfast.errors import SchemaTooNew, Unavailable, ValidationError
from holdfast.store.base import EventFilter, Lane, Schema, Session, StatementFailed, Waiter
from holdfast.store.memory import Memory
from holdfast.store.seals import SettledRows
from holdfast.store.sqlite.place import MAKE_ROOM, check_place, is_full, unopened
from holdfast.store.sqlite.session import SQL, SqliteSession
from holdfast.store.sqlite.wake import FileWaiter, WakeFile
from holdfast.store.statements import migrations

if TYPE_CHECKING:
    from holdfast.core.doctor.shapes import Vitals

T = TypeVar("T")

BUSY_MS = 10_000
"""How long a writer waits for a foreign connection that holds the database's own lock."""
IDLE_READERS_MAX = 8


class SqliteStore:
    """Connections are opened when first needed: one for writing, a few for reading."""

    def __init__(self, path: Path, clock: Callable[[], Micros], draw_id: Callable[[], str], *, create: bool = True) -> None:
        self.path = path
        self._clock = clock
        self.patience = BUSY_MS / 1_000
        self._memory = Memory()
        self._writer: apsw.Connection | None = None
        self._readers: list[apsw.Connection] = []
        self._writing = threading.Lock()
        self._pid = os.getpid()
        self._bells: list[WakeFile] = []
        self._lock_fd: int | None = None
        _settle_allocator()
        try:
            check_place(path, create)
            self._lock_fd = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._work_bell = self._bell(f"{path}-wake")
            self._event_bell = self._bell(f"{path}-tail")
            self.ledger_id = self._migrate(draw_id)
        except (OSError, apsw.Error) as error:
            self.close()
            raise unopened(path, error) from error
        except BaseException:
            self.close()
            raise

    def _bell(self, path: str) -> WakeFile:
        self._bells.append(WakeFile(Path(path)))
        return self._bells[-1]

    # Connections

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(BUSY_MS)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16384", "wal_autocheckpoint = 4000"):
            connection.pragma(*pragma.split(" = "))
        return connection

    @contextlib.contextmanager
    def _turn(self) -> Iterator[apsw.Connection]:
        """The right to write: first among this process's threads, then among processes. Busy waiting would starve some."""
        with self._writing:
            self._check_usable()
            assert self._lock_fd is not None
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                if self._writer is None:
                    self._writer = self._connect()
                yield self._writer
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _check_usable(self) -> None:
        """SQLite's locks and connections do not survive a fork."""
        if self._lock_fd is None:
            raise Unavailable("this ledger is closed", retryable=False)
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)

    def _session(self, connection: apsw.Connection) -> SqliteSession:
        return SqliteSession(connection, self.ledger_id, self._memory, self._clock)

    # The contract

    def lanes(self) -> Sequence[Lane]:
        return ("work",)

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        with self._turn() as connection:
            committing = False
            try:
                connection.execute("BEGIN IMMEDIATE")
                session = self._session(connection)
                answer = work(session)
                committing = True
                connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back(connection)
                if isinstance(error, apsw.Error | OSError):
                    raise _translated(error, committing) from error
                raise
            self._memory.keep(session)
        if session.wakes is not None:
            self.wake(session.wakes)
        return answer

    def _roll_back(self, connection: apsw.Connection) -> None:
        """End a failed transaction. A connection that cannot even do that is thrown away."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._writer = None
            with contextlib.suppress(apsw.Error):
                connection.close()

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        if not isinstance(connection, apsw.Connection):
            raise ValidationError(
                f"connection must be an apsw.Connection, not {type(connection).__module__}.{type(connection).__name__}: "
                "two SQLite libraries on one file break its locks",
                field="connection",
            )
        try:
            connection.in_transaction  # noqa: B018 - a closed connection says so here
        except apsw.ConnectionClosedError:
            raise ValidationError("connection is closed", field="connection") from None
        if os.path.realpath(connection.db_filename("main")) != os.path.realpath(self.path):
            raise ValidationError(f"connection is not to this ledger's file, {self.path}", field="connection")
        if not connection.in_transaction:
            raise ValidationError("connection has no open transaction", field="connection")
        memory = Memory()
        memory.profiles.update(self._memory.profiles)
        try:
            with connection:
                connection.execute(SQL["take_lock"])
                answer = work(SqliteSession(connection, self.ledger_id, memory, self._clock))
        except apsw.Error as error:
            raise _translated(error, committing=False) from error
        return answer

    def read(self, work: Callable[[Session], T]) -> T:
        return self._read(work, begin=True)

    def peek(self, work: Callable[[Session], T]) -> T:
        return self._read(work, begin=False)

    def poke(self, work: Callable[[Session], T]) -> T:
        """There is no server to be spared: like any other change."""
        return self.transact("work", work)

    def _read(self, work: Callable[[Session], T], *, begin: bool) -> T:
        self._check_usable()
        try:
            connection = self._take_reader()
            try:
                if begin:
                    connection.execute("BEGIN")
                session = self._session(connection)
                answer = work(session)
                if begin:
                    connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
        except (apsw.Error, OSError) as error:
            raise _translated(error, committing=False) from error
        self._memory.keep(session)
        if len(self._readers) < IDLE_READERS_MAX and self._lock_fd is not None:
            self._readers.append(connection)
        else:
            connection.close()
        return answer

    def _take_reader(self) -> apsw.Connection:
        with contextlib.suppress(IndexError):
            return self._readers.pop()
        return self._connect()

    def lock_holder(self, job_id: int) -> str | None:
        """No job is ever locked by itself."""
        return None

    def vitals(self) -> "Vitals":
        from holdfast.store.sqlite.vitals import vitals

        self._check_usable()
        try:
            with contextlib.closing(self._connect()) as connection:
                return vitals(connection, self.path)
        except (apsw.Error, OSError) as error:
            raise _translated(error, committing=False) from error

    def settled_events(self, after: int, limit: int) -> list[Event]:
        """One writer at a time: whatever is visible is settled."""
        return self.read(lambda session: session.events(EventFilter(after=after, limit=limit)))

    def settled_rows(self, after: int, limit: int) -> SettledRows:
        def work(session: Session) -> SettledRows:
            assert isinstance(session, SqliteSession)
            newest = session.last_pos()
            events = session.rows("leaf_events", after=after, until=newest, limit=limit)
            until = events[-1][0] if len(events) == limit else newest
            return SettledRows(events, session.leaf_keys(after, until), until)

        return self.read(work)

    def wake(self, queues: Collection[str]) -> None:
        self._event_bell.ring()
        if queues:
            self._work_bell.ring()

    def waiter(self, *, events: bool) -> Waiter:
        self._check_usable()
        return FileWaiter((self._event_bell if events else self._work_bell).path, self._connect())

    def close(self) -> None:
        with self._writing:
            for connection in [*self._readers, *([self._writer] if self._writer else [])]:
                connection.close()
            self._readers, self._writer = [], None
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None
                for bell in self._bells:
                    bell.close()

    # Schema

    def _migrate(self, draw_id: Callable[[], str]) -> str:
        known = migrations("holdfast.store.sqlite")
        with self._turn() as connection:
            newest = known[-1].version
            if (ledger_id := _current(connection, newest)) is not None:
                self.schema = Schema(newest, newest, ())
                return ledger_id
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("CREATE TABLE IF NOT EXISTS holdfast_schema (version INTEGER PRIMARY KEY) STRICT")
                newest = connection.execute("SELECT coalesce(max(version), 0) FROM holdfast_schema").get
                if newest > known[-1].version:
                    raise SchemaTooNew(
                        f"{self.path} has schema {newest}; this Holdfast knows {known[-1].version}",
                        found=newest,
                        known=known[-1].version,
                    )
                missing = [one for one in known if one.version > newest]
                self.schema = Schema(newest, known[-1].version, tuple(one.name for one in missing))
                for migration in missing:
                    connection.execute(migration.text)
                    connection.execute("INSERT INTO holdfast_schema VALUES (?)", (migration.version,))
                connection.execute("INSERT INTO holdfast_meta VALUES ('ledger_id', ?) ON CONFLICT DO NOTHING", (draw_id(),))
                found: str = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'ledger_id'").get
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            return found


def _current(connection: apsw.Connection, version: int) -> str | None:
    """The ledger's id where its schema is of this version: then there is nothing to lock and nothing to write."""
    try:
        if connection.execute("SELECT max(version) FROM holdfast_schema").get != version:
            return None
        found: str | None = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'ledger_id'").get
    except apsw.SQLError:
        return None
    return found


@cache
def _settle_allocator() -> None:
    """Free one large block, once a process: the second one would be taken from the heap, and stay there.

    glibc gives memory at the top of the heap back as soon as 128 KiB are free there, and SQLite's B-tree balancing takes and
    frees about that much for each row it deletes from a small index: 150 µs of page faults a row where the heap's top
    happens to be there. glibc raises that threshold to twice the largest block it has seen freed.
    """
    bytearray(8 << 20)


_ITS_OWN_FAULT = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError, apsw.SQLError)


def _translated(error: Exception, committing: bool) -> Exception:
    """A driver's error as the contract names it.

    When a commit fails for lack of space, nothing was written. When the disk fails under it, what was written may still come
    back with the next recovery.
    """
    if isinstance(error, apsw.BusyError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_BUSY_SNAPSHOT:
        return Unavailable("the transaction read before it wrote, and others wrote meanwhile: roll back, BEGIN IMMEDIATE")
    if isinstance(error, _ITS_OWN_FAULT):
        return StatementFailed(str(error))
    unknown = committing and isinstance(error, apsw.IOError)
    refused = Unavailable(f"the ledger's file cannot be used: {error}", outcome="unknown" if unknown else "none")
    if is_full(error):
        refused.action = MAKE_ROOM
    return refused


__all__ = ["SQL", "SqliteStore"]
