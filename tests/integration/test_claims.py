"""Many claimers at once: no job is ever held twice."""

import threading
from collections import Counter

import pytest

from holdfast import Ledger
from tests.support.histories import all_events, problems
from tests.support.processes import fleet


def claimed_events(ledger: Ledger) -> dict[tuple[int, int], str]:
    """The worker of each attempt by the events. Fail if an attempt has two."""
    found: dict[tuple[int, int], str] = {}
    for event in all_events(ledger):
        if event.type == "claimed":
            assert (event.job_id, event.attempt) not in found
            found[event.job_id, event.attempt] = event.actor.removeprefix("worker:").partition("#")[0]
    return found


def test_every_job_is_claimed_once_by_64_processes(store_url: str, real: Ledger) -> None:
    ids = {job.id for job in real.enqueue_many([{"kind": "work"}] * 1_000)}

    answers = fleet("workers.claim_all", 64, url=store_url, limit=3)

    held = {(job_id, attempt): f"worker-{number}" for number, jobs in enumerate(answers) for job_id, attempt in jobs}
    assert sum(map(len, answers)) == len(held) == 1_000
    assert held.keys() == {(id_, 1) for id_ in ids}
    assert claimed_events(real) == held
    assert problems(real) == []


def test_every_job_is_claimed_once_by_512_threads(real: Ledger) -> None:
    ids = {job.id for job in real.enqueue_many([{"kind": "work"}] * 512)}
    together = threading.Barrier(512)
    held: dict[str, list[int]] = {}

    def claim(name: str) -> None:
        together.wait(60)
        held[name] = [job.id for job in real.claim(name)]

    threads = [threading.Thread(target=claim, args=(f"t{number}",)) for number in range(512)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert Counter(map(len, held.values())) == {1: 512}
    assert {jobs[0] for jobs in held.values()} == ids
    assert claimed_events(real) == {(jobs[0], 1): name for name, jobs in held.items()}
    assert real.claim("late") == []


def test_several_processes_drain_10000_jobs_with_valid_histories(store_url: str, real: Ledger) -> None:
    ids = [job.id for job in real.enqueue_many([{"kind": "work"}] * 10_000)]

    done = fleet("workers.drain", 4, url=store_url, limit=250)

    assert sum(done) == 10_000
    assert real.counts() == {"default": {"succeeded": 10_000}}
    assert problems(real) == []
    assert [problem for id_ in ids[::50] for problem in real.check(id_)] == []


@pytest.mark.torture
def test_several_processes_drain_100000_jobs_with_valid_histories(store_url: str, real: Ledger) -> None:
    ids = [job.id for _ in range(10) for job in real.enqueue_many([{"kind": "work"}] * 10_000)]

    done = fleet("workers.drain", 8, url=store_url, limit=100, timeout=900)

    assert sum(done) == 100_000
    assert real.counts() == {"default": {"succeeded": 100_000}}
    assert fleet("workers.check_all", 4, url=store_url, ids=ids[::3], parts=4, timeout=900) == [[], [], [], []]
    assert problems(real) == []
