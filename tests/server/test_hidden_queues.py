"""A token of some queues learns nothing of the others: every answer to it is searched for what is in them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.server.routes import ROUTES
from tests.support.server import Client, RunningServer, running

QUEUE, KIND, VALUE = "hidden-queue", "hidden-kind", "hidden-value"
STREAMS = {"/v1/events/stream", "/v1/live", "/v1/wake"}
"""They wait; the events of hidden queues in streams have a test of their own."""
READS = sorted({one.path for one in ROUTES if one.method == "GET" and one.least in ("reader", "any") and one.path not in STREAMS})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("hidden")
    with holdfast.open(f"sqlite:///{folder}/ledger.db") as ledger, running(ledger) as server:
        fill(ledger)
        yield server


def fill(ledger: Ledger) -> None:
    """Job 1 is visible. Hidden jobs wait for it, are dead letters, running and queued."""
    seen = ledger.enqueue("seen-kind", queue="seen")
    ledger.enqueue(KIND, {"x": VALUE}, queue=QUEUE, depends_on=[seen.id])
    for _ in range(2):
        ledger.enqueue(KIND, {"x": VALUE}, queue=QUEUE)
        [held] = ledger.claim("w-1", queues=[QUEUE], start=True)
        ledger.fail(held.fence, {"message": VALUE}, retryable=False, reason_code="timeout")
    ledger.set_schedule("nightly", KIND, every="1h", args={"x": VALUE}, queue=QUEUE)
    ledger.group("seen", then={"kind": "seen-kind", "queue": "seen"})
    ledger.group(QUEUE, then={"kind": KIND, "args": {"x": VALUE}, "queue": QUEUE})
    ledger.enqueue(KIND, {"x": VALUE}, queue=QUEUE, group="seen", priority=-1)
    ledger.enqueue(KIND, {"x": VALUE}, queue=QUEUE)
    ledger.claim("w-1", queues=[QUEUE], start=True)
    ledger.sign_in("w-1", body={"queues": [QUEUE]})
    ledger.enqueue(KIND, {"x": VALUE}, queue=QUEUE)


@pytest.fixture(scope="module")
def eye(shared: RunningServer) -> Client:
    return shared.client("operator", "eye", queues=["seen*"])


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("job_id", [1, 2, 3])
def test_an_answer_says_nothing_of_hidden_queues(shared: RunningServer, eye: Client, path: str, job_id: int) -> None:
    asked = path.replace("{job_id}", str(job_id)).replace("{name}", "seen" if job_id == 1 else QUEUE)
    answer = eye.get(asked)
    assert answer.status != 500
    own = {QUEUE} if job_id != 1 and "{name}" in path else set()
    for word in {QUEUE, KIND, VALUE} - own:
        assert word.encode() not in answer.body, answer.body
    if "{job_id}" in path and job_id != 1:
        assert answer.status == 404, answer.body


def test_events_of_hidden_queues_are_left_out_page_by_page(shared: RunningServer, eye: Client) -> None:
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = eye.get(f"/v1/events?after={after}&limit=2").data
        found += page["events"]
        after = page["next_after"]
    assert [event["job_id"] for event in found] == [1]
    assert {event["job_id"] for event in shared.client().get("/v1/events").data["events"]} > {1, 2, 3}


def test_hidden_dead_letters_are_not_replayed(shared: RunningServer, eye: Client) -> None:
    before = shared.ledger.position()
    hidden = shared.ledger.dead_letters()
    assert hidden and {job.queue for job in hidden} == {QUEUE}
    answers = eye.post("/v1/batches", {"verb": "replay", "jobs": [{"id": job.id} for job in hidden]}).data["answers"]
    assert [answer["problem"]["code"] for answer in answers] == ["not_found"] * len(hidden)
    assert shared.ledger.position() == before


def test_a_hidden_schedule_is_not_replaced(shared: RunningServer, eye: Client) -> None:
    schedule = {"kind": "seen-kind", "every": "1h", "queue": "seen"}
    assert eye.send("PUT", "/v1/schedules/nightly", schedule).status == 403
    assert shared.ledger.schedule("nightly").queue == QUEUE
    assert eye.send("PUT", "/v1/schedules/weekly", schedule).status == 200
    assert eye.send("PUT", "/v1/schedules/weekly", schedule).status == 200
