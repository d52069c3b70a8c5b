"""A call that a lock stops ends within its time, names the session that has the lock, and delays no other call."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

import holdfast
from holdfast import App, Ledger, Unavailable
from holdfast.agent import Agent
from holdfast.services.relay import Relay
from holdfast.services.sinks.base import CallableSink
from holdfast.store.postgres import store as postgres
from tests.blast.place import Place
from tests.support.versions import add_versions, catalog_of, versions_of
from tests.support.waiting import wait_until

OtherSession = psycopg.Connection[tuple[object, ...]]
WAITS = "SELECT count(*) FROM pg_locks WHERE relation = to_regclass(%s) AND mode = 'AccessExclusiveLock' AND NOT granted"


@pytest.fixture
def url(schema_url: Callable[[], str]) -> str:
    return schema_url()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with holdfast.open(url) as ledger:
        yield ledger


@pytest.fixture
def other_session(url: str) -> Iterator[OtherSession]:
    """A connection with a transaction that is open until the test ends."""
    with psycopg.connect(Place.of(url).server, application_name="other_session") as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls stop waiting for a lock after little more than a second."""
    monkeypatch.setattr("holdfast.ledger.commit.PAUSES", (0.0, 1.1))
    monkeypatch.setattr(postgres, "_READ", postgres._READ.replace(str(postgres.READ_LOCK_MS), "1100"))


def refusal_of(call: Callable[[], object]) -> Unavailable:
    with pytest.raises(Unavailable) as refused:
        call()
    return refused.value


def names(refused: Unavailable, other_session: OtherSession) -> bool:
    named = f"process {other_session.info.backend_pid} (other_session), idle in transaction for " in refused.message
    return refused.locked and named and "pg_terminate_backend" in str(refused.action)


def test_a_refusal_names_the_process_that_locked_the_agents_task(
    url: str, ledger: Ledger, other_session: OtherSession, quick: None
) -> None:
    job = ledger.enqueue("work")
    other_session.execute(f"SELECT FROM {Place.of(url).schema}.jobs WHERE id = %s FOR UPDATE", [job.id])
    assert names(refusal_of(lambda: Agent(ledger, "ada").start(job.id, request_id="r1")), other_session)
    other_session.rollback()
    assert Agent(ledger, "ada").start(job.id, request_id="r1").id == job.id


def test_a_refusal_for_a_locked_queue_names_the_table_and_the_process(
    url: str, ledger: Ledger, other_session: OtherSession, quick: None
) -> None:
    ledger.pause("mail")
    other_session.execute(f"SELECT FROM {Place.of(url).schema}.queues FOR UPDATE")
    refused = refusal_of(lambda: ledger.unpause("mail"))
    assert names(refused, other_session)
    assert 'in relation "queues"' in refused.message
    assert ledger.claim("worker", ["other"]) == []


def test_reads_of_a_locked_table_end_and_name_the_process(
    url: str, ledger: Ledger, other_session: OtherSession, quick: None
) -> None:
    job = ledger.enqueue("work")
    other_session.execute(f"LOCK TABLE {Place.of(url).schema}.jobs IN ACCESS EXCLUSIVE MODE")
    with ThreadPoolExecutor() as at_once:
        refused = list(at_once.map(refusal_of, [lambda: ledger.get(job.id), ledger.diagnose]))
    assert [names(each, other_session) for each in refused] == [True, True]
    assert ledger.paused() == {}


def test_opening_with_a_locked_table_ends_and_names_the_process(
    url: str, ledger: Ledger, other_session: OtherSession, quick: None
) -> None:
    other_session.execute(f"LOCK TABLE {Place.of(url).schema}.meta IN ACCESS EXCLUSIVE MODE")
    refused = refusal_of(lambda: holdfast.open(url))
    assert names(refused, other_session)
    assert refused.message.startswith("cannot open the ledger: ")


@pytest.fixture
def newer_code(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the ledger is opened by a newer version, whose migration changes the table of queues."""
    add_versions(monkeypatch, "ALTER TABLE holdfast.queues ADD COLUMN made_up integer NOT NULL DEFAULT 7;")


def test_a_migration_that_cannot_lock_a_table_delays_no_other_session(
    url: str, ledger: Ledger, newer_code: None, other_session: OtherSession
) -> None:
    place = Place.of(url)
    ledger.pause("mail")
    other_session.execute(f"SELECT FROM {place.schema}.queues FOR UPDATE")
    opened: list[Ledger] = []
    opening = threading.Thread(target=lambda: opened.append(holdfast.open(url)), daemon=True)
    opening.start()
    with psycopg.connect(place.server, autocommit=True) as admin:
        for _ in range(3):
            wait_until(lambda: admin.execute(WAITS, [f"{place.schema}.queues"]).fetchone() == (1,), what="the migration waits")
            # A claim reads the table. It waits behind the migration, and then continues.
            assert ledger.claim("worker", ["other"]) == []
            assert opening.is_alive()
    other_session.rollback()
    opening.join(30)
    assert [found.paused().keys() for found in opened] == [{"mail"}]
    assert versions_of(url) == [1, 2]
    opened[0].close()


def test_a_migration_that_never_gets_a_table_is_refused_and_changes_nothing(
    url: str, ledger: Ledger, newer_code: None, other_session: OtherSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.migration.MIGRATE_LOCK_SECONDS", 1.0)
    before = catalog_of(url)
    ledger.pause("mail")
    other_session.execute(f"SELECT FROM {Place.of(url).schema}.queues FOR UPDATE")
    refused = refusal_of(lambda: holdfast.open(url))
    assert names(refused, other_session)
    other_session.rollback()
    assert (catalog_of(url), versions_of(url)) == (before, [1])
    with holdfast.open(url) as newer:
        assert newer.paused().keys() == {"mail"}
        assert newer.schema == (1, 2, ("second",))


def test_a_frozen_process_does_not_keep_the_locks_of_its_migration(
    url: str, ledger: Ledger, newer_code: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.migration.IDLE_MS", 500)
    frozen, free = threading.Event(), threading.Event()

    def draw_id() -> str:
        frozen.set()
        free.wait(60)
        return "x"

    with ThreadPoolExecutor() as at_once:
        first = at_once.submit(refusal_of, lambda: postgres.PostgresStore(url, None, draw_id))
        assert frozen.wait(30)
        with holdfast.open(url) as newer:
            assert (newer.id, newer.schema.version) == (ledger.id, 2)
        free.set()
        assert first.result(30).message.startswith("cannot open the ledger: ")


@pytest.mark.parametrize("row", ["duties WHERE name = 'relay:one'", "sinks WHERE name = 'one'"])
def test_a_sink_with_a_locked_row_delays_no_other_sink(
    url: str, ledger: Ledger, other_session: OtherSession, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    monkeypatch.setattr("holdfast.ledger.commit.PAUSES", (0.0,))
    heard: dict[str, list[int]] = {"one": [], "two": []}

    def hears(name: str) -> CallableSink:
        return CallableSink(lambda message: heard[name].append(message.data.job_id), name=name)

    def tick() -> None:
        with Relay(ledger, map(hears, heard)) as relay:
            relay.tick()

    tick()
    job = ledger.enqueue("work")
    ledger.take_duty("relay:one", "the last relay", ttl="1s")
    assert ledger.outbox.page(0, 10)  # no open transaction can have an earlier position
    other_session.execute(f"SELECT FROM {Place.of(url).schema}.{row} FOR UPDATE")
    if row.startswith("sinks"):
        ledger.drop_duty("relay:one", "the last relay")
    tick()
    assert heard["two"] == [job.id]
    other_session.rollback()
    ledger.drop_duty("relay:one", "the last relay")
    tick()
    assert set(heard["one"]) == {job.id}
    assert heard["two"] == [job.id]


def test_retention_skips_locked_rows(url: str, ledger: Ledger, other_session: OtherSession) -> None:
    schema = Place.of(url).schema
    for number in range(2):
        job = ledger.enqueue("work", request_id=f"r{number}")
        ledger.sign_in(f"w{number}")
        agent = Agent(ledger, f"a{number}")
        agent.start(job.id)
        agent.complete(job.id)
    other_session.execute(f"SELECT FROM {schema}.requests WHERE request_id = 'r0' FOR UPDATE")
    other_session.execute(f"SELECT FROM {schema}.workers WHERE name = 'w0' FOR UPDATE")
    other_session.execute(f"SELECT FROM {schema}.agents WHERE name = 'a0' FOR UPDATE")
    now = ledger.now()

    def prune() -> dict[str, int]:
        return ledger.prune(requests_before=now, workers_before=now, agents_before=now)

    assert min(prune().values()) > 0
    other_session.rollback()
    assert prune() == {"requests": 1, "workers": 1, "agents": 1}


@pytest.mark.parametrize(
    "row",
    [
        "event_batches WHERE type = 'enqueued' AND pos = first_batch",
        "event_batches WHERE type = 'claimed' ORDER BY pos LIMIT 1",
        "event_batches WHERE type = 'succeeded' ORDER BY pos LIMIT 1",
        "event_rows WHERE type = 'heartbeat' ORDER BY pos LIMIT 1",
        "dependencies LIMIT 1",
    ],
)
def test_retention_leaves_jobs_whose_events_are_locked(url: str, ledger: Ledger, other_session: OtherSession, row: str) -> None:
    """Each pair of jobs has batches of its own. Two pairs are free: they are deleted at once, and the others later."""
    schema = Place.of(url).schema
    for _ in range(3):
        first = ledger.enqueue("work")
        ledger.enqueue("work", depends_on=[first.id])
        for _ in range(2):
            [job] = ledger.claim("w", start=True)
            ledger.heartbeat(job.fence, progress=1)
            ledger.complete(job.fence)
    row = row.replace("first_batch", f"(SELECT min(pos) FROM {schema}.event_batches)")
    assert other_session.execute(f"SELECT FROM {schema}.{row} FOR UPDATE").rowcount == 1
    later = ledger.now() + timedelta(hours=1)
    assert ledger.prune(jobs_before=later)["jobs"] >= 4
    left = {job.id for job in ledger.list()}
    assert left
    assert left <= {1, 2}
    assert [ledger.check(id_) for id_ in left] == [[]] * len(left)
    other_session.rollback()
    assert ledger.prune(jobs_before=later) == {"jobs": len(left)}
    for table in ("jobs", "event_rows", "event_batches", "dependencies"):
        assert other_session.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone() == (0,), table


def test_a_stopping_worker_logs_that_a_lock_prevents_an_outcome(
    url: str, other_session: OtherSession, caplog: pytest.LogCaptureFixture
) -> None:
    app, free = App(url), threading.Event()

    @app.handler(policy={"heartbeat_interval": 1, "missed_beats_max": 2, "lease_ttl": 2})
    def work() -> int:
        free.wait(20)
        return 1

    job = app.enqueue(work)
    worker = app.worker(name="w")
    worker.start()
    wait_until(lambda: app.ledger.get(job.id).status == "running", what="the job runs")
    other_session.execute(f"SELECT FROM {Place.of(url).schema}.jobs WHERE id = %s FOR UPDATE", [job.id])
    free.set()
    worker.close()
    assert "another transaction has locked the job: this outcome is not recorded" in caplog.messages
    app.close()


def test_a_session_of_another_account_is_named_without_its_state(url: str, ledger: Ledger, other_session: OtherSession) -> None:
    job = ledger.enqueue("work")
    other_session.execute(f"SELECT FROM {Place.of(url).schema}.jobs WHERE id = %s FOR UPDATE", [job.id])
    with holdfast.open(f"{url}&options=-crole%3Dpg_read_all_data") as unprivileged:
        found = [unprivileged._store.lock_holder(job.id), unprivileged._store.lock_holder()]
    assert found == [f"process {other_session.info.backend_pid} (other_session)"] * 2
