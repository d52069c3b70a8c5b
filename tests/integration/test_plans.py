"""With much history, a generic plan still reaches jobs by primary key, or by the index that is made for the statement."""

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Ledger

HISTORY = 50_000
BY_KEY = {"jobs_pkey"}
STATEMENTS = {
    "start": BY_KEY,
    "heartbeat": BY_KEY,
    "beat": BY_KEY,
    "complete": BY_KEY,
    "load": BY_KEY,
    "lock_jobs": BY_KEY,
    "claim": BY_KEY | {"jobs_ready"},
    "checkpoints": BY_KEY,
    "owing": {"jobs_owing", "jobs_dedupe"},
    "undo_job": {"jobs_dedupe"},
    "dead_letters": {"jobs_ended"},
    "walk_jobs": BY_KEY | {"jobs_owing"},
}


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
        values = ", ".join(["NULL"] * count)
        row = with_history.execute(f"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE {name} ({values})".encode()).fetchone()
        assert row is not None
        [explained] = row[0] if isinstance(row[0], list) else json.loads(row[0])
        assert any("$" in json.dumps(node) for node in nodes(explained["Plan"])), "the plan is not generic"
        found[name] = set(ways_to_jobs(explained["Plan"]))
    assert {name: ways for name, ways in found.items() if not ways or not ways <= STATEMENTS[name]} == {}
