"""Workers of jobs that require signatures: they sign automatically, in every kind of handler, and lose no job if a key
is missing."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import App, AsyncContext, Context, Ledger, PolicyFields, TransientError, ValidationError
from holdfast.errors import GateDenied
from holdfast.files.keys import write_key
from tests.support.signers import ALL, SERVER, enrol, key
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, ended
from tests.worker.fleet import Fleet

TIGHT: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 1, "backoff_base": 0}
WORKER = key("worker", "w0")


@pytest.fixture
def server(store_url: str) -> Iterator[Ledger]:
    """The ledger in a process that has the server's key."""
    with holdfast.open(store_url, keys=[SERVER]) as ledger:
        enrol(ledger, [SERVER, WORKER])
        yield ledger


@pytest.fixture
def app(server: Ledger, store_url: str) -> Iterator[App]:
    """An app whose workers have only their own key."""
    app = App(store_url, keys=[WORKER])
    yield app
    app.close()


def unsigned(ledger: Ledger, job_id: int) -> list[str]:
    return [event.type.value for event in ledger.events(job_id) if event.key_id is None]


def test_the_events_of_a_worker_are_signed(app: App, start: Starter) -> None:
    @app.handler(policy=ALL)
    def plain(job: Context) -> int:
        job.checkpoint({"at": 1})
        job.beat(stage="TASK")
        return 1

    @app.handler(policy=ALL)
    async def quick(job: AsyncContext) -> int:
        await job.checkpoint({"at": 1})
        return 2

    @app.handler(policy={**ALL, "backoff_base": 0}, attempts_max=2)
    def unlucky(job: Context) -> None:
        raise TransientError("once more")

    jobs = [app.enqueue(plain), app.enqueue(quick), app.enqueue(unlucky)]
    start()
    assert [ended(app, job).status for job in jobs] == ["succeeded", "succeeded", "dead_lettered"]
    for job in jobs:
        assert set(unsigned(app.ledger, job.id)) == {"enqueued", "claimed", "started"}


def test_beats_of_a_worker_are_signed(app: App, start: Starter) -> None:
    free = threading.Event()

    @app.handler(policy={**TIGHT, "signed": "liveness"})
    def hold() -> None:
        free.wait(20)

    job = app.enqueue(hold)
    start()
    wait_until(lambda: len(app.ledger.events(job.id, types=["heartbeat"])) >= 2)
    free.set()
    ended(app, job)
    assert "heartbeat" not in unsigned(app.ledger, job.id)


def test_handlers_in_processes_sign_with_their_workers_key(
    fleet: Fleet, server: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_key(tmp_path / "w0.key", WORKER)
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "w0.key"))
    fleet.start("w0")
    job = server.enqueue("signs", policy=ALL)
    wait_until(lambda: server.get(job.id).finished_at is not None, seconds=60, what="the end of the job")
    assert server.get(job.id).result == "signed"
    assert set(unsigned(server, job.id)) == {"enqueued", "claimed", "started"}
    assert server.check(job.id) == []


def test_keys_given_to_an_app_reach_its_processes(store_url: str, server: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", store_url)
    from tests.worker.programs.jobs import app as jobs

    with jobs.bound_to(store_url, keys=[WORKER]), jobs.worker(name="w0", shutdown_timeout=0) as worker:
        worker.start()
        job = server.enqueue("signs", policy=ALL)
        wait_until(lambda: server.get(job.id).finished_at is not None, seconds=60, what="the end of the job")
    assert server.get(job.id).result == "signed"
    assert server.check(job.id) == []


def test_a_late_outcome_waits_for_a_process_with_the_server_key(
    app: App, server: Ledger, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without heartbeats the lease expires. The worker cannot record that, but a sweeper with the key can."""
    monkeypatch.setattr("holdfast.worker.heartbeats.WorkerLeases.tick", lambda self: None)
    free = threading.Event()

    @app.handler(policy={**TIGHT, **ALL, "resume_window": 600})
    def hold() -> int:
        free.wait(20)
        return 5

    job = app.enqueue(hold)
    start()
    wait_until(lambda: server.get(job.id).status == "running")
    expires_at = server.get(job.id).claim_expires_at
    assert expires_at is not None
    wait_until(lambda: server.now() > expires_at)
    free.set()
    wait_until(lambda: server.sweep().get("stalled"))
    found = ended(app, job)
    assert (found.status, found.result, found.attempt) == ("succeeded", 5, 1)


def test_a_worker_is_named_like_its_only_key(app: App) -> None:
    @app.handler()
    def plain() -> None: ...

    with app.worker() as worker:
        assert worker.name == "w0"


def test_a_worker_that_cannot_sign_does_not_start(app: App, store_url: str) -> None:
    @app.handler(policy=ALL)
    def plain() -> None: ...

    job = app.ledger.enqueue("plain")
    with app.worker(name="other") as worker, pytest.raises(ValidationError, match=r"plain: .* no key of worker 'other'"):
        worker.start()
    assert app.ledger.get(job.id).status == "queued"
    assert "plain" not in app.ledger.declarations()


def test_a_kind_that_cannot_be_signed_is_not_claimed_from_other_queues(app: App) -> None:
    @app.handler(policy=ALL, queue="signed")
    def secret() -> None: ...

    with pytest.raises(ValidationError, match="no key here to sign events of secret"):
        app.worker(name="other", queues=["default"])

    @app.handler()
    def plain() -> None: ...

    job, other = app.options(queue="default").enqueue(secret), app.enqueue(plain)
    with app.worker(name="other", queues=["default"]) as worker:
        worker.start()
        assert ended(app, other).status == "succeeded"
    assert app.ledger.get(job.id).attempt == 0


def test_a_handler_with_refused_beats_may_not_proceed(app: App, server: Ledger, start: Starter) -> None:
    begun, refused = threading.Event(), threading.Event()
    messages: list[str] = []

    @app.handler(policy={**TIGHT, **ALL, "resume_window": 600, "missed_beats_max": 60})
    def hold(job: Context) -> None:
        job.may_proceed()
        begun.set()
        refused.wait(20)
        wait_until(lambda: job.signature_refusal)
        try:
            job.may_proceed()
        except GateDenied as denied:
            messages.append(denied.message)

    app.enqueue(hold)
    start()
    assert begun.wait(20)
    server.revoke_key(WORKER.key_id)
    refused.set()
    wait_until(lambda: messages)
    assert "its heartbeats are refused" in messages[0] and "was revoked" in messages[0]
