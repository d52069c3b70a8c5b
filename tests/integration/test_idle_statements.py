"""The statements that a tick of an idle worker sends to the server, counted as messages of the protocol."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Ledger
from holdfast.errors import Unavailable
from tests.integration.conftest import Opener
from tests.support.proxy import Proxy

TICKS: dict[str, Callable[[Ledger], Any]] = {
    "wants_sweeping": lambda ledger: ledger.wants_sweeping("a"),
    "until_ready": lambda ledger: ledger.until_ready(["default", "other"]),
    "take_duty": lambda ledger: ledger.take_duty("sweep", "a", ttl="10s"),
    "take_duty of another": lambda ledger: ledger.take_duty("held", "a", ttl="10s"),
    "drop_duty": lambda ledger: ledger.drop_duty("sweep", "a"),
    "sign_in": lambda ledger: ledger.sign_in("w", body={"pid": 1}),
    "sign_out": lambda ledger: ledger.sign_out("w"),
    "workers": lambda ledger: ledger.workers(seen_within="1m"),
    "policies": lambda ledger: ledger.policies(),
}


@pytest.fixture
def quiet(pg_url: str, on_postgres: Ledger, opened: Opener) -> Ledger:
    """A process that only reads: no listener of its own, one connection."""
    on_postgres.take_duty("held", "b", ttl="1h")
    on_postgres.enqueue("work")
    on_postgres.enqueue("later", delay=60)
    on_postgres.claim("worker", start=True)
    return opened(pg_url)


@pytest.mark.parametrize("tick", TICKS)
def test_an_idle_tick_sends_one_statement(quiet: Ledger, tmp_path: Path, tick: str) -> None:
    assert sent(quiet, tmp_path, TICKS[tick]) == 1


def test_a_sweep_that_finds_nothing_sends_two_statements(quiet: Ledger, tmp_path: Path) -> None:
    assert sent(quiet, tmp_path, lambda ledger: ledger.sweep()) == 2


def test_a_read_of_a_snapshot_sends_three_statements(quiet: Ledger, tmp_path: Path) -> None:
    assert sent(quiet, tmp_path, lambda ledger: ledger.paused()) == 3


def sent(ledger: Ledger, folder: Path, act: Callable[[Ledger], Any]) -> int:
    """The number of statements that a call sends, by libpq's trace, on a connection where they are prepared."""
    for _ in range(5):
        act(ledger)
    [connection] = ledger._store._pool.idle  # type: ignore[attr-defined]
    with (folder / "trace").open("w+") as file:
        connection.pgconn.trace(file.fileno())
        act(ledger)
        connection.pgconn.untrace()
        assert ledger._store._pool.idle == [connection], "another connection was opened"  # type: ignore[attr-defined]
        file.seek(0)
        return len(re.findall(r"\tF\t\d+\t(?:Query|Execute)\b", file.read()))


def test_a_lost_answer_is_reported_as_an_unknown_outcome(pg_url: str, postgres_url: str, opened: Opener) -> None:
    """The duty may have been taken. Taking it again shows whether it was."""
    port = int(re.findall(r":(\d+)/", pg_url)[0])
    with Proxy(port) as proxy:
        ledger = opened(proxy.url(pg_url))
        assert ledger.take_duty("sweep", "a", ttl="10s")
        proxy.close()
        with pytest.raises(Unavailable) as caught:
            ledger.take_duty("sweep", "a", ttl="10s")
        assert caught.value.outcome == "unknown"
        with pytest.raises(Unavailable) as caught:
            ledger.until_ready()
        assert caught.value.outcome == "none"
    with holdfast.open(pg_url) as again:
        assert again.take_duty("sweep", "a", ttl="10s")


def test_the_first_call_reuses_the_connection_of_the_opening(pg_url: str, on_postgres: Ledger) -> None:
    base, _, schema = pg_url.partition("?")
    with holdfast.open(f"{base}?application_name=first_call&{schema}") as ledger:
        ledger.get(on_postgres.enqueue("work").id)
        with psycopg.connect(base) as connection:
            found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'first_call'").fetchall()
    assert found == [(1,)]
