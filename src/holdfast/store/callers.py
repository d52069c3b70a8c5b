"""Calls that a thread runs for a coroutine, and connections that the caller passes in."""

import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Unavailable, UnsupportedConnection, ValidationError

if TYPE_CHECKING:
    import asyncio


T = TypeVar("T")

LOOP_SECONDS = 30.0
"""How long a thread waits for one statement that the event loop runs for it."""


class Abandoned(BaseException):
    """The coroutine that this thread worked for was cancelled. It ends the thread's work; no caller sees it."""


class AwaitedCall:
    """One call in a thread that a coroutine waits for."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._uses_connection = False
        self._abandoned = False

    def use_connection(self) -> None:
        """Note that the thread uses the coroutine's connection from now on. Raise Abandoned if the coroutine was cancelled."""
        with self._lock:
            if self._abandoned:
                raise Abandoned
            self._uses_connection = True

    def abandon(self) -> bool:
        """Note that the coroutine was cancelled. Return whether it has to wait because the thread uses its connection."""
        with self._lock:
            self._abandoned = True
            return self._uses_connection

    @property
    def is_abandoned(self) -> bool:
        return self._abandoned or self.loop.is_closed()


AWAITED_CALL: ContextVar[AwaitedCall | None] = ContextVar("holdfast_awaited", default=None)
"""The call that this thread runs for a coroutine. None in any other thread."""


def stop_if_abandoned() -> None:
    """Raise Abandoned if this thread works for a cancelled coroutine. Long waits call it about every second."""
    awaited = AWAITED_CALL.get()
    if awaited is not None and awaited.is_abandoned:
        raise Abandoned


def use_connection() -> None:
    """Note that this call uses its caller's connection from now on."""
    awaited = AWAITED_CALL.get()
    if awaited is not None:
        awaited.use_connection()


def is_awaited() -> bool:
    """Return whether this thread works for a coroutine, so that `run_on_loop` can be used."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return AWAITED_CALL.get() is not None
    return False


def run_on_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the event loop that waits for this thread. Raise Unavailable if the loop takes too long.

    A coroutine that has not begun by then does not run later.
    """
    import asyncio

    awaited = AWAITED_CALL.get()
    assert awaited is not None
    given_up = False

    async def run() -> T:
        if given_up:
            raise asyncio.CancelledError
        return await make()

    coroutine = run()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, awaited.loop)
    except RuntimeError:
        coroutine.close()
        raise Unavailable("the event loop has ended") from None
    try:
        return future.result(LOOP_SECONDS)
    except TimeoutError:
        if future.done():
            raise
        given_up = True
        future.cancel()
        late = Unavailable(f"the event loop did not run a statement within {LOOP_SECONDS:g} seconds", outcome="unknown")
        late.action = "Roll back the transaction. Look for code that blocks the event loop."
        raise late from None


def unwrap(connection: Any) -> Any:
    """Return the driver's connection of a SQLAlchemy session or connection, or of a Django connection.

    Return anything else as it is.
    """
    for kind in type(connection).__mro__:
        found = _WRAPPERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found(connection)
    return connection


def unsupported_connection(connection: Any, wanted: str, action: str) -> UnsupportedConnection:
    """Return the error for a connection of a driver that the ledger's store cannot use."""
    kind = type(connection)
    driver = kind.__module__.partition(".")[0]
    refused = UnsupportedConnection(
        f"connection must be {wanted}, not {kind.__module__}.{kind.__qualname__}", field="connection", driver=driver
    )
    refused.action = action
    return refused


def unawaited_connection(connection: Any) -> UnsupportedConnection:
    """Return the error for an event loop's connection that was given to a verb called without `await`."""
    return unsupported_connection(connection, "one that blocks", "Use this connection with await: see holdfast.aio.")


def _unwrap_session(session: Any) -> Any:
    return _unwrap_connection(session.connection())


def _unwrap_connection(connection: Any) -> Any:
    """Begin a transaction as the first statement would. Otherwise its commit does nothing and its end rolls the job back."""
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _unwrap_async_session(session: Any) -> Any:
    async def connection() -> Any:
        return await _driver_connection(await session.connection())

    return _unwrap_on_loop(session, connection)


def _unwrap_async_connection(connection: Any) -> Any:
    return _unwrap_on_loop(connection, lambda: _driver_connection(connection))


async def _driver_connection(connection: Any) -> Any:
    if not connection.in_transaction():
        await connection.begin()
    return (await connection.get_raw_connection()).driver_connection


def _unwrap_on_loop(connection: Any, make: Any) -> Any:
    if not is_awaited():
        raise unawaited_connection(connection)
    return run_on_loop(make)


def _unwrap_django(connection: Any) -> Any:
    """Return the driver's connection. It belongs to one thread and exists once `transaction.atomic` has begun."""
    if connection.connection is None:
        raise ValidationError("connection has no open transaction", field="connection")
    return connection.connection


_WRAPPERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("sqlalchemy", "Session"): _unwrap_session,
    ("sqlalchemy", "scoped_session"): _unwrap_session,
    ("sqlalchemy", "Connection"): _unwrap_connection,
    ("sqlalchemy", "AsyncSession"): _unwrap_async_session,
    ("sqlalchemy", "async_scoped_session"): _unwrap_async_session,
    ("sqlalchemy", "AsyncConnection"): _unwrap_async_connection,
    ("django", "BaseDatabaseWrapper"): _unwrap_django,
    ("django", "ConnectionProxy"): _unwrap_django,
}
