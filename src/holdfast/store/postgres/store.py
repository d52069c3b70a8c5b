"""A PostgreSQL server as a store: any number of processes and connections, one row lock at a time."""

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

from holdfast.core.model import Event, Micros
from holdfast.core.urls import read_server
from holdfast.errors import HoldfastError, NoLedger, Unavailable, ValidationError
from holdfast.store.awaiting import is_awaited
from holdfast.store.base import Contention, Lane, Schema, Session, StatementFailed, Waiter, locked_out
from holdfast.store.memory import Memory
from holdfast.store.postgres.address import read_url
from holdfast.store.postgres.connections import (
    PREPARE_AFTER,
    READ_SECONDS,
    WRITE_SECONDS,
    Connection,
    check_server,
    connect,
    is_pooled,
)
from holdfast.store.postgres.marks import Marks
from holdfast.store.postgres.onloop import LoopConnection
from holdfast.store.postgres.session import LOCK_MS, PostgresSession
from holdfast.store.postgres.upgrade import known_migrations, upgrade, version_of
from holdfast.store.postgres.values import POSTGRES_EPOCH_US, cursor, raw_cursor
from holdfast.store.postgres.wake import POLL_SECONDS, Bell, Listener
from holdfast.store.seals import SettledRows
from holdfast.store.statements import statements
from holdfast.store.unwrap import not_awaited, unsupported

if TYPE_CHECKING:
    from holdfast.core.doctor.shapes import Vitals

T = TypeVar("T")

IDLE_MAX = 8
SETTLE_SECONDS = 5.0
"""How long to ask what became of a commit whose answer was lost."""
SETTLE_PAUSES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""How long a follower waits for writers that are still at it, before it lets its owner wait instead."""
WITHIN_LOCK_MS = 2_000
"""How long a statement in a caller's own transaction waits for a lock."""
WITHIN_SECONDS = 30.0
"""How long a call waits for another one on the same connection of a caller's."""
READ_LOCK_MS = 5_000
"""How long a read waits for a table that another transaction has locked as a whole."""
_NO_DATABASE = re.compile(r'database ".*" does not exist')
"""As a server says it whose messages are English. libpq gives no code for a connection that was refused."""
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = {READ_LOCK_MS}"
_IN_THE_WAY = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation, pg.LockNotAvailable)


USE_PSYCOPG = "Use psycopg 3: postgresql+psycopg:// in SQLAlchemy's url; for Django, install psycopg instead of psycopg2."


class _Joined:
    """What is known of a caller's connection that calls have joined."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a call uses the connection: its savepoints must not get mixed up with those of another call."""
        self._xid = ""
        self._own_ids: set[int] = set()

    def own_ids(self, xid: str) -> set[int]:
        """The jobs that this transaction of the caller's has made so far."""
        if self._xid != xid:
            self._xid, self._own_ids = xid, set()
        return self._own_ids


class PostgresStore:
    def __init__(self, url: str, clock: Callable[[], Micros] | None, draw_id: Callable[[], str], *, create: bool = True) -> None:
        self._conninfo, schema, self._lanes, self._pooled, self._listen = read_url(url)
        self._redacted = read_server(url).redacted
        self._clock = clock
        self.patience = WRITE_SECONDS
        self._memory = Memory()
        self._marks = Marks()
        self._idle: list[Connection] = []
        self._lost = 0
        self._is_suspect = False
        """A connection was lost, or could not be made, since the server's identity was looked at."""
        self.identity: Any = None
        self._joined: WeakKeyDictionary[Any, _Joined] = WeakKeyDictionary()
        self._closed = False
        self._pid = os.getpid()
        self._sql = {
            name: text.replace("holdfast.", f"{schema}.") for name, text in statements("holdfast.store.postgres").items()
        }
        self._schema = schema
        self._settled = 0
        self._settling = threading.Lock()
        self._bell = Bell(schema, self._ring)
        self.ledger_id = ""
        self.ledger_id = self._migrate(draw_id, create)

    # Connections

    def connect(self, patience: float | None = None, conninfo: str | None = None) -> Connection:
        """A new connection. `patience` is how long one statement on it may take; that of the store by default.

        Nothing is prepared until it is known that no pooler is in between: the next transaction may be in another session then.

        The refusal is raised outside of `except`, so that no traceback shows the driver's own error, which may quote the url.
        """
        try:
            return connect(conninfo or self._conninfo, patience or self.patience, prepares=self._pooled is False)
        except psycopg.ProgrammingError:
            refusal: HoldfastError = ValidationError(
                "the url cannot be used: libpq does not accept one of its parts", field="url"
            )
        except psycopg.Error as error:
            self._is_suspect = True
            refusal = self._unreached(self._redacted(_first_line(error)))
        raise refusal

    def _unreached(self, why: str) -> HoldfastError:
        """A database that is missing when a ledger is opened will not come by itself. While one is open, it may come back."""
        missing = None if self.ledger_id else _NO_DATABASE.search(why)
        if missing is not None:
            refusal: HoldfastError = NoLedger(f"the {missing[0]} on this server")
            refusal.action = (
                "Check the name of the database in the url, or make the database with createdb. Its tables come by themselves."
            )
            return refusal
        refusal = Unavailable(f"cannot reach the database: {why}")
        refusal.action = "Look at the url: host, port, database, user and password. If they are right, ask again later."
        return refusal

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("this ledger is closed", retryable=False)
        if os.getpid() != self._pid:
            raise Unavailable("this ledger was opened before a fork: open it again in the child", retryable=False)

    def _take(self, patience: float | None = None) -> tuple[Connection, bool]:
        """A connection, and whether it has been used before and so may have died of old age."""
        self._check_usable()
        while self._idle:
            with contextlib.suppress(IndexError):
                connection = self._idle.pop()
                self._is_suspect = self._is_suspect or connection.broken
                if not connection.closed:
                    connection.patience = patience or self.patience
                    return connection, True
        return self._open(patience), False

    def _open(self, patience: float | None = None) -> Connection:
        """A new connection. After one was lost, it may lead to another server: then forget what was known of the old one."""
        connection = self.connect(patience)
        if self._is_suspect:
            try:
                found = self._identity(connection)
            except psycopg.Error as error:
                connection.close()
                raise Unavailable(f"the database cannot do this now: {_first_line(error)}") from None
            if found != self.identity:
                self.identity, self._settled, self._memory, self._marks = found, 0, Memory(), Marks()
            self._is_suspect = False
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.closed or len(self._idle) >= IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        """An answer was overdue. What made one connection silent has probably done so to all: open new ones."""
        self._lost += 1
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _session(self, connection: Connection, bell: Bell | None = None) -> PostgresSession:
        return PostgresSession(connection, self._sql, self.ledger_id, self._memory, self._clock, self._marks, bell=bell)

    # The contract

    def lanes(self) -> Sequence[Lane]:
        return self._lanes

    def transact(self, lane: Lane, work: Callable[[Session], T]) -> T:
        connection, used = self._take()
        while True:
            session = self._session(connection, self._bell).begins(self.identity if self._pooled else None)
            try:
                try:
                    answer = work(session)
                except BaseException as error:
                    self._abandon(connection)
                    raise _translated(error) from error
                if session.xid is not None:
                    self._commit(connection, session, session.xid)
            except Unavailable as error:
                # A connection that has been used before may have died of old age: run it once more on a new one.
                if not (used and error.outcome == "none" and connection.closed):
                    raise
                connection, used = self._open(), False
            else:
                self._memory.keep(session)
                self._give_back(connection)
                if session.wakes is not None and (session.wakes - session.rung or not session.rung):
                    self._bell.ring(session.wakes - session.rung)
                return answer

    def _commit(self, connection: Connection, session: PostgresSession, xid: int) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            connection.close()
            self._is_suspect = True
            if connection.is_overdue:
                self._drop_idle()
            if isinstance(error, pg.ProgramLimitExceeded) and session.rung:
                # The server has no room for another notification. That must keep nobody from enqueueing.
                self._bell.keep_out()
                raise Contention(_first_line(error)) from error
            if not self._was_committed(xid, error):
                raise _translated(error) from error

    def _abandon(self, connection: Connection) -> None:
        self._is_suspect = self._is_suspect or connection.closed
        if connection.is_overdue:
            self._drop_idle()
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        else:
            self._give_back(connection)

    def _was_committed(self, xid: int, error: psycopg.Error) -> bool:
        """What became of a commit whose answer was lost: the server knows, unless it is another server by now."""
        unknown = Unavailable(f"the connection broke during the commit: {_first_line(error)}", outcome="unknown")
        deadline = time.monotonic() + min(SETTLE_SECONDS, self.patience)
        while True:
            try:
                connection = self.connect()
                with connection:
                    if self._identity(connection) != self.identity:
                        raise unknown from error
                    status = cursor(connection).execute(self._sql["xact_status"], {"xid": xid}).fetchone()
                if status is not None and status[0] in ("committed", "aborted"):
                    return bool(status[0] == "committed")
            except (Unavailable, psycopg.Error) as lost:
                if lost is unknown:
                    raise
            if time.monotonic() > deadline:
                raise unknown from error
            time.sleep(0.05)

    def _identity(self, connection: Connection) -> Any:
        return cursor(connection).execute(self._sql["identity"]).fetchone()

    def within(self, connection: Any, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        if isinstance(connection, psycopg.AsyncConnection):
            if not is_awaited():
                raise not_awaited(connection)
        elif not isinstance(connection, psycopg.Connection):
            raise unsupported(connection, "a psycopg.Connection or a psycopg.AsyncConnection", USE_PSYCOPG)
        joined = self._joined.setdefault(connection, _Joined())
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
        joined: "_Joined",
        work: Callable[[Session], T],
        queues: Sequence[str],
    ) -> T:
        status = None if connection.closed else connection.info.transaction_status
        if status not in (TransactionStatus.INTRANS, TransactionStatus.IDLE):
            raise ValidationError("connection is closed, busy, or its transaction has failed", field="connection")
        if connection.autocommit and status != TransactionStatus.INTRANS:
            raise ValidationError("connection has no open transaction", field="connection")
        memory, prepares = Memory(), connection.prepare_threshold
        memory.profiles = self._memory.profiles
        session = PostgresSession(connection, self._sql, self.ledger_id, memory, self._clock, self._marks, self.intern_profile)
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
            raise _translated(error) from error
        finally:
            connection.prepare_threshold = prepares
        return answer

    def intern_profile(self, key: tuple[str, str, str]) -> int:
        def work(session: Session) -> int:
            assert isinstance(session, PostgresSession)
            return session.intern_profile(key)

        return self.transact("work", work)

    def read(self, work: Callable[[Session], T]) -> T:
        def looked(connection: Connection) -> T:
            session = self._session(connection)
            answer = work(session)
            self._memory.keep(session)
            return answer

        return self._read(looked)

    def peek(self, work: Callable[[Session], T]) -> T:
        return self._reading(lambda connection: work(self._session(connection)))

    def poke(self, work: Callable[[Session], T], *, again: bool = True) -> T:
        return self._reading(partial(self._poke, work), outcome="unknown", again=again)

    def _poke(self, work: Callable[[Session], T], connection: Connection) -> T:
        session = self._session(connection)
        answer = self._on_server(connection, "BEGIN", lambda _: work(session)) if self._pooled else work(session)
        self._memory.keep(session)
        return answer

    def _on_server(self, connection: Connection, begin: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction; behind a pooler only on the server that this store knows."""
        if self._pooled and self.identity is not None:
            made = connection.execute(f"{begin}; {self._sql['identity']}", prepare=False)
            while made.nextset():
                """The last one is the identity."""
            check_server(made.fetchone(), self.identity, connection)
        else:
            connection.execute(begin)
        answer = work(connection)
        connection.execute("COMMIT")
        return answer

    def _read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one snapshot. It waits for no locked table for long."""
        try:
            return self._reading(lambda connection: self._on_server(connection, _READ, work), patience=READ_SECONDS)
        except Contention as error:
            raise locked_out(error, self.lock_holder()) from error

    def _reading(
        self,
        work: Callable[[Connection], T],
        outcome: Literal["none", "unknown"] = "none",
        patience: float | None = None,
        again: bool = True,
    ) -> T:
        """Run `work` on a connection; once more on a new one where an old one turns out dead, unless `again` is False.

        `outcome` is what is known of its effects when the connection breaks. `patience` is how long one statement may take.
        """
        connection, used = self._take(patience)
        try:
            try:
                answer = work(connection)
            except psycopg.Error:
                if not (again and used and connection.closed):
                    raise
                self._is_suspect = True
                if connection.is_overdue:
                    self._drop_idle()
                connection = self._open(patience)
                answer = work(connection)
        except BaseException as error:
            broken = connection.closed
            self._abandon(connection)
            raise _translated(error, outcome if broken else "none") from error
        self._give_back(connection)
        return answer

    def vitals(self) -> "Vitals":
        from holdfast.store.postgres.vitals import vitals

        found = self._read(lambda connection: vitals(connection, self._sql))
        return replace(found, pooled=bool(self._pooled), poll_ms=None if self._listens else round(POLL_SECONDS * 1_000))

    def lock_holder(self, job_id: int | None = None, seconds: float = 0.0) -> str | None:
        name = "lock_holders" if job_id is None else "lock_holder"
        params = {"schema": self._schema} if job_id is None else {"job_id": job_id, "seconds": seconds}

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            # A job's row cannot be looked at while the whole table is locked.
            connection.execute(f"BEGIN READ ONLY; SET LOCAL lock_timeout = {LOCK_MS}")
            found = self._session(connection).rows(name, **params)
            connection.execute("COMMIT")
            return found

        try:
            return "; ".join(row[0] for row in self._reading(work)) or None
        except (Unavailable, Contention):
            return None

    # Following

    def settled_pos(self) -> int:
        self._settle()
        return self._settled

    def settled_events(self, after: int, limit: int) -> list[Event]:
        """From below the mark where there are any; else the mark is moved first. Positions may have been drawn in vain."""
        found = self._settled_page(after, limit) if after < self._settled else []
        if not found and self._settle():
            found = self._settled_page(after, limit)
        return found

    def _settled_page(self, after: int, limit: int) -> list[Event]:
        params = {"after": after, "until": self._settled, "limit": limit}

        def work(connection: Connection) -> list[Event]:
            session = self._session(connection)
            found = [session.event(row) for row in session.rows("settled", **params)]
            self._memory.keep(session)
            return found

        return self._read(work)

    def settled_rows(self, after: int, limit: int) -> SettledRows:
        found = self._settled_rows(after, limit) if after < self._settled else None
        if (found is None or not (found.events or found.keys)) and self._settle():
            found = self._settled_rows(after, limit)
        return found or SettledRows([], [], after)

    def _settled_rows(self, after: int, limit: int) -> SettledRows:
        params = {"after": after, "until": self._settled}

        def work(connection: Connection) -> SettledRows:
            events = raw_cursor(connection).execute(self._sql["leaf_events"], params | {"limit": limit}).fetchall()
            until = events[-1][0] if len(events) == limit else params["until"]
            return SettledRows(events, self._session(connection).leaf_keys(after, until), until, POSTGRES_EPOCH_US)

        return self._read(work)

    def _settle(self) -> bool:
        """Move the mark below which no transaction can still add an event; False where it stays where it was."""

        def work(connection: Connection) -> bool:
            session = self._session(connection)
            if self._pooled:
                check_server(self._identity(connection), self.identity, connection)
            newest = session.one("last_pos")
            if newest is None or newest[0] <= self._settled:
                return False
            found = session.one("horizon")
            assert found is not None
            last, mine = found
            for pause in SETTLE_PAUSES:
                time.sleep(pause)
                oldest = session.one("xmin")
                if oldest is not None and oldest[0] > mine:
                    self._settled = max(self._settled, last)
                    return True
            return False

        before = self._settled
        with self._settling:
            return self._settled > before or self._reading(work)

    # Waking

    @property
    def _listens(self) -> bool:
        """A pooler passes no notifications on."""
        return self._listen is not None or not self._pooled

    def wake(self, queues: Sequence[str]) -> None:
        self._bell.ring(queues, later=not queues)

    def _ring(self, queues: Sequence[str]) -> None:
        self._reading(lambda c: self._session(c).rows("notify", channel=self._schema, queues=list(queues)))

    def waiter(self, *, events: bool) -> Waiter:
        self._check_usable()
        connect = partial(self.connect, conninfo=self._listen) if self._listens else None
        return Listener(connect, self._schema, lambda: self._lost, events=events)

    def close(self) -> None:
        self._bell.close()
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
                upgrade(connection, self._schema, draw_id)
            self.identity, ledger_id = self._on_server(connection, _READ, self._identities)
        except BaseException as error:
            connection.close()
            if isinstance(error, pg.LockNotAvailable):
                raise locked_out(error, self.lock_holder(), "cannot open the ledger: ") from error
            if isinstance(error, psycopg.Error):
                raise Unavailable(f"cannot open the ledger: {_first_line(error)}") from error
            raise
        self._give_back(connection)
        return ledger_id

    def _identities(self, connection: Connection) -> tuple[Any, str]:
        """That of the server, and that of the ledger."""
        found = cursor(connection).execute(self._sql["ledger_id"]).fetchone()
        assert found is not None
        return self._identity(connection), str(found[0])


def _translated(error: BaseException, outcome: Literal["none", "unknown"] = "none") -> BaseException:
    """A driver's error as the contract names it; anything else as it is."""
    if isinstance(error, _IN_THE_WAY):
        return Contention(_with_place(error))
    if isinstance(error, pg.ReadOnlySqlTransaction):
        refused = Unavailable("the server takes no writes: it is a read replica, or set to read only")
        refused.action = "Connect to the primary; with several hosts in the url, target_session_attrs=read-write finds it."
        return refused
    if isinstance(error, pg.DataError | pg.IntegrityError | pg.ProgrammingError | pg.ProgramLimitExceeded):
        return StatementFailed(_first_line(error))
    if isinstance(error, psycopg.Error):
        return Unavailable(f"the database cannot do this now: {_first_line(error)}", outcome=outcome)
    if isinstance(error, Unavailable) and outcome == "unknown":
        return Unavailable(error.message, outcome=outcome)
    return error


def _with_place(error: psycopg.Error) -> str:
    """With the table whose row was locked, where the server says it."""
    place = (error.diag.context or "").split("\n", 1)[0]
    return f"{_first_line(error)} {place}".rstrip()


def _first_line(error: psycopg.Error) -> str:
    """Without detail lines, which may quote values."""
    return str(error).split("\n", 1)[0]
