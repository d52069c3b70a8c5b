"""No route shows a reader what is hidden: every answer to it is searched for the hidden values."""

import json

import pytest

from holdfast import Ledger
from holdfast.server.redact import Redaction
from holdfast.server.routes import ROUTES
from tests.server.test_streams import following
from tests.support.server import running

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


@pytest.mark.parametrize("path", READS)
def test_a_reader_does_not_see_what_is_hidden(ledger: Ledger, path: str) -> None:
    job_id = fill(ledger)
    with running(ledger, redaction=Redaction(PATTERNS)) as served:
        asked = (
            (path + QUERIES.get(path, ""))
            .replace("{job_id}", str(job_id))
            .replace("{name}", "default")
            .replace("{scope}", "kinds")
        )
        shown = {role: served.client(role, "kim").get(asked) for role in ("reader", "client", "operator")}
    for role in ("reader", "client"):
        assert CARD.encode() not in shown[role].body, shown[role].body
        if path in REFUSED:
            assert shown[role].data["code"] == REFUSED[path]
        else:
            assert shown[role].status == 200, shown[role].body
            assert (b"[redacted]" in shown[role].body) == (path in CONTENTS), shown[role].body
    assert (CARD.encode() in shown["operator"].body) == (path in CONTENTS), shown["operator"].body


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


def test_an_operator_sees_everything(ledger: Ledger) -> None:
    job_id = fill(ledger)
    with running(ledger, redaction=Redaction(["*.card", "error.message"])) as served:
        job = served.client("operator", "kim").get(f"/v1/jobs/{job_id}").data["job"]
        hidden = served.client("reader", "ann").get(f"/v1/jobs/{job_id}").data["job"]
        explained = served.client("reader", "ann").get(f"/v1/jobs/{job_id}/explain").data
    assert job["args"] == {"n": 1, "card": CARD}
    assert hidden["args"] == {"n": 1, "card": "[redacted]"}
    assert hidden["last_error"] == {"message": "[redacted]", "type": "Declined"}
    assert CARD not in json.dumps(explained) and "[redacted]" in explained["text"]


def test_a_search_does_not_tell_what_is_hidden(ledger: Ledger) -> None:
    fill(ledger)
    with running(ledger, redaction=Redaction(["*.card"])) as served:
        for path in (f"/v1/jobs?text={CARD}", f"/v1/jobs/export?text={CARD}", "/v1/jobs?text=none"):
            refused = served.client("reader", "ann").get(path)
            assert (refused.status, refused.data["code"]) == (403, "forbidden")
            assert served.client("operator", "kim").get(path).status == 200
