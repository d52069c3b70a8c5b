"""A store on a PostgreSQL server, for any number of processes and connections."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from msgspec.structs import replace
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from holdfast.core.model import EventRecord, Micros
from holdfast.core.urls import parse_server_url
from holdfast.errors import HoldfastError, NoLedger, Unavailable, ValidationError
from holdfast.store.base import Contention, Lane, Schema, Session, StatementFailed, Waiter, lock_refusal
from holdfast.store.callers import is_awaited, unawaited_connection, unsupported_connection
from holdfast.store.policies import RowCache
from holdfast.store.postgres.connections import (
    PREPARE_AFTER,
    READ_SECONDS,
    WRITE_SECONDS,
    LoopConnection,
    TimedConnection,
    check_server,
    connect,
    is_pooled,
    read_url,
)
from holdfast.store.postgres.low_water_marks import LowWaterMarks
from holdfast.store.postgres.migration import known_migrations, migrate, version_of
from holdfast.store.postgres.session import LOCK_MS, PostgresSession
from holdfast.store.postgres.values import POSTGRES_EPOCH_US, binary_cursor, raw_cursor
from holdfast.store.postgres.wakeup import POLL_SECONDS, NotificationListener, Notifier
from holdfast.store.sealing import ANY_EVENT, StableRows, leaf_events
from holdfast.store.statements import statements

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

T = TypeVar("T")

IDLE_MAX = 8
COMMIT_STATUS_SECONDS = 5.0
"""How long to query the status of a commit that got no response."""
STABLE_PAUSES_SECONDS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""The pauses in which a follower waits for open transactions, before it returns without progress."""
WITHIN_LOCK_MS = 2_000
"""How long a statement in a caller's transaction waits for a lock."""
WITHIN_SECONDS = 30.0
"""How long a call waits for another call on the same caller's connection."""
READ_LOCK_MS = 5_000
"""How long a read waits for a table that another transaction has locked as a whole."""
_NO_DATABASE = re.compile(r'database ".*" does not exist')
"""The message of a server with English messages. libpq gives no error code for a refused connection."""
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = {READ_LOCK_MS}"
_CONTENTION_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation, pg.LockNotAvailable)


USE_PSYCOPG = "Use psycopg 3: postgresql+psycopg:// in SQLAlchemy's url; for Django, install psycopg instead of psycopg2."


class _JoinedConnection:
    """State of a caller's connection that calls have used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a call uses the connection, so that savepoints of two calls do not interleave."""
        self._xid = ""
        self._own_ids: set[int] = set()

    def own_ids(self, xid: str) -> set[int]:
        """Return the jobs that the caller's transaction has created so far."""
        if self._xid != xid:
            self._xid, self._own_ids = xid, set()
        return self._own_ids


class PostgresStore:
    def __init__(self, url: str, clock: Callable[[], Micros] | None, draw_id: Callable[[], str], *, create: bool = True) -> None:
        self._conninfo, schema, self._lanes, self._pooled, self._listen = read_url(url)
        self._redacted = parse_server_url(url).redacted
        self._clock = clock
        self.patience = WRITE_SECONDS
        self._cache = RowCache()
        self._marks = LowWaterMarks()
        self._idle: list[TimedConnection] = []
        self._timeouts = 0
        self._server_unverified = False
        """A connection was lost or refused since the server's identity was last checked."""
        self.identity: Any = None
        self._joined: WeakKeyDictionary[Any, _JoinedConnection] = WeakKeyDictionary()
        self._closed = False
        self._pid = os.getpid()
        self._sql = {
            name: text.replace("holdfast.", f"{schema}.") for name, text in statements("holdfast.store.postgres").items()
        }
        self._schema = schema
        self._stable_pos = 0
        self._drained = (0, 0)
        """A position, and a stable position without an event in between: not every drawn position has an event."""
        self._stable_mutex = threading.Lock()
        self._notifier = Notifier(schema, self._notify)
        self.ledger_id = ""
        self.ledger_id = self._migrate(draw_id, create)

    # Connections

    def connect(self, timeout: float | None = None, conninfo: str | None = None) -> TimedConnection:
        """Open a connection. `timeout` is for one statement; the default is the store's `patience`.

        Statements are prepared only if there is no pooler: behind one, the next transaction may be in another session.

        The error is raised outside of `except`, so that no traceback shows the driver's own error, which may quote the url.
        """
        try:
            return connect(conninfo or self._conninfo, timeout or self.patience, prepares=self._pooled is False)
        except psycopg.ProgrammingError:
            refusal: HoldfastError = ValidationError(
                "the url cannot be used: libpq does not accept one of its parts", field="url"
            )
        except psycopg.Error as error:
            self._server_unverified = True
            refusal = self._connect_error(self._redacted(_first_line(error)))
        raise refusal

    def _connect_error(self, reason: str) -> HoldfastError:
        """Return NoLedger if the database is missing when a ledger is opened, else Unavailable: an open one may come back."""
        missing = None if self.ledger_id else _NO_DATABASE.search(reason)
        if missing is not None:
            refusal: HoldfastError = NoLedger(f"the {missing[0]} on this server")
            refusal.action = (
                "Check the name of the database in the url, or create the database with createdb. Holdfast creates its tables."
            )
            return refusal
        refusal = Unavailable(f"cannot reach the database: {reason}")
        refusal.action = "Check the url: host, port, database, user and password. If they are right, retry later."
        return refusal

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this ledger is closed", retryable=False)
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)

    def _take(self, timeout: float | None = None) -> tuple[TimedConnection, bool]:
        """Return a connection, and whether it was used before. A used one may have been closed by the server meanwhile."""
        self._check_usable()
        while self._idle:
            with contextlib.suppress(IndexError):
                connection = self._idle.pop()
                self._server_unverified = self._server_unverified or connection.broken
                if not connection.closed:
                    connection.statement_timeout = timeout or self.patience
                    return connection, True
        return self._open(timeout), False

    def _open(self, timeout: float | None = None) -> TimedConnection:
        """Open a connection. If it leads to another server after a loss, drop all cached state of the old one."""
        connection = self.connect(timeout)
        if self._server_unverified:
            try:
                found = self._identity(connection)
            except psycopg.Error as error:
                connection.close()
                raise Unavailable(f"the database cannot do this now: {_first_line(error)}") from None
            if found != self.identity:
                self.identity, self._cache, self._marks = found, RowCache(), LowWaterMarks()
                self._stable_pos, self._drained = 0, (0, 0)
            self._server_unverified = False
        return connection

    def _give_back(self, connection: TimedConnection) -> None:
        if self._closed or connection.closed or len(self._idle) >= IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        """Close idle connections after a timeout. What broke one connection has probably broken all of them."""
        self._timeouts += 1
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _session(self, connection: TimedConnection, notifier: Notifier | None = None) -> PostgresSession:
        return PostgresSession(connection, self._sql, self.ledger_id, self._cache, self._clock, self._marks, notifier=notifier)

    # The contract

    def lanes(self) -> Sequence[Lane]:
        return self._lanes

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        connection, used = self._take()
        while True:
            session = self._session(connection, self._notifier).begins(self.identity if self._pooled else None)
            try:
                try:
                    answer = work(session)
                except BaseException as error:
                    self._abandon(connection)
                    raise _translate_error(error) from error
                if session.xid is not None:
                    self._commit(connection, session, session.xid)
            except Unavailable as error:
                # Nothing was committed, and the connection is gone. The server may have closed it while it was idle, so run the
                # transaction once more on a new one. A connection that was opened just now is not worth that.
                if not (used and error.outcome == "none" and connection.closed):
                    raise
                connection, used = self._open(), False
            else:
                self._cache.update(session)
                self._give_back(connection)
                if session.wakes is not None and (session.wakes - session.notified or not session.notified):
                    self._notifier.notify(session.wakes - session.notified)
                return answer

    def _commit(self, connection: TimedConnection, session: PostgresSession, xid: int) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            connection.close()
            self._server_unverified = True
            if connection.is_overdue:
                self._drop_idle()
            if isinstance(error, pg.ProgramLimitExceeded) and session.notified:
                # The server's notification queue is full. That must not prevent enqueues.
                self._notifier.pause_inline()
                raise Contention(_first_line(error)) from error
            if not self._was_committed(xid, error):
                raise _translate_error(error) from error

    def _abandon(self, connection: TimedConnection) -> None:
        self._server_unverified = self._server_unverified or connection.closed
        if connection.is_overdue:
            self._drop_idle()
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        else:
            self._give_back(connection)

    def _was_committed(self, xid: int, error: psycopg.Error) -> bool:
        """Resolve an unknown commit: query its status. Raise Unavailable if it stays unknown, for example on another server."""
        unknown = Unavailable(f"the connection broke during the commit: {_first_line(error)}", outcome="unknown")
        deadline = time.monotonic() + min(COMMIT_STATUS_SECONDS, self.patience)
        while True:
            try:
                connection = self.connect()
                with connection:
                    if self._identity(connection) != self.identity:
                        raise unknown from error
                    status = binary_cursor(connection).execute(self._sql["xact_status"], {"xid": xid}).fetchone()
                if status is not None and status[0] in ("committed", "aborted"):
                    return bool(status[0] == "committed")
            except (Unavailable, psycopg.Error) as lost:
                if lost is unknown:
                    raise
            if time.monotonic() > deadline:
                raise unknown from error
            time.sleep(0.05)

    def _identity(self, connection: TimedConnection) -> Any:
        return binary_cursor(connection).execute(self._sql["identity"]).fetchone()

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        if isinstance(connection, psycopg.AsyncConnection):
            if not is_awaited():
                raise unawaited_connection(connection)
        elif not isinstance(connection, psycopg.Connection):
            raise unsupported_connection(connection, "a psycopg.Connection or a psycopg.AsyncConnection", USE_PSYCOPG)
        joined = self._joined.setdefault(connection, _JoinedConnection())
        if not joined.lock.acquire(timeout=WITHIN_SECONDS):
            raise Unavailable("another call uses this connection", locked=True)
        try:
            usable = LoopConnection(connection) if isinstance(connection, psycopg.AsyncConnection) else connection
            return self._within(usable, joined, work, queues)
        finally:
            joined.lock.release()

    def _within(
        self,
        connection: "psycopg.Connection[Any] | LoopConnection",
        joined: "_JoinedConnection",
        work: Callable[[Session], T],
        queues: Sequence[str],
    ) -> T:
        status = None if connection.closed else connection.info.transaction_status
        if status not in (TransactionStatus.INTRANS, TransactionStatus.IDLE):
            raise ValidationError("connection is closed, busy, or its transaction has failed", field="connection")
        if connection.autocommit and status != TransactionStatus.INTRANS:
            raise ValidationError("connection has no open transaction", field="connection")
        own_cache, prepares = RowCache(), connection.prepare_threshold
        own_cache.profiles = self._cache.profiles
        session = PostgresSession(connection, self._sql, self.ledger_id, own_cache, self._clock, self._marks, self.intern_profile)
        try:
            if self._pooled:
                connection.prepare_threshold = None
            session.rows("has_ledger")
            with connection.transaction():
                if session.one("has_ledger") != (True,):
                    raise ValidationError("connection is not to this ledger's database", field="connection")
                ledger_id, xid = session.one("join_transaction") or ("", "")
                if ledger_id != self.ledger_id:
                    raise ValidationError("connection is not to this ledger's database", field="connection")
                session.own_ids = joined.own_ids(xid)
                [(before, _)] = session.rows("swap_lock_timeout", wanted=str(WITHIN_LOCK_MS))
                answer = work(session)
                session.rows("swap_lock_timeout", wanted=before)
            session.rows("notify", channel=self._schema, queues=list(queues))
        except psycopg.Error as error:
            raise _translate_error(error) from error
        finally:
            connection.prepare_threshold = prepares
        return answer

    def intern_profile(self, key: tuple[str, str, str]) -> int:
        def work(session: Session) -> int:
            assert isinstance(session, PostgresSession)
            return session.intern_profile(key)

        return self.transact("work", work)

    def read(self, work: Callable[[Session], T]) -> T:
        def run(connection: TimedConnection) -> T:
            session = self._session(connection)
            answer = work(session)
            self._cache.update(session)
            return answer

        return self._read(run)

    def read_statement(self, work: Callable[[Session], T]) -> T:
        return self._reading(lambda connection: work(self._session(connection)))

    def write_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        return self._reading(partial(self._write_statement, work), outcome="unknown", again=again)

    def _write_statement(self, work: Callable[[Session], T], connection: TimedConnection) -> T:
        session = self._session(connection)
        answer = self._on_server(connection, "BEGIN", lambda _: work(session)) if self._pooled else work(session)
        self._cache.update(session)
        return answer

    def _on_server(self, connection: TimedConnection, begin: str, work: Callable[[TimedConnection], T]) -> T:
        """Run `work` in a transaction. Behind a pooler, check that it is still the same server."""
        if self._pooled and self.identity is not None:
            cursor = connection.execute(f"{begin}; {self._sql['identity']}", prepare=False)
            while cursor.nextset():
                """The last one is the identity."""
            check_server(cursor.fetchone(), self.identity, connection)
        else:
            connection.execute(begin)
        answer = work(connection)
        connection.execute("COMMIT")
        return answer

    def _read(self, work: Callable[[TimedConnection], T]) -> T:
        """Run `work` on one snapshot. Waits for locked tables end after READ_LOCK_MS."""
        try:
            return self._reading(lambda connection: self._on_server(connection, _READ, work), timeout=READ_SECONDS)
        except Contention as error:
            raise lock_refusal(error, self.lock_holder()) from error

    def _reading(
        self,
        work: Callable[[TimedConnection], T],
        outcome: Literal["none", "unknown"] = "none",
        timeout: float | None = None,
        again: bool = True,
    ) -> T:
        """Run `work` on a connection. If a used connection is broken, run it again on a new one, unless `again` is False.

        `outcome` is the outcome to report when the connection breaks. `timeout` is for one statement.
        """
        connection, used = self._take(timeout)
        try:
            try:
                answer = work(connection)
            except psycopg.Error:
                if not (again and used and connection.closed):
                    raise
                self._server_unverified = True
                if connection.is_overdue:
                    self._drop_idle()
                connection = self._open(timeout)
                answer = work(connection)
        except BaseException as error:
            broken = connection.closed
            self._abandon(connection)
            raise _translate_error(error, outcome if broken else "none") from error
        self._give_back(connection)
        return answer

    def vitals(self) -> "StoreHealth":
        from holdfast.store.postgres.vitals import vitals

        health = self._read(lambda connection: vitals(connection, self._sql))
        return replace(health, pooled=bool(self._pooled), poll_ms=None if self._listens else round(POLL_SECONDS * 1_000))

    def lock_holder(self, job_id: int | None = None, seconds: float = 0.0) -> str | None:
        name = "lock_holders" if job_id is None else "lock_holder"
        params = {"schema": self._schema} if job_id is None else {"job_id": job_id, "seconds": seconds}

        def work(connection: TimedConnection) -> list[str]:
            # Without a timeout this would wait if the whole table is locked.
            connection.execute(f"BEGIN READ ONLY; SET LOCAL lock_timeout = {LOCK_MS}")
            found = self._session(connection).values(name, **params)
            connection.execute("COMMIT")
            return found

        try:
            return "; ".join(self._reading(work)) or None
        except (Unavailable, Contention):
            return None

    # Following

    def stable_pos(self) -> int:
        self._advance_stable_pos()
        return self._stable_pos

    def stable_events(self, after: int, limit: int) -> list[EventRecord]:
        """Return events up to the stable position. Advance it first if there are none: not every drawn position has an event."""
        until, (begin, end) = self._stable_pos, self._drained
        is_drained = begin <= after and end == until
        found = self._stable_page(after, until, limit) if after < until and not is_drained else []
        if not found and self._advance_stable_pos():
            until = self._stable_pos
            found = self._stable_page(after, until, limit)
        if not found:
            self._drained = (after, until)
        return found

    def _stable_page(self, after: int, until: int, limit: int) -> list[EventRecord]:
        def work(connection: TimedConnection) -> list[EventRecord]:
            session = self._session(connection)
            rows = next((rows for rows, _ in session.pages(after, until, limit, **ANY_EVENT) if rows), [])
            found = [session.event(row) for row in rows[:limit]]
            self._cache.update(session)
            return found

        return self._read(work)

    def stable_rows(self, after: int, limit: int) -> StableRows:
        found = self._stable_rows(after, limit) if after < self._stable_pos else None
        if (found is None or not (found.events or found.keys)) and self._advance_stable_pos():
            found = self._stable_rows(after, limit)
        return found or StableRows([], [], after)

    def _stable_rows(self, after: int, limit: int) -> StableRows:
        def work(connection: TimedConnection) -> StableRows:
            cursor = raw_cursor(connection)
            events, until = leaf_events(
                lambda name, **params: cursor.execute(self._sql[name], params).fetchall(), after, self._stable_pos, limit
            )
            return StableRows(events, self._session(connection).leaf_keys(after, until), until, POSTGRES_EPOCH_US)

        return self._read(work)

    def _advance_stable_pos(self) -> bool:
        """Advance the stable position. Return False if it did not change."""

        def work(connection: TimedConnection) -> bool:
            session = self._session(connection)
            if self._pooled:
                check_server(self._identity(connection), self.identity, connection)
            newest = session.one("last_pos")
            if newest is None or newest[0] <= self._stable_pos:
                return False
            horizon = session.one("horizon")
            assert horizon is not None
            last, own_xid = horizon
            for pause in STABLE_PAUSES_SECONDS:
                time.sleep(pause)
                oldest = session.one("xmin")
                if oldest is not None and oldest[0] > own_xid:
                    self._stable_pos = max(self._stable_pos, last)
                    return True
            return False

        before = self._stable_pos
        with self._stable_mutex:
            return self._stable_pos > before or self._reading(work)

    # Waking

    @property
    def _listens(self) -> bool:
        """Whether notifications arrive. A pooler does not forward them."""
        return self._listen is not None or not self._pooled

    def wake(self, queues: Sequence[str]) -> None:
        self._notifier.notify(queues, later=not queues)

    def _notify(self, queues: Sequence[str]) -> None:
        self._reading(lambda c: self._session(c).rows("notify", channel=self._schema, queues=list(queues)))

    def waiter(self, *, events: bool) -> Waiter:
        self._check_usable()
        connect = partial(self.connect, conninfo=self._listen) if self._listens else None
        return NotificationListener(connect, self._schema, lambda: self._timeouts, events=events)

    def close(self) -> None:
        self._notifier.close()
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    # Schema

    def _migrate(self, draw_id: Callable[[], str], create: bool) -> str:
        connection = self.connect()
        try:
            if connection.info.parameter_status("server_encoding") != "UTF8":
                raise ValidationError("a ledger needs a database with encoding UTF8", field="url")
            known = known_migrations()
            if self._pooled is None:
                self._pooled = is_pooled(connection)
            if not self._pooled:
                connection.prepare_threshold = PREPARE_AFTER
            found_version = self._on_server(connection, _READ, lambda connection: version_of(connection, self._schema))
            if not found_version and not create:
                raise NoLedger(f"there is no ledger in the schema {self._schema} of this database", schema=self._schema)
            self.schema = Schema(
                found_version, known[-1].version, tuple(one.name for one in known if one.version > found_version)
            )
            if found_version < known[-1].version:
                migrate(connection, self._schema, draw_id)
            self.identity, ledger_id = self._on_server(connection, _READ, self._identities)
        except BaseException as error:
            connection.close()
            if isinstance(error, pg.LockNotAvailable):
                raise lock_refusal(error, self.lock_holder(), "cannot open the ledger: ") from error
            if isinstance(error, psycopg.Error):
                raise Unavailable(f"cannot open the ledger: {_first_line(error)}") from error
            raise
        self._give_back(connection)
        return ledger_id

    def _identities(self, connection: TimedConnection) -> tuple[Any, str]:
        """Return the identity of the server and the id of the ledger."""
        found = binary_cursor(connection).execute(self._sql["ledger_id"]).fetchone()
        assert found is not None
        return self._identity(connection), str(found[0])


def _translate_error(error: BaseException, outcome: Literal["none", "unknown"] = "none") -> BaseException:
    """Return the contract's error for an error of the driver, and any other error unchanged."""
    if isinstance(error, _CONTENTION_ERRORS):
        return Contention(_first_line_with_context(error))
    if isinstance(error, pg.ReadOnlySqlTransaction):
        refused = Unavailable("the server takes no writes: it is a read replica, or set to read only")
        refused.action = "Connect to the primary. With several hosts in the url, target_session_attrs=read-write selects it."
        return refused
    if isinstance(error, pg.DataError | pg.IntegrityError | pg.ProgrammingError | pg.ProgramLimitExceeded):
        return StatementFailed(_first_line(error))
    if isinstance(error, psycopg.Error):
        return Unavailable(f"the database cannot do this now: {_first_line(error)}", outcome=outcome)
    if isinstance(error, Unavailable) and outcome == "unknown":
        return Unavailable(error.message, outcome=outcome)
    return error


def _first_line_with_context(error: psycopg.Error) -> str:
    """Return the first line of the message, with the table of the locked row if the server gives it."""
    context = (error.diag.context or "").split("\n", 1)[0]
    return f"{_first_line(error)} {context}".rstrip()


def _first_line(error: psycopg.Error) -> str:
    """Return the message without detail lines, which may quote values."""
    return str(error).split("\n", 1)[0]
