"""A connection breaks during a COMMIT: the change is applied once or not at all, and the caller can find out which."""

import contextlib
import threading
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Beat, Change, Fence, HoldfastError, Ledger, Unavailable
from holdfast.ledger.public import ClaimedJob
from holdfast.testing import ManualClock
from tests.integration.conftest import Opener
from tests.support.histories import all_events, problems
from tests.support.proxy import Cut, Proxy
from tests.support.waiting import wait_until

Act = Callable[[Ledger, Fence], Any]

VERBS: dict[str, Act] = {
    "enqueue": lambda ledger, fence: ledger.enqueue("new", request_id="r"),
    "enqueue_many": lambda ledger, fence: ledger.enqueue_many([{"kind": "new"}] * 50, request_id="r"),
    "enqueue with a key": lambda ledger, fence: ledger.enqueue("new", dedupe_key="k", request_id="r"),
    "claim": lambda ledger, fence: ledger.claim("other", limit=3, request_id="r"),
    "complete": lambda ledger, fence: ledger.complete(fence, {"n": 1}, request_id="r"),
    "fail": lambda ledger, fence: ledger.fail(fence, "broken", retryable=False, request_id="r"),
    "cancel": lambda ledger, fence: ledger.cancel(fence.job_id, hard=True, request_id="r"),
}
EVENTS = {"enqueue_many": 50, "claim": 3}


@pytest.fixture
def direct(pg_url: str, opened: Opener) -> Ledger:
    """The same ledger, without a proxy in between."""
    return opened(pg_url)


@pytest.fixture
def cut_off(pg_url: str, direct: Ledger, proxy: Proxy, opened: Opener) -> Ledger:
    return opened(proxy.url(pg_url))


def running(ledger: Ledger) -> Fence:
    """A running job and a few queued ones, on connections that have been used."""
    for _ in range(3):
        ledger.enqueue_many([{"kind": "work"}] * 2)
    [job] = ledger.claim("worker", start=True)
    ledger.heartbeat(job.fence)
    return job.fence


def positions(ledger: Ledger) -> set[int]:
    return {event.pos for event in all_events(ledger)}


@pytest.mark.parametrize("verb", VERBS)
def test_a_commit_with_a_lost_answer_is_applied_once(cut_off: Ledger, direct: Ledger, proxy: Proxy, verb: str) -> None:
    fence = running(cut_off)
    before = positions(direct)
    proxy.cut("after")

    VERBS[verb](cut_off, fence)

    assert proxy.was_cut.is_set()
    assert len(positions(direct) - before) == EVENTS.get(verb, 1)
    VERBS[verb](cut_off, fence)
    assert len(positions(direct) - before) == EVENTS.get(verb, 1)
    assert problems(direct) == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_commit_that_never_arrives_changes_nothing(cut_off: Ledger, direct: Ledger, proxy: Proxy, verb: str) -> None:
    fence = running(cut_off)
    before = positions(direct)
    proxy.cut("before")

    refusal: Unavailable | None = None
    try:
        VERBS[verb](cut_off, fence)
    except Unavailable as error:
        refusal = error

    # Refused without a change, or run again on a connection that works.
    assert len(positions(direct) - before) == (EVENTS.get(verb, 1) if refusal is None else 0)
    assert refusal is None or refusal.outcome == "none"

    assert proxy.was_cut.is_set()
    VERBS[verb](cut_off, fence)
    assert len(positions(direct) - before) == EVENTS.get(verb, 1)
    assert problems(direct) == []


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_outcome_is_resolved_by_repeating_the_request_id(
    cut_off: Ledger, direct: Ledger, proxy: Proxy, verb: str, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.COMMIT_STATUS_SECONDS", 0.2)
    fence = running(cut_off)
    before = positions(direct)
    proxy.cut(cut, then_gone=True)

    with pytest.raises(Unavailable) as caught:
        VERBS[verb](cut_off, fence)

    assert proxy.was_cut.is_set()
    assert caught.value.outcome == "unknown"
    assert caught.value.retryable
    # Other calls cannot reach the server meanwhile, and report that.
    with pytest.raises(Unavailable) as refused:
        cut_off.enqueue("meanwhile")
    assert refused.value.outcome == "none"

    proxy.come_back()
    VERBS[verb](cut_off, fence)
    assert len(positions(direct) - before) == EVENTS.get(verb, 1)
    assert problems(direct) == []


Answer = HoldfastError | int


def numbered(ledger: Ledger, number: int) -> Answer:
    """Enqueue a job under a request id of this number, and return its id or the refusal."""
    try:
        return ledger.enqueue("new", {"n": number}, request_id=f"r{number}").id
    except HoldfastError as error:
        return error


def cut_while_a_group_waits(ledger: Ledger, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> list[Answer]:
    """Let eight calls wait for a leader, whose transaction has not begun, or has ended. Cut the next commit's connection."""
    monkeypatch.setattr("holdfast.store.postgres.store.COMMIT_STATUS_SECONDS", 0.2)
    held, go_on = threading.Event(), threading.Event()
    transact = ledger._store.transact

    def hold() -> None:
        held.set()
        assert go_on.wait(30)

    def first_is_held(lane: Any, work: Any) -> Any:
        if held.is_set():
            return transact(lane, work)
        if not after:
            hold()
        answer = transact(lane, work)
        if after:
            hold()
        return answer

    monkeypatch.setattr(ledger._store, "transact", first_is_held)
    with ThreadPoolExecutor(9) as pool:
        calls = [pool.submit(numbered, ledger, 0)]
        assert held.wait(30)
        calls += [pool.submit(numbered, ledger, number) for number in range(1, 9)]
        waiting = ledger._pipeline._groups["work"]._waiting
        wait_until(lambda: len(waiting) == 8, what="all calls wait for the leader")
        proxy.cut("after", then_gone=True)
        go_on.set()
        return [call.result(60) for call in calls]


@pytest.mark.parametrize(
    ("after", "expected"),
    [(False, ["unknown"] + ["none"] * 8), (True, ["done"] + ["unknown"] * 8)],
    ids=["of the leader", "of the group"],
)
def test_every_call_of_a_group_gets_the_unknown_outcome(
    cut_off: Ledger, direct: Ledger, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, after: bool, expected: list[str]
) -> None:
    """The connection of the leader's commit is cut, and then the group cannot reach the server; or that of the group's."""
    running(cut_off)
    before = positions(direct)
    answers = cut_while_a_group_waits(cut_off, proxy, monkeypatch, after=after)
    assert [answer.outcome if isinstance(answer, Unavailable) else "done" for answer in answers] == expected
    proxy.come_back()
    ids = [numbered(cut_off, number) for number in range(9)]
    assert len(set(ids)) == 9
    assert all(isinstance(id_, int) for id_ in ids)
    assert len(positions(direct) - before) == 9
    assert problems(direct) == []


ENQUEUE = b"'enqueued', 'queued'"


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("count", [1, 50])
def test_an_enqueue_in_one_message_is_recorded_once(cut_off: Ledger, direct: Ledger, proxy: Proxy, cut: Cut, count: int) -> None:
    running(cut_off)
    before = positions(direct)
    proxy.cut(cut, statement=ENQUEUE)

    jobs = cut_off.enqueue_many([{"kind": "new", "args": {"n": number}} for number in range(count)])

    assert proxy.was_cut.is_set()
    assert len(positions(direct) - before) == count
    assert [direct.get(job.id).args for job in jobs] == [{"n": number} for number in range(count)]
    assert [(job.status, job.rev) for job in jobs] == [("queued", 1)] * count
    assert problems(direct) == []


@pytest.mark.parametrize("cut", ["before", "after"])
def test_an_enqueue_in_one_message_is_unknown_if_the_server_stays_away(
    cut_off: Ledger, direct: Ledger, proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.COMMIT_STATUS_SECONDS", 0.2)
    running(cut_off)
    before = positions(direct)
    proxy.cut(cut, then_gone=True, statement=ENQUEUE)

    with pytest.raises(Unavailable) as caught:
        cut_off.enqueue("new")

    assert proxy.was_cut.is_set()
    assert caught.value.outcome == "unknown"
    # The connection is known to be closed, so the next enqueue is not sent.
    with pytest.raises(Unavailable) as refused:
        cut_off.enqueue("meanwhile")
    assert refused.value.outcome == "none"
    assert len(positions(direct) - before) == (1 if cut == "after" else 0)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_completions_of_a_claim_in_one_message_are_recorded_once(cut_off: Ledger, direct: Ledger, proxy: Proxy, cut: Cut) -> None:
    cut_off.enqueue_many([{"kind": "work"}] * 20)
    jobs = [job for job in cut_off.claim("worker", limit=20, start=True, keep=False) if isinstance(job, ClaimedJob)]
    before = positions(direct)
    proxy.cut(cut, statement=SETTLE)

    done: Container[int] | None = ()
    with contextlib.suppress(Unavailable):  # it is sent again only if the connection had been used before
        done = cut_off.settle_alike(jobs, None, request_id="r")
    left = [(job.fence, None) for job in jobs if done is not None and job.id not in done]
    assert cut_off.settle_many(left, request_id="r") == [None] * len(left)

    assert proxy.was_cut.is_set()
    assert len(positions(direct) - before) == 20
    assert {job.status for job in direct.list()} == {"succeeded"}
    assert problems(direct) == []


SETTLE = b"status = 'succeeded'"
CLAIM = b"FOR NO KEY UPDATE SKIP LOCKED"


def looks_for_claims(ledger: Ledger) -> bool:
    return ledger.has_unanswered


def test_a_claim_without_a_kept_answer_returns_the_jobs_of_its_lost_answer(cut_off: Ledger, direct: Ledger, proxy: Proxy) -> None:
    running(cut_off)
    cut_off.claim("other", keep=False)
    before = positions(direct)
    proxy.cut("after", statement=CLAIM)

    jobs = cut_off.claim("other", limit=3, start=True, keep=False)

    assert proxy.was_cut.is_set()
    assert [(job.status, job.attempt) for job in jobs] == [("running", 1)] * 3
    assert len(positions(direct) - before) == 6
    assert not looks_for_claims(cut_off)
    assert [type(answer) for answer in cut_off.complete_many([(job.fence, None) for job in jobs])] == [Change] * 3
    assert problems(direct) == []


def test_a_claim_without_a_kept_answer_that_never_arrives_is_sent_again(cut_off: Ledger, direct: Ledger, proxy: Proxy) -> None:
    running(cut_off)
    cut_off.claim("other", keep=False)
    before = positions(direct)
    proxy.cut("before", statement=CLAIM)

    assert len(cut_off.claim("other", limit=3, keep=False)) == 3

    assert proxy.was_cut.is_set()
    assert len(positions(direct) - before) == 3
    assert problems(direct) == []


def test_jobs_of_an_unanswered_claim_are_found_once_and_only_by_their_worker(
    cut_off: Ledger, direct: Ledger, proxy: Proxy
) -> None:
    running(cut_off)
    [known] = cut_off.claim("other", keep=False)
    proxy.cut("after", then_gone=True, statement=CLAIM)
    with pytest.raises(Unavailable) as caught:
        cut_off.claim("other", limit=3, keep=False)
    assert caught.value.outcome == "unknown"
    assert looks_for_claims(cut_off)
    with pytest.raises(Unavailable):
        cut_off.unanswered("other")
    proxy.come_back()

    assert cut_off.unanswered("worker") == []
    assert cut_off.unanswered("other", incarnation="another") == []
    assert direct.unanswered("other", incarnation=cut_off.incarnation) == []
    jobs = cut_off.unanswered("other")
    assert len(jobs) == 3
    assert known.id not in {job.id for job in jobs}
    assert cut_off.unanswered("other") == []
    assert not looks_for_claims(cut_off)
    assert [type(answer) for answer in cut_off.heartbeat_many([job.fence for job in jobs])] == [Beat] * 3
    assert problems(direct) == []


def test_an_unanswered_claim_with_expired_leases_is_not_returned(pg_url: str, opened: Opener, proxy: Proxy) -> None:
    clock = ManualClock()
    direct = opened(pg_url, clock=clock)
    cut_off = opened(proxy.url(pg_url), clock=clock)
    running(cut_off)
    cut_off.claim("other", keep=False)
    proxy.cut("after", then_gone=True, statement=CLAIM)
    with pytest.raises(Unavailable):
        cut_off.claim("other", limit=3, keep=False)
    proxy.come_back()
    clock.advance(3_600)

    assert looks_for_claims(cut_off)
    assert cut_off.unanswered("other") == []
    assert not looks_for_claims(cut_off)
    assert problems(direct) == []
