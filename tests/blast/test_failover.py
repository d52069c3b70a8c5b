"""The primary dies and its replica takes over, while workers work and a follower follows."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import Job, Ledger, Unavailable
from tests.support.histories import all_events, all_jobs, problems
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet
from tools.pgserver import PostgresServer, Standby

HOLDS = 4


@pytest.fixture
def standby(restartable_server: PostgresServer) -> Iterator[Standby]:
    with restartable_server.standby() as standby:
        yield standby


def run(server: PostgresServer, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        done = connection.execute(statement)
        return done.fetchall() if done.description else []


def wait_for_standby(primary: PostgresServer) -> None:
    """Every commit waits for the standby from here on."""
    run(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    run(primary, "SELECT pg_reload_conf()")
    wait_until(lambda: run(primary, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))


def enqueue(ledger: Ledger, request_id: str, log: Path, number: int) -> Job:
    """Retry until there is an answer. The request id makes one job of all attempts."""
    while True:
        try:
            return ledger.enqueue("count", {"log": str(log), "n": number}, request_id=request_id)
        except Unavailable:
            """The next attempt finds the new primary, or the stored answer."""


def test_a_replica_can_be_read_and_refuses_writes(restartable_server: PostgresServer, standby: Standby) -> None:
    wait_for_standby(restartable_server)
    with holdfast.open(restartable_server.url) as ledger:
        job = ledger.enqueue("k", {"n": 1})
        [(written,)] = run(restartable_server, "SELECT pg_current_wal_lsn()::text")
        wait_until(lambda: run(standby, f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{written}'"))
        with holdfast.open(standby.url) as replica:
            assert [found.args for found in replica.list()] == [{"n": 1}]
            assert replica.events(job.id)[0].type == "enqueued"
            assert "replica" in {finding.code for finding in replica.diagnose().findings}
            assert "in queue default" in replica.explain(job.id).text
            for write in (lambda: replica.enqueue("k"), lambda: replica.claim("w"), lambda: replica.claim("w", keep=False)):
                with pytest.raises(Unavailable, match="takes no writes") as caught:
                    write()
                assert caught.value.outcome == "none" and "primary" in caught.value.action
        assert "replica" not in {finding.code for finding in ledger.diagnose().findings}
        assert problems(ledger) == []


def test_the_outcome_of_a_commit_is_not_asked_of_another_server(restartable_server: PostgresServer, standby: Standby) -> None:
    """A promoted replica draws transaction ids again that the primary had used."""
    primary = restartable_server
    ports = f"{primary.host}:{primary.port},{standby.host}:{standby.port}"
    with holdfast.open(f"postgresql://postgres@{ports}/postgres?target_session_attrs=read-write") as ledger:
        ledger.enqueue("k", {}, tier="known")
        store = ledger._store
        before = store._pool.identity  # type: ignore[attr-defined]
        wait_until(lambda: run(standby, "SELECT 1 FROM pg_tables WHERE schemaname = 'holdfast'"))
        primary.stop_immediate()
        standby.promote()
        wait_until(lambda: _is_up(ledger), what="the new primary is found")
        assert store._pool.identity != before  # type: ignore[attr-defined]
        assert ledger.enqueue("k", {}, tier="new").tier == "new"
        assert problems(ledger) == []


def _is_up(ledger: Ledger) -> bool:
    try:
        ledger.enqueue("k")
    except Unavailable:
        return False
    return True


@pytest.mark.torture
def test_a_failover_to_a_synchronous_replica_loses_nothing(
    restartable_server: PostgresServer, standby: Standby, tmp_path: Path
) -> None:
    primary = restartable_server
    log, held, go = tmp_path / "log", tmp_path / "held", tmp_path / "go"
    ports = f"{primary.host}:{primary.port},{standby.host}:{standby.port}"
    url = f"postgresql://postgres@{ports}/postgres?target_session_attrs=read-write"
    wait_for_standby(primary)
    with holdfast.open(url) as ledger, Fleet(url) as fleet:
        for name in ("ant", "bee"):
            fleet.start(name, threads=HOLDS)
        wait_until(lambda: len(ledger.workers()) == 2)
        ledger.set_policy("hold", lease_ttl=60, missed_beats_max=20)
        holds = [ledger.enqueue("hold", {"log": str(held), "go": str(go)}) for _ in range(HOLDS)]
        wait_until(lambda: held.exists() and len(held.read_text().splitlines()) == HOLDS)
        acknowledged: list[int] = []
        stop = threading.Event()

        def produce(number: int) -> None:
            while not stop.is_set():
                count = len(acknowledged)
                acknowledged.append(enqueue(ledger, f"{number}-{count}-{len(acknowledged)}", log, count).id)

        producers = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
        for producer in producers:
            producer.start()
        wait_until(lambda: len(acknowledged) > 200)
        primary.stop_immediate()
        before = len(acknowledged)
        standby.promote()
        wait_until(lambda: len(acknowledged) > before + 200)
        stop.set()
        for producer in producers:
            producer.join()
        go.touch()
        wait_until(lambda: all(job.finished_at is not None for job in all_jobs(ledger)), seconds=60, what=str(ledger.counts()))
        jobs = {job.id: job for job in all_jobs(ledger)}
        assert len(set(acknowledged)) == len(acknowledged)
        assert set(acknowledged) <= jobs.keys()
        assert [jobs[job.id].attempt for job in holds] == [1] * HOLDS
        assert {job.status for job in jobs.values()} == {"succeeded"}
        assert Counter(event.job_id for event in all_events(ledger) if event.type == "succeeded").most_common(1)[0][1] == 1
        assert problems(ledger) == []
