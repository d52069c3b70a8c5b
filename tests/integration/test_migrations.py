"""Open a ledger in many processes at once, again, with a newer version and with an older one."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.errors import NoLedger, SchemaTooNew, ServerTooOld, Unavailable, ValidationError
from tests.blast.place import Place
from tests.conftest import drop_schema
from tests.integration.conftest import Opener
from tests.support.histories import count_jobs, problems
from tests.support.processes import Program, fleet
from tests.support.versions import SECOND, THIRD, add_versions, catalog_of, copy_source, run_sql, versions_of
from tests.support.waiting import wait_until
from tools.pgserver import VERSION


@pytest.fixture
def empty_schema(new_schema: str) -> str:
    return new_schema


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


def test_a_fresh_store_gets_the_first_version(store_url: str, opened: Opener) -> None:
    assert opened(store_url).schema == (0, 1, ("ledger",))
    assert opened(store_url).schema == (1, 1, ())
    assert versions_of(store_url) == [1]


def test_a_ledger_of_the_first_version_is_migrated(store_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(store_url) as older:
        first, queued = older.id, older.enqueue("work")
    add_versions(monkeypatch, SECOND)
    ledger = opened(store_url)
    assert ledger.schema == (1, 2, ("second",))
    assert run_sql(store_url, "SELECT made_up FROM holdfast.jobs") == [(7,)]
    [job] = ledger.claim("worker", start=True)
    assert (ledger.id, job.id, job.has_checkpoint, job.undo_owed) == (first, queued.id, False, 0)
    ledger.heartbeat(job.fence, checkpoint=1, undo={"kind": "delete"})
    ledger.complete(job.fence)
    assert problems(ledger) == []
    assert ledger.take_duty("sweep", "a", ttl="10s")
    ledger.sign_in("w")
    assert ledger.enqueue("work", delay=60).is_new
    assert ledger.until_ready() is not None
    assert opened(store_url).schema == (2, 2, ())
    assert run_sql(store_url, "SELECT run FROM holdfast.made_up") == [(2,)]


def test_several_versions_are_applied_in_order(store_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(store_url).enqueue("work")
    with monkeypatch.context() as newest:
        add_versions(newest, SECOND, THIRD)
        assert opened(store_url).schema == (1, 3, ("second", "third"))
    assert versions_of(store_url) == [1, 2, 3]
    assert run_sql(store_url, "SELECT run, note FROM holdfast.made_up ORDER BY run") == [(2, None), (3, "three")]


@pytest.mark.parametrize("steps", [[0, 1, 2], [0, 2], [1, 2]])
def test_every_migration_path_gives_the_same_tables(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int]
) -> None:
    """A store that went through other versions has the tables of a fresh one."""
    add_versions(monkeypatch, SECOND, THIRD)
    holdfast.open(store_url).close()
    fresh = catalog_of(store_url)
    if store_url.startswith("sqlite"):
        store_url = f"sqlite:///{tmp_path}/stepwise.db"
    else:
        drop_schema(*Place.of(store_url))
    for step in steps:
        add_versions(monkeypatch, *(SECOND, THIRD)[:step])
        holdfast.open(store_url).close()
    assert (catalog_of(store_url), versions_of(store_url)) == (fresh, [1, 2, 3])


@pytest.fixture(scope="module")
def newer_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of a newer version, for other processes."""
    return copy_source(tmp_path_factory.mktemp("newer"), SECOND)


def test_one_of_many_processes_migrates(store_url: str, newer_source: Path, opened: Opener) -> None:
    older = opened(store_url)
    older.enqueue("work")
    answers = fleet("workers.open_version", 5, url=store_url, source=newer_source)
    assert {(ledger_id, version) for ledger_id, version, _ in answers} == {(older.id, 2)}
    assert run_sql(store_url, "SELECT run FROM holdfast.made_up") == [(2,)]
    assert versions_of(store_url) == [1, 2]
    assert count_jobs(older) == 6
    assert problems(older) == []


def test_many_processes_create_a_fresh_store_with_several_versions(store_url: str, newer_source: Path) -> None:
    answers = fleet("workers.open_version", 5, url=store_url, source=newer_source)
    assert {version for _, version, _ in answers} == {2}
    assert len({ledger_id for ledger_id, _, _ in answers}) == 1
    assert run_sql(store_url, "SELECT run FROM holdfast.made_up") == [(2,)]
    assert versions_of(store_url) == [1, 2]


@pytest.mark.parametrize("broken", ["INSERT INTO holdfast.no_such_table VALUES (1);", "CREATE TABLE holdfast.jobs (id integer);"])
def test_a_migration_that_fails_changes_nothing(
    store_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    older = opened(store_url)
    job = older.enqueue("work")
    before = catalog_of(store_url)
    with monkeypatch.context() as newer:
        add_versions(newer, SECOND, THIRD + broken)
        for _ in range(2):
            with pytest.raises(Unavailable) as refused:
                holdfast.open(store_url)
            assert refused.value.message.startswith("cannot open ")
    assert (catalog_of(store_url), versions_of(store_url)) == (before, [1])
    assert opened(store_url).get(job.id) == job
    [held] = older.claim("worker", start=True)
    older.complete(held.fence)
    add_versions(monkeypatch, SECOND, THIRD)
    newest = opened(store_url)
    assert newest.schema == (1, 3, ("second", "third"))
    assert problems(newest) == []


def test_a_fresh_store_has_no_tables_if_a_migration_fails(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        add_versions(broken, "INSERT INTO holdfast.no_such_table VALUES (1);")
        with pytest.raises(Unavailable):
            holdfast.open(store_url)
    assert catalog_of(store_url) == []
    with holdfast.open(store_url) as ledger:
        assert ledger.schema == (0, 1, ("ledger",))


class Version:
    """A process that runs one version of Holdfast, with a worker on a queue of the same name."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.opened = program.answer()

    def __call__(self, verb: str, *arguments: object) -> Any:
        self._program.tell(json.dumps([verb, *arguments]))
        return self._program.answer()

    def run(self, kind: str, queue: str) -> int:
        return int(self("enqueue", kind, queue))

    def take(self) -> list[Any]:
        """The fence of the only job in the default queue."""
        [fence] = self("claim", "by-hand")
        return list(fence)

    def finish(self, fence: list[Any]) -> None:
        self("beat", *fence)
        self("complete", *fence)


def test_workers_of_two_versions_share_a_ledger(store_url: str, newer_source: Path, opened: Opener) -> None:
    """A ledger of the older version and an older worker were opened before the migration."""
    watch = opened(store_url)

    def succeeded(*ids: int) -> bool:
        return all(watch.get(id_).status == "succeeded" for id_ in ids)

    with Program("versioned", store_url, "older") as older_program:
        older = Version(older_program)
        assert older.opened == [watch.id, 1]
        held = older.run("hold", "older")
        by_hand = older.run("by_hand", "default")
        older_fence = older.take()
        waits = older.run("work", "newer")
        wait_until(lambda: watch.get(held).status == "running", what="the older worker holds a job")
        with Program("versioned", store_url, "newer", source=newer_source) as newer_program:
            newer = Version(newer_program)
            assert newer.opened == [watch.id, 2]
            migrated_at = watch.now()
            # The newer worker runs jobs from before the migration. The older one continues with the jobs that it holds.
            wait_until(lambda: succeeded(waits), what="the newer worker has run an older job")
            wait_until(lambda: has_beaten(watch, held, migrated_at), what="the older worker beats")
            older.finish(older_fence)
            assert older("diagnose") == "schema 2, but this Holdfast knows 1"
            assert newer("diagnose") == "schema 2 is the newest that this Holdfast knows"
            # Each version enqueues for the other, and each ends jobs that the other has enqueued.
            crossed = [older.run("work", "newer"), newer.run("work", "older")]
            kept = newer.run("hold", "newer")
            newer.run("by_hand", "default")
            older.finish(older.take())
            older.run("by_hand", "default")
            fence = newer.take()
            # A fence belongs to the job, not to the version that drew it.
            older("beat", *fence)
            newer.finish(fence)
            assert [each("manage", queue) for each, queue in ((older, "a"), (newer, "b"))] == [["a"], ["b"]]
            wait_until(lambda: succeeded(*crossed), what="each version has run a job of the other")
            newer("release")
            wait_until(lambda: succeeded(kept), what="the newer worker has ended its job")
            newer_program.wait()
        # The newer version is stopped: the older worker continues, but the older version cannot be started again.
        more = older.run("work", "older")
        older("release")
        wait_until(lambda: succeeded(held, more, by_hand), what="the older worker goes on alone")
        older.run("by_hand", "default")
        older.finish(older.take())
        with Program("versioned", store_url, "late") as late:
            assert late.answer() == ["schema_too_new", 2, 1]
            late.wait()
        older_program.wait()
    # The newer version opens the ledger that the older one has written to since.
    with Program("versioned", store_url, "newer", source=newer_source) as newer_program:
        newer = Version(newer_program)
        again = newer.run("work", "newer")
        wait_until(lambda: succeeded(again), what="the newer worker has run a job")
        newer_program.wait()
    assert run_sql(store_url, "SELECT run FROM holdfast.made_up") == [(2,)]
    assert problems(watch) == []


def has_beaten(ledger: Ledger, id_: int, since: datetime) -> bool:
    return any(event.received_at > since for event in ledger.events(job_id=id_, types=["heartbeat"]))


def test_an_older_version_is_refused_and_changes_nothing(
    store_url: str, newer_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer version has created the ledger. The older one is refused with a message that says what to do."""
    with Program("versioned", store_url, "newer", source=newer_source) as program:
        newer = Version(program)
        before = catalog_of(store_url)
        for _ in range(2):
            with pytest.raises(SchemaTooNew) as refused:
                holdfast.open(store_url)
            assert refused.value.context == {"found": 2, "known": 1}
            assert "Upgrade this Holdfast" in str(refused.value.action)
        assert (catalog_of(store_url), versions_of(store_url)) == (before, [1, 2])
        job = newer.run("work", "newer")
        add_versions(monkeypatch, SECOND)
        with holdfast.open(store_url) as ledger:
            assert ledger.schema == (2, 2, ())
            wait_until(lambda: ledger.get(job).status == "succeeded", what="the newer worker has run a job")
            program.wait()
            assert problems(ledger) == []


def raise_version(url: str) -> None:
    """Set the version of the schema to that of a much newer Holdfast."""
    run_sql(url, f"INSERT INTO holdfast.{'schema' if url.startswith('sqlite') else 'schema_version'} VALUES (9999)")


def test_a_newer_schema_is_refused(store_url: str) -> None:
    with holdfast.open(store_url) as ledger:
        ledger.enqueue("work")
    raise_version(store_url)
    files = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(SchemaTooNew) as caught:
            holdfast.open(store_url)
        assert caught.value.context["found"] == 9999
        assert not caught.value.retryable
        del caught
    # Refused calls leave nothing open.
    assert len(set(Path("/proc/self/fd").iterdir()) - files) <= 1


def test_a_server_that_is_too_old_is_refused_and_not_changed(new_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.connections.SERVER_OLDEST", VERSION + 1)
    with pytest.raises(ServerTooOld, match=rf"the server is PostgreSQL {VERSION}\.\d+.*: a ledger needs {VERSION + 1} or newer"):
        holdfast.open(new_schema)
    monkeypatch.undo()
    with pytest.raises(NoLedger):
        holdfast.open(new_schema, create=False)


def test_a_store_that_cannot_be_opened_is_unavailable(tmp_path: Path, postgres_url: str) -> None:
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


def test_a_policy_set_by_an_older_version_stays_in_the_operators_layer(
    store_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(store_url) as older:
        older.set_policy("work", attempts_max=1)
        job = older.enqueue("work")
    add_versions(monkeypatch, SECOND)
    ledger = opened(store_url)
    ledger.declare_policy("work", attempts_max=7, lease_ttl="90s")
    assert (ledger.policy_of(job.id).attempts_max, ledger.policy_of(job.id).lease_ttl_ms) == (1, 90_000)
    ledger.unset_policy("work")
    assert ledger.policy_of(job.id).attempts_max == 7
