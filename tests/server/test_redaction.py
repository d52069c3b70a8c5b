"""No route shows a reader what is hidden: every answer to it is searched for the hidden values."""

import json

import pytest

from holdfast import Ledger
from holdfast.server.redact import Redaction
from holdfast.server.routes import ROUTES
from tests.support.server import running

CARD = "4111-1111"
ELSEWHERE = {"/v1/events/stream", "/v1/live", "/v1/wake", "/metrics"}
"""Streams and waits, which have tests of their own, and what has no contents."""
READS = sorted(
    {one.path for one in ROUTES if one.method == "GET" and one.least in ("reader", "any") and one.path not in ELSEWHERE}
)


def fill(ledger: Ledger) -> int:
    """A dead letter whose arguments, checkpoint, undo step and error have the card. Its queue has a succeeded job too."""
    card = {"card": CARD}
    job = ledger.enqueue("pay", {"n": 1, **card})
    [held] = ledger.claim("w-1", start=True)
    assert held.fence is not None
    ledger.heartbeat(held.fence, checkpoint={"deep": card}, undo={"kind": "refund", "args": card})
    ledger.fail(held.fence, {"message": f"card {CARD} declined", "type": "Declined"}, retryable=False, reason_code="timeout")
    ledger.enqueue("pay", card)
    [other] = ledger.claim("w-1", start=True)
    assert other.fence is not None
    ledger.complete(other.fence, card)
    return job.id


@pytest.mark.parametrize("path", READS)
def test_a_reader_does_not_see_what_is_hidden(ledger: Ledger, path: str) -> None:
    job_id = fill(ledger)
    hidden = Redaction(["*.card", "error.message"])
    with running(ledger, redaction=hidden) as served:
        asked = path.replace("{job_id}", str(job_id)).replace("{name}", "default")
        shown = {role: served.client(role, "kim").get(asked) for role in ("reader", "client", "admin")}
    for role in ("reader", "client"):
        assert CARD.encode() not in shown[role].body, shown[role].body
        assert shown[role].status != 500
    assert shown["admin"].status != 403 or shown["admin"].data["code"] == "gate_denied"


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
