"""A job that another transaction has locked on PostgreSQL delays no other job."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import HeldJob, Job, Ledger, Unavailable
from holdfast.core.commands import Heartbeat
from holdfast.core.payloads import NO_BEAT
from holdfast.errors import HoldfastError, NotFound
from holdfast.ledger.dispatch import execute
from holdfast.ledger.requests import is_locked
from holdfast.testing import ManualClock
from tests.support.histories import problems
from tests.support.waiting import wait_until


@pytest.fixture
def pg_url(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def ledger(pg_url: str) -> Iterator[Ledger]:
    with holdfast.open(pg_url) as opened:
        yield opened


@pytest.fixture
def other_session(postgres_url: str) -> "Iterator[psycopg.Connection[Any]]":
    with psycopg.connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls on one job stop waiting for a lock after a few retries."""
    monkeypatch.setattr("holdfast.ledger.commit.PAUSES", (0.0, 0.01))
    monkeypatch.setattr("holdfast.ledger.commit.MANY_PAUSES", (0.0, 0.01))


def lock(other_session: "psycopg.Connection[Any]", pg_url: str, *jobs: Job) -> None:
    schema = pg_url.rpartition("schema=")[2]
    other_session.execute(f"SELECT FROM {schema}.jobs WHERE id = ANY (%s) FOR UPDATE", [[job.id for job in jobs]])


def running(ledger: Ledger, count: int) -> list[HeldJob]:
    ledger.enqueue_many([{"kind": "k"}] * count)
    return ledger.claim("w", limit=count, start=True)


def codes(answers: list[Any]) -> list[str]:
    return [answer.code if isinstance(answer, HoldfastError) else answer.status.value for answer in answers]


def test_a_locked_job_does_not_stop_its_batch(ledger: Ledger, pg_url: str, other_session: Any, quick: None) -> None:
    jobs = running(ledger, 3)
    lock(other_session, pg_url, jobs[1])
    beats = ledger.heartbeat_many([job.fence for job in jobs])
    assert codes(beats) == ["running", "unavailable", "running"]
    assert isinstance(beats[1], Unavailable) and beats[1].locked and beats[1].outcome == "none"
    done = ledger.complete_many([(job.fence, None) for job in jobs])
    assert codes(done) == ["succeeded", "unavailable", "succeeded"]
    other_session.rollback()
    ledger.complete(jobs[1].fence)
    assert problems(ledger) == []


def test_a_repeated_request_completes_the_formerly_locked_job(
    ledger: Ledger, pg_url: str, other_session: Any, quick: None
) -> None:
    jobs = running(ledger, 2)
    results = [(job.fence, job.id) for job in jobs]
    lock(other_session, pg_url, jobs[0])
    assert codes(ledger.complete_many(results, request_id="R")) == ["unavailable", "succeeded"]
    other_session.rollback()
    assert codes(ledger.complete_many(results, request_id="R")) == ["succeeded", "succeeded"]
    assert [ledger.get(job.id).result for job in jobs] == [job.id for job in jobs]
    assert problems(ledger) == []


def test_a_call_on_a_locked_job_ends_and_names_the_process(ledger: Ledger, pg_url: str, other_session: Any, quick: None) -> None:
    [job] = running(ledger, 1)
    other_session.execute("SET application_name = 'a forgotten console'")
    lock(other_session, pg_url, job)
    for call in (lambda: ledger.heartbeat(job.fence), lambda: ledger.cancel(job.id), lambda: ledger.claim_job(job.id, "w")):
        with pytest.raises(Unavailable) as caught:
            call()
        assert caught.value.locked and caught.value.retryable
        assert f"job {job.id} is locked by another transaction: process {other_session.info.backend_pid}" in caught.value.message
        assert "(a forgotten console), idle in transaction" in caught.value.message
    other_session.rollback()
    ledger.heartbeat(job.fence)
    assert problems(ledger) == []


def test_explain_and_diagnose_name_the_process(
    ledger: Ledger, pg_url: str, other_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.core.doctor.checks.LOCKED_US_MAX", 0)
    free, job = running(ledger, 2)
    lock(other_session, pg_url, job)
    pid = other_session.info.backend_pid
    wait_until(lambda: f"Its row is locked by process {pid} " in ledger.explain(job.id).text)
    assert "locked" not in ledger.explain(free.id).text
    [found] = [finding for finding in ledger.diagnose().findings if finding.code == "locked_jobs"]
    assert found.severity == "warning" and f"job {job.id} is locked by process {pid} of " in found.words
    other_session.rollback()
    assert "locked" not in ledger.explain(job.id).text
    [found] = [finding for finding in ledger.diagnose().findings if finding.code == "locked_jobs"]
    assert found.severity == "well"


def test_a_call_succeeds_when_the_lock_is_released(ledger: Ledger, pg_url: str, other_session: Any) -> None:
    [job] = running(ledger, 1)
    lock(other_session, pg_url, job)
    begun = ledger.now()
    with ThreadPoolExecutor(1) as pool:
        completing = pool.submit(ledger.complete, job.fence)
        wait_until(lambda: _has_tried(other_session.info.dsn, begun), what="a try has met the lock")
        assert not completing.done()
        other_session.rollback()
        assert completing.result(30).status == "succeeded"
    assert problems(ledger) == []


def _has_tried(dsn: str, since: datetime) -> bool:
    """Whether the ledger has ended a transaction since then."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ended = "SELECT FROM pg_stat_activity WHERE query IN ('COMMIT', 'ROLLBACK') AND state = 'idle' AND state_change > %s"
        return bool(connection.execute(ended, [since]).fetchall())


def test_a_sweep_skips_a_locked_job_and_gives_it_a_fresh_interval(pg_url: str, other_session: Any, clock: ManualClock) -> None:
    with holdfast.open(pg_url, clock=clock) as ledger:
        jobs = running(ledger, 2)
        ledger.sweep()
        lock(other_session, pg_url, jobs[0])
        clock.advance(61)
        assert ledger.sweep() == {"stalled": 1, "requeued": 1}
        other_session.rollback()
        assert ledger.sweep() == {}, "its holder could not beat meanwhile"
        clock.advance(31)
        assert ledger.sweep() == {"stalled": 1, "requeued": 1}
        assert problems(ledger) == []


def test_a_locked_letter_does_not_prevent_replays_of_the_others(
    ledger: Ledger, pg_url: str, other_session: Any, quick: None
) -> None:
    jobs = ledger.enqueue_many([{"kind": "k"}] * 2)
    for job in jobs:
        ledger.dead_letter(job.id, reason_code="timeout", failure_stage="exec")
    lock(other_session, pg_url, jobs[0])
    refused, replayed = ledger.on_jobs("replay", [job.id for job in jobs])
    assert isinstance(refused, Unavailable) and refused.locked
    assert isinstance(replayed, Job) and replayed.replay_of == jobs[1].id


def test_retention_skips_a_locked_job(ledger: Ledger, pg_url: str, other_session: Any, quick: None) -> None:
    jobs = running(ledger, 2)
    ledger.complete_many([(job.fence, None) for job in jobs])
    lock(other_session, pg_url, jobs[0])
    later = ledger.now() + timedelta(hours=1)
    assert ledger.prune(jobs_before=later)["jobs"] == 1
    other_session.rollback()
    assert ledger.prune(jobs_before=later)["jobs"] == 1


# Dependents that are enqueued in the caller's own transaction


def test_a_job_continues_while_its_dependent_is_not_committed(ledger: Ledger, other_session: Any) -> None:
    [job] = running(ledger, 1)
    dependent = ledger.enqueue("after", depends_on=[job.id], queue="later", connection=other_session)
    ledger.heartbeat(job.fence, progress=1)
    ledger.complete(job.fence)
    other_session.commit()
    assert ledger.get(dependent.id).status == "queued" and not ledger.claim("w", ["later"])
    assert ledger.sweep() == {"unblocked": 1}
    assert [found.id for found in ledger.claim("w", ["later"])] == [dependent.id]
    assert problems(ledger) == []


def test_a_queued_job_is_claimed_while_its_dependent_is_not_committed(ledger: Ledger, other_session: Any) -> None:
    job = ledger.enqueue("k")
    ledger.enqueue("after", depends_on=[job.id], queue="later", connection=other_session)
    assert [found.id for found in ledger.claim("w")] == [job.id]


def test_a_dependent_that_is_linked_in_time_is_unblocked_in_the_same_transaction(ledger: Ledger, other_session: Any) -> None:
    [job] = running(ledger, 1)
    first = ledger.enqueue("after", depends_on=[job.id], queue="later", connection=other_session)
    second = ledger.enqueue("after", depends_on=[job.id, first.id], queue="later", connection=other_session)
    other_session.commit()
    assert ledger.sweep() == {}
    ledger.complete(job.fence)
    assert ledger.sweep() == {}
    [held] = ledger.claim("w", ["later"], limit=9, start=True)
    assert held.id == first.id
    ledger.complete(held.fence)
    assert [found.id for found in ledger.claim("w", ["later"])] == [second.id]
    assert problems(ledger) == []


@pytest.mark.parametrize("wanted", ["cancel", "dead_letter", "wait"])
def test_a_dependent_that_commits_late_ends_with_its_failed_dependency(ledger: Ledger, other_session: Any, wanted: Any) -> None:
    job = ledger.enqueue("k")
    dependent = ledger.enqueue("after", depends_on=[job.id], on_dependency_failure=wanted, connection=other_session)
    ledger.cancel(job.id)
    other_session.commit()
    ledger.sweep()
    status = {"cancel": "cancelled", "dead_letter": "dead_lettered", "wait": "queued"}[wanted]
    assert ledger.get(dependent.id).status == status
    assert ledger.sweep() == {}
    assert problems(ledger) == []


def test_a_dependent_that_commits_late_follows_a_replay(ledger: Ledger, other_session: Any) -> None:
    job = ledger.enqueue("k")
    dependent = ledger.enqueue("after", depends_on=[job.id], queue="later", connection=other_session)
    ledger.cancel(job.id)
    again = ledger.replay(job.id)
    other_session.commit()
    assert ledger.sweep() == {}
    [held] = ledger.claim("w", start=True)
    assert held.id == again.id
    ledger.complete(held.fence)
    assert [found.id for found in ledger.claim("w", ["later"])] == [dependent.id]
    assert problems(ledger) == []


def test_a_rollback_leaves_nothing_to_link(ledger: Ledger, other_session: Any) -> None:
    job = ledger.enqueue("k")
    ledger.enqueue("after", depends_on=[job.id], connection=other_session)
    other_session.rollback()
    assert ledger.sweep() == {}
    assert [found.id for found in ledger.claim("w")] == [job.id]


def test_a_locked_job_can_get_a_dependent(ledger: Ledger, pg_url: str, other_session: Any) -> None:
    [job] = running(ledger, 1)
    lock(other_session, pg_url, job)
    dependent = ledger.enqueue("after", depends_on=[job.id], queue="later")
    assert ledger.sweep() == {}, "the job is still locked"
    other_session.rollback()
    ledger.complete(job.fence)
    ledger.sweep()
    assert [found.id for found in ledger.claim("w", ["later"])] == [dependent.id]
    assert problems(ledger) == []


def test_many_late_dependents_of_a_locked_job_keep_no_other_waiting(
    ledger: Ledger, pg_url: str, other_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.jobs.OPEN_CASCADE_BATCH_MAX", 3)
    monkeypatch.setattr("holdfast.ledger.sweep.OPEN_CASCADE_BATCH_MAX", 3)
    monkeypatch.setattr("holdfast.store.dependencies.DEPENDENTS_MAX", 5)
    locked, other = running(ledger, 2)
    with psycopg.connect(other_session.info.dsn) as caller:
        for _ in range(3):
            ledger.enqueue_many([{"kind": "after", "depends_on": [locked.id]}] * 2, connection=caller)
            caller.commit()
        last = ledger.enqueue("last", depends_on=[other.id], queue="later", connection=caller)
    lock(other_session, pg_url, locked)
    ledger.complete(other.fence)
    made = [ledger.sweep() for _ in range(3)]
    assert {"unblocked": 1} in made
    assert [found.id for found in ledger.claim("w", ["later"])] == [last.id]
    other_session.rollback()
    for _ in range(3):
        ledger.sweep()
    ledger.complete(locked.fence)
    assert len(ledger.claim("w", limit=10)) == 6, "more than may be made at once are all claimed"
    assert problems(ledger) == []


def test_a_faulty_call_fails_alone_in_a_group_with_a_locked_job(
    ledger: Ledger, pg_url: str, other_session: Any, quick: None
) -> None:
    jobs = running(ledger, 9)
    lock(other_session, pg_url, jobs[0])
    wrong = lambda: ledger.enqueue("k", depends_on=[999_999])  # noqa: E731
    with ThreadPoolExecutor(9) as pool:
        for _ in range(10):
            beats = [pool.submit(ledger.heartbeat, job.fence) for job in jobs]
            bad = [pool.submit(wrong) for _ in range(3)]
            assert {type(call.exception(30)) for call in bad} == {NotFound}
            answers = [call.exception(30) for call in beats]
            assert isinstance(answers[0], Unavailable)
            assert answers[1:] == [None] * 8


def test_a_claim_waits_briefly_for_a_locked_table(ledger: Ledger, pg_url: str, other_session: Any) -> None:
    other_session.execute(f"LOCK TABLE {pg_url.rpartition('schema=')[2]}.jobs")
    with pytest.raises(Unavailable, match="lock timeout") as refused:
        ledger.claim("w", keep=False)
    assert refused.value.locked


def test_a_statement_that_timed_out_leaves_no_session_behind(
    ledger: Ledger, pg_url: str, other_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that waits too long ends, and the server does not go on with what was given up."""
    monkeypatch.setattr("holdfast.store.postgres.connections.LOCK_MS", 60_000)
    ledger._store._pool._close_idle()  # type: ignore[attr-defined]
    schema = pg_url.rpartition("schema=")[2]
    ledger.patience = 1.0
    other_session.execute(f"LOCK TABLE {schema}.jobs")
    for _ in range(3):
        with pytest.raises(Unavailable, match="did not answer within 1 seconds"):
            ledger.claim("w", keep=False)
    with psycopg.connect(other_session.info.dsn, autocommit=True) as watching:
        waiting = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        wait_until(lambda: not watching.execute(waiting, [other_session.info.backend_pid]).fetchall(), what="all were dropped")
    other_session.rollback()
    ledger.enqueue("k")
    assert len(ledger.claim("w", keep=False)) == 1


def test_a_request_sent_twice_in_one_group_does_not_wait_for_its_locked_job(
    ledger: Ledger, pg_url: str, other_session: Any
) -> None:
    """Both are in one group, with calls of others. A group that is run again waits for no lock."""
    [job] = running(ledger, 1)
    lock(other_session, pg_url, job)
    beat = Heartbeat(**ledger._holder(job.fence, "R", None), beat=NO_BEAT)
    requests = [ledger._hot_request("heartbeat", [beat], "R") for _ in range(2)]
    results = ledger._store.transact("work", partial(execute, requests, ledger._signer, careful=True))
    assert [is_locked(result.answers[0]) for result in results] == [True, True]


def test_a_call_raises_an_outage_that_happens_during_its_retries(
    ledger: Ledger, pg_url: str, other_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is not run again after that: after an error of an outage the call must not be committed."""
    [job] = running(ledger, 1)
    lock(other_session, pg_url, job)
    transact, runs = ledger._store.transact, []

    def break_the_second(lane: Any, work: Any) -> Any:
        runs.append(lane)
        if len(runs) == 2:
            other_session.rollback()
            raise Unavailable("the server is away")
        return transact(lane, work)

    monkeypatch.setattr(ledger._store, "transact", break_the_second)
    with pytest.raises(Unavailable, match="the server is away"):
        ledger.complete(job.fence, 1)
    assert (len(runs), ledger.get(job.id).status) == (2, "running")
    assert ledger.complete(job.fence, 1).status == "succeeded"
