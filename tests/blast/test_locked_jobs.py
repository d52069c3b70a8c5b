"""A foreign transaction keeps a job's row locked. Every other lease, attempt and completion of the fleet continues."""

from pathlib import Path

import pytest

from tests.blast import locks
from tests.blast.fleet import Fleet
from tests.blast.locks import MAKERS, WAYS
from tests.blast.watch import Watch
from tests.support.waiting import wait_until

LEASE_SECONDS = 5.0
SHORT_SECONDS, LONG_SECONDS = 6.0, 15.0
"""Both are longer than a lease. During the long one every worker has been the sweeper."""
WITHIN_LEASE_SECONDS = 2.0
BURST = 200
"""Short jobs a second, for one worker."""

SHORT = [
    pytest.param("for_update", list(MAKERS), SHORT_SECONDS, id="for_update-every_status"),
    pytest.param("dependent", list(MAKERS), SHORT_SECONDS, id="dependent-every_status"),
    pytest.param("frozen_client", ["claimed", "running"], SHORT_SECONDS, id="frozen_client-held", marks=pytest.mark.torture),
]
EACH = [
    pytest.param(way, [status], LONG_SECONDS, id=f"{way}-{status}", marks=pytest.mark.torture)
    for way in WAYS
    for status in sorted(MAKERS)
]


def test_without_a_fault_no_worker_loses_a_job(fleet: Fleet) -> None:
    """The other tests rely on this."""
    with Watch(fleet) as watch:
        watch.during(3, orphan=fleet.orphan())


@pytest.mark.parametrize(("way", "statuses", "seconds"), [*SHORT, *EACH])
def test_a_locked_job_does_not_affect_other_jobs(fleet: Fleet, way: str, statuses: list[str], seconds: float) -> None:
    with Watch(fleet) as watch:
        with WAYS[way](fleet) as lock:
            jobs = locks.make(fleet, statuses)
            lock(jobs.values())
            watch.spare(jobs.values())
            watch.during(seconds, orphan=fleet.orphan())
        locks.let_go(fleet)
    # The jobs themselves continue when they are unlocked.
    for status in {"queued", "claimed", "running"} & jobs.keys():
        fleet.became(jobs[status], "succeeded")


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way == "for_update" else pytest.mark.torture) for way in WAYS])
def test_a_held_job_continues_if_it_is_locked_for_less_than_its_lease(fleet: Fleet, way: str) -> None:
    jobs = locks.make(fleet, ["claimed", "running"])
    fleet.held |= dict.fromkeys(jobs.values(), "w1")
    with Watch(fleet) as watch, WAYS[way](fleet) as lock:
        lock(jobs.values())
        watch.during(WITHIN_LEASE_SECONDS)
    for job_id in jobs.values():
        del fleet.held[job_id]
    locks.let_go(fleet)
    assert {fleet.became(job_id, "succeeded").attempt for job_id in jobs.values()} == {1}


@pytest.mark.parametrize("seconds", [pytest.param(3.0, id="3s"), pytest.param(12.0, id="12s", marks=pytest.mark.torture)])
def test_a_locked_job_does_not_delay_other_completions_of_its_worker(fleet: Fleet, seconds: float) -> None:
    """One worker completes many short jobs. One more of its jobs ends while its row is locked."""
    go: Path = fleet.folder / f"done-{seconds}"
    fleet.start("busy")
    fleet.started("busy")
    [job] = fleet.hold("busy", go=go)
    fleet.became(job.id, "running")
    offer = fleet.offer("busy", BURST)
    with Watch(fleet, but=[job.id]) as watch, locks.for_update(fleet) as lock:
        lock([job.id])
        go.touch()
        watch.during(seconds, orphan=fleet.orphan() if seconds > LEASE_SECONDS else None)
    fleet.end_offer(offer)
    assert fleet.became(job.id, "succeeded").attempt == 1 or seconds > LEASE_SECONDS, fleet.describe(job.id)
    wait_until(lambda: fleet.done()["busy"] == len(offer.ids) + 1)
    assert fleet.query("SELECT count(*) FROM {s}.jobs WHERE queue = 'busy' AND attempt > 1 AND id <> %s", job.id) == [(0,)]
    assert fleet.stop("busy") == 0
