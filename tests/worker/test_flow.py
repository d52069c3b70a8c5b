"""Workers and flow control: real processes, some of which are killed."""

from itertools import pairwise
from pathlib import Path

import pytest

from holdfast import Ledger
from tests.support.histories import all_events, problems
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

ENDS = {"requeued", "succeeded", "failed", "cancelled", "dead_lettered"}


def most_held(ledger: Ledger) -> int:
    """The most jobs that were held at once, in the order of the events."""
    held = most = 0
    for event in all_events(ledger):
        held += (event.type == "claimed") - (event.type in ENDS and event.from_status != "queued")
        most = max(most, held)
    return most


def test_killed_workers_leave_no_units_in_use(ledger: Ledger, store_url: str, tmp_path: Path) -> None:
    ledger.set_limit("api", concurrent=3)
    log, go = tmp_path / "log", tmp_path / "go"
    jobs = [ledger.enqueue("hold", {"log": str(log), "go": str(go)}, limits=["api"]) for _ in range(8)]
    with Fleet(store_url) as fleet:
        fleet.start("first")
        wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 3)
        fleet.kill("first")
        go.touch()
        fleet.start("second")
        fleet.start("third")
        wait_until(lambda: all(ledger.get(job.id).status == "succeeded" for job in jobs))
    assert most_held(ledger) == 3
    assert [key.used for key in ledger.limit_keys("api")] == [0]
    assert problems(ledger) == []


def test_a_freed_unit_wakes_a_waiting_worker(ledger: Ledger, store_url: str, tmp_path: Path) -> None:
    """Two workers wait for the same limit. The end of a job in one process lets the other one start its job at once."""
    ledger.set_limit("api", concurrent=1)
    log, go = tmp_path / "log", tmp_path / "go"
    held = ledger.enqueue("hold", {"log": str(log), "go": str(go)}, limits=["api"])
    [claimed] = ledger.claim("other", start=True)
    assert claimed.id == held.id
    waiting = ledger.enqueue("count", {"log": str(log), "n": 7}, limits=["api"])
    with Fleet(store_url) as fleet:
        fleet.start("worker")
        assert ledger.get(waiting.id).status == "queued"
        ledger.complete(claimed.fence, None)
        # Without a wake-up, the worker would claim again after 30 s.
        wait_until(lambda: ledger.get(waiting.id).status == "succeeded", seconds=20)


@pytest.mark.parametrize("rate", ["20/1s"])
def test_a_worker_waits_for_a_rate_without_polling(ledger: Ledger, store_url: str, tmp_path: Path, rate: str) -> None:
    ledger.set_limit("api", rate=rate, burst=1)
    jobs = [ledger.enqueue("count", {"log": str(tmp_path / "log"), "n": n}, limits=["api"]) for n in range(10)]
    with Fleet(store_url) as fleet:
        fleet.start("worker")
        wait_until(lambda: ledger.get(jobs[-1].id).status == "succeeded")
    starts = sorted(ledger.get(job.id).claimed_at for job in jobs)  # type: ignore[type-var]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(starts)]  # type: ignore[operator]
    assert min(gaps) >= 0.05 - 1e-3
