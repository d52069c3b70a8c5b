"""Enqueueing in the caller's own transaction from an event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import holdfast
from holdfast import App, Unavailable
from holdfast.aio import AsyncLedger
from holdfast.errors import FenceLost, UnsupportedConnection, ValidationError
from holdfast.store import callers
from tests.support.histories import problems

Test = Callable[[AsyncLedger, Any], Awaitable[None]]


def on_connection(pg_url: str, test: Test, **options: Any) -> None:
    """Run `test` with a ledger and an AsyncConnection to its database, and check the ledger afterwards."""

    async def main() -> None:
        async with holdfast.aio.open(pg_url) as ledger:
            connection = await psycopg.AsyncConnection.connect(pg_url.partition("?")[0], **options)
            try:
                await test(ledger, connection)
            finally:
                await connection.close()
            assert await asyncio.to_thread(problems, ledger.sync) == []

    asyncio.run(main())


def on_engine(pg_url: str, test: Test) -> None:
    async def main() -> None:
        engine = create_async_engine(pg_url.partition("?")[0].replace("postgresql://", "postgresql+psycopg://"))
        try:
            async with holdfast.aio.open(pg_url) as ledger:
                await test(ledger, engine)
        finally:
            await engine.dispose()

    asyncio.run(main())


async def waits_for_a_lock(connection: Any, observer: Any) -> None:
    """Return when this connection waits for a lock."""
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    async with asyncio.timeout(20):
        while await (await observer.execute(query, [connection.info.backend_pid])).fetchone() != (True,):
            await asyncio.sleep(0)


async def kinds(ledger: AsyncLedger) -> list[str]:
    return [job.kind for job in await ledger.list()]


def test_a_job_is_committed_or_rolled_back_with_the_transaction(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        await connection.execute("CREATE TEMPORARY TABLE orders (id integer)")
        await connection.commit()
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES (1)")
            first = await ledger.enqueue("first", {"order": 1}, dedupe_key="k", request_id="r", connection=connection)
            again = await ledger.enqueue("first", dedupe_key="k", connection=connection)
            assert (again.id, again.is_new) == (first.id, False)
            await ledger.enqueue_many([{"kind": "many"}] * 2, connection=connection)
            await ledger.enqueue("after", depends_on=[first], connection=connection)
            assert await kinds(ledger) == []
        assert await kinds(ledger) == ["first", "many", "many", "after"]
        await ledger.enqueue("dropped", policy={"attempts_max": 2}, connection=connection)
        await connection.rollback()
        assert await kinds(ledger) == ["first", "many", "many", "after"]
        assert await (await connection.execute("SELECT id FROM orders")).fetchall() == [(1,)]

    on_connection(pg_url, test)


def test_the_callers_row_and_cursor_factories_are_ignored(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        await ledger.enqueue("ship", {"n": 1}, connection=connection)
        await connection.commit()
        assert [job.args for job in await ledger.list()] == [{"n": 1}]

    on_connection(pg_url, test, row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.AsyncClientCursor)


def test_a_refusal_leaves_the_transaction_usable(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        await ledger.enqueue("kept", connection=connection)
        with pytest.raises(holdfast.HoldfastError):
            await ledger.enqueue("after", depends_on=[999], connection=connection)
        await connection.commit()
        assert await kinds(ledger) == ["kept"]

    on_connection(pg_url, test)


def test_calls_on_one_connection_take_turns(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        made = await asyncio.gather(*(ledger.enqueue("n", {"n": n}, connection=connection) for n in range(8)))
        await connection.commit()
        assert {job.id for job in await ledger.list()} == {job.id for job in made}

    on_connection(pg_url, test)


def test_a_connection_in_autocommit_is_refused(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        with pytest.raises(ValidationError, match="no open transaction"):
            await ledger.enqueue("ship", connection=connection)
        async with connection.transaction():
            await ledger.enqueue("ship", connection=connection)
        assert await kinds(ledger) == ["ship"]

    on_connection(pg_url, test, autocommit=True)


def test_a_blocking_verb_refuses_an_async_connection(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        with pytest.raises(UnsupportedConnection) as caught:
            ledger.sync.enqueue("ship", connection=connection)
        assert caught.value.context["driver"] == "psycopg"
        assert "holdfast.aio" in caught.value.action

    on_connection(pg_url, test)


def test_a_sqlite_ledger_refuses_an_async_connection(pg_url: str, tmp_path: Any) -> None:
    async def test(_: AsyncLedger, connection: Any) -> None:
        async with holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
            with pytest.raises(UnsupportedConnection) as caught:
                await ledger.enqueue("ship", connection=connection)
            assert caught.value.context["driver"] == "psycopg"

    on_connection(pg_url, test)


def test_waiting_for_a_lock_does_not_block_the_loop(pg_url: str) -> None:
    """Another transaction has locked the key. The same loop ends that transaction."""

    async def test(ledger: AsyncLedger, connection: Any) -> None:
        holder = await psycopg.AsyncConnection.connect(pg_url.partition("?")[0])
        await ledger.enqueue("ship", dedupe_key="k", connection=holder)
        await connection.execute("SELECT 1")
        waiting = asyncio.create_task(ledger.enqueue("ship", dedupe_key="k", connection=connection))
        await waits_for_a_lock(connection, holder)
        await holder.commit()
        assert not (await waiting).is_new
        await connection.commit()
        await holder.close()

    on_connection(pg_url, test)


def test_a_cancelled_call_ends_before_the_cancellation_is_raised(pg_url: str) -> None:
    """Otherwise its statements would run in the caller's next transaction."""

    async def test(ledger: AsyncLedger, connection: Any) -> None:
        holder = await psycopg.AsyncConnection.connect(pg_url.partition("?")[0])
        await ledger.enqueue("ship", dedupe_key="k", connection=holder)
        await connection.execute("SELECT 1")
        waiting = asyncio.create_task(ledger.enqueue("late", dedupe_key="k", connection=connection))
        await waits_for_a_lock(connection, holder)
        for _ in range(3):
            waiting.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        assert not waiting.done()
        await holder.rollback()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await connection.rollback()
        await connection.execute("SELECT 1")
        await connection.commit()
        assert await kinds(ledger) == []
        await holder.close()

    on_connection(pg_url, test)


def test_a_call_waits_a_limited_time_for_a_blocked_loop(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that has timed out does not run later."""
    monkeypatch.setattr(callers, "LOOP_SECONDS", 0.05)

    async def test(ledger: AsyncLedger, connection: Any) -> None:
        failed = threading.Event()

        def enqueue() -> None:
            try:
                ledger.sync.enqueue("ship", connection=connection)
            finally:
                failed.set()

        waiting = asyncio.create_task(ledger._threads.call(enqueue))
        await asyncio.sleep(0)
        assert failed.wait(20)  # on the loop's own thread, which is blocked meanwhile
        with pytest.raises(Unavailable) as caught:
            await waiting
        assert caught.value.outcome == "unknown"
        for _ in range(10):
            await asyncio.sleep(0)
        assert connection.info.transaction_status == TransactionStatus.IDLE

    on_connection(pg_url, test)


def test_a_job_is_enqueued_in_an_async_sqlalchemy_session(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await ledger.enqueue("session", connection=session)
            assert await kinds(ledger) == []
        async with AsyncSession(engine) as session:
            await ledger.enqueue("begun", connection=session)
            await session.commit()
            await ledger.enqueue("dropped", connection=session)
            await session.rollback()
        async with engine.connect() as connection:
            await ledger.enqueue("connection", connection=connection)
            await connection.commit()
        async with engine.begin() as connection:
            await ledger.enqueue("engine", connection=connection)
        assert await kinds(ledger) == ["session", "begun", "connection", "engine"]

    on_engine(pg_url, test)


def test_a_fence_is_checked_in_the_transaction(pg_url: str) -> None:
    async def test(ledger: AsyncLedger, connection: Any) -> None:
        await ledger.enqueue("ship")
        [first] = await ledger.claim("worker", start=True)
        await ledger.release(first.fence)
        [second] = await ledger.claim("worker", start=True)
        resource = f"orders-{ledger.id}"
        await holdfast.aio.check_fence(connection, resource, second.fence)
        await connection.commit()
        with pytest.raises(FenceLost):
            await holdfast.aio.check_fence(connection, resource, first.fence)
        with pytest.raises(UnsupportedConnection):
            holdfast.check_fence(connection, resource, second.fence)

    on_connection(pg_url, test)


def test_a_blocking_connection_is_used_in_a_thread(pg_url: str) -> None:
    async def main() -> None:
        async with holdfast.aio.open(pg_url) as ledger:
            with psycopg.connect(pg_url.partition("?")[0]) as connection:
                await ledger.enqueue("ship", connection=connection)
            assert await kinds(ledger) == ["ship"]

    asyncio.run(main())


def test_an_app_joins_the_transaction(pg_url: str) -> None:
    app = App(pg_url)

    @app.handler
    def ship(order: int) -> None: ...

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(pg_url.partition("?")[0]) as connection:
            await app.aio.options(connection=connection).enqueue(ship, order=1)
            assert await kinds(app.aio.ledger) == []
        assert await kinds(app.aio.ledger) == ["ship"]
        await app.aio.close()

    asyncio.run(main())
