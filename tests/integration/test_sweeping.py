"""Thousands of leases expire at once: they are swept in bounded steps, and claims continue in between."""

import threading
from collections import Counter

import pytest

from holdfast import Ledger
from holdfast.core.limits import SWEEP_BATCH
from holdfast.testing import ManualClock
from tests.support.histories import all_events, problems

LOST = "lost"
FRESH = "fresh"


def lose_all(ledger: Ledger, clock: ManualClock, expired: int) -> None:
    """Every job is held by a worker that stays silent."""
    ledger.enqueue_many([{"kind": "work", "queue": LOST}] * expired)
    for _ in range(expired // 1_000):
        assert len(ledger.claim("gone", [LOST], limit=1_000, start=True)) == 1_000
    clock.advance(61)


def sweep_all(ledger: Ledger) -> list[dict[str, int]]:
    swept = []
    while made := ledger.sweep():
        swept.append(made)
    return swept


def work_until(ledger: Ledger, done: threading.Event) -> int:
    """Claim and complete fresh jobs, one by one."""
    count = 0
    while not done.is_set():
        ledger.enqueue("work", queue=FRESH)
        [job] = ledger.claim("alive", [FRESH], start=True)
        ledger.complete(job.fence)
        count += 1
    return count


@pytest.mark.parametrize("expired", [2_000, pytest.param(10_000, marks=pytest.mark.torture)])
def test_expired_leases_are_swept_while_claims_continue(ledger: Ledger, clock: ManualClock, expired: int) -> None:
    lose_all(ledger, clock, expired)
    done, served = threading.Event(), []
    worker = threading.Thread(target=lambda: served.append(work_until(ledger, done)))
    worker.start()
    try:
        swept = sweep_all(ledger)
    finally:
        done.set()
        worker.join()

    assert swept == [{"stalled": 1_000, "requeued": 1_000}] * (expired // 1_000)
    assert ledger.counts() == {LOST: {"queued": expired}, FRESH: {"succeeded": served[0]}}
    steps = [("requeued" if event.type == "requeued" else "claimed") for event in all_events(ledger)
             if event.type == "requeued" or (event.type == "claimed" and event.actor.startswith("worker:alive"))]  # fmt: skip
    first, last = steps.index("requeued"), len(steps) - 1 - steps[::-1].index("requeued")
    assert steps[first:last].count("claimed") >= 5, "hardly a claim was served in between"
    assert problems(ledger) == []


def test_one_sweep_handles_up_to_its_limit_in_bounded_transactions(ledger: Ledger, clock: ManualClock) -> None:
    ledger.enqueue_many([{"kind": "work"}] * 900)
    ledger.claim("gone", limit=900)
    clock.advance(61)
    assert ledger.sweep(limit=450) == {"stalled": 450, "requeued": 450}
    assert ledger.sweep(limit=10_000) == {"stalled": 450, "requeued": 450}
    assert ledger.sweep(limit=10_000) == {}
    together = Counter(event.request_id for event in all_events(ledger) if event.type == "requeued")
    assert sorted(together.values(), reverse=True) == [SWEEP_BATCH, SWEEP_BATCH, SWEEP_BATCH, SWEEP_BATCH, 50, 50]
