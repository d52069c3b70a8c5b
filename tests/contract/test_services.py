"""The services of a worker, one tick at a time."""

import threading
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.errors import Unavailable
from holdfast.keeping.service import Service, ServiceLoop
from holdfast.services.presence import PresenceService
from holdfast.services.pruner import PruneService
from holdfast.services.sweeper import SweepService
from holdfast.testing import ManualClock
from tests.contract.builders import claimed, dead_lettered, failed, running, succeeded


def test_a_sweeper_does_nothing_without_jobs_to_watch(ledger: Ledger) -> None:
    assert SweepService(ledger, "a").tick() == {}
    assert ledger.take_duty("sweep", "b", ttl=1), "the duty was not taken without work"


def test_one_sweeper_works_at_a_time(ledger: Ledger, clock: ManualClock) -> None:
    made = running(ledger)
    first, second = SweepService(ledger, "a"), SweepService(ledger, "b")
    done = []
    for _ in range(31):
        done.append(first.tick())
        assert second.tick() == {}
        assert not ledger.wants_sweeping("b")
        clock.advance(1)
    assert first.tick() == {"stalled": 1, "requeued": 1}
    assert done == [{}] * 31
    assert ledger.get(made.id).status == "queued"


def test_a_sweeper_that_falls_silent_is_replaced(ledger: Ledger, clock: ManualClock) -> None:
    running(ledger)
    first, second = SweepService(ledger, "a"), SweepService(ledger, "b")
    first.tick()
    second.tick()
    clock.advance(31)
    assert second.tick() == {}, "it waits for one tick after it has taken the duty"
    assert second.tick() == {"stalled": 1, "requeued": 1}


def test_a_new_sweeper_learns_of_a_recorded_clock_step(ledger: Ledger, store_url: str, clock: ManualClock) -> None:
    made = running(ledger)
    watching = SweepService(ledger, "a")
    watching.tick()
    with holdfast.open(store_url, clock=clock) as other:
        late = SweepService(other, "b")
        clock.jump(3_600)
        assert late.tick() == {}
        watching.tick()
        assert late.tick() == {}
        assert ledger.get(made.id).attempt == 1 and ledger.get(made.id).status == "running"


def test_a_closed_sweeper_is_replaced_at_once(ledger: Ledger) -> None:
    claimed(ledger)
    first = SweepService(ledger, "a")
    first.tick()
    assert not ledger.wants_sweeping("b")
    first.close()
    assert ledger.wants_sweeping("b")


def test_answers_and_silent_workers_are_deleted_after_a_day(ledger: Ledger, clock: ManualClock) -> None:
    ledger.enqueue("k", request_id="kept")
    ledger.sign_in("w")
    prune = PruneService(ledger, "a")
    clock.advance(86_300)
    assert prune.tick() == {"requests": 0, "workers": 0, "agents": 0, "sessions": 0, "subqueues": 0, "slots": 0}
    clock.advance(200)
    assert prune.tick() == {"requests": 1, "workers": 1, "agents": 0, "sessions": 0, "subqueues": 0, "slots": 0}
    assert ledger.workers() == []


def test_the_focus_of_an_agent_is_deleted_after_thirty_days(ledger: Ledger, clock: ManualClock) -> None:
    ada = Agent(ledger, "ada")
    ada.start(made := ledger.enqueue("k").id)
    ada.release(made)
    prune = PruneService(ledger, "a")
    clock.advance(30 * 86_400)
    assert prune.tick()["agents"] == 0
    clock.advance(1)
    assert prune.tick()["agents"] == 1


def test_finished_jobs_are_deleted_only_if_configured(ledger: Ledger, clock: ManualClock) -> None:
    made = succeeded(ledger)
    clock.advance(3_600)
    assert PruneService(ledger, "a", jobs="2h").tick()["jobs"] == 0
    clock.advance(3_601)
    assert PruneService(ledger, "a", jobs="2h").tick()["jobs"] == 1
    assert not [job for job in ledger.list() if job.id == made.id]


def test_failures_are_deleted_only_if_configured(ledger: Ledger, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    made = failed(ledger), dead_lettered(ledger)
    succeeded(ledger)
    clock.advance(3_601)
    with caplog.at_level("INFO", logger="holdfast.services"):
        assert PruneService(ledger, "a", jobs="1h").tick()["jobs"] == 1
        assert sorted(job.id for job in ledger.list()) == [made[0].id, made[1].id]
        assert PruneService(ledger, "a", jobs="1h", failed="1h").tick()["failed"] == 2
        PruneService(ledger, "a", jobs="1h", failed="1h").tick()
    assert ledger.list() == []
    said = [(line.message, line.__dict__.get("jobs"), line.__dict__.get("failed")) for line in caplog.records]
    assert said == [("pruned", 1, None), ("pruned", None, 2)]


def test_a_tick_continues_past_jobs_that_are_kept(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.services.pruner.BATCH", 2)
    for build in (failed, succeeded) * 3:
        build(ledger)
    clock.advance(3_601)
    assert PruneService(ledger, "a", jobs="1h").tick()["jobs"] == 3


def test_a_tick_that_has_left_something_is_followed_soon(
    ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.services.pruner.BATCH", 2)
    monkeypatch.setattr("holdfast.services.pruner.TICK_SECONDS", 0.0)
    for _ in range(3):
        succeeded(ledger)
    clock.advance(3_601)
    prune = PruneService(ledger, "a", jobs="1h")
    assert [(prune.tick()["jobs"], prune.every_s) for _ in range(3)] == [(2, 1.0), (1, 1.0), (0, 60.0)]


def test_one_pruner_works_at_a_time(ledger: Ledger) -> None:
    assert PruneService(ledger, "a").tick() != {}
    assert PruneService(ledger, "b").tick() == {}


def test_a_worker_is_seen_until_it_leaves(ledger: Ledger) -> None:
    presence = PresenceService(ledger, "w", lambda: {"pid": 7})
    presence.tick()
    assert [(worker.name, worker.details) for worker in ledger.workers()] == [("w", {"pid": 7})]
    presence.close()
    assert ledger.workers() == []


class Ticking(Service):
    every_s = 0.001

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self.name = name
        self._act = act
        self.closed = False

    def tick(self) -> object:
        return self._act()

    def close(self) -> None:
        self.closed = True
        raise Unavailable("gone")


@pytest.mark.parametrize("error", [Unavailable("out of reach"), RuntimeError("a mistake")])
def test_a_service_that_fails_ticks_again_and_stops_no_other(error: Exception) -> None:
    tries, others = 0, 0
    enough = threading.Event()

    def fail() -> None:
        nonlocal tries
        tries += 1
        raise error

    def work() -> None:
        nonlocal others
        others += 1
        if tries > 2 and others > 2:
            enough.set()

    services = [Ticking("bad", fail), Ticking("good", work)]
    loop = ServiceLoop(services)
    loop.start()
    assert enough.wait(20)
    loop.close()
    assert all(service.closed for service in services)


def test_kinds_that_are_never_deleted_have_no_retention_time(ledger: Ledger):
    prune = PruneService(ledger, "a", jobs="never", beats=None, requests="1h")
    assert prune.kept_ms.keys() == {"requests", "workers", "agents", "sessions", "subqueues"}
