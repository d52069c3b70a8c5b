"""A store on a PostgreSQL server, for any number of processes and connections."""

import secrets
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
from holdfast.errors import NoLedger, Unavailable, ValidationError
from holdfast.store.base import Contention, Lane, Schema, Waiter, lock_refusal
from holdfast.store.callers import is_awaited, unawaited_connection, unsupported_connection
from holdfast.store.policies import RowCache
from holdfast.store.postgres.connections import (
    LOCK_MS,
    READ_SECONDS,
    LoopConnection,
    TimedConnection,
    check_server,
    check_version,
    configure_direct,
    has_input,
    is_pooled,
    read_url,
)
from holdfast.store.postgres.errors import first_line, translate_error
from holdfast.store.postgres.low_water_marks import LowWaterMarks
from holdfast.store.postgres.migration import known_migrations, migrate, version_of
from holdfast.store.postgres.pool import ConnectionPool
from holdfast.store.postgres.session import PostgresSession
from holdfast.store.postgres.values import POSTGRES_EPOCH_US, binary_cursor, raw_cursor
from holdfast.store.postgres.wakeup import POLL_SECONDS, NotificationListener, Notifier
from holdfast.store.sealing import ANY_EVENT, StableRows, leaf_events
from holdfast.store.session import Session
from holdfast.store.statements import statements
from holdfast.store.subqueues import SubqueueName

if TYPE_CHECKING:
    from holdfast.core.doctor.model import StoreHealth

T = TypeVar("T")

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
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = {READ_LOCK_MS}"
_WRITE = f"BEGIN; SET LOCAL lock_timeout = {LOCK_MS}"


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
        self._sql = {
            name: text.replace("holdfast.", f"{schema}.") for name, text in statements("holdfast.store.postgres").items()
        }
        self._pool = ConnectionPool(url, self._conninfo, self._sql["identity"], self._forget)
        self._pool.is_direct = self._pooled is False
        self._clock = clock
        self._cache = RowCache()
        self._marks = LowWaterMarks()
        self._joined: WeakKeyDictionary[Any, _JoinedConnection] = WeakKeyDictionary()
        self._schema = schema
        self._stable_pos = 0
        self._drained = (0, 0)
        """A position, and a stable position without an event in between: not every drawn position has an event."""
        self._stable_mutex = threading.Lock()
        self._notifier = Notifier(schema, self._notify)
        self.ledger_id = ""
        self.ledger_id = self._migrate(draw_id, create)
        self._pool.is_open = True

    @property
    def patience(self) -> float:
        """How many seconds a writing call waits for each response of the server."""
        return self._pool.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._pool.patience = seconds

    def _forget(self) -> None:
        """Drop all cached state of the server: a new connection leads to another one."""
        self._cache, self._marks = RowCache(), LowWaterMarks()
        self._stable_pos, self._drained = 0, (0, 0)

    def _session(self, connection: TimedConnection, notifier: Notifier | None = None) -> PostgresSession:
        return PostgresSession(connection, self._sql, self.ledger_id, self._cache, self._clock, self._marks, notifier=notifier)

    # The contract

    def take_changed_groups(self) -> Sequence[int]:
        return self._cache.take_changed_groups() if self._cache.changed_groups else ()

    def lanes(self) -> Sequence[Lane]:
        return self._lanes

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        connection, used = self._pool.take()
        while True:
            session = self._session(connection, self._notifier).begins(self._pool.identity if self._pooled else None)
            try:
                try:
                    answer = work(session)
                except BaseException as error:
                    self._pool.abandon(connection)
                    raise translate_error(error) from error
                if session.xid is not None:
                    self._commit(connection, session, session.xid)
            except Unavailable as error:
                # Nothing was committed, and the connection is gone. The server may have closed it while it was idle, so run the
                # transaction once more on a new one. A connection that was opened just now is not worth that.
                if not (used and error.outcome == "none" and connection.closed):
                    raise
                connection, used = self._pool.open(), False
            else:
                self._finish(connection, session)
                return answer

    def _finish(self, connection: TimedConnection, session: PostgresSession) -> None:
        """Do what follows a commit: keep what the session has learned, and wake the waiters."""
        self._cache.update(session)
        self._pool.give_back(connection)
        if session.wakes is not None and (session.wakes - session.notified or not session.notified):
            self._notifier.notify(session.wakes - session.notified)

    def transact_enqueue(self, work: Callable[[Session], T]) -> T:
        """See `Store.transact_enqueue`. Without a pooler, the enqueue is a single message to the server.

        It carries a nonce. If the connection breaks, it is sent again once the server is done with it: the session then finds
        out by the nonce whether it was committed.
        """
        if self._pooled:
            return self.transact("work", work)
        nonce, may_be_done = secrets.token_hex(8), False
        connection, used = self._pool.take()
        if used and has_input(connection):
            # The server has closed it, most likely. If the enqueue were sent now, its outcome would be unknown.
            connection.close()
            self._pool.is_verified = False
            connection = self._pool.open()
        while True:
            pid = connection.info.backend_pid
            session = self._session(connection, self._notifier).enqueues_once(nonce, may_be_done=may_be_done)
            try:
                answer = work(session)
            except BaseException as error:
                self._pool.abandon(connection)
                if session.has_enqueued and isinstance(error, Exception):
                    raise Unavailable(f"an error followed the enqueue: {error!r}", outcome="unknown") from error
                if may_be_done or not (isinstance(error, psycopg.Error) and connection.closed):
                    raise self._enqueue_error(error, may_be_done=may_be_done) from error
                connection, may_be_done = self._open_after(pid, error), True
            else:
                self._finish(connection, session)
                return answer

    def _enqueue_error(self, error: BaseException, *, may_be_done: bool) -> BaseException:
        if isinstance(error, pg.ProgramLimitExceeded):
            # Probably the server's notification queue is full. That must not prevent enqueues.
            self._notifier.pause_inline()
            return Contention(first_line(error))
        return translate_error(error, "unknown" if may_be_done else "none")

    def _open_after(self, pid: int, error: psycopg.Error) -> TimedConnection:
        """Open a connection to the same server, when the backend of the lost one is done. Raise Unavailable if that fails."""
        unknown = Unavailable(f"the connection broke during the commit: {first_line(error)}", outcome="unknown")
        deadline = time.monotonic() + min(COMMIT_STATUS_SECONDS, self.patience)
        while True:
            try:
                connection = self._pool.connect()
                busy = binary_cursor(connection).execute(self._sql["is_backend_busy"], {"pid": pid}).fetchone()
                if busy == (False,) and self._pool.identity_of(connection) == self._pool.identity:
                    return connection
                connection.close()
            except (Unavailable, psycopg.Error):
                """The server is away."""
            if time.monotonic() > deadline:
                raise unknown from error
            time.sleep(0.05)

    def _commit(self, connection: TimedConnection, session: PostgresSession, xid: int) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            connection.close()
            self._pool.is_verified = False
            self._pool.drop_idle_if_overdue(connection)
            if isinstance(error, pg.ProgramLimitExceeded) and session.notified:
                # The server's notification queue is full. That must not prevent enqueues.
                self._notifier.pause_inline()
                raise Contention(first_line(error)) from error
            if not self._was_committed(xid, error):
                raise translate_error(error) from error

    def _was_committed(self, xid: int, error: psycopg.Error) -> bool:
        """Resolve an unknown commit: query its status. Raise Unavailable if it stays unknown, for example on another server."""
        unknown = Unavailable(f"the connection broke during the commit: {first_line(error)}", outcome="unknown")
        deadline = time.monotonic() + min(COMMIT_STATUS_SECONDS, self.patience)
        while True:
            try:
                connection = self._pool.connect()
                with connection:
                    if self._pool.identity_of(connection) != self._pool.identity:
                        raise unknown from error
                    [(status,)] = binary_cursor(connection).execute(self._sql["xact_status"], {"xid": xid}).fetchall()
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
            except (Unavailable, psycopg.Error) as lost:
                if lost is unknown:
                    raise
            if time.monotonic() > deadline:
                raise unknown from error
            time.sleep(0.05)

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
        own_cache.share_subqueues(self._cache, None if self._clock is None else self._clock())
        session = PostgresSession(
            connection, self._sql, self.ledger_id, own_cache, self._clock, self._marks, self.intern_profile, self.intern_subqueues
        )
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
            raise translate_error(error) from error
        finally:
            connection.prepare_threshold = prepares
        return answer

    def intern_profile(self, key: tuple[str, str, str]) -> int:
        def work(session: Session) -> int:
            assert isinstance(session, PostgresSession)
            return session.intern_profile(key)

        return self.transact("work", work)

    def intern_subqueues(self, names: Sequence[SubqueueName]) -> dict[SubqueueName, int]:
        def work(session: Session) -> dict[SubqueueName, int]:
            assert isinstance(session, PostgresSession)
            return session.find_subqueues(set(names))

        return self.transact("work", work)

    def read(self, work: Callable[[Session], T]) -> T:
        def run(connection: TimedConnection) -> T:
            session = self._session(connection)
            answer = work(session)
            self._cache.update(session)
            return answer

        return self._read(run)

    def read_long(self, work: Callable[[Session], T]) -> T:
        return self.read(work)

    def read_statement(self, work: Callable[[Session], T]) -> T:
        try:
            return self._on_connection(lambda connection: work(self._session(connection)))
        except Contention:
            # A table is locked. A transaction waits longer for it.
            return self.read(work)

    def write_statement(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        return self._on_connection(partial(self._write_statement, work), outcome="unknown", again=again)

    def _write_statement(self, work: Callable[[Session], T], connection: TimedConnection) -> T:
        session = self._session(connection)
        answer = self._on_server(connection, _WRITE, lambda _: work(session)) if self._pooled else work(session)
        self._cache.update(session)
        if session.wakes:
            self._notifier.notify(session.wakes)
        return answer

    def _on_server(self, connection: TimedConnection, begin: str, work: Callable[[TimedConnection], T]) -> T:
        """Run `work` in a transaction. Behind a pooler, check that it is still the same server."""
        if self._pooled and self._pool.identity is not None:
            cursor = connection.execute(f"{begin}; {self._sql['identity']}", prepare=False)
            while cursor.nextset():
                """The last one is the identity."""
            check_server(cursor.fetchone(), self._pool.identity, connection)
        else:
            connection.execute(begin)
        answer = work(connection)
        connection.execute("COMMIT")
        return answer

    def _read(self, work: Callable[[TimedConnection], T]) -> T:
        """Run `work` on one snapshot. Waits for locked tables end after READ_LOCK_MS."""
        try:
            return self._on_connection(lambda connection: self._on_server(connection, _READ, work), timeout=READ_SECONDS)
        except Contention as error:
            raise lock_refusal(error, self.lock_holder()) from error

    def _on_connection(
        self,
        work: Callable[[TimedConnection], T],
        outcome: Literal["none", "unknown"] = "none",
        timeout: float | None = None,
        again: bool = True,
    ) -> T:
        """Run `work` on a connection. If a used connection is broken, run it again on a new one, unless `again` is False.

        `outcome` is the outcome to report when the connection breaks. `timeout` is for one statement.
        """
        connection, used = self._pool.take(timeout)
        try:
            try:
                answer = work(connection)
            except psycopg.Error:
                if not (again and used and connection.closed):
                    raise
                self._pool.is_verified = False
                self._pool.drop_idle_if_overdue(connection)
                connection = self._pool.open(timeout)
                answer = work(connection)
        except BaseException as error:
            broken = connection.closed
            self._pool.abandon(connection)
            raise translate_error(error, outcome if broken else "none") from error
        self._pool.give_back(connection)
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
            return "; ".join(self._on_connection(work)) or None
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
                check_server(self._pool.identity_of(connection), self._pool.identity, connection)
            if session.last_pos() <= self._stable_pos:
                return False
            [(last, own_xid)] = session.rows("horizon")
            for pause in STABLE_PAUSES_SECONDS:
                time.sleep(pause)
                if session.value("xmin") > own_xid:
                    self._stable_pos = max(self._stable_pos, last)
                    return True
            return False

        before = self._stable_pos
        with self._stable_mutex:
            return self._stable_pos > before or self._on_connection(work)

    # Waking

    @property
    def _listens(self) -> bool:
        """Whether notifications arrive. A pooler does not forward them."""
        return self._listen is not None or not self._pooled

    def wake(self, queues: Sequence[str]) -> None:
        self._notifier.notify(queues, later=not queues)

    def _notify(self, queues: Sequence[str]) -> None:
        self._on_connection(lambda c: self._session(c).rows("notify", channel=self._schema, queues=list(queues)))

    def waiter(self, *, events: bool) -> Waiter:
        self._pool.check_usable()
        connect = partial(self._pool.connect, conninfo=self._listen) if self._listens else None
        return NotificationListener(connect, self._schema, lambda: self._pool.timeouts, events=events)

    def close(self) -> None:
        self._notifier.close()
        self._pool.close()

    # Schema

    def _migrate(self, draw_id: Callable[[], str], create: bool) -> str:
        connection = self._pool.connect()
        try:
            check_version(connection)
            if connection.info.parameter_status("server_encoding") != "UTF8":
                raise ValidationError("a ledger needs a database with encoding UTF8", field="url")
            known = known_migrations()
            if self._pooled is None:
                self._pooled = is_pooled(connection)
            self._pool.is_direct = not self._pooled
            if not self._pooled:
                configure_direct(connection)
            found_version = self._on_server(connection, _READ, lambda connection: version_of(connection, self._schema))
            if not found_version and not create:
                raise NoLedger(f"there is no ledger in the schema {self._schema} of this database", schema=self._schema)
            self.schema = Schema(
                found_version, known[-1].version, tuple(one.name for one in known if one.version > found_version)
            )
            if found_version < known[-1].version:
                migrate(connection, self._schema, draw_id)
            self._pool.identity, ledger_id = self._on_server(connection, _READ, self._identities)
        except BaseException as error:
            connection.close()
            if isinstance(error, pg.LockNotAvailable):
                raise lock_refusal(error, self.lock_holder(), "cannot open the ledger: ") from error
            if isinstance(error, psycopg.Error):
                raise Unavailable(f"cannot open the ledger: {first_line(error)}") from error
            raise
        self._pool.give_back(connection)
        return ledger_id

    def _identities(self, connection: TimedConnection) -> tuple[Any, str]:
        """Return the identity of the server and the id of the ledger."""
        [(ledger_id,)] = binary_cursor(connection).execute(self._sql["ledger_id"]).fetchall()
        return self._pool.identity_of(connection), str(ledger_id)
