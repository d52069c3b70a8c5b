"""The number of connections of a worker to a PostgreSQL server, which the guide for fleets states."""

import psycopg
import pytest

from holdfast import App
from tests.support.waiting import wait_until

CONNECTIONS_MAX = 8


@pytest.fixture
def name(new_schema: str) -> str:
    """The name of a schema and of the connections to it."""
    return new_schema.partition("schema=")[2]


def test_a_worker_has_few_connections(postgres_url: str, name: str) -> None:
    counted: list[int] = []
    app = App(f"{postgres_url}?schema={name}&application_name={name}")

    @app.handler()
    def plain(n: int) -> int:
        return n

    with psycopg.connect(postgres_url, autocommit=True) as server:

        def is_done() -> bool:
            row = server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()
            counted.append(row[0] if row else 0)
            done = server.execute(f"SELECT count(*) FROM {name}.jobs WHERE status = 'succeeded'").fetchone()
            return done == (2_000,)

        app.enqueue_many(plain, [{"n": n} for n in range(2_000)])
        app.close()
        with app.worker() as worker:
            worker.start()
            wait_until(is_done)
    assert 0 < max(counted) <= CONNECTIONS_MAX
