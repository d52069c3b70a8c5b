"""Real worker processes that reach the ledger only through a server."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Ledger
from tests.support.server import RunningServer
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet


@pytest.fixture
def fleet(served: RunningServer, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    with Fleet(served.url) as fleet:
        yield fleet


def test_workers_drain_a_queue(fleet: Fleet, behind: Ledger, tmp_path: Path) -> None:
    log = tmp_path / "log"
    behind.enqueue_many([{"kind": "count", "args": {"log": str(log), "n": n}} for n in range(200)])
    fleet.start("ant")
    fleet.start("bee")
    wait_until(lambda: behind.counts()["default"].get("succeeded") == 200, what="200 results")
    assert Counter(int(line.split()[1]) for line in log.read_text().splitlines()) == Counter(range(200))
    assert [behind.check(job.id) for job in behind.list(limit=200)] == [[]] * 200
    assert {worker.name for worker in behind.workers()} == {"ant", "bee"}


def test_a_job_of_a_killed_worker_is_done_by_another(fleet: Fleet, behind: Ledger, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    job = behind.enqueue("hold", {"log": str(log), "go": str(go)})
    fleet.start("ant")
    wait_until(log.exists, what="the first attempt")
    fleet.start("bee")
    fleet.kill("ant")
    done = behind.result(job, timeout=30)
    assert done["attempt"] == 2
    types = [event.type.value for event in behind.events(job.id) if event.type != "heartbeat"]
    assert types == ["enqueued", "claimed", "started", "stalled", "requeued", "claimed", "started", "succeeded"]
    assert behind.check(job.id) == []


def test_a_worker_beats_while_it_works(fleet: Fleet, behind: Ledger, tmp_path: Path) -> None:
    """Its leases last a second, so it keeps the job only with heartbeats."""
    log, go = tmp_path / "log", tmp_path / "go"
    job = behind.enqueue("hold", {"log": str(log), "go": str(go)})
    fleet.start("ant")
    wait_until(lambda: len(behind.events(job.id, types=["heartbeat"])) >= 3, what="three heartbeats")
    go.touch()
    assert behind.result(job, timeout=30)["attempt"] == 1


def test_a_job_is_begun_as_soon_as_it_is_enqueued(
    fleet: Fleet, behind: Ledger, served: RunningServer, tmp_path: Path, routes: list[str]
) -> None:
    """An idle worker looks by itself only every 30 seconds, and sends no requests while it waits for a wake-up."""
    fleet.start("ant")
    wait_until(lambda: served.server.claims._listeners, what="a worker that waits")
    before = len(routes)
    for number in range(3):
        job = behind.enqueue("count", {"log": str(tmp_path / "log"), "n": number})
        behind.result(job, timeout=20)
        wait_until(lambda: served.server.claims._listeners, what="a worker that waits again")
    assert 0 < routes[before:].count("/v1/claims") < 20
