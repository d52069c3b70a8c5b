"""Waits of a remote ledger: for new work, for a result, and for events."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

import pytest

import holdfast
from holdfast import Event, Ledger
from holdfast.remote import transport
from tests.aio.test_calls import until, wait_threads
from tests.remote.scripted import JSON, PAGE, Prepared, Scripted, refusal
from tests.remote.test_answers import ANY
from tests.support.proxy import Proxy
from tests.support.server import RunningServer
from tests.support.waiting import wait_until

SECONDS = 20.0


# New work


def test_a_waiter_misses_no_change_between_two_waits(remote: Ledger) -> None:
    waiter = remote.waiter()
    remote.enqueue("index_page")
    assert waiter.wait(SECONDS)
    waiter.close()


def test_a_waiter_asks_once_for_many_short_waits(remote: Ledger, behind: Ledger, routes: list[str]) -> None:
    waiter = remote.waiter()
    assert not any(waiter.wait(0.01) for _ in range(20))
    behind.enqueue("index_page")
    assert waiter.wait(SECONDS)
    waiter.close()
    wait_until(lambda: routes.count("/v1/wake") == 2, what="both requests in the log")
    remote.now()
    assert routes.count("/v1/wake") == 2


def test_a_waiter_whose_connection_was_cut_looks_again(remote: Ledger, line: Proxy) -> None:
    waiter = remote.waiter()
    assert not waiter.wait(0.01)
    line.go_away()
    line.come_back()
    assert waiter.wait(SECONDS)
    remote.enqueue("index_page")
    assert waiter.wait(SECONDS)
    waiter.close()


def test_more_waiters_than_connections_look_again(remote: Ledger, behind: Ledger) -> None:
    waiters = [remote.waiter() for _ in range(transport.CONNECTIONS_MAX["wait"] + 1)]
    assert [waiter.wait(0.01) for waiter in waiters] == [False] * (len(waiters) - 1) + [True]
    behind.enqueue("index_page")
    assert all(waiter.wait(SECONDS) for waiter in waiters)
    for waiter in waiters:
        waiter.close()


# Results


def test_the_result_of_a_job_is_awaited(remote: Ledger, behind: Ledger, routes: list[str]) -> None:
    job = remote.enqueue("index_page")
    [held] = behind.claim("w-1", start=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(remote.result, job, timeout=SECONDS)
        behind.complete(held.fence, {"pages": 3})
        assert waiting.result(SECONDS) == {"pages": 3}
    wait_until(lambda: "/v1/jobs/{job_id}" in routes, what="the request in the log")
    assert routes.count("/v1/jobs/{job_id}") == 1


def test_more_waits_than_connections_are_all_answered(remote: Ledger, behind: Ledger) -> None:
    jobs = remote.enqueue_many([{"kind": "index_page"}] * (transport.CONNECTIONS_MAX["wait"] + 3))
    with ThreadPoolExecutor(len(jobs)) as pool:
        waiting = [pool.submit(remote.wait, job, timeout=SECONDS) for job in jobs]
        behind.on_jobs("cancel", [job.id for job in jobs])
        assert [found.result(SECONDS).status for found in waiting] == ["cancelled"] * len(jobs)


# Events


@contextmanager
def following(ledger: Ledger, after: int = 0) -> Iterator["SimpleQueue[Event]"]:
    """Follow in a thread until a job of the kind `last` is enqueued."""
    events: SimpleQueue[Event] = SimpleQueue()

    def follow() -> None:
        for event in ledger.follow(after):
            events.put(event)
            if ledger.get(event.job_id).kind == "last":
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield events
    thread.join(SECONDS)
    assert not thread.is_alive()


def positions(events: "SimpleQueue[Event]", count: int) -> list[int]:
    return [events.get(timeout=SECONDS).pos for _ in range(count)]


def test_a_follower_gets_every_event_and_ends(remote: Ledger) -> None:
    for _ in range(3):
        remote.enqueue("index_page")
    assert [event.job_id for event in remote.follow(timeout=0.1)] == [1, 2, 3]
    assert list(remote.follow(3, timeout=0)) == []


def has_stream(served: RunningServer) -> None:
    wait_until(lambda: served.server.feed._followers, what="a stream")


def test_a_follower_uses_one_stream(remote: Ledger, behind: Ledger, served: RunningServer, routes: list[str]) -> None:
    with following(remote) as events:
        has_stream(served)
        for _ in range(5):
            behind.enqueue("index_page")
            positions(events, 1)
        behind.enqueue("last")
        positions(events, 1)
    wait_until(lambda: "/v1/events/stream" in routes, what="the stream in the log")
    assert routes.count("/v1/events/stream") == 1
    assert routes.count("/v1/events") <= 2


def test_a_follower_goes_on_after_its_stream_was_cut(remote: Ledger, behind: Ledger, served: RunningServer, line: Proxy) -> None:
    with following(remote) as events:
        has_stream(served)
        behind.enqueue("index_page")
        found = positions(events, 1)
        behind.enqueue("index_page")
        found += positions(events, 1)
        line.go_away()
        behind.enqueue_many([{"kind": "index_page"}] * 3)
        line.come_back()
        found += positions(events, 3)
        has_stream(served)
        behind.enqueue("last")
        found += positions(events, 1)
    assert found == [event.pos for event in behind.events()]


def test_a_follower_of_a_stream_with_a_cut_answer_misses_nothing(remote: Ledger, behind: Ledger, line: Proxy) -> None:
    line.cut("after", statement=b"GET /v1/events/stream")
    with following(remote) as events:
        assert line.was_cut.wait(SECONDS)
        behind.enqueue("index_page")
        behind.enqueue("last")
        assert positions(events, 2) == [event.pos for event in behind.events()]


@pytest.mark.parametrize(
    "refused",
    [refusal(429, "too_many_requests", retryable=True), (200, PAGE, "<h1>Welcome</h1>", {}), refusal(404, "not_found")],
    ids=["too many", "page", "not found"],
)
def test_events_are_polled_if_the_stream_is_refused(behind: Ledger, refused: Prepared) -> None:
    behind.enqueue("index_page")
    [event] = behind.events()
    none: Prepared = (200, JSON, {"events": [], "next_after": None}, {})
    found: Prepared = (200, JSON, {"events": [event], "next_after": None}, {})
    with Scripted(none, refused, none, found, none) as script, holdfast.open(script.url, token=ANY) as ledger:
        assert next(ledger.follow()) == event
    paths = [path.partition("?")[0] for _, path, _ in script.asked[2:]]
    assert paths == ["/v1/events", "/v1/events/stream", "/v1/events", "/v1/events"]


def test_a_page_of_hidden_events_is_passed_over(behind: Ledger) -> None:
    behind.enqueue_many([{"kind": "index_page"}] * 2)
    first, second = behind.events()
    hidden: Prepared = (200, JSON, {"events": [], "next_after": 40}, {})
    found: Prepared = (200, JSON, {"events": [first], "next_after": 80}, {})
    rest: Prepared = (200, JSON, {"events": [second], "next_after": None}, {})
    with Scripted(hidden, found, rest) as script, holdfast.open(script.url, token=ANY) as ledger:
        events = ledger.follow(20)
        assert [next(events), next(events)] == [first, second]
    assert [path.partition("after=")[2].partition("&")[0] for _, path, _ in script.asked[2:]] == ["20", "40", "80"]


def test_more_followers_than_connections_get_every_event(remote: Ledger, behind: Ledger) -> None:
    with ExitStack() as stack:
        followers = [stack.enter_context(following(remote)) for _ in range(transport.CONNECTIONS_MAX["stream"] + 1)]
        behind.enqueue("index_page")
        behind.enqueue("last")
        assert [positions(events, 2) for events in followers] == [[1, 2]] * len(followers)


def test_a_wait_that_is_cancelled_ends_its_thread(served: RunningServer, token: str) -> None:
    """Also one without a timeout. A request that waits would last 30 seconds, and a stream an hour."""

    async def main() -> None:
        async with holdfast.aio.open(served.url, token=token) as ledger:
            job = await ledger.enqueue("never")
            following = ledger.follow((await ledger.events())[-1].pos)
            waiter = await ledger.waiter()
            waits = [
                asyncio.create_task(ledger.wait(job.id)),
                asyncio.ensure_future(anext(following)),
                asyncio.create_task(waiter.wait(3600)),
            ]
            await until(lambda: served.server.feed._followers == 1 and len(served.server.claims._listeners) == 2)
            for wait in waits:
                wait.cancel()
            assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*waits, return_exceptions=True))
            await following.aclose()
            await waiter.close()
            ledger._threads.close()
            await until(lambda: wait_threads() == [])

    asyncio.run(main())
