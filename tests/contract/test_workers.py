"""Workers: sign in and out, times, and details."""

from datetime import timedelta

import msgspec
import pytest

from holdfast import Ledger, WorkerRecord
from holdfast.testing import ManualClock
from tests.contract.builders import refused

BODY = {"host": "nord-ö", "pid": 7, "queues": ["a", "b"], "concurrency": 4, "version": None}


def there(ledger: Ledger, **options: object) -> list[tuple[str, str]]:
    return [(worker.name, worker.incarnation) for worker in ledger.workers(**options)]  # type: ignore[arg-type]


def test_a_worker_that_signs_in_is_listed(ledger: Ledger, clock: ManualClock):
    ledger.sign_in("w", incarnation="i", body=BODY)
    assert ledger.workers() == [WorkerRecord("w", "i", clock.now(), clock.now(), BODY)]


def test_the_incarnation_is_the_ledgers_unless_given(ledger: Ledger):
    ledger.sign_in("w")
    assert there(ledger) == [("w", ledger.incarnation)]
    ledger.sign_out("w")
    assert there(ledger) == []


def test_signing_in_again_changes_only_the_time_of_the_last_sign(ledger: Ledger, clock: ManualClock):
    first = clock.now()
    ledger.sign_in("w", incarnation="i", body=BODY)
    clock.advance(5)
    ledger.sign_in("w", incarnation="i")
    assert ledger.workers() == [WorkerRecord("w", "i", first, first + timedelta(seconds=5), BODY)]


def test_new_details_replace_the_old_ones(ledger: Ledger):
    ledger.sign_in("w", body=BODY)
    ledger.sign_in("w", body={"pid": 8})
    assert ledger.workers()[0].details == {"pid": 8}
    ledger.sign_in("w", body={})
    assert ledger.workers()[0].details == {}


def test_a_restarted_worker_is_another_entry(ledger: Ledger):
    ledger.sign_in("w", incarnation="1")
    ledger.sign_in("w", incarnation="2")
    assert there(ledger) == [("w", "1"), ("w", "2")]
    ledger.sign_out("w", "1")
    assert there(ledger) == [("w", "2")]


def test_workers_are_filtered_by_when_they_were_last_seen(ledger: Ledger, clock: ManualClock):
    ledger.sign_in("old", incarnation="i")
    clock.advance(60)
    ledger.sign_in("new", incarnation="i")
    assert there(ledger) == [("new", "i"), ("old", "i")]
    assert there(ledger, seen_within="60s") == [("new", "i"), ("old", "i")]
    assert there(ledger, seen_within=59.9) == [("new", "i")]
    assert there(ledger, seen_within=0) == [("new", "i")]


def test_with_a_limit_the_workers_seen_last_are_listed_by_name(ledger: Ledger, clock: ManualClock):
    for name in ("c", "b", "a"):
        ledger.sign_in(name, incarnation="i")
        clock.advance(1)
    assert there(ledger, limit=2) == [("a", "i"), ("b", "i")]


def test_names_are_ordered_by_their_bytes(ledger: Ledger):
    for name in ("b", "ä", "B", "a"):
        ledger.sign_in(name, incarnation="i")
    assert [name for name, _ in there(ledger)] == ["B", "a", "b", "ä"]


def test_details_at_their_limit_are_accepted(ledger: Ledger):
    body = {"x": "y" * (16_384 - len('{"x":""}'))}
    ledger.sign_in("w", body=body)
    assert ledger.workers()[0].details == body


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"body": {"x": "y" * 16_384}}, "limit_exceeded"),
        ({"body": [1]}, "validation_error"),
        ({"body": "text"}, "validation_error"),
        ({"body": {"x": float("nan")}}, "validation_error"),
        ({"body": {"x": msgspec}}, "validation_error"),
        ({"incarnation": "a#b"}, "validation_error"),
        ({"incarnation": ""}, "validation_error"),
        ({"worker": "w" * 201}, "limit_exceeded"),
        ({"worker": None}, "validation_error"),
    ],
)
def test_wrong_arguments_are_refused(ledger: Ledger, options, code: str):
    with refused(code):
        ledger.sign_in(**{"worker": "w"} | options)
    assert ledger.workers() == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"seen_within": -1}, "limit_exceeded"),
        ({"seen_within": "soon"}, "validation_error"),
        ({"limit": 0}, "limit_exceeded"),
        ({"limit": 1_001}, "limit_exceeded"),
    ],
)
def test_wrong_filters_are_refused(ledger: Ledger, options, code: str):
    with refused(code):
        ledger.workers(**options)


def test_the_number_of_held_jobs_is_that_of_the_workers_leases(ledger: Ledger) -> None:
    ledger.sign_in("w", body={"holding": 7})
    ledger.sign_in("w", incarnation="its namesake")
    ledger.enqueue_many([{"kind": "k"}] * 3)
    ledger.claim("w", limit=2)
    assert [record.holding for record in ledger.workers() if record.incarnation == ledger.incarnation] == [2]
    assert [record.holding for record in ledger.workers() if record.incarnation != ledger.incarnation] == [0]
    [seen] = [record for record in ledger.workers(seen_within="1m") if record.holding]
    assert seen.name == "w"


def test_a_worker_does_not_sign_in_with_the_own_label_of_another(ledger: Ledger):
    with refused("validation_error") as refusal:
        ledger.sign_in("w", body={"queues": ["default"], "kinds": ["k"], "labels": ["gpu", "worker:v"]})
    assert refusal.value.action == "Name the only worker of a job with for_worker."
    assert ledger.workers() == []
    ledger.sign_in("w", body={"labels": "worker:v"})
    assert [worker.details for worker in ledger.workers()] == [{"labels": "worker:v"}]
