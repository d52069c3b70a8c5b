"""The server is stopped for a while, in every way. Afterwards every healthy holder continues its attempt."""

import signal
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.blast.fleet import Fleet
from tests.blast.watch import Watch
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer

LEASE_SECONDS = 5
BEHIND_SECONDS = 2
MODES = ("fast", "immediate", "smart")
SHORT = {("fast", 1), ("immediate", 7)}
OUTAGES = [
    pytest.param(mode, seconds, id=f"{mode}-{seconds}s", marks=() if (mode, seconds) in SHORT else pytest.mark.torture)
    for mode in MODES
    for seconds in (1, 5, 7, 15, 60)
    if (mode, seconds) in SHORT or seconds != 7
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for this module only, because it is stopped and started."""
    with PostgresServer.create() as server:
        yield server


@pytest.fixture(scope="module")
def postgres_url(server: PostgresServer) -> str:
    return server.url


def stop(server: PostgresServer, mode: str) -> None:
    if mode == "fast":
        server.stop()
    elif mode == "immediate":
        server.stop_immediate()
    else:
        stop_smart(server)


def stop_smart(server: PostgresServer) -> None:
    """Accept no new connections. Existing ones continue for two seconds, until an operator ends them."""
    with psycopg.connect(server.url, autocommit=True) as admin:
        server._control("stop", "-m", "smart", "-W")
        threading.Event().wait(2)
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IS NOT NULL AND pid <> pg_backend_pid()"
        )
    wait_until(lambda: not (server._data / "postmaster.pid").exists(), what="the end of the server")


@pytest.mark.parametrize(("mode", "seconds"), OUTAGES)
def test_no_healthy_job_is_taken_away_after_an_outage(fleet: Fleet, server: PostgresServer, mode: str, seconds: int) -> None:
    """After an outage that is longer than a lease, some workers may reconnect later than others."""
    with Watch(fleet, late=True):
        stop(server, mode)
        threading.Event().wait(seconds)
        if seconds >= LEASE_SECONDS:
            fleet.send("w1", signal.SIGSTOP)
        server.start()
        threading.Event().wait(BEHIND_SECONDS)
        fleet.send("w1", signal.SIGCONT)
    fleet.ready()
    assert {fleet.ledger.get(job_id).attempt for job_id in fleet.held} == {1}
