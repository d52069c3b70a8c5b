"""`until_ready`: how long an idle worker may wait for delayed work."""

import pytest

from holdfast import Ledger
from holdfast.ledger.verbs.fleet import ready_queues
from holdfast.testing import ManualClock
from tests.contract.builders import WORKER, held, refused


def test_without_delayed_jobs_the_answer_is_none(ledger: Ledger):
    assert ledger.until_ready() is None
    ledger.enqueue("work")
    assert ledger.until_ready() is None


def test_the_answer_is_the_time_of_the_first_delayed_job(ledger: Ledger, clock: ManualClock):
    ledger.enqueue("late", delay=60)
    ledger.enqueue("soon", delay=20, priority=-5)
    clock.advance(5.5)
    assert ledger.until_ready() == 14.5


def test_jobs_with_a_given_time_count(ledger: Ledger, clock: ManualClock):
    at = clock.now()
    ledger.enqueue("work", available_at=at.replace(minute=at.minute + 1))
    assert ledger.until_ready() == 60.0


def test_the_answer_is_zero_from_the_time_until_the_claim(ledger: Ledger, clock: ManualClock):
    ledger.enqueue("work", delay=10)
    clock.advance(10)
    assert ledger.until_ready() == 0.0
    clock.advance(10)
    assert ledger.until_ready() == 0.0
    ledger.claim(WORKER)
    assert ledger.until_ready() is None


def test_a_claim_finds_a_job_after_the_returned_wait(ledger: Ledger, clock: ManualClock):
    ledger.enqueue("work", delay=10)
    wait = ledger.until_ready()
    assert wait is not None
    clock.advance(wait - 0.000_001)
    assert ledger.claim(WORKER) == []
    clock.advance(0.000_001)
    assert len(ledger.claim(WORKER)) == 1


def test_a_retry_in_backoff_is_delayed_work(ledger: Ledger):
    ledger.enqueue("work")
    [job] = ledger.claim(WORKER, start=True)
    ledger.fail(held(job), "later", retry_after=30)
    assert ledger.until_ready() == 30.0


def test_a_swept_job_in_backoff_is_delayed_work(ledger: Ledger, clock: ManualClock):
    job = ledger.enqueue("work", policy={"backoff_base": 40, "backoff_max": 40})
    ledger.claim(WORKER, start=True)
    clock.advance(31)
    ledger.sweep()
    wait = ledger.until_ready()
    assert wait == (ledger.get(job.id).available_at - clock.now()).total_seconds()
    assert wait > 0


def test_only_the_given_queues_count(ledger: Ledger):
    ledger.enqueue("work", queue="a", delay=10)
    ledger.enqueue("work", queue="b", delay=20)
    ledger.enqueue("work", queue="c", delay=5)
    assert ledger.until_ready(["b", "a"]) == 10.0
    assert ledger.until_ready(["b"]) == 20.0
    assert ledger.until_ready(["d"]) is None


def test_a_paused_queue_has_nothing_to_wait_for(ledger: Ledger, clock: ManualClock):
    ledger.enqueue("work", queue="a", delay=10)
    ledger.enqueue("work", queue="b", delay=20)
    ledger.pause("a")
    assert ledger.until_ready(["a", "b"]) == 20.0
    clock.advance(15)
    assert ledger.until_ready(["a"]) is None
    ledger.unpause("a")
    assert ledger.until_ready(["a"]) == 0.0


def test_only_the_given_kinds_count(ledger: Ledger):
    ledger.enqueue("a", delay=10)
    ledger.enqueue("b", delay=20)
    assert ledger.until_ready(kinds=["b"]) == 20.0
    assert ledger.until_ready(kinds=["b", "a"]) == 10.0
    assert ledger.until_ready(kinds=["c"]) is None


def test_a_cancelled_job_does_not_count(ledger: Ledger):
    job = ledger.enqueue("work", delay=10)
    ledger.cancel(job.id)
    assert ledger.until_ready() is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"queues": []}, "validation_error"),
        ({"queues": "default"}, "validation_error"),
        ({"queues": [f"q-{n}" for n in range(1_001)]}, "limit_exceeded"),
        ({"kinds": []}, "validation_error"),
    ],
)
def test_wrong_arguments_are_refused(ledger: Ledger, options, code: str):
    with refused(code):
        ledger.until_ready(**options)


def test_queues_with_a_job_that_can_be_claimed_now(ledger: Ledger, clock: ManualClock):
    ledger.enqueue("work", queue="a")
    ledger.enqueue("work", queue="b", delay=10)
    first = ledger.enqueue("work", queue="c")
    ledger.enqueue("work", queue="c-waits", depends_on=[first])
    ledger.enqueue("work", queue="d")
    ledger.pause("d")
    queues = ["none", "d", "c-waits", "c", "b", "a"]
    assert ready_queues(ledger, queues) == {"c", "a"}
    clock.advance(10)
    ledger.unpause("d")
    assert ready_queues(ledger, queues) == {"d", "c", "b", "a"}
    ledger.claim(WORKER, ["a"])
    assert ready_queues(ledger, queues) == {"d", "c", "b"}
