"""The driver's connection below what another library has wrapped around it. No such library is imported here."""

from collections.abc import Callable
from typing import Any

from holdfast.errors import UnsupportedConnection, ValidationError
from holdfast.store.awaiting import is_awaited, on_loop


def unwrap(connection: Any) -> Any:
    """Return the driver's connection of a SQLAlchemy session or connection, or of a Django connection.

    Return anything else as it is.
    """
    for kind in type(connection).__mro__:
        found = _WRAPPERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found(connection)
    return connection


def unsupported(connection: Any, wanted: str, action: str) -> UnsupportedConnection:
    """The refusal of a connection whose driver the ledger's store cannot use."""
    kind = type(connection)
    driver = kind.__module__.partition(".")[0]
    refused = UnsupportedConnection(
        f"connection must be {wanted}, not {kind.__module__}.{kind.__qualname__}", field="connection", driver=driver
    )
    refused.action = action
    return refused


def not_awaited(connection: Any) -> UnsupportedConnection:
    """The refusal of a connection of an event loop by a verb that was called without `await`."""
    return unsupported(connection, "one that blocks", "Use this connection with await: see holdfast.aio.")


def _of_session(session: Any) -> Any:
    return _of_connection(session.connection())


def _of_connection(connection: Any) -> Any:
    """Begin as its first statement would: else its commit would do nothing, and its end would roll the job back."""
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _of_async_session(session: Any) -> Any:
    async def connection() -> Any:
        return await _driver_connection(await session.connection())

    return _on_loop(session, connection)


def _of_async_connection(connection: Any) -> Any:
    return _on_loop(connection, lambda: _driver_connection(connection))


async def _driver_connection(connection: Any) -> Any:
    if not connection.in_transaction():
        await connection.begin()
    return (await connection.get_raw_connection()).driver_connection


def _on_loop(connection: Any, make: Any) -> Any:
    if not is_awaited():
        raise not_awaited(connection)
    return on_loop(make)


def _of_django(connection: Any) -> Any:
    """A connection of Django's belongs to a thread, and is there once `transaction.atomic` has begun."""
    if connection.connection is None:
        raise ValidationError("connection has no open transaction", field="connection")
    return connection.connection


_WRAPPERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("sqlalchemy", "Session"): _of_session,
    ("sqlalchemy", "scoped_session"): _of_session,
    ("sqlalchemy", "Connection"): _of_connection,
    ("sqlalchemy", "AsyncSession"): _of_async_session,
    ("sqlalchemy", "async_scoped_session"): _of_async_session,
    ("sqlalchemy", "AsyncConnection"): _of_async_connection,
    ("django", "BaseDatabaseWrapper"): _of_django,
    ("django", "ConnectionProxy"): _of_django,
}
