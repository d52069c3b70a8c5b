"""Undo jobs with several concurrent sweepers."""

import threading

from holdfast import Ledger
from tests.integration.conftest import Opener
from tests.support.histories import all_jobs, problems

JOBS = 60
SWEEPERS = 4


def _came_to_nothing(ledger: Ledger) -> set[int]:
    ledger.enqueue_many({"kind": "work"} for _ in range(JOBS))
    held = ledger.claim("worker", limit=JOBS, start=True)
    for job in held:
        ledger.heartbeat(job.fence, undo={"kind": "delete", "args": {"of": job.id}})
        ledger.fail(job.fence, "no", retryable=False)
    return {job.id for job in held}


def _sweep_at_once(ledgers: list[Ledger]) -> list[str]:
    """Sweep with all ledgers at once until nothing is left, and return the sum of their counts."""
    gate = threading.Barrier(len(ledgers))
    made: list[str] = []

    def sweep(ledger: Ledger) -> None:
        gate.wait(60)
        while done := ledger.sweep(limit=7):
            made.extend(kind for kind, count in done.items() for _ in range(count))

    threads = [threading.Thread(target=sweep, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def test_each_job_is_undone_once_and_noted_once(store_url: str, opened: Opener) -> None:
    ledgers = [opened(store_url) for _ in range(SWEEPERS)]
    originals = _came_to_nothing(ledgers[0])
    assert _sweep_at_once(ledgers) == ["enqueued"] * JOBS
    undoing = ledgers[0].claim("undoer", kinds=["holdfast.undo"], limit=1_000, start=True)
    assert {job.args["job_id"] for job in undoing} == originals
    assert len(undoing) == JOBS
    for job in undoing:
        assert job.args["steps"] == [{"kind": "delete", "args": {"of": job.args["job_id"]}}]
        ledgers[0].complete(job.fence)
    assert _sweep_at_once(ledgers) == ["compensated"] * JOBS
    assert {job.note for job in all_jobs(ledgers[0]) if job.id in originals} == {"compensated"}
    assert problems(ledgers[0]) == []


def test_concurrent_beats_of_many_threads_keep_every_step(store_url: str, opened: Opener) -> None:
    ledger = opened(store_url)
    ledger.enqueue_many({"kind": "work"} for _ in range(8))
    held = ledger.claim("worker", limit=8, start=True)

    def beat(number: int) -> None:
        fence = held[number].fence
        for step in range(10):
            ledger.heartbeat(fence, undo={"kind": "delete", "args": {"step": step}}, checkpoint=step)
            ledger.heartbeat(fence)

    threads = [threading.Thread(target=beat, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job in held:
        assert [step["args"]["step"] for step in ledger.undo_steps(job.id)] == list(range(10))
        assert (ledger.get(job.id).undo_owed, ledger.get(job.id).checkpoint) == (10, 9)
    assert problems(ledger) == []
