"""A worker process is frozen: its jobs are taken over, and no other worker loses anything."""

import signal

from tests.blast.fleet import JOBS_EACH, Fleet
from tests.blast.watch import Watch
from tests.support.waiting import wait_until

FROZEN_SECONDS = 6.0
"""Longer than a lease."""


def freeze(fleet: Fleet, name: str) -> None:
    """Freeze a worker until another worker has its jobs, then let it continue."""
    spare = f"{name}-spare"
    fleet.start(spare, name)
    fleet.started(spare)
    mine = [job_id for job_id, worker in fleet.held.items() if worker == name]
    with Watch(fleet, but=mine) as watch:
        orphan = fleet.orphan()
        fleet.send(name, signal.SIGSTOP)
        try:
            watch.during(FROZEN_SECONDS, orphan=orphan)
            wait_until(
                lambda: {fleet.ledger.get(job_id).owner for job_id in mine} == {spare},
                what=f"the spare worker has them: {[fleet.describe(job_id) for job_id in mine]}",
            )
        finally:
            fleet.send(name, signal.SIGCONT)
    # The worker finds that its leases are lost, and continues with other jobs.
    assert {fleet.ledger.get(job_id).attempt for job_id in mine} == {2}
    [again] = fleet.hold(name, go=fleet.folder)
    fleet.became(again.id, "succeeded")
    for job_id in mine:
        del fleet.held[job_id]
    fleet.held |= dict.fromkeys(mine, spare)


def test_a_frozen_worker_loses_its_own_jobs_only(fleet: Fleet) -> None:
    assert len(fleet.held) >= JOBS_EACH
    freeze(fleet, "w1")


def test_a_frozen_sweeper_loses_its_own_jobs_only(fleet: Fleet) -> None:
    """Another worker sweeps instead."""

    def sweeps() -> bool:
        found = fleet.query("SELECT holder FROM {s}.duties WHERE name = 'sweep'")
        if found and found[0][0].startswith("w2#"):
            return True
        for (holder,) in found:
            fleet.ledger.drop_duty("sweep", holder)
        return False

    wait_until(sweeps, what="w2 sweeps")
    freeze(fleet, "w2")
