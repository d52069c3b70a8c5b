"""Opening: many at once, again, and by an older Holdfast."""

from pathlib import Path

import apsw
import msgspec
import psycopg
import pytest

import holdfast
from holdfast import Policy
from holdfast.errors import NoLedger, SchemaTooNew, Unavailable, ValidationError
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


def make_first_schema(url: str, postgres_url: str) -> None:
    """A ledger as the first Holdfast left it, with one job that is ready."""
    payload = b'{"queue":"default","kind":"work","args":{}}'
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("CREATE TABLE holdfast_schema (version INTEGER PRIMARY KEY) STRICT")
        connection.execute(migrations("holdfast.store.sqlite")[0].text)
        connection.execute(
            """
            INSERT INTO holdfast_schema VALUES (1);
            INSERT INTO holdfast_meta VALUES ('ledger_id', 'first');
            INSERT INTO holdfast_policies (id, body, lease_us) VALUES (1, ?, 60000000);
            INSERT INTO holdfast_profiles VALUES (1, 'work', '', '', 1);
            INSERT INTO holdfast_jobs (id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at,
                profile_id) VALUES (7, 'default', 'work', 'queued', 1, 0, 0, 1, 1, 1, 1);
            INSERT INTO holdfast_events (job_id, rev, type, received_at, actor, attempt, to_status, payload)
            VALUES (7, 1, 'enqueued', 1, 'client:old', 0, 'queued', ?);
            """,
            (msgspec.json.encode(Policy()).decode(), payload),
        )
        connection.close()
        return
    schema = url.partition("schema=")[2]
    with psycopg.connect(postgres_url, autocommit=True) as server:
        for text in (
            f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.schema_version (version integer PRIMARY KEY)",
            migrations("holdfast.store.postgres")[0].text.replace("holdfast.", f"{schema}."),
            f"INSERT INTO {schema}.schema_version VALUES (1)",
            f"INSERT INTO {schema}.meta VALUES ('ledger_id', 'first')",
            f"INSERT INTO {schema}.policies (body, lease) VALUES ('{msgspec.json.encode(Policy()).decode()}', '60 s')",
            f"INSERT INTO {schema}.profiles (kind, tier, override, policy_id) VALUES ('work', '', '', 1)",
            f"""INSERT INTO {schema}.jobs (id, queue, kind, status, rev, attempt, priority, available_at, created_at,
                updated_at, profile_id) VALUES (7, 'default', 'work', 'queued', 1, 0, 0, now(), now(), now(), 1)""",
            f"""INSERT INTO {schema}.events (job_id, rev, type, received_at, actor, attempt, to_status, payload)
                SELECT 7, 1, 'enqueued', created_at, 'client:old', 0, 'queued', '{payload.decode()}'::bytea
                FROM {schema}.jobs""",
        ):
            server.execute(text.encode())


def test_a_ledger_of_the_first_schema_is_brought_up_to_date(store_url: str, postgres_url: str, opened: Opener) -> None:
    make_first_schema(store_url, postgres_url)
    ledger = opened(store_url)
    [job] = ledger.claim("worker", start=True)
    assert (ledger.id, job.id, job.has_checkpoint, job.undo_owed) == ("first", 7, False, 0)
    assert job.fence is not None
    ledger.heartbeat(job.fence, checkpoint=1, undo={"kind": "delete"})
    ledger.complete(job.fence)
    assert problems(ledger) == []
    assert ledger.take_duty("sweep", "a", ttl="10s")
    ledger.sign_in("w")
    assert ledger.enqueue("work", delay=60).is_new
    assert ledger.until_ready() is not None


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
        kind = ValidationError if url.startswith("sqlite") else NoLedger if url.endswith("database") else Unavailable
        with pytest.raises(kind) as caught:
            holdfast.open(url)
        assert caught.value.context.get("outcome", "none") == "none"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "no.db"]


def test_what_was_set_for_a_kind_before_declarations_stays_an_operators(
    store_url: str, postgres_url: str, opened: Opener
) -> None:
    make_first_schema(store_url, postgres_url)
    if store_url.startswith("sqlite"):
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        connection.execute("""INSERT INTO holdfast_settings VALUES ('kind', 'work', '{"attempts_max":1}')""")
        connection.close()
    else:
        with psycopg.connect(postgres_url) as server:
            schema = store_url.partition("schema=")[2]
            server.execute(f"""INSERT INTO {schema}.settings VALUES ('kind', 'work', '{{"attempts_max":1}}')""".encode())
    ledger = opened(store_url)
    ledger.declare_policy("work", attempts_max=7, lease_ttl="90s")
    assert (ledger.policy_of(7).attempts_max, ledger.policy_of(7).lease_ttl_ms) == (1, 90_000)
    ledger.unset_policy("work")
    assert ledger.policy_of(7).attempts_max == 7
