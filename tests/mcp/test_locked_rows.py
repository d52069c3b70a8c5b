"""Another transaction keeps a row locked: only calls that need it wait, and the end of the server waits a limited time."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import psycopg
import pytest

import holdfast
from holdfast.keeping.signals import REPEAT_SECONDS
from holdfast.ledger import Ledger
from holdfast.mcp.sessions import SessionLeases
from holdfast.store.postgres import store as postgres
from tests.mcp.conftest import INITIALIZE, RESUME, Serve, Served, Watch, beats, new_sessions, tool_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


class Place:
    """A ledger on PostgreSQL, and a connection that locks its rows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._server_url, _, self._schema = url.partition("?schema=")

    @contextmanager
    def locked(self, job_id: int) -> Iterator[None]:
        with psycopg.connect(self._server_url) as connection:
            connection.execute(f"SELECT FROM {self._schema}.jobs WHERE id = %s FOR UPDATE", [job_id])
            yield

    @contextmanager
    def locked_whole(self, table: str) -> Iterator[None]:
        with psycopg.connect(self._server_url, application_name="other-session") as connection:
            connection.execute(f"LOCK TABLE {self._schema}.{table} IN ACCESS EXCLUSIVE MODE")
            yield

    def waiting(self) -> int:
        """The number of sessions that wait for a lock."""
        said = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        with psycopg.connect(self._server_url) as connection:
            row = connection.execute(said, [f"%{self._schema}%"]).fetchone()
        return 0 if row is None else int(row[0])


@pytest.fixture
def place(new_schema: str) -> Place:
    return Place(new_schema)


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    with holdfast.open(place.url) as found:
        yield found


@pytest.fixture
def unlimited_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that meets a lock is not refused while a test runs. It waits for the lock again and again, without pauses."""
    monkeypatch.setattr("holdfast.ledger.commit.PAUSES", (0.0,) * 10_000)


@pytest.mark.usefixtures("unlimited_tries")
async def test_a_delayed_beat_delays_no_other(place: Place, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    stuck, free, watch = ledger.enqueue("draft"), ledger.enqueue("draft"), Watch(ledger)
    with SessionLeases(watch.sessions, 10_000, keep=True):
        async with tool_client(watch.sessions) as ask:
            for job in (stuck, free):
                await ask("claim_job", id=job.id, ttl_s=300)
            with place.locked(stuck.id):
                watch.advance(100)
                wait_until(lambda: beats(ledger, free) == 1 and place.waiting() == 1)
                for count in (2, 3, 4):
                    watch.advance(100)
                    wait_until(lambda: beats(ledger, free) == count)  # noqa: B023
                wait_until(lambda: "under way for longer than its lease" in caplog.text)
                assert wait_until(place.waiting) == 1
            wait_until(lambda: beats(ledger, stuck) >= 2)
    assert caplog.text.count("under way for longer than its lease") == 1


@pytest.mark.usefixtures("unlimited_tries")
async def test_waiting_calls_do_not_delay_other_sessions(place: Place, ledger: Ledger) -> None:
    stuck, free = ledger.enqueue("draft"), ledger.enqueue("draft")
    sessions, answered = new_sessions(ledger), []
    async with tool_client(sessions) as ada, tool_client(sessions, session="s2") as twin:
        await ada("claim_job", id=stuck.id)
        await twin("claim_job", id=free.id)

        async def beat() -> None:
            answered.append(await ada("heartbeat", id=stuck.id))

        async with anyio.create_task_group() as tasks:
            with place.locked(stuck.id):
                for _ in range(45):
                    tasks.start_soon(beat)
                await anyio.to_thread.run_sync(lambda: wait_until(lambda: place.waiting() > 0))
                assert (await twin("complete", id=free.id))["task"]["status"] == "succeeded"
                assert answered == []
    assert len(answered) == 45


@pytest.mark.parametrize("table", ["jobs", "events", "agents", "requests", "duties", "sinks"])
async def test_tools_answer_or_name_the_lock_while_a_table_is_locked(
    place: Place, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A refusal changes nothing. When the table is unlocked, the same calls succeed."""
    monkeypatch.setattr("holdfast.ledger.commit.PAUSES", (0.0, 1.1))
    monkeypatch.setattr(postgres, "_READ", postgres._READ.replace(str(postgres.READ_LOCK_MS), "1100"))
    job = ledger.enqueue("draft")
    calls = [
        ("get_job", {"id": job.id}),
        ("claim_job", {"id": job.id}),
        ("heartbeat", {"id": job.id}),
        ("complete", {"id": job.id}),
    ]
    async with tool_client(new_sessions(ledger)) as ask:
        with place.locked_whole(table):
            for tool, arguments in calls:
                answer = await ask.ask(tool, **arguments)
                if answer.is_error and answer.structured_content["error_code"] == "unavailable":
                    assert "(other-session)" in answer.structured_content["error"], tool
                    break
            else:
                assert table in ("duties", "sinks")
        if ledger.get(job.id).status != "succeeded":
            for tool, arguments in calls:
                await ask(tool, **arguments)
    assert ledger.get(job.id).status == "succeeded"
    assert ledger.check(job.id) == []


@pytest.mark.usefixtures("unlimited_tries")
async def test_jobs_for_an_ended_session_are_released(place: Place, ledger: Ledger) -> None:
    job, sessions = ledger.enqueue("draft"), new_sessions(ledger)
    with SessionLeases(sessions, 60, keep=False) as keeper:
        async with tool_client(sessions) as ask, anyio.create_task_group() as tasks:
            with place.locked(job.id):
                tasks.start_soon(lambda: ask("claim_job", id=job.id))
                await anyio.to_thread.run_sync(lambda: wait_until(lambda: place.waiting() == 1))
                keeper.end_session("s1")
        wait_until(lambda: ledger.get(job.id).status == "queued")
        assert ledger.events(job.id)[-1].reason == "RELEASED"


def holding(serve: Serve, url: str, *jobs: int, **options: str) -> Served:
    """A server that holds these jobs for its client."""
    server = serve(url, **options)
    server.send(json.dumps(INITIALIZE))
    server.answer()
    for job in jobs:
        server.send(json.dumps({**RESUME, "params": {"name": "claim_job", "arguments": {"id": job}}}))
        assert not server.answer()["result"].get("isError")
    return server


def test_a_job_that_cannot_be_released_in_time_keeps_its_lease(place: Place, ledger: Ledger, serve: Serve) -> None:
    stuck, free = ledger.enqueue("draft"), ledger.enqueue("draft")
    server = holding(serve, place.url, stuck.id, free.id)
    with place.locked(stuck.id):
        server.signal(signal.SIGTERM)
        assert server.logged("handed back")["job_id"] == free.id
        assert server.logged("the ledger does not answer")["jobs"] == 1
        assert server.end()[0] == 0
        assert (ledger.get(stuck.id).status, ledger.get(free.id).status) == ("running", "queued")


def test_a_second_signal_ends_the_server_at_once(place: Place, ledger: Ledger, serve: Serve) -> None:
    job = ledger.enqueue("draft")
    server = holding(serve, place.url, job.id, program="tests.mcp.unhurried")
    with place.locked(job.id):
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGTERM)  # a repetition of the first signal
        wait_until(lambda: place.waiting() == 1)
        time.sleep(2 * REPEAT_SECONDS)
        server.signal(signal.SIGTERM)
        code, _, err = server.end()
        assert (code, "does not answer" in err) == (130, False)
