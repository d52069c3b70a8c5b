"""No route shows a reader what is hidden: every answer to it is searched for the hidden values."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from holdfast.server.redact import Redaction
from holdfast.server.routes import ROUTES
from tests.server.test_streams import following
from tests.support.server import RunningServer, running

CARD = "4111-1111"
PATTERNS = ["*.card", "error.message"]
ELSEWHERE = {"/v1/events/stream", "/v1/live", "/v1/wake", "/metrics"}
"""The stream has a test of its own below. The others have no contents."""
READS = sorted(
    {one.path for one in ROUTES if one.method == "GET" and one.least in ("reader", "any") and one.path not in ELSEWHERE}
)
REFUSED = {
    "/v1/dead-letters/groups": "forbidden",
    "/v1/jobs/{job_id}/proof": "forbidden",
    "/v1/jobs/{job_id}/gate": "gate_denied",
    "/v1/jobs/{job_id}/inclusion": "not_found",
}
"""What a reader does not get here: groups and proofs have hidden contents, the job has no holder, and there is no seal."""
QUERIES = {"/v1/firings": "?every=1h"}
CONTENTS = {
    "/v1/dead-letters",
    "/v1/dead-letters/{job_id}",
    "/v1/events",
    "/v1/groups",
    "/v1/groups/{name}",
    "/v1/groups/{name}/jobs",
    "/v1/jobs",
    "/v1/jobs/export",
    "/v1/jobs/{job_id}",
    "/v1/jobs/{job_id}/dependents",
    "/v1/jobs/{job_id}/events",
    "/v1/jobs/{job_id}/explain",
    "/v1/jobs/{job_id}/undo-steps",
    "/v1/limits/{name}/keys",
    "/v1/schedules",
    "/v1/schedules/{name}",
    "/v1/tasks/{job_id}",
    "/v1/tasks/{job_id}/history",
}
"""What shows the card to an operator."""


def fill(ledger: Ledger) -> int:
    """A dead letter whose arguments, checkpoint, undo step and error have the card. Its queue has a succeeded job too."""
    card = {"card": CARD}
    job = ledger.enqueue("pay", {"n": 1, **card})
    ledger.enqueue("pay", card, depends_on=[job.id], on_dependency_failure="wait")
    [held] = ledger.claim("w-1", start=True)
    ledger.heartbeat(held.fence, checkpoint={"deep": card}, undo={"kind": "refund", "args": card})
    ledger.fail(held.fence, {"message": f"card {CARD} declined", "type": "Declined"}, retryable=False, reason_code="timeout")
    ledger.set_schedule("default", "pay", every="1h", args=card)
    ledger.group("default", then={"kind": "pay", "args": card})
    ledger.set_limit("default", concurrent=1, by="args.card")
    ledger.enqueue("pay", card, group="default", limits=["default"])
    [other] = ledger.claim("w-1", start=True)
    ledger.complete(other.fence, card)
    return job.id


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("redaction")
    with holdfast.open(f"sqlite:///{folder}/ledger.db") as ledger, running(ledger, redaction=Redaction(PATTERNS)) as server:
        assert fill(ledger) == 1
        yield server


@pytest.mark.parametrize("role", ["reader", "client", "operator"])
def test_a_reader_does_not_see_what_is_hidden(shared: RunningServer, role: str) -> None:
    client = shared.client(role, "kim")
    for path in READS:
        asked = (path + QUERIES.get(path, "")).replace("{job_id}", "1").replace("{name}", "default").replace("{scope}", "kinds")
        shown = client.get(asked)
        if role == "operator":
            assert (CARD.encode() in shown.body) == (path in CONTENTS), shown.body
            continue
        assert CARD.encode() not in shown.body, shown.body
        if path in REFUSED:
            assert shown.data["code"] == REFUSED[path]
        else:
            assert shown.status == 200, shown.body
            assert (b"[redacted]" in shown.body) == (path in CONTENTS), shown.body


def test_a_stream_does_not_show_what_is_hidden(real: Ledger) -> None:
    """Events of the past come from the store, and new ones from memory."""
    fill(real)
    with running(real, redaction=Redaction(PATTERNS)) as served:
        texts: dict[str, str] = {}
        for role in ("reader", "client", "operator"):
            past = [str(event.pos) for event in real.events()]
            with following(served.client(role, "kim"), "?after=0") as stream:
                events = stream.events(len(past))
                real.enqueue("pay", {"card": CARD})
                events += stream.events(1)
            assert [event["id"] for event in events][:-1] == past
            assert events[-1]["data"]["type"] == "enqueued"
            assert events[-1]["data"]["payload"]["args"] == {"card": CARD if role == "operator" else "[redacted]"}
            texts[role] = json.dumps(events)
    assert CARD in texts["operator"]
    for role in ("reader", "client"):
        assert CARD not in texts[role] and "[redacted]" in texts[role]


def test_only_what_is_hidden_is_replaced(shared: RunningServer) -> None:
    job = shared.client("reader", "ann").get("/v1/jobs/1").data["job"]
    assert job["args"] == {"n": 1, "card": "[redacted]"}
    assert job["last_error"] == {"message": "[redacted]", "type": "Declined"}


def test_a_search_does_not_tell_what_is_hidden(shared: RunningServer) -> None:
    searches = (f"/v1/jobs?text={CARD}", f"/v1/jobs/export?text={CARD}", "/v1/jobs?text=none")
    for path in (*searches, f"/v1/limits/default/keys?key={CARD}"):
        refused = shared.client("reader", "ann").get(path)
        assert (refused.status, refused.data["code"]) == (403, "forbidden")
        assert shared.client("operator", "kim").get(path).status == 200
