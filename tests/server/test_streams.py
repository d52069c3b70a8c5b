"""Events as a stream that resumes and misses none."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Ledger
from tests.support.server import Client, RunningServer, running


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
        while True:
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
