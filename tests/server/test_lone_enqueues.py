"""Lone enqueues of many connections: they share transactions, and each has its own answer."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Ledger
from holdfast.core.model import Actor, Role
from holdfast.errors import HoldfastError, IdempotencyConflict
from holdfast.ledger.verbs.jobs import EnqueueCall, EnqueuedJob, enqueue_together
from tests.support.server import Answer, Client, RunningServer, running

WHO = Actor(Role.CLIENT, "app")


def _call(number: int, request_id: str | None = None, **more: Any) -> EnqueueCall:
    return EnqueueCall({"kind": "k", "args": {"number": number}, "queue": "q", **more}, request_id, WHO)


def _jobs(found: list[EnqueuedJob | HoldfastError | None]) -> list[EnqueuedJob]:
    return [one for one in found if isinstance(one, EnqueuedJob)]


def test_calls_together_are_one_transaction_with_an_answer_each(ledger: Ledger) -> None:
    found = _jobs(enqueue_together(ledger, [_call(number, f"r-{number}") for number in range(5)]))
    assert [one.job.args["number"] for one in found] == list(range(5))
    assert [ledger.get(one.job.id).args for one in found] == [one.job.args for one in found]
    events = ledger.events(types=["enqueued"])
    assert [(event.actor, event.request_id) for event in events] == [("client:app", f"r-{number}") for number in range(5)]
    assert len({event.received_at for event in events}) == 1


def test_a_call_that_is_refused_does_not_affect_the_others(ledger: Ledger) -> None:
    calls = [_call(1, "r-1"), _call(2, "r-2", priority=10**9), _call(3, "r-3", policy={"attempts_max": 0}), _call(4)]
    first, *refused, last = enqueue_together(ledger, calls)
    assert all(isinstance(one, HoldfastError) for one in refused)
    assert [one.job.args["number"] for one in _jobs([first, last])] == [1, 4]
    assert [job.args["number"] for job in ledger.list()] == [1, 4]
    assert [getattr(one, "code", None) for one in enqueue_together(ledger, calls[1:3])] == ["limit_exceeded"] * 2


def test_a_repeated_call_gets_the_first_answer(ledger: Ledger) -> None:
    [first] = _jobs(enqueue_together(ledger, [_call(1, "r-1")]))
    again, other, twice, same = enqueue_together(ledger, [_call(1, "r-1"), _call(2, "r-1"), _call(3, "r-3"), _call(3, "r-3")])
    assert isinstance(again, EnqueuedJob)
    assert (again.job.id, again.is_repeated, first.is_repeated) == (first.job.id, True, False)
    assert isinstance(other, IdempotencyConflict)
    assert [one.is_repeated for one in _jobs([twice, same])] == [False, True]
    assert len({one.job.id for one in _jobs([twice, same])}) == 1


def test_enqueues_of_many_connections_are_all_answered(served: RunningServer, ledger: Ledger) -> None:
    client = served.client("client", "app")

    def enqueue(number: int) -> Answer:
        return client.post("/v1/jobs", {"kind": "k", "args": {"number": number}}, Idempotency_Key=f"r-{number // 2}")

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(enqueue, range(80)))
    created = {answer.data["job"]["id"] for answer in found if answer.status == 201}
    assert sorted(answer.status for answer in found) == [201] * 40 + [422] * 40
    assert {job.id for job in ledger.list()} == created


def test_a_repeated_enqueue_says_so(served: RunningServer) -> None:
    client = served.client("client", "app")
    first, again = (client.post("/v1/jobs", {"kind": "k"}, Idempotency_Key="r-1") for _ in range(2))
    assert (first.status, first.headers.get("idempotent-replayed")) == (201, None)
    assert (again.headers["idempotent-replayed"], again.data["job"]["id"]) == ("true", first.data["job"]["id"])
    refused = client.post("/v1/jobs", {"kind": "k", "priority": 10**9})
    assert (refused.status, refused.data["code"]) == (413, "limit_exceeded")


@pytest.mark.parametrize("options", [{"dedupe_key": "d"}, {"depends_on": [1]}])
def test_an_enqueue_that_may_wait_for_others_is_a_call_by_itself(served: RunningServer, options: dict[str, Any]) -> None:
    client: Client = served.client("client", "app")
    client.post("/v1/jobs", {"kind": "k"})
    answer = client.post("/v1/jobs", {"kind": "k", **options})
    assert (answer.status, answer.data["is_new"]) == (201, True)


def test_a_call_with_an_id_that_is_in_use_waits_by_itself(empty_schema: str, postgres_url: str) -> None:
    """On SQLite there is only one transaction at a time."""
    body: Any = {"kind": "k", "args": {"number": 1}, "queue": "q"}
    with holdfast.open(empty_schema) as ledger, running(ledger) as served, psycopg.connect(postgres_url) as connection:
        client = served.client("client", "app")
        ledger.enqueue(**body, request_id="r-1", actor=WHO, connection=connection)
        assert enqueue_together(ledger, [_call(1, "r-1"), _call(2)])[0] is None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.post, "/v1/jobs", body, Idempotency_Key="r-1")
            assert client.post("/v1/jobs", {"kind": "other"}).status == 201
            connection.rollback()
            assert waiting.result(20).status == 201
