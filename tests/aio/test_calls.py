"""Calls from an event loop: in threads, many at once, cancelled at any moment."""

import asyncio
import contextlib
import multiprocessing
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Context, Unavailable
from holdfast.aio import CALLS_MAX, WAITS_MAX, AsyncLedger
from holdfast.composition import SystemEntropy
from holdfast.errors import LimitExceeded, NotFound, ValidationError
from tests.support.validating import validating

SECONDS = 20.0
"""How long a test waits for something that should happen at once."""


def wait_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("holdfast-wait")]


def open_files() -> list[str]:
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(one.readlink()))
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_job_is_enqueued_claimed_and_completed(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.aio.open(store_url, actor="web") as ledger:
            job = await ledger.enqueue("mail", {"to": "ada"}, priority=3)
            [held] = await ledger.claim("worker", start=True)
            waiting = asyncio.create_task(ledger.wait(job.id, timeout=SECONDS))
            await ledger.complete(held.fence, {"sent": True})
            assert (await waiting).result == {"sent": True}
            found = await ledger.events(job.id)
            assert [event.type for event in found] == ["enqueued", "claimed", "started", "succeeded"]
            assert found[0].actor == "client:web"
            assert ledger.id == ledger.sync.id

    asyncio.run(main())


def test_await_raises_refusals(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.aio.open(store_url) as ledger:
            with pytest.raises(NotFound):
                await ledger.get(7)
            with pytest.raises(ValidationError):
                await ledger.enqueue("")
        with pytest.raises(Unavailable) as caught:
            await ledger.get(7)
        assert not caught.value.retryable
        with pytest.raises(ValidationError):
            await holdfast.aio.open("nothing://")

    asyncio.run(main())


def test_a_running_verb_does_not_block_the_loop(tmp_path: Path) -> None:
    """The verb calls a validator that waits until the loop has run other code."""
    seen = threading.Event()

    def validator(job: Any, result: Any) -> None:
        assert seen.wait(SECONDS)

    async def main() -> None:
        async with holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db", validators=validating("slow", validator)) as ledger:
            await ledger.enqueue("slow")
            [held] = await ledger.claim("worker", start=True)
            completing = asyncio.create_task(ledger.complete(held.fence))
            asyncio.get_running_loop().call_later(0, seen.set)
            assert (await completing).status == "succeeded"

    asyncio.run(main())


def test_calls_use_at_most_the_allowed_number_of_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # a ledger that another test has closed may still have threads

    async def main() -> None:
        async with holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
            jobs = await asyncio.gather(*(ledger.enqueue("n", {"n": n}) for n in range(200)))
            assert len({job.id for job in jobs}) == 200
            calls = [one for one in set(threading.enumerate()) - before if one.name.startswith("holdfast-call")]
            assert 0 < len(calls) <= CALLS_MAX

    asyncio.run(main())


def test_a_cancelled_call_can_be_repeated_with_its_request_id(tmp_path: Path) -> None:
    """The call continues in its thread. The same call again returns its answer."""
    begun, go_on = threading.Event(), threading.Event()

    def validator(job: Any, result: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    async def main() -> None:
        async with holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db", validators=validating("slow", validator)) as ledger:
            job = await ledger.enqueue("slow")
            [held] = await ledger.claim("worker", start=True)
            completing = asyncio.create_task(ledger.complete(held.fence, 1, request_id="r"))
            await until(begun.is_set)
            completing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await completing
            assert (await ledger.get(job.id)).status == "running"
            go_on.set()
            change = await ledger.complete(held.fence, 1, request_id="r")
            assert change.status == "succeeded"
            assert (await ledger.get(job.id)).rev == change.rev

    asyncio.run(main())


def test_a_call_may_finish_after_its_loop_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def validator(job: Any, result: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    async def main() -> AsyncLedger:
        ledger = await holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db", validators=validating("slow", validator))
        await ledger.enqueue("slow")
        [held] = await ledger.claim("worker", start=True)
        completing = asyncio.create_task(ledger.complete(held.fence))
        await until(begun.is_set)
        completing.cancel()
        return ledger

    ledger = asyncio.run(main())
    go_on.set()
    ledger._threads._calls.shutdown(wait=True)
    assert caplog.records == []
    assert [job.status for job in ledger.sync.list()] == ["succeeded"]
    ledger.sync.close()


def test_a_forked_child_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    ledger = asyncio.run(_opened(f"sqlite:///{tmp_path}/jobs.db"))

    def child() -> None:
        with pytest.raises(Unavailable, match="fork"):
            asyncio.run(asyncio.wait_for(ledger.list(), SECONDS))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(2 * SECONDS)
    assert process.exitcode == 0
    asyncio.run(ledger.close())


async def _opened(url: str) -> AsyncLedger:
    ledger = await holdfast.aio.open(url)
    await ledger.enqueue("one")
    return ledger


def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_does_not_run(tmp_path: Path) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def validator(job: Any, result: Any) -> None:
        begun.release()
        assert go_on.wait(SECONDS)

    async def main() -> None:
        async with holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db", validators=validating("slow", validator)) as ledger:
            await ledger.enqueue_many([{"kind": "slow"}] * CALLS_MAX)
            held = await ledger.claim("worker", limit=CALLS_MAX, start=True)
            running = [asyncio.create_task(ledger.complete(one.fence)) for one in held]
            for _ in range(CALLS_MAX):
                await asyncio.to_thread(begun.acquire)
            late = asyncio.create_task(ledger.enqueue("late"))
            await asyncio.sleep(0)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            go_on.set()
            await asyncio.gather(*running)
            assert await ledger.list(kind="late") == []

    asyncio.run(main())


def test_events_are_followed_with_async_for(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.aio.open(store_url) as ledger:
            await ledger.enqueue("one")
            seen = []
            async with aclosing(ledger.follow(timeout=SECONDS)) as events:
                async for event in events:
                    seen.append(event.job_id)
                    if len(seen) == 3:
                        break
                    await ledger.enqueue("next")
            assert len(set(seen)) == 3
            rest = [event.job_id async for event in ledger.follow(timeout=0)]
            assert rest == seen
            with pytest.raises(LimitExceeded):
                await anext(ledger.follow(-1))

    asyncio.run(main())


def test_a_wait_that_is_cancelled_ends_its_thread(store_url: str) -> None:
    """Also a wait without a timeout: its thread would prevent the program from ending."""

    async def main() -> None:
        async with holdfast.aio.open(store_url) as ledger:
            job = await ledger.enqueue("never")
            last = (await ledger.events())[-1].pos
            waiter = await ledger.waiter()
            following = ledger.follow(last)
            waits = [
                asyncio.create_task(ledger.wait(job.id)),
                asyncio.ensure_future(anext(following)),
                asyncio.create_task(waiter.wait(3600)),
            ]
            await until(lambda: len(wait_threads()) >= 3)
            for wait in waits:
                wait.cancel()
            assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*waits, return_exceptions=True))
            await following.aclose()
            await waiter.close()
            # Threads without work end now, while the ledger is still open.
            ledger._threads.close()
            await until(lambda: wait_threads() == [])

    asyncio.run(main())


def test_one_wait_too_many_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
            job = await ledger.enqueue("never")
            waits = [asyncio.create_task(ledger.wait(job.id)) for _ in range(WAITS_MAX)]
            await asyncio.sleep(0)
            with pytest.raises(Unavailable) as caught:
                await ledger.wait(job.id)
            assert caught.value.context["waits_max"] == WAITS_MAX
            assert (await ledger.get(job.id)).status == "queued"
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    asyncio.run(main())


def test_a_waiter_is_woken(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.aio.open(store_url) as ledger:
            waiter = await ledger.waiter()
            waiting = asyncio.create_task(waiter.wait(SECONDS))
            await ledger.enqueue("new")
            assert await waiting
            await waiter.close()

    asyncio.run(main())


def test_an_app_enqueues_from_a_loop(store_url: str) -> None:
    app = App(store_url)

    @app.handler
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.handler(queue="mail")
    def send(job: Context, to: str) -> None: ...

    async def main() -> None:
        first, second = await asyncio.gather(app.aio.enqueue(add, 1), app.aio.enqueue(send, to="ada"))
        assert (first.args["a"], second.queue) == (1, "mail")
        urgent = await app.aio.options(priority=9, request_id="r").enqueue(add, a=2)
        assert urgent.priority == 9
        assert [job.args["a"] for job in await app.aio.enqueue_many(add, [{"a": 3}, {"a": 4}])] == [3, 4]
        with pytest.raises(ValidationError):
            await app.aio.enqueue("add", c=1)
        assert len(await app.aio.ledger.list()) == 5
        await app.aio.close()
        assert len(await app.aio.ledger.list()) == 5
        await app.aio.close()

    asyncio.run(main())


def test_a_cancelled_open_leaves_nothing_open(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    before = set(threading.enumerate())

    class Slow(SystemEntropy):
        def nonce(self) -> str:
            begun.set()
            assert go_on.wait(SECONDS)
            return super().nonce()

    async def main() -> None:
        async def opening() -> None:
            await holdfast.aio.open(f"sqlite:///{tmp_path}/jobs.db", entropy=Slow())

        task = asyncio.create_task(opening())
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join(SECONDS)
    assert (tmp_path / "jobs.db").exists()
    assert [name for name in open_files() if name.startswith(str(tmp_path))] == []
