"""The connections of one worker go silent without being closed. It continues over new ones, and no other worker is affected."""

from collections.abc import Callable, Iterator

import pytest

from tests.blast.fleet import Fleet
from tests.blast.watch import Watch
from tests.support.proxy import Proxy
from tools.pgserver import PostgresServer

SECONDS = 6.0
"""Longer than a lease: a holder that depends on a silent connection has lost its lease by then."""
MUTE_SECONDS = 2.0
"""Far shorter than a lease."""


@pytest.fixture(scope="module")
def proxy(pg_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(pg_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def make_fleet(schema_url: Callable[[], str], proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Fleet]:
    """Fleets whose worker w1 is connected through the proxy."""

    def made() -> Fleet:
        url = schema_url()
        return Fleet(url, tmp_path_factory.mktemp("fleet"), through={"w1": proxy.url(url)})

    return made


def goes_on(fleet: Fleet) -> None:
    """Check that the worker claims, runs and completes jobs over new connections."""
    job = fleet.ledger.enqueue("quick", queue="w1")
    assert fleet.became(job.id, "succeeded").last_owner == "w1"


def test_connections_that_go_silent_are_replaced_before_a_lease_is_lost(fleet: Fleet, proxy: Proxy) -> None:
    with Watch(fleet) as watch:
        orphan = fleet.orphan()
        proxy.fall_silent()
        watch.during(SECONDS, orphan=orphan)
    goes_on(fleet)


def test_connections_that_go_silent_while_new_ones_get_no_answer_for_a_while(fleet: Fleet, proxy: Proxy) -> None:
    with Watch(fleet) as watch:
        orphan = fleet.orphan()
        proxy.fall_silent(new=True)
        watch.during(MUTE_SECONDS)
        proxy.speak()
        watch.during(SECONDS - MUTE_SECONDS, orphan=orphan)
    goes_on(fleet)


@pytest.mark.torture
def test_a_silence_longer_than_the_lease_loses_only_the_jobs_of_that_worker(fleet: Fleet, proxy: Proxy) -> None:
    mine = [job_id for job_id, worker in fleet.held.items() if worker == "w1"]
    with Watch(fleet, but=mine) as watch:
        orphan = fleet.orphan()
        proxy.fall_silent(new=True)
        watch.during(15, orphan=orphan)
        proxy.speak()
        watch.during(5)
    goes_on(fleet)


@pytest.mark.torture
def test_a_connection_that_goes_silent_in_mid_transaction_harms_no_other_worker(fleet: Fleet, proxy: Proxy) -> None:
    """The server keeps that transaction open, with the rows it has locked."""
    mine = [job_id for job_id, worker in fleet.held.items() if worker == "w1"]
    with Watch(fleet, but=mine) as watch:
        orphan = fleet.orphan()
        proxy.fall_silent_at_commit()
        assert proxy.was_cut.wait(30)
        watch.during(15, orphan=orphan)
    goes_on(fleet)


def test_a_worker_with_a_flapping_network_does_not_delay_the_requeue_of_lost_jobs(fleet: Fleet, proxy: Proxy) -> None:
    """Only that worker is disconnected, repeatedly, at intervals shorter than the lost job's lease."""
    with Watch(fleet) as watch:
        orphan = fleet.orphan(lease_seconds=5)
        for _ in range(5):
            proxy.go_away()
            watch.during(1)
            proxy.come_back()
            watch.during(1)
        assert fleet.ledger.events(orphan, types=["requeued"]), f"not while it flaps: {fleet.describe(orphan)}"
    goes_on(fleet)
