"""Events as a stream that resumes and misses none."""

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.server.streams import EventFeed
from tests.support.server import Client, RunningServer, running

WAIT_SECONDS = 30.0
SECONDS = 20.0


@pytest.fixture
def live(real: Ledger) -> Iterator[RunningServer]:
    with running(real) as server:
        yield server


class Follower:
    """Reads the messages of a stream, one after the other."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response

    def next(self) -> dict[str, Any]:
        """Return the next message with data: its event, id and data."""
        found: dict[str, Any] = {}
        until = time.monotonic() + WAIT_SECONDS
        while True:
            assert time.monotonic() < until, f"no message with data came: {found}"
            line = self.response.readline().decode()
            assert line, "the stream has ended"
            if line == "\n" and "data" in found:
                return found
            name, separator, text = line.rstrip("\n").partition(": ")
            if separator and name in ("event", "id", "data"):
                found[name] = json.loads(text) if name == "data" else text

    def events(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = self.next()
            if message["event"] == "event":
                found.append(message)
        return found


@contextmanager
def following(client: Client, query: str = "", **headers: str) -> Iterator[Follower]:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
    try:
        named = {"Authorization": f"Bearer {client.token}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        connection.request("GET", f"/v1/events/stream{query}", headers=named)
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (200, "text/event-stream")
        yield Follower(response)
    finally:
        connection.close()


def test_a_follower_gets_each_event_once_in_order(live: RunningServer, real: Ledger) -> None:
    real.enqueue("before")
    with following(live.client("reader", "eye")) as follower:
        hello = follower.next()
        assert (hello["event"], hello["data"]["ledger_id"]) == ("hello", real.id)
        jobs = real.enqueue_many([{"kind": "k"}] * 3)
        real.cancel(jobs[0].id)
        found = follower.events(4)
    assert [(event["data"]["job_id"], event["data"]["type"]) for event in found] == [
        *[(job.id, "enqueued") for job in jobs],
        (jobs[0].id, "cancelled"),
    ]
    assert [int(event["id"]) for event in found] == sorted(int(event["id"]) for event in found)


def test_a_follower_resumes_after_the_last_event(live: RunningServer, real: Ledger) -> None:
    real.enqueue_many([{"kind": "k"}] * 1_200)
    client = live.client("reader", "eye")
    with following(client, "?after=0") as follower:
        first = follower.events(700)
    with following(client, Last_Event_ID=first[-1]["id"]) as follower:
        rest = follower.events(500)
    assert [event["data"]["job_id"] for event in first + rest] == list(range(1, 1_201))


def test_a_filter_chooses_events(live: RunningServer, real: Ledger) -> None:
    with following(live.client("reader", "eye"), "?types=cancelled&queue=b&after=0") as follower:
        real.enqueue("k", queue="a")
        real.enqueue("k", queue="b")
        for number in (1, 2):
            real.cancel(number)
        [event] = follower.events(1)
    assert event["data"]["job_id"] == 2


def test_a_token_sees_only_its_queues(live: RunningServer, real: Ledger) -> None:
    with following(live.client("reader", "eye", queues=["mail*"]), "?after=0") as follower:
        real.enqueue("k", queue="crawl")
        real.enqueue("k", queue="mail-1")
        [event] = follower.events(1)
    assert event["data"]["payload"]["queue"] == "mail-1"


def test_a_position_of_another_ledger_is_refused(live: RunningServer) -> None:
    client = live.client("reader", "eye")
    refused = client.get("/v1/events/stream", Last_Event_ID="999999")
    assert (refused.status, refused.data["code"]) == (409, "conflict")
    assert client.get("/v1/events/stream?types=nonsense").status == 400
    assert client.get("/v1/events/stream", Last_Event_ID="x").status == 400


def test_streams_end_with_the_server(real: Ledger) -> None:
    with running(real) as server, following(server.client("reader", "eye")) as follower:
        follower.next()
        server.server.end()
        assert follower.next()["data"] == {"reason": "ending"}


def test_a_caller_may_have_twenty_streams(live: RunningServer) -> None:
    from contextlib import ExitStack

    client = live.client("reader", "eye")
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(following(client)).next()
        refused = client.get("/v1/events/stream")
        assert (refused.status, refused.data["code"]) == (429, "too_many_requests")


class HeldReads:
    """Runs reads at once, and holds the answers that a test chooses until it releases them."""

    def __init__(self, hold: Callable[[Any, Any], asyncio.Event | None]) -> None:
        self._hold = hold

    async def call(self, work: Callable[[], Any]) -> Any:
        answer = work()
        held = self._hold(work, answer)
        if held is not None:
            await held.wait()
        return answer


def test_two_followers_that_join_at_once_miss_nothing(ledger: Ledger) -> None:
    """The second one must not set the feed back while the reader is in the middle of a page."""

    async def join_and_follow() -> list[int]:
        joined, reading, read = asyncio.Event(), asyncio.Event(), asyncio.Event()
        positions: list[int] = []
        late: list[int] = []

        def hold(work: Any, answer: Any) -> asyncio.Event | None:
            if work == ledger.stable_position:
                positions.append(answer)
                return joined if len(positions) == 1 else None
            if not reading.is_set() and answer and late and answer[-1].job_id == late[0]:
                reading.set()
                return read
            return None

        async def follow_late() -> list[int]:
            async with feed.joined("late"):
                started.set()
                await asyncio.wait_for(read.wait(), SECONDS)
                found: list[int] = []
                pos = positions[0]
                while len(found) < 2:
                    entries, pos = await feed.after(pos, SECONDS)
                    found += [entry.event.job_id for entry in entries]
                return found

        feed, started = EventFeed(ledger, HeldReads(hold)), asyncio.Event()  # type: ignore[arg-type]
        task = asyncio.create_task(follow_late())
        while not positions:
            await asyncio.sleep(0)
        async with feed.joined("early"):
            first = ledger.enqueue("k").id
            feed.notify()
            await feed.after(positions[0], SECONDS)
            late.append(ledger.enqueue("k").id)
            feed.notify()
            await asyncio.wait_for(reading.wait(), SECONDS)
            joined.set()
            await asyncio.wait_for(started.wait(), SECONDS)
            read.set()
            found = await asyncio.wait_for(task, SECONDS)
        return [id_ - first for id_ in found]

    assert asyncio.run(join_and_follow()) == [0, 1]


def test_the_reader_of_a_feed_survives_an_error_that_is_none_of_ours(ledger: Ledger) -> None:
    async def follow() -> list[int]:
        failures = [ZeroDivisionError("a defect")]

        def hold(work: Any, answer: Any) -> None:
            if work != ledger.stable_position and answer and failures:
                raise failures.pop()

        feed = EventFeed(ledger, HeldReads(hold))  # type: ignore[arg-type]
        async with feed.joined("one"):
            before, job = feed.pos, ledger.enqueue("k")
            feed.notify()
            found, _ = await feed.after(before, SECONDS)
        return [entry.event.job_id - job.id for entry in found]

    assert asyncio.run(follow()) == [0]
