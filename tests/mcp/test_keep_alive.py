"""The lease of a job is renewed while its client is idle, up to a limit. The job is released when the client leaves."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.ledger import Job, Ledger
from holdfast.mcp.sessions import ClientSessions, SessionKey, SessionLeases
from tests.mcp.conftest import Watch, beats, new_sessions, tool_client
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer

pytestmark = pytest.mark.anyio

SHORT = {"ttl_s": 1}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger on the real clock."""
    with holdfast.open(f"sqlite:///{tmp_path}/holdfast.db") as found:
        yield found


@pytest.fixture
def sessions(ledger: Ledger) -> ClientSessions:
    return new_sessions(ledger)


def outlived(ledger: Ledger, job: Job, claimed: Job) -> bool:
    """Whether the lease was extended beyond its first end."""
    now = ledger.get(job.id).claim_expires_at
    assert now is not None and claimed.claim_expires_at is not None
    ledger.sweep()
    return ledger.now() > claimed.claim_expires_at and now > ledger.now()


async def test_a_job_is_kept_while_its_client_makes_no_call(ledger: Ledger, sessions: ClientSessions) -> None:
    job = ledger.enqueue("draft")
    with SessionLeases(sessions, 60, keep=True):
        async with tool_client(sessions) as ask:
            await ask("claim_job", id=job.id, ttl_s=3)
            claimed = ledger.get(job.id)
            wait_until(lambda: outlived(ledger, job, claimed))
            done = await ask("complete", id=job.id)
            assert (done["task"]["status"], done["task"]["attempt"]) == ("succeeded", 1)
        assert "stalled" not in [event.type for event in ledger.events(job.id)]
        assert sessions.is_empty


async def test_the_interval_of_beats_follows_a_new_ttl(ledger: Ledger) -> None:
    job, watch = ledger.enqueue("draft"), Watch(ledger)
    with SessionLeases(watch.sessions, 10_000, keep=True):
        async with tool_client(watch.sessions) as ask:
            await ask("claim_job", id=job.id, ttl_s=3_000)
            short = (await ask("claim_job", id=job.id, ttl_s=300))["task"]
            assert (short["attempt"], ledger.get(job.id).policy.lease_ttl_ms) == (1, 300_000)  # type: ignore[union-attr]
            before = beats(ledger, job)
            watch.advance(100)
            wait_until(lambda: beats(ledger, job) == before + 1)
            await ask("claim_job", id=job.id)
            assert ledger.get(job.id).policy.lease_ttl_ms == 300_000  # type: ignore[union-attr]


async def test_beats_end_at_the_idle_limit_and_a_call_starts_them_again(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.mcp")
    job, watch = ledger.enqueue("draft"), Watch(ledger)
    with SessionLeases(watch.sessions, 1_000, keep=True):
        async with tool_client(watch.sessions) as ask:
            await ask("claim_job", id=job.id, ttl_s=300)
            for count in (1, 2):
                watch.advance(100)
                wait_until(lambda: beats(ledger, job) == count)  # noqa: B023
            watch.advance(800)
            wait_until(lambda: "its leases will expire" in caplog.text)
            watch.advance(100)
            assert beats(ledger, job) == 2
            await ask("get_job", id=job.id)
            wait_until(lambda: beats(ledger, job) == 3)
            assert (await ask("heartbeat", id=job.id))["task"]["attempt"] == 1
            watch.advance(100)
            wait_until(lambda: beats(ledger, job) == 5)
            watch.advance(1_000)
            wait_until(lambda: caplog.text.count("its leases will expire") == 2)
            watch.advance(300)
            wait_until(lambda: watch.sessions.is_empty)


async def test_every_call_of_a_client_resets_its_idle_time(ledger: Ledger, sessions: ClientSessions) -> None:
    watch = Watch(ledger)
    jobs = [ledger.enqueue("draft").id for _ in range(2)]
    async with tool_client(watch.sessions) as ada, tool_client(watch.sessions, session=None) as unnamed:
        await ada("claim_job", id=jobs[0])
        await unnamed("claim_job", id=jobs[1], session="s2")
        watch.advance(90)
        await ada.client.read_resource("holdfast://counts")
        await unnamed("explain", id=jobs[0], session="s2")
        watch.advance(90)
        assert watch.sessions.mark_idle(100) == []


async def test_a_job_claimed_for_an_ended_session_is_released(ledger: Ledger, sessions: ClientSessions) -> None:
    job = ledger.enqueue("draft")
    agent = sessions.agent(SessionKey("ada", "s1"))
    with SessionLeases(sessions, 60, keep=False) as keeper:
        taken = agent.start(job.id)
        keeper.end_session("s1")
        sessions.track(agent, taken)
        wait_until(lambda: ledger.get(job.id).status == "queued")


async def test_a_call_with_a_wrong_attempt_does_not_stop_the_beats(ledger: Ledger, sessions: ClientSessions) -> None:
    job = ledger.enqueue("draft")
    async with tool_client(sessions) as ask:
        await ask("claim_job", id=job.id)
        assert (await ask.refused("heartbeat", id=job.id, attempt=99))["error_code"] == "fence_lost"
        assert sessions.attempt(SessionKey("ada", "s1"), job.id) == 1


@pytest.mark.filterwarnings("ignore:ping is removed")
async def test_a_request_of_any_kind_resets_the_idle_time(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.mcp")
    job, watch = ledger.enqueue("draft"), Watch(ledger)
    with SessionLeases(watch.sessions, 400, keep=True):
        async with tool_client(watch.sessions, mode="legacy") as ask:
            asked: list[Callable[[], Awaitable[Any]]] = [
                ask.client.send_ping,
                lambda: ask.client.read_resource("holdfast://counts"),
                lambda: ask("get_job", id=job.id),
                ask.client.list_tools,
            ]
            await ask("claim_job", id=job.id, ttl_s=900)
            for count, one in enumerate(asked, 1):
                watch.advance(300)
                wait_until(lambda: beats(ledger, job) == count)  # noqa: B023
                await one()
            assert "idle" not in caplog.text
            watch.advance(400)
            wait_until(lambda: "idle" in caplog.text)
            await asked[0]()
            wait_until(lambda: beats(ledger, job) == 5)


@pytest.mark.parametrize("seconds", [0, 299, 300])
async def test_jobs_of_an_idle_client_are_released_at_the_end_while_its_leases_last(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, seconds: int
) -> None:
    caplog.set_level(logging.INFO, "holdfast.mcp")
    job, watch = ledger.enqueue("draft"), Watch(ledger)
    with SessionLeases(watch.sessions, 50, keep=False):
        async with tool_client(watch.sessions) as ask:
            await ask("claim_job", id=job.id, ttl_s=300)
            watch.advance(50)
            wait_until(lambda: "its leases will expire" in caplog.text)
        watch.advance(seconds)
        is_over = seconds == 300
        wait_until(lambda: (watch.sessions.is_empty) == is_over)
    assert ledger.get(job.id).status == ("running" if is_over else "queued")


async def test_a_lost_job_is_reported_with_the_next_call(
    ledger: Ledger, sessions: ClientSessions, caplog: pytest.LogCaptureFixture
) -> None:
    job = ledger.enqueue("draft")
    with SessionLeases(sessions, 60, keep=False):
        async with tool_client(sessions) as ask:
            await ask("claim_job", id=job.id, **SHORT)
            ledger.cancel(job.id, hard=True)
            wait_until(lambda: "lease lost" in caplog.text)
            assert sessions.attempt(SessionKey("ada", "s1"), job.id) == 1
            assert (await ask.refused("progress", id=job.id, progress=1))["error_code"] in ("fence_lost", "invalid_transition")
            assert (await ask("explain", id=job.id))["status"] == "cancelled"


async def test_a_cancel_request_is_in_every_answer_on_the_job(ledger: Ledger, sessions: ClientSessions) -> None:
    job = ledger.enqueue("draft")
    async with tool_client(sessions) as ask:
        assert not (await ask("claim_job", id=job.id))["task"]["cancel_requested"]
        ledger.cancel(job.id)
        for tool, more in (("heartbeat", {}), ("progress", {"progress": 1}), ("get_job", {}), ("claim_job", {})):
            assert (await ask(tool, id=job.id, **more))["task"]["cancel_requested"], tool
        assert (await ask("resume"))["task"]["cancel_requested"]
        assert (await ask("release", id=job.id))["task"]["status"] == "cancelled"


@pytest.mark.parametrize(("keep", "status"), [(False, "queued"), (True, "running")])
async def test_the_end_releases_held_jobs(ledger: Ledger, sessions: ClientSessions, keep: bool, status: str) -> None:
    jobs = [ledger.enqueue("draft") for _ in range(3)]
    with SessionLeases(sessions, 60, keep=keep) as keeper:
        async with tool_client(sessions) as ada, tool_client(sessions, session="s2") as twin:
            await ada("claim_job", id=jobs[0].id)
            await ada("claim_job", id=jobs[1].id)
            await twin("claim_job", id=jobs[2].id)
            keeper.end_session("s2")
            wait_until(lambda: [ledger.get(job.id).status for job in jobs] == ["running", "running", status])
    assert [ledger.get(job.id).status for job in jobs] == [status] * 3


async def test_an_outage_does_not_end_the_keeper(restartable_server: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.open(restartable_server.url) as ledger:
        job, watch = ledger.enqueue("draft"), Watch(ledger)
        with SessionLeases(watch.sessions, 1_000, keep=True):
            async with tool_client(watch.sessions) as ask:
                await ask("claim_job", id=job.id, ttl_s=300)
                restartable_server.stop_immediate()
                watch.advance(100)
                wait_until(lambda: "heartbeats: unavailable" in caplog.text)
                restartable_server.start()
                watch.advance(30)
                wait_until(lambda: beats(ledger, job) == 1)
