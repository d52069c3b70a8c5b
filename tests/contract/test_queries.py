"""Reading: jobs, events, counts."""

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Event, Job, Ledger, ResultTimeout
from holdfast.core import limits
from holdfast.testing import ManualClock
from tests.contract.builders import (
    BUILDERS,
    WORKER,
    Made,
    aborting,
    aborting_stalled,
    assisted,
    cancelled,
    claimed,
    dead_lettered,
    failed,
    queued,
    refused,
    running,
    running_stalled,
    succeeded,
)

STATUS = {name: name for name in ("queued", "claimed", "running", "succeeded", "failed", "cancelled", "dead_lettered")} | {
    "running_stalled": "stalled"
}


def test_an_unknown_job_is_not_found(ledger: Ledger):
    with refused("not_found") as caught:
        ledger.get(7)
    assert caught.value.context["job_id"] == 7


def test_an_id_must_be_an_integer(ledger: Ledger):
    queued(ledger)
    for given in ("1", True, 1.0, None):
        for verb in (ledger.get, ledger.check):
            with refused("validation_error"):
                verb(given)  # type: ignore[arg-type]


def test_a_job_has_the_values_of_its_enqueue(ledger: Ledger, clock: ManualClock):
    job = ledger.enqueue("walk", {"to": "lobby"}, queue="robots", priority=3, tier="in_home", trace_id="t", dedupe_key="d")
    assert ledger.get(job.id) == job
    assert (job.kind, job.args, job.queue, job.priority, job.tier, job.trace_id, job.dedupe_key) == (
        "walk",
        {"to": "lobby"},
        "robots",
        3,
        "in_home",
        "t",
        "d",
    )
    assert job.created_at == job.available_at == clock.now()


# Lists


def _ids(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


def test_jobs_are_listed_by_statuses(ledger: Ledger):
    made = {name: BUILDERS[name](ledger).id for name in STATUS}
    assert ledger.list(status=[]) == []
    assert {name: _ids(ledger.list(status=status)) for name, status in STATUS.items()} == {name: [made[name]] for name in STATUS}
    assert [job.id for job in ledger.list(status=["failed", "queued"])] == [made["queued"], made["failed"]]
    assert [job.id for job in ledger.list(status=["running", "claimed"])] == [made["claimed"], made["running"]]


@pytest.mark.parametrize("status", [None, ["claimed", "running"], "failed", ["failed", "queued"]])
def test_jobs_are_listed_newest_first_on_request(ledger: Ledger, status: Any):
    for build in (queued, claimed, running, failed, queued, claimed, running, failed):
        build(ledger)
    oldest = _ids(ledger.list(status=status))
    page = ledger.list(status=status, order="newest", limit=1)
    rest = ledger.list(status=status, order="newest", after=page.next_after or 0)
    assert [*_ids(page), *_ids(rest)] == oldest[::-1]
    assert rest.next_after is None


def test_waiting_jobs_come_newest_first(ledger: Ledger):
    first = queued(ledger)
    waiting = [ledger.enqueue("k", depends_on=[first.id]).id for _ in range(3)]
    assert _ids(ledger.list(waiting=True, order="newest", limit=2)) == waiting[:0:-1]


def test_an_unknown_order_is_refused(ledger: Ledger):
    with refused("validation_error") as caught:
        ledger.list(order="sideways")
    assert caught.value.context["field"] == "order"


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_jobs_are_listed_by_the_time_of_their_enqueue(ledger: Ledger, clock: ManualClock, order: str):
    made = []
    for _ in range(4):
        made.append(queued(ledger).id)
        clock.advance(60)
    start = clock.now() - timedelta(seconds=240)
    found = ledger.list(since=start + timedelta(seconds=60), until=start + timedelta(seconds=180), order=order)
    assert _ids(found) == (made[1:3] if order == "oldest" else made[2:0:-1])
    assert _ids(ledger.list(since=start + timedelta(seconds=60), limit=1)) == [made[1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("page", ["kind", "error"]),
        ("CRAWL", ["queue"]),
        ("corr-7", ["correlation"]),
        ("refused", ["error"]),
        ("a.Example", ["args"]),
    ],
)
def test_jobs_are_found_by_text(ledger: Ledger, text: str, expected: list[str]):
    failing = ledger.enqueue("walk", {})
    [held] = ledger.claim("ada", kinds=["walk"], start=True)
    ledger.fail(held.fence, "page refused", retryable=False)
    made = {
        "error": failing.id,
        "kind": ledger.enqueue("index_page").id,
        "queue": ledger.enqueue("other", queue="crawl").id,
        "correlation": ledger.enqueue("other", correlation_id="corr-7").id,
        "args": ledger.enqueue("other", {"url": "https://a.example"}).id,
    }
    assert set(_ids(ledger.list(text=text))) == {made[name] for name in expected}
    assert not ledger.list(text=f"no {text}")


def test_names_of_fields_are_not_searched(ledger: Ledger):
    ledger.enqueue("walk", {"to": "lobby"}, priority=3)
    assert not ledger.list(text="priority")


def test_a_search_stops_after_a_number_of_jobs_and_returns_its_position(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SEARCHED_TEXT_MAX", 3)
    made = [ledger.enqueue("walk", {"number": number}).id for number in range(5)]
    first = ledger.list(text='"number":4')
    assert (list(first), first.next_after) == ([], made[2])
    second = ledger.list(text='"number":4', after=first.next_after or 0)
    assert (_ids(second), second.next_after) == ([made[4]], None)


@pytest.mark.parametrize("alias", ["assigned", "claimed"])
def test_assigned_is_read_as_claimed(ledger: Ledger, alias: str):
    made = claimed(ledger)
    assert [job.id for job in ledger.list(status=alias)] == [made.id]
    assert ledger.get(made.id).status == "claimed"


@pytest.fixture
def phased(ledger: Ledger) -> dict[str, int]:
    """Jobs in every phase, running and stalled, and some without a phase."""
    builders = {
        "queued": queued,
        "claimed": claimed,
        "executing": running,
        "assisted": assisted,
        "aborting": aborting,
        "stalled": running_stalled,
        "aborting_stalled": aborting_stalled,
        "succeeded": succeeded,
    }
    return {name: build(ledger).id for name, build in builders.items()}


def _found(phased: dict[str, int], jobs: list[Job]) -> list[str]:
    names = {id_: name for name, id_ in phased.items()}
    return [names[job.id] for job in jobs]


PHASES: list[tuple[Any, list[str]]] = [
    ("EXECUTING", ["executing"]),
    ("ASSISTED", ["assisted"]),
    ("ABORTING_SAFE_EXIT", ["aborting"]),
    (["ASSISTED", "ABORTING_SAFE_EXIT"], ["assisted", "aborting"]),
    (["ASSISTED", "STALLED"], ["assisted", "stalled", "aborting_stalled"]),
    (["ASSISTED", "running"], ["executing", "assisted", "aborting"]),
    (["ASSISTED", "in_progress"], ["executing", "assisted", "aborting"]),
    (["ASSISTED", "queued", "succeeded"], ["queued", "assisted", "succeeded"]),
    (("ASSISTED", "claimed"), ["claimed", "assisted"]),
]


def test_the_names_of_running_statuses_in_the_documents_mean_phases(ledger: Ledger, phased: dict[str, int]):
    assert [(status, _found(phased, ledger.list(status=status))) for status, _ in PHASES] == PHASES


BY_PHASE: list[tuple[dict[str, Any], list[str]]] = [
    ({"phase": "executing"}, ["executing", "stalled"]),
    ({"phase": "assisted"}, ["assisted"]),
    ({"phase": "aborting"}, ["aborting", "aborting_stalled"]),
    ({"phase": "ABORTING_SAFE_EXIT"}, ["aborting", "aborting_stalled"]),
    ({"phase": ["assisted", "aborting"]}, ["assisted", "aborting", "aborting_stalled"]),
    ({"phase": "aborting", "status": "stalled"}, ["aborting_stalled"]),
    ({"phase": "aborting", "status": ["running", "queued"]}, ["aborting"]),
    ({"phase": "aborting", "status": "ASSISTED"}, []),
    ({"phase": "executing", "status": "queued"}, []),
    ({"phase": "executing", "waiting": True}, []),
    ({"phase": "aborting", "owner": WORKER}, ["aborting"]),
    ({"phase": "aborting", "kind": "another"}, []),
    ({"phase": []}, []),
]


def test_jobs_are_listed_by_phase(ledger: Ledger, phased: dict[str, int]):
    assert [(chosen, _found(phased, ledger.list(**chosen))) for chosen, _ in BY_PHASE] == BY_PHASE


def test_jobs_of_a_correlation_are_listed_by_phase(ledger: Ledger):
    running(ledger, correlation_id="order-7")
    helped = assisted(ledger, correlation_id="order-7")
    assisted(ledger)
    assert [job.id for job in ledger.list(correlation_id="order-7", phase="assisted")] == [helped.id]
    assert [job.id for job in ledger.list(correlation_id="order-7", status="ASSISTED")] == [helped.id]


def test_an_unknown_phase_or_status_is_refused(ledger: Ledger):
    for field in ("phase", "status"):
        for value in ("done", "", 7, ["assisted", "done"], [["assisted"]]):
            with refused("validation_error") as caught:
                ledger.list(**{field: value})  # type: ignore[arg-type]
            assert caught.value.context["field"] == field


def test_jobs_are_listed_by_queue_and_kind(ledger: Ledger):
    made = {(queue, kind): queued(ledger, queue=queue, kind=kind).id for queue in "ab" for kind in "xy"}
    assert [job.id for job in ledger.list(queue="a")] == [made["a", "x"], made["a", "y"]]
    assert [job.id for job in ledger.list(kind="y")] == [made["a", "y"], made["b", "y"]]
    assert [job.id for job in ledger.list(queue="b", kind="x", status="queued")] == [made["b", "x"]]


@pytest.mark.parametrize("build", [running, running_stalled, failed])
def test_jobs_of_a_status_are_listed_by_queue_and_kind(ledger: Ledger, build):
    wanted = build(ledger, queue="a", kind="x")
    build(ledger, queue="a", kind="y")
    build(ledger, queue="b", kind="x")
    status = ledger.get(wanted.id).status
    assert [job.id for job in ledger.list(status=status, queue="a", kind="x")] == [wanted.id]


def test_jobs_are_listed_by_given_or_derived_correlation(ledger: Ledger):
    given = [queued(ledger, correlation_id="order-7").id for _ in range(2)]
    derived = queued(ledger).id
    assert [job.id for job in ledger.list(correlation_id="order-7")] == given
    assert [job.id for job in ledger.list(correlation_id=ledger.get(derived).correlation_id)] == [derived]
    assert ledger.list(correlation_id="order-8") == []


def test_a_job_with_a_given_correlation_has_no_derived_one(ledger: Ledger):
    made = queued(ledger, correlation_id="order-7")
    assert ledger.list(correlation_id=f"{ledger.id}-{made.id}") == []
    assert ledger.events(correlation_id=f"{ledger.id}-{made.id}") == []


def test_jobs_are_listed_by_the_job_they_replay(ledger: Ledger):
    made = failed(ledger)
    fresh = ledger.replay(made.id)
    assert [job.id for job in ledger.list(replay_of=made.id)] == [fresh.id]


@pytest.mark.parametrize("status", [None, "queued", "running", "failed"])
def test_pages_follow_each_other_without_gap_or_overlap(ledger: Ledger, status: str | None):
    build = BUILDERS[status or "queued"]
    ids = [build(ledger).id for _ in range(7)]
    seen: list[int] = []
    while page := ledger.list(status=status, after=seen[-1] if seen else 0, limit=3):
        seen += [job.id for job in page]
    assert seen == ids


# Events


def test_events_come_in_one_total_order(ledger: Ledger):
    succeeded(ledger)
    failed(ledger)
    places = [event.pos for event in ledger.events()]
    assert places == sorted(set(places))


def test_events_are_filtered_by_type(ledger: Ledger):
    for build in (succeeded, failed, cancelled, dead_lettered):
        build(ledger)
    for types in (["failed"], ["cancelled", "dead_lettered"], ["enqueued"], ["heartbeat", "failed"]):
        assert {event.type.value for event in ledger.events(types=types)} == set(types) - {"heartbeat"}


@pytest.mark.parametrize("types", [["enqueued"], ["failed"]], ids=str)
def test_events_are_filtered_by_time_from_inclusive_to_exclusive(ledger: Ledger, clock: ManualClock, types: list[str]):
    start, made = clock.now(), []
    for _ in range(3):
        made.append(failed(ledger).id)
        clock.advance(10)
    found = ledger.events(types=types, since=start + timedelta(seconds=10), until=start + timedelta(seconds=20))
    assert [event.job_id for event in found] == [made[1]]


def test_events_are_found_by_their_names_in_dialects(ledger: Ledger):
    made = running(ledger)
    ledger.heartbeat(made.fence)
    for alias in ("JOB_HEARTBEAT", "job_heartbeat", "job_lease_renewed", "task_heartbeat", "heartbeat"):
        assert [event.type for event in ledger.events(types=[alias])] == ["heartbeat"]


def test_unknown_types_are_refused(ledger: Ledger):
    for types in ("heartbeat", ["beat"], 7, [7]):
        with refused("validation_error"):
            ledger.events(types=types)  # type: ignore[arg-type]


def test_events_are_filtered_by_given_or_derived_correlation(ledger: Ledger):
    first, second, third = queued(ledger, correlation_id="c"), queued(ledger, correlation_id="c"), running(ledger)
    assert [event.job_id for event in ledger.events(correlation_id="c")] == [first.id, second.id]
    derived = ledger.get(third.id).correlation_id
    assert [event.rev for event in ledger.events(correlation_id=derived)] == [1, 2, 3]
    assert {event.correlation_id for event in ledger.events(third.id)} == {derived}


def test_every_event_of_a_job_carries_its_correlation_and_trace(ledger: Ledger):
    made = running(ledger, correlation_id="c", trace_id="t")
    assert {(event.correlation_id, event.trace_id) for event in ledger.events(made.id)} == {("c", "t")}


def test_events_are_paged_by_position(ledger: Ledger):
    for _ in range(3):
        running(ledger)
    whole = ledger.events()
    seen: list[Event] = []
    while page := ledger.events(after=seen[-1].pos if seen else 0, limit=4):
        seen += page
    assert seen == whole


# Counts


def test_counts_are_by_queue_and_status(ledger: Ledger):
    queued(ledger, queue="a")
    queued(ledger, queue="a")
    failed(ledger, queue="b")
    assert ledger.counts() == {"a": {"queued": 2}, "b": {"failed": 1}}


def test_an_empty_ledger_has_no_counts(ledger: Ledger):
    assert (ledger.counts(), ledger.list(), ledger.events(), ledger.sweep()) == ({}, [], [], {})


def test_wait_returns_when_a_job_ends(ledger: Ledger) -> None:
    made = ledger.enqueue("k")
    assert ledger.wait(made.id, timeout=0).status == "queued"
    ledger.cancel(made.id)
    assert ledger.wait(made.id).status == "cancelled"
    assert ledger.wait(made).status == "cancelled"
    with refused("not_found"):
        ledger.wait(made.id + 1)


def test_result_returns_the_result_of_a_job(ledger: Ledger) -> None:
    made = ledger.enqueue("k")
    with pytest.raises(TimeoutError) as late:
        ledger.result(made, timeout=0)
    assert isinstance(late.value, ResultTimeout)
    assert (late.value.code, late.value.retryable) == ("result_timeout", True)
    assert late.value.context == {"job_id": made.id, "status": "queued"}
    words = "No worker serves it: none that serves k in default is signed in to this ledger."
    assert late.value.message == f"job {made.id} is still queued after 0 s. {words}"
    [held] = ledger.claim("w", start=True)
    ledger.complete(held.fence, {"pages": 3})
    assert ledger.result(made) == ledger.result(made.id) == {"pages": 3}
    with refused("not_found"):
        ledger.result(made.id + 1)


def test_a_timeout_of_a_running_job_says_who_has_it(ledger: Ledger) -> None:
    made = running(ledger)
    with pytest.raises(ResultTimeout, match=rf"^job {made.id} is still running after 0.05 s\. .*\b{WORKER}\b"):
        ledger.result(made.id, timeout=0.05)


def test_a_timeout_is_raised_if_the_job_cannot_be_explained(sqlite_url: str) -> None:
    with holdfast.open(sqlite_url) as ledger:
        made = ledger.enqueue("k")
        ledger.sign_in("ada", body={})
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file, file:
        file.execute("UPDATE holdfast_workers SET body = '{'")
    with holdfast.open(sqlite_url) as ledger:
        with pytest.raises(msgspec.DecodeError):
            ledger.explain(made.id)
        with pytest.raises(ResultTimeout, match=f"^job {made.id} is still queued after 0 s$"):
            ledger.result(made.id, timeout=0)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (failed, "failed: no such page"),
        (dead_lettered, "was dead-lettered (policy_violation)"),
        (cancelled, "was cancelled: requested"),
    ],
)
def test_result_raises_the_reason_if_a_job_has_none(ledger: Ledger, build: Callable[[Ledger], Made], said: str) -> None:
    made = build(ledger)
    with refused("no_result") as found:
        ledger.result(made.id)
    assert found.value.message == f"job {made.id} {said}"
    assert found.value.context["status"] == ledger.get(made.id).status
    assert found.value.context["last_error"] == ledger.get(made.id).last_error


def test_an_error_and_a_reason_are_in_the_message(ledger: Ledger) -> None:
    for_error, for_reason = running(ledger), running(ledger)
    ledger.fail(for_error.fence, ValueError("boom"), retryable=False)
    ledger.cancel(for_reason.id, hard=True, reason="not needed")
    with refused("no_result") as found:
        ledger.result(for_error.id)
    assert found.value.message == f"job {for_error.id} failed: ValueError: boom"
    with refused("no_result") as found:
        ledger.result(for_reason.id)
    assert found.value.message == f"job {for_reason.id} was cancelled: not needed"
