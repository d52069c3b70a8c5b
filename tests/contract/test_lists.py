"""Lists of jobs: orders by time, cursors, and how far a search went."""

from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Job, Ledger
from holdfast.core import limits
from holdfast.testing import ManualClock
from tests.contract.builders import BUILDERS, failed, queued, refused, running, running_stalled, succeeded


def ids(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


def paged(ledger: Ledger, limit: int, **chosen: Any) -> list[int]:
    """The ids of all pages."""
    found: list[int] = []
    cursor = None
    while True:
        page = ledger.list(cursor=cursor, limit=limit, **chosen)
        found += ids(page)
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.fixture
def mixed(ledger: Ledger, clock: ManualClock) -> list[int]:
    """Jobs of every status, made one second after the other. Some have changed since, in another order."""
    made = []
    for build in [*BUILDERS.values()] * 2:
        made.append(build(ledger).id)
        clock.advance(1)
    for id_ in made[::5]:
        clock.advance(1)
        ledger.cancel(id_, hard=True) if ledger.get(id_).status.value in ("queued", "running") else None
    return made


ORDERS: dict[str, Any] = {
    "oldest": lambda job: job.id,
    "id": lambda job: job.id,
    "newest": lambda job: -job.id,
    "-id": lambda job: -job.id,
    "-updated": lambda job: (-job.updated_at.timestamp(), -job.id),
    "-finished": lambda job: (-job.finished_at.timestamp(), -job.id),
    "available": lambda job: (job.available_at.timestamp(), job.id),
}


def ordered(jobs: list[Job], order: str) -> list[int]:
    """The ids of those jobs that a list in this order has."""
    if order == "-finished":
        jobs = [job for job in jobs if job.finished_at is not None]
    if order == "available":
        jobs = [job for job in jobs if job.status == "queued"]
    return ids(sorted(jobs, key=ORDERS[order]))


def test_orders_and_pages(ledger: Ledger, mixed: list[int]):
    jobs = [ledger.get(id_) for id_ in mixed]
    for order in ORDERS:
        for limit in (3, 100):
            assert paged(ledger, limit, order=order) == ordered(jobs, order), (order, limit)


def test_orders_with_a_status(ledger: Ledger, mixed: list[int]):
    every = [ledger.get(id_) for id_ in mixed]
    for status in ("failed", ["running", "queued"], ["stalled"], "succeeded", []):
        jobs = [job for job in every if job.status.value in ([status] if isinstance(status, str) else status)]
        for order in ORDERS:
            assert paged(ledger, 2, order=order, status=status) == ordered(jobs, order), (order, status)


def test_next_available_jobs(ledger: Ledger):
    later, now, soon = (ledger.enqueue("k", queue="q", delay=delay).id for delay in (60, 0, 5))
    waiting = ledger.enqueue("k", queue="q", depends_on=[now]).id
    ledger.enqueue("k", queue="other")
    running(ledger, queue="held")
    assert paged(ledger, 2, order="available", queue="q") == [now, soon, later, waiting]
    assert ids(ledger.list(order="available", waiting=True)) == [waiting]
    assert ids(ledger.list(order="available", status="running")) == []
    assert ids(ledger.list(order="available", owner="w-1")) == []


def test_a_held_job_that_is_old_is_among_the_last_changed(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SORTED_MAX", 2)
    held = running(ledger)
    others = [queued(ledger).id for _ in range(3)]
    clock.advance(1)
    ledger.heartbeat(held.fence)
    page = ledger.list(order="-updated")
    assert (ids(page), page.stopped, page.searched) == ([held.id, others[2], others[1]], True, 3)


@pytest.mark.parametrize("time", ["created", "updated", "finished"])
@pytest.mark.parametrize("order", ["id", "-updated"])
def test_jobs_of_a_time(ledger: Ledger, clock: ManualClock, time: str, order: str):
    start = clock.now()
    first, second = running(ledger), running(ledger)
    clock.advance(10)
    third = queued(ledger)
    ledger.complete(first.fence)
    clock.advance(10)
    ledger.heartbeat(second.fence)
    found = ledger.list(time=time, since=start + timedelta(seconds=5), until=start + timedelta(seconds=15), order=order)
    expected = {"created": {third.id}, "updated": {first.id, third.id}, "finished": {first.id}}[time]
    assert set(ids(found)) == expected


def test_jobs_whose_holder_requests_assistance(ledger: Ledger):
    asking, quiet, stopped = running(ledger), running(ledger), running(ledger)
    ledger.heartbeat(asking.fence, assist_requested=True)
    ledger.heartbeat(stopped.fence, assist_requested=True)
    ledger.fail(stopped.fence, "no", retryable=False)
    running_stalled(ledger)
    assert ids(ledger.list(assist_requested=True)) == [asking.id]
    assert ids(ledger.list(assist_requested=True, status="stalled")) == []
    assert ids(ledger.list(assist_requested=True, status="queued")) == []
    assert ids(ledger.list(assist_requested=True, waiting=True)) == []
    assert quiet.id in ids(ledger.list(assist_requested=False, status="running"))


def test_how_far_a_search_went(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    made = [ledger.enqueue("walk", {"number": number}).id for number in range(6)]
    plain = ledger.list(limit=2)
    assert (plain.searched, plain.stopped, plain.next_after) == (None, False, made[1])
    found = ledger.list(text='"number":2', limit=1, order="-id")
    assert (ids(found), found.searched, found.stopped) == ([made[2]], 4, False)
    assert (ledger.list(text='"number":2').searched, ledger.list(text='"number":2').stopped) == (6, False)
    monkeypatch.setattr(limits, "SEARCHED_TEXT_MAX", 4)
    found = ledger.list(text='"number":0', order="-id")
    assert (ids(found), found.searched, found.stopped, found.next_after) == ([], 4, True, made[2])
    rest = ledger.list(text='"number":0', order="-id", cursor=found.next_cursor)
    assert (ids(rest), rest.stopped, rest.next_cursor) == ([made[0]], False, None)


def test_a_text_in_an_order_by_time(ledger: Ledger, clock: ManualClock):
    first = failed(ledger)
    clock.advance(1)
    succeeded(ledger)
    clock.advance(1)
    second = failed(ledger)
    assert ids(ledger.list(text="no such page", order="-finished")) == [second.id, first.id]


def test_a_cursor_is_for_one_filter_and_order(ledger: Ledger):
    for _ in range(3):
        queued(ledger, queue="a")
    cursor = ledger.list(queue="a", limit=1).next_cursor
    assert cursor is not None
    assert len(cursor) <= 500
    assert len(ledger.list(queue="a", limit=2, cursor=cursor)) == 2
    for other in ({"queue": "b"}, {"queue": "a", "order": "-id"}, {"queue": "a", "order": "-updated"}, {}):
        with refused("validation_error") as caught:
            ledger.list(cursor=cursor, **other)  # type: ignore[arg-type]
        assert caught.value.context["field"] == "cursor"


@pytest.mark.parametrize(
    "cursor",
    [
        "x", "!!!", "é", 7, "", "A" * 501, urlsafe_b64encode(b"[]").decode(), urlsafe_b64encode(b'["",1,2,3]').decode(),
        urlsafe_b64encode(b'["0",1]').decode(),
    ],
    ids=repr,
)  # fmt: skip
def test_a_forged_cursor_is_refused(ledger: Ledger, cursor: Any):
    queued(ledger)
    with pytest.raises(Exception, match="cursor") as caught:
        ledger.list(cursor=cursor)
    assert caught.value.context["field"] == "cursor"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"order": "-updated", "after": 3}, "after"),
        ({"cursor": "abc", "after": 3}, "after"),
        ({"time": "now"}, "time"),
        ({"order": "updated"}, "order"),
        ({"assist_requested": 1}, "assist_requested"),
    ],
    ids=repr,
)
def test_wrong_lists_are_refused(ledger: Ledger, chosen: dict[str, Any], field: str):
    with refused("validation_error") as caught:
        ledger.list(**chosen)
    assert caught.value.context["field"] == field


def test_jobs_are_found_by_their_dedupe_key(ledger: Ledger):
    keyed = [ledger.enqueue("k", queue=queue, dedupe_key="order-17", correlation_id="c") for queue in ("b", "a")]
    ledger.enqueue("k", queue="a", dedupe_key="order-18")
    ledger.enqueue("k", queue="c", correlation_id="c")
    kept = ledger.enqueue("k", queue="d", dedupe_key="order-17", dedupe="forever")
    ledger.cancel(kept.id)
    assert ids(ledger.list(dedupe_key="order-17")) == [job.id for job in (*keyed, kept)]
    assert ids(ledger.list(dedupe_key="order-17", order="newest", queue="a")) == [keyed[1].id]
    assert ids(ledger.list(dedupe_key="order-17", status="cancelled")) == [kept.id]
    assert ids(ledger.list(dedupe_key="order-17", correlation_id="c")) == [job.id for job in keyed]
    assert sorted(ids(ledger.list(dedupe_key="order-17", order="-updated"))) == [job.id for job in (*keyed, kept)]
    assert paged(ledger, 2, dedupe_key="order-17") == [job.id for job in (*keyed, kept)]
    ledger.cancel(keyed[0].id)
    assert ids(ledger.list(dedupe_key="order-17")) == [keyed[1].id, kept.id]
    assert ids(ledger.list(dedupe_key="order-1")) == []
    assert len(ledger.list(text="RDER-1")) == 4
    with refused("validation_error"):
        ledger.list(dedupe_key="")
