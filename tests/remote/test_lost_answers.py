"""Requests and answers that are lost on the way. Nothing is lost or done twice."""

from typing import Literal

import pytest

import holdfast
from holdfast import Ledger, Unavailable
from tests.support.proxy import Proxy
from tests.support.server import RunningServer

Lost = Literal["before", "after"]
lost = pytest.mark.parametrize("when", ["before", "after"])
"""The request is lost, or the answer."""

ENQUEUE, CLAIM = b"POST /v1/jobs/batch", b"POST /v1/claims"


@lost
def test_a_lost_enqueue_creates_one_job(remote: Ledger, behind: Ledger, line: Proxy, when: Lost) -> None:
    remote.now()  # there is a connection to cut
    line.cut(when, statement=ENQUEUE)
    job = remote.enqueue("index_page", {"url": "/"})
    assert line.was_cut.is_set()
    assert [found.id for found in behind.list()] == [job.id]


@lost
def test_a_lost_claim_gives_each_job_once(remote: Ledger, behind: Ledger, line: Proxy, when: Lost) -> None:
    ids = [remote.enqueue("index_page").id for _ in range(3)]
    line.cut(when, statement=CLAIM)
    first = remote.claim("w-1", limit=2, keep=False)
    second = remote.claim("w-1", limit=2, keep=False)
    assert line.was_cut.is_set()
    assert sorted(job.id for job in first + second) == ids
    assert [len(behind.events(id_)) for id_ in ids] == [2, 2, 2]


@lost
def test_a_lost_completion_completes_once(remote: Ledger, behind: Ledger, line: Proxy, when: Lost) -> None:
    job = remote.enqueue("index_page")
    [held] = remote.claim("w-1", start=True)
    line.cut(when, statement=f"POST /v1/jobs/{job.id}/complete".encode())
    assert remote.complete(held.fence, {"pages": 3}).status == "succeeded"
    assert line.was_cut.is_set()
    assert [event.type for event in behind.events(job.id)] == ["enqueued", "claimed", "started", "succeeded"]


@lost
def test_a_lost_batch_is_settled_once(remote: Ledger, behind: Ledger, line: Proxy, when: Lost) -> None:
    remote.enqueue_many([{"kind": "index_page"}] * 3)
    fences = [job.fence for job in remote.claim("w-1", limit=3, start=True)]
    line.cut(when, statement=b"POST /v1/completions")
    assert remote.settle_many([(fence, None) for fence in fences], request_id="s-1") == [None] * 3
    assert line.was_cut.is_set()
    assert [len(behind.events(fence.job_id)) for fence in fences] == [4, 4, 4]


@lost
def test_a_lost_heartbeat_is_followed_by_another(remote: Ledger, line: Proxy, when: Lost) -> None:
    remote.enqueue("index_page")
    [held] = remote.claim("w-1", start=True)
    line.cut(when, statement=b"POST /v1/heartbeats")
    [beat] = remote.heartbeat_many([held.fence])
    assert isinstance(beat, holdfast.Beat)
    assert line.was_cut.is_set()


def test_a_heartbeat_without_an_answer_is_sent_on_another_connection(
    remote: Ledger, line: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.remote.transport.BEAT_SECONDS", 0.3)
    remote.enqueue("index_page")
    [held] = remote.claim("w-1", start=True)
    remote.heartbeat_many([held.fence])
    line.fall_silent()
    [beat] = remote.heartbeat_many([held.fence])
    assert isinstance(beat, holdfast.Beat)


def test_idle_connections_that_were_closed_are_replaced(remote: Ledger, behind: Ledger, line: Proxy) -> None:
    remote.enqueue("index_page")
    line.go_away()
    line.come_back()
    remote.enqueue("index_page")
    assert len(behind.list()) == 2


def test_a_server_that_is_away_was_not_asked(remote: Ledger, line: Proxy) -> None:
    remote.patience = 0.3
    line.go_away()
    with pytest.raises(Unavailable) as caught:
        remote.enqueue("index_page")
    assert (caught.value.outcome, caught.value.retryable) == ("none", True)


def test_an_unknown_outcome_is_settled_by_its_request_id(remote: Ledger, behind: Ledger, line: Proxy) -> None:
    remote.now()
    remote.patience = 0.5
    line.cut("after", then_gone=True, statement=ENQUEUE)
    with pytest.raises(Unavailable) as caught:
        remote.enqueue("index_page", {"url": "/"})
    assert caught.value.outcome == "unknown"
    request_id = caught.value.context["request_id"]
    line.come_back()
    job = remote.enqueue("index_page", {"url": "/"}, request_id=request_id)
    assert [found.id for found in behind.list()] == [job.id]


def test_an_unanswered_claim_is_found_later(remote: Ledger, behind: Ledger, line: Proxy) -> None:
    job = remote.enqueue("index_page")
    remote.patience = 0.5
    line.cut("after", then_gone=True, statement=CLAIM)
    with pytest.raises(Unavailable):
        remote.claim("w-1", start=True, keep=False)
    assert remote.has_unanswered
    line.come_back()
    [held] = remote.unanswered("w-1")
    assert (held.id, remote.has_unanswered) == (job.id, False)
    assert remote.complete(held.fence).status == "succeeded"
    assert [event.type for event in behind.events(job.id)] == ["enqueued", "claimed", "started", "succeeded"]


def test_a_ledger_opened_while_the_server_is_away_is_unavailable(
    line: Proxy, token: str, served: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.remote.ledger.OPEN_SECONDS", 0.3)
    line.go_away()
    with pytest.raises(Unavailable):
        holdfast.open(f"http://127.0.0.1:{line.port}", token=token)
