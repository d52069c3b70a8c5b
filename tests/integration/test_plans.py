"""With much history, a generic plan still reaches jobs by primary key, or by the small index that was made for it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql

from holdfast import Ledger
from holdfast.store.sqlite.session import SQL

HISTORY = 50_000
BY_KEY = {"jobs_pkey"}
STATEMENTS = {
    "start": BY_KEY,
    "heartbeat": BY_KEY,
    "beat": BY_KEY,
    "beat_signed": BY_KEY,
    "complete": BY_KEY,
    "settle": BY_KEY,
    "load": BY_KEY,
    "lock_jobs": BY_KEY,
    "claim": BY_KEY | {"jobs_ready"},
    "due": {"jobs_active"},
    "next_ready": {"jobs_delayed"},
    "watch": {"jobs_active", "jobs_owing", "duties_pkey"},
    "checkpoints": BY_KEY,
    "owing": {"jobs_owing", "jobs_dedupe"},
    "undo_job": {"jobs_dedupe"},
    "dead_letters": {"jobs_ended"},
    "walk_jobs": BY_KEY | {"jobs_owing"},
    "own_tasks": {"jobs_active"},
    "first_tasks": {"jobs_ready"},
    "take_task": {"jobs_ready"},
    "expired_tasks": {"jobs_active"},
    "lock_task": BY_KEY,
    "idle": {"jobs_active", "jobs_waiting", "jobs_delayed", "jobs_ready"},
    "list_active": {"jobs_active"},
    "newest_events": BY_KEY,
    "blockers": BY_KEY,
    "unlocks": BY_KEY,
    "lock_waiting": BY_KEY | {"jobs_waiting"},
    "meet": BY_KEY,
    "save_told": BY_KEY,
    "falling": BY_KEY,
    "downstream": BY_KEY,
    "note_untold": BY_KEY,
    "ahead": {"jobs_ready"},
    "leaf_events": BY_KEY,
}
DELAYED = 100_000


def add_history(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Finished jobs with their events, written as the ledger would have left them."""
    tables = {"jobs": sql.Identifier(schema, "jobs"), "events": sql.Identifier(schema, "events")}
    connection.execute(
        sql.SQL("""
            INSERT INTO {jobs} (id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at,
                profile_id, policy_id, incarnation, token, claimed_at, last_beat_at, started_at, finished_at, progressed_at,
                last_owner, last_lease_expires_at, result_rev)
            SELECT 1000000 + n, 'default', 'work', 'succeeded', 4, 1, 0, now(), now(), now(), 1, 1, 'i', md5(n::text), now(),
                now(), now(), now(), now(), 'worker', now(), 4
            FROM generate_series(1, %s) AS n
        """).format(**tables),
        (HISTORY,),
    )
    connection.execute(
        sql.SQL("""
            INSERT INTO {events} (job_id, rev, type, received_at, actor, attempt, from_status, to_status, payload)
            SELECT 1000000 + n, step.rev, step.type, now(), 'worker:w#i', 1, step.was, step.becomes, NULL
            FROM generate_series(1, %s) AS n CROSS JOIN (VALUES (1, 'enqueued', NULL, 'queued'),
                (2, 'claimed', 'queued', 'claimed'), (3, 'started', 'claimed', 'running'),
                (4, 'succeeded', 'running', 'succeeded')) AS step (rev, type, was, becomes)
        """).format(**tables),
        (HISTORY,),
    )
    for table in tables.values():
        connection.execute(sql.SQL("ANALYZE {}").format(table))


def numbered(statement: str) -> tuple[str, int]:
    """With $1, $2 … for its named parameters, each name one number."""
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement)
    return text.replace("%%", "%"), len(names)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def ways_to_jobs(plan: dict[str, Any], above: str = "") -> Iterator[str]:
    """How each part of a plan reaches the table of jobs: the name of an index, or the kind of scan."""
    kind = plan["Node Type"]
    if plan.get("Relation Name") == "jobs" and kind not in ("ModifyTable", "Bitmap Heap Scan"):
        yield plan.get("Index Name", kind)
    if kind == "Bitmap Index Scan" and above == "jobs":
        yield plan["Index Name"]
    for child in plan.get("Plans", []):
        yield from ways_to_jobs(child, plan.get("Relation Name", above))


def explained(connection: "psycopg.Connection[Any]", statement: str) -> dict[str, Any]:
    """The generic plan of a prepared statement."""
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    [found] = row[0] if isinstance(row[0], list) else json.loads(row[0])
    plan: dict[str, Any] = found["Plan"]
    assert any("$" in json.dumps(node) for node in nodes(plan)), "the plan is not generic"
    return plan


@pytest.fixture
def with_history(pg_url: str, postgres_url: str, on_postgres: Ledger) -> "Iterator[psycopg.Connection[Any]]":
    """A connection to a ledger with much history, a queue and some running jobs; plans are generic."""
    on_postgres.enqueue_many([{"kind": "work"}] * 500)
    on_postgres.claim("worker", limit=100, start=True)
    on_postgres.claim("worker", limit=100)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        add_history(connection, pg_url.partition("schema=")[2])
        connection.execute("SET plan_cache_mode = force_generic_plan")
        yield connection


def test_hot_statements_reach_jobs_by_key_only(on_postgres: Ledger, with_history: "psycopg.Connection[Any]") -> None:
    found: dict[str, set[str]] = {}
    for name in STATEMENTS:
        text, count = numbered(on_postgres._store._sql[name])  # type: ignore[attr-defined]
        with_history.execute(f"PREPARE {name} AS {text}".encode())
        plan = explained(with_history, f"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE {name} ({', '.join(['NULL'] * count)})")
        found[name] = set(ways_to_jobs(plan))
    assert {name: ways for name, ways in found.items() if not ways or not ways <= STATEMENTS[name]} == {}


def test_leaves_are_read_by_position_alone(on_postgres: Ledger, with_history: "psycopg.Connection[Any]") -> None:
    text, _ = numbered(on_postgres._store._sql["leaf_events"])  # type: ignore[attr-defined]
    with_history.execute(f"PREPARE leaf_events AS {text}".encode())
    plan = explained(with_history, "EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE leaf_events (0, 1000000, 5000)")
    assert [node["Index Name"] for node in nodes(plan) if node.get("Relation Name") == "events"] == ["events_pos"]
    assert not any(node["Node Type"] == "Sort" for node in nodes(plan))


def delay_many(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Jobs with a delay of an hour, in two queues, and ready jobs."""
    connection.execute(
        sql.SQL("""
            INSERT INTO {jobs} (id, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, profile_id)
            SELECT 2000000 + n, 'q' || n %% 2, 'work', 'queued', 1, 0, 0, now() + interval '1 hour' + n * interval '1 s', now(),
                now(), 1
            FROM generate_series(1, %s) AS n
        """).format(jobs=sql.Identifier(schema, "jobs")),
        (DELAYED,),
    )


@pytest.mark.parametrize("analyzed", [False, True])
def test_of_many_delayed_jobs_only_the_first_of_each_queue_is_read(
    pg_url: str, on_postgres: Ledger, with_history: "psycopg.Connection[Any]", analyzed: bool
) -> None:
    schema = pg_url.partition("schema=")[2]
    delay_many(with_history, schema)
    if analyzed:
        with_history.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(schema, "jobs")))
    text, _ = numbered(on_postgres._store._sql["next_ready"])  # type: ignore[attr-defined]
    with_history.execute(f"PREPARE next_ready AS {text}".encode())
    values = "now(), NULL, '{q0,q1,default,none}'"
    plan = explained(with_history, f"EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) EXECUTE next_ready ({values})")
    [scan] = [node for node in nodes(plan) if node.get("Relation Name") == "jobs"]
    assert scan["Index Name"] == "jobs_delayed"
    assert scan["Actual Rows"] * scan["Actual Loops"] <= 4
    wait = on_postgres.until_ready(["q1", "q0"])
    assert wait is not None
    assert 3_000 < wait <= 3_601


def test_of_many_delayed_jobs_only_the_first_of_each_queue_is_read_in_a_file(on_sqlite: Ledger, sqlite_url: str) -> None:
    on_sqlite.enqueue("ready")
    for start in range(0, DELAYED, 10_000):
        on_sqlite.enqueue_many({"kind": "work", "queue": "q", "delay": 3_600 + n} for n in range(start, start + 10_000))
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    try:
        params = {"now_at": 0, "kinds": None, "queues": '["q","default","none"]'}
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL['next_ready']}", params)]
        assert [step for step in plan if "holdfast_jobs" in step] == ["SEARCH j USING INDEX holdfast_jobs_delayed (queue=?)"]
        assert not any("TEMP B-TREE" in step for step in plan)
    finally:
        connection.close()
    wait = on_sqlite.until_ready(["q"])
    assert wait is not None
    assert 3_000 < wait <= 3_600


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("insert_claimed", {"ids": "[1]", "steps": 2, "actor": "worker:w#i", "request": "r"}),
        ("settle", {"ids": "[1]", "now": 1}),
        ("insert_settled", {"payloads": '{"1": "{}"}', "request": "r"}),
    ],
)
def test_batches_reach_jobs_by_key_only_in_a_file(on_sqlite: Ledger, sqlite_url: str, name: str, params: dict[str, Any]) -> None:
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    try:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", params)]
    finally:
        connection.close()
    ways = [step for step in plan if " j " in step or "holdfast_jobs" in step]
    assert [way.partition(" USING ")[2] for way in ways] == ["INTEGER PRIMARY KEY (rowid=?)"]
