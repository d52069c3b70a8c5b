"""Opening: many at once, again, and by an older Holdfast."""

from pathlib import Path

import apsw
import psycopg
import pytest

import holdfast
from holdfast.errors import SchemaTooNew, Unavailable, ValidationError
from holdfast.store.statements import migrations
from tests.integration.conftest import Opener
from tests.support.histories import count_jobs, problems
from tests.support.processes import fleet


def test_ten_processes_open_a_fresh_store_at_once(store_url: str, opened: Opener) -> None:
    answers = fleet("workers.open_at_once", 10, url=store_url)
    assert len({ledger_id for ledger_id, _ in answers}) == 1
    assert len({job_id for _, job_id in answers}) == 10
    ledger = opened(store_url)
    assert ledger.id == answers[0][0]
    assert count_jobs(ledger) == 10
    assert problems(ledger) == []


def test_opening_again_keeps_the_ledger(store_url: str) -> None:
    with holdfast.open(store_url) as ledger:
        first, job = ledger.id, ledger.enqueue("work")
    for _ in range(2):
        with holdfast.open(store_url) as ledger:
            assert ledger.id == first
            assert ledger.get(job.id) == job


def test_two_stores_are_two_ledgers(store_url: str, opened: Opener, tmp_path: Path) -> None:
    assert opened(store_url).id != opened(f"sqlite:///{tmp_path}/another.db").id


OLD_JOB = """
    INSERT INTO {jobs} (id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id)
    VALUES (1000000, 'old', 'work', 'queued', 1, 0, 0, {later}, {now}, {now}, 1)
"""


def make_first_schema(url: str, postgres_url: str) -> None:
    """As the first Holdfast left it, with a job that is to wait an hour."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("CREATE TABLE holdfast_schema (version INTEGER PRIMARY KEY) STRICT")
        connection.execute("INSERT INTO holdfast_schema VALUES (1)")
        connection.execute(migrations("holdfast.store.sqlite")[0].text)
        now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
        connection.execute(OLD_JOB.format(jobs="holdfast_jobs", now=now, later=f"{now} + 3600000000"))
        connection.close()
        return
    schema = url.partition("schema=")[2]
    with psycopg.connect(postgres_url) as server:
        server.execute(f"CREATE SCHEMA {schema}".encode())
        server.execute(f"CREATE TABLE {schema}.schema_version (version integer PRIMARY KEY)".encode())
        server.execute(f"INSERT INTO {schema}.schema_version VALUES (1)".encode())
        server.execute(migrations("holdfast.store.postgres")[0].text.replace("holdfast.", f"{schema}.").encode())
        server.execute(OLD_JOB.format(jobs=f"{schema}.jobs", now="now()", later="now() + interval '1 hour'").encode())


def test_a_ledger_of_the_first_schema_is_brought_up_to_date(store_url: str, postgres_url: str, opened: Opener) -> None:
    make_first_schema(store_url, postgres_url)
    for ledger in (opened(store_url), opened(store_url)):
        wait = ledger.until_ready(["old"])
        assert wait is not None
        assert 3_000 < wait <= 3_600
    assert ledger.take_duty("sweep", "a", ttl="10s")
    ledger.sign_in("w")
    assert ledger.enqueue("work").is_new


def raise_version(url: str, postgres_url: str) -> None:
    """As a newer Holdfast would leave it."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("INSERT INTO holdfast_schema VALUES (9999)")
        connection.close()
    else:
        with psycopg.connect(postgres_url) as server:
            server.execute(f"INSERT INTO {url.partition('schema=')[2]}.schema_version VALUES (9999)".encode())


def test_a_newer_schema_is_refused(store_url: str, postgres_url: str) -> None:
    with holdfast.open(store_url) as ledger:
        ledger.enqueue("work")
    raise_version(store_url, postgres_url)
    files = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(SchemaTooNew) as caught:
            holdfast.open(store_url)
        assert caught.value.context["found"] == 9999
        assert not caught.value.retryable
        del caught
    # Nothing is left open by those that were refused.
    assert len(set(Path("/proc/self/fd").iterdir()) - files) <= 1


def test_a_place_that_cannot_be_opened_is_unavailable(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "no.db").write_bytes(b"this is no database, and it is long enough to be seen as none" * 20)
    refused = [
        f"sqlite:///{tmp_path}/missing/holdfast.db",
        f"sqlite:///{tmp_path}/folder",
        f"sqlite:///{tmp_path}/no.db",
        "postgresql://postgres@127.0.0.1:1/postgres",
        postgres_url.rpartition("/")[0] + "/there_is_no_such_database",
    ]
    for url in refused:
        with pytest.raises(ValidationError if url.startswith("sqlite") else Unavailable) as caught:
            holdfast.open(url)
        assert caught.value.context.get("outcome", "none") == "none"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "no.db"]
