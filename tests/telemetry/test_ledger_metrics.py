"""Metrics of the ledger on both stores: each change counts once, a repetition never."""

import threading
from collections import Counter
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.errors import FenceLost, LeaseConflictError
from holdfast.testing import ManualClock
from holdfast.watch import families
from holdfast.watch.process import Metrics
from tests.contract import builders as b

KIND = "index_page"


def value(ledger: Ledger, name: str, **labels: str) -> int:
    return ledger.metrics.value(name, **labels)


def counted(ledger: Ledger) -> dict[str, int]:
    """The sum over all labels of every counter that is not 0."""
    totals = {name: sum(series.values()) for name, series in ledger.metrics.read().counters.items()}
    return {name.removeprefix("holdfast_").removesuffix("_total"): total for name, total in totals.items() if total}


def test_enqueues_and_claims_are_counted_by_kind(ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": kind} for kind in ("a", "a", "b")])
    ledger.claim("w", limit=2)

    assert value(ledger, families.ENQUEUED, kind="a") == 2
    assert value(ledger, families.ENQUEUED, kind="b") == 1
    assert value(ledger, families.CLAIMS, kind="a") == 2
    assert value(ledger, families.CLAIMS, kind="b") == 0


def test_a_claim_without_ready_jobs_is_not_counted(ledger: Ledger) -> None:
    ledger.claim("w")
    assert counted(ledger) == {}


def test_a_deduplicated_job_is_not_counted_as_new(ledger: Ledger) -> None:
    ledger.enqueue(KIND, dedupe_key="k")
    ledger.enqueue(KIND, dedupe_key="k")
    assert counted(ledger) == {"enqueued": 1}


def test_a_repeated_request_counts_once(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.enqueue(KIND, request_id="e-1")
    [job], _ = [ledger.claim("w", start=True, request_id="c-1") for _ in range(2)]
    for _ in range(2):
        ledger.heartbeat(b.held(job), request_id="h-1")
    for _ in range(2):
        ledger.fail(b.held(job), "gone", retryable=False, request_id="f-1")
    replays = [ledger.replay(job.id, request_id="r-1").id for _ in range(2)]

    assert replays[0] == replays[1]
    assert counted(ledger) == {"enqueued": 2, "claims": 1, "lease_renewals": 1, "failures": 1}


def test_a_live_replay_is_not_counted_as_new(ledger: Ledger) -> None:
    made = b.failed(ledger)
    ledger.replay(made.id)
    ledger.replay(made.id)
    assert value(ledger, families.ENQUEUED, kind=KIND) == 2


def test_beats_are_counted_as_renewals(ledger: Ledger) -> None:
    one, two = b.running(ledger), b.claimed(ledger)
    ledger.heartbeat(one.fence)
    ledger.heartbeat_many([one.fence, two.fence, b.queued(ledger).fence])
    ledger.claim_job(two.id, b.WORKER)

    assert value(ledger, families.LEASE_RENEWALS) == 4
    assert value(ledger, families.FENCES_LOST) == 1


def test_a_beat_of_a_stalled_job_is_not_counted_as_a_renewal(ledger: Ledger) -> None:
    made = b.running_stalled(ledger)
    ledger.heartbeat(made.fence)
    assert value(ledger, families.LEASE_RENEWALS) == 0


def test_a_sweep_counts_expiries_by_reason_and_retries(ledger: Ledger, clock: ManualClock) -> None:
    b.running(ledger)
    clock.advance(31)
    ledger.sweep()

    assert value(ledger, families.LEASE_EXPIRIES, reason="NO_HEARTBEAT") == 1
    assert value(ledger, families.RETRIES, kind=KIND) == 1


def test_stalls_for_lack_of_progress_are_counted_separately(ledger: Ledger, clock: ManualClock) -> None:
    made = b.running(ledger, policy={"progress_timeout": "25s"})
    clock.advance(20)
    ledger.heartbeat(made.fence)
    clock.advance(6)
    ledger.sweep()
    assert value(ledger, families.LEASE_EXPIRIES, reason="NO_PROGRESS") == 1


def test_a_late_holder_is_counted_as_silent(ledger: Ledger, clock: ManualClock) -> None:
    made = b.running(ledger)
    clock.advance(61)
    ledger.complete(made.fence)
    assert value(ledger, families.LEASE_EXPIRIES, reason="NO_HEARTBEAT") == 1
    assert value(ledger, families.RETRIES, kind=KIND) == 0


def test_a_holders_own_stall_is_not_an_expiry_and_a_release_is_not_a_retry(ledger: Ledger) -> None:
    ledger.stall(b.running(ledger, policy=b.WINDOW).fence)
    ledger.release(b.running(ledger).fence)
    assert counted(ledger) == {"enqueued": 2, "claims": 2}


def test_each_kind_of_failure_is_counted_separately(ledger: Ledger) -> None:
    ledger.fail(b.running(ledger).fence, "reset")
    ledger.fail(b.running(ledger).fence, "no such page", retryable=False)
    ledger.fail(b.running(ledger).fence, "not JSON", retryable=False, reason_code="parse_error")
    ledger.fail(b.running(ledger, policy={"attempts_max": 1}).fence, "reset")

    assert value(ledger, families.RETRIES, kind=KIND) == 1
    assert value(ledger, families.FAILURES, kind=KIND) == 1
    assert value(ledger, families.DEAD_LETTERS, kind=KIND, reason_code="parse_error") == 1
    assert value(ledger, families.DEAD_LETTERS, kind=KIND, reason_code="exhausted_retries") == 1


def test_refusals_are_counted_by_code(ledger: Ledger) -> None:
    made = b.running(ledger)
    with b.refused("lease_conflict"):
        ledger.claim_job(made.id, "another")
    with b.refused("not_claimable"):
        ledger.claim_job(b.queued(ledger, delay=60).id, "w")
    with b.refused("not_found"):
        ledger.cancel(10_000)

    refusals = ledger.metrics.read().counters[families.REFUSALS]
    assert refusals == {("lease_conflict",): 1, ("not_claimable",): 1, ("not_found",): 1}
    assert value(ledger, families.CLAIM_CONFLICTS) == 2


def test_a_lost_fence_is_counted_as_a_refusal_only(ledger: Ledger) -> None:
    made = b.running(ledger)
    ledger.cancel(made.id, hard=True)
    with b.refused("fence_lost"):
        ledger.complete(made.fence)
    assert value(ledger, families.FENCES_LOST) == 1
    assert value(ledger, families.REFUSALS, code="fence_lost") == 1
    assert value(ledger, families.CLAIM_CONFLICTS) == 0


def test_a_refused_setting_is_counted(ledger: Ledger) -> None:
    ledger.pause("q", request_id="p-1")
    with b.refused("idempotency_conflict"):
        ledger.pause("other", request_id="p-1")
    assert value(ledger, families.REFUSALS, code="idempotency_conflict") == 1


def test_an_unavailable_ledger_is_counted_as_a_refusal(ledger: Ledger) -> None:
    ledger.close()
    with b.refused("unavailable"):
        ledger.enqueue(KIND)
    assert value(ledger, families.REFUSALS, code="unavailable") == 1
    assert value(ledger, families.ENQUEUED, kind=KIND) == 0


def test_waiting_times_are_measured_from_when_a_job_was_ready(ledger: Ledger, clock: ManualClock) -> None:
    ledger.enqueue("late", delay=10)
    ledger.enqueue("past", available_at=clock.now().replace(year=2020))
    clock.advance(14)
    ledger.claim("w", limit=2)

    waits = ledger.metrics.read().timings[families.WAIT]
    assert {labels[0]: (timing.count, timing.sum_us) for labels, timing in waits.items()} == {
        "late": (1, 4_000_000),
        "past": (1, 14_000_000),
    }


def test_a_claim_by_id_is_measured_but_a_claim_of_a_stalled_job_is_not(ledger: Ledger, clock: ManualClock) -> None:
    made = b.queued(ledger, policy=b.WINDOW)
    clock.advance(3)
    b.claim(ledger, made.id)
    clock.advance(100)
    ledger.sweep()
    clock.advance(61)
    ledger.claim_job(made.id, "w-2")

    [timing] = ledger.metrics.read().timings[families.WAIT].values()
    assert (timing.count, timing.sum_us) == (1, 3_000_000)
    assert value(ledger, families.CLAIMS, kind=KIND) == 2


def test_two_ledgers_count_together(store_url: str) -> None:
    shared = Metrics()
    with holdfast.open(store_url, metrics=shared) as one, holdfast.open(store_url, metrics=shared) as two:
        one.enqueue(KIND)
        two.enqueue(KIND)
        assert one.metrics is two.metrics is shared
    assert shared.value(families.ENQUEUED, kind=KIND) == 2


def test_values_that_are_not_metrics_are_refused(store_url: str) -> None:
    with b.refused("validation_error"):
        holdfast.open(store_url, metrics=Counter())  # type: ignore[arg-type]


def test_threads_lose_no_count(ledger: Ledger) -> None:
    def some() -> None:
        for _ in range(20):
            ledger.enqueue(KIND)

    threads = [threading.Thread(target=some) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(ledger, families.ENQUEUED, kind=KIND) == 160


def test_a_job_enqueued_in_the_caller_s_transaction_is_counted_when_it_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with holdfast.open(f"sqlite:///{path}") as ledger:
        connection = apsw.Connection(str(path))
        with connection:
            ledger.enqueue(KIND, connection=connection)
        connection.close()
        assert value(ledger, families.ENQUEUED, kind=KIND) == 1


def test_refusals_of_agents_are_counted_as_those_of_workers(ledger: Ledger) -> None:
    job = ledger.enqueue("a")
    Agent(ledger, "ada").start(job.id)
    with pytest.raises(LeaseConflictError):
        Agent(ledger, "bob").start(job.id)
    with pytest.raises(FenceLost):
        Agent(ledger, "ada").heartbeat(job.id, attempt=7)
    assert ledger.metrics.value("holdfast_claim_conflicts_total") == 1
    assert ledger.metrics.value("holdfast_fences_lost_total") == 1
    assert ledger.metrics.value("holdfast_refusals_total", code="lease_conflict") == 1
