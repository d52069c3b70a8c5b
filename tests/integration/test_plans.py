"""With much history, a generic plan reaches jobs by primary key or by a small index."""

import json
import re
from collections.abc import Iterator
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql

from holdfast import Ledger
from holdfast.store.postgres.session import PostgresSession
from holdfast.store.sqlite.session import SQL
from holdfast.store.statements import statements
from tests.support.waiting import wait_until

HISTORY = 50_000
FIRST_POS = 1_000 * 2_048
"""The position of the first event of the history."""
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
    "due": BY_KEY,
    "next_ready": {"jobs_delayed"},
    "watch": {"jobs_owing", "duties_pkey"},
    "checkpoints": BY_KEY,
    "unfinished_jobs": {"jobs_owing", "jobs_dedupe"},
    "find_key": {"jobs_dedupe"},
    "free_key": {"jobs_dedupe"},
    "lock_key_holder": {"jobs_dedupe"},
    "take_key": BY_KEY,
    "set_payload": BY_KEY,
    "dead_letters": {"jobs_ended"},
    "walk_jobs": BY_KEY | {"jobs_owing"},
    "own_tasks": BY_KEY,
    "first_tasks": {"jobs_ready"},
    "take_task": {"jobs_ready"},
    "expired_tasks": BY_KEY,
    "lock_task": BY_KEY,
    "idle": BY_KEY | {"jobs_waiting", "jobs_delayed", "jobs_ready", "jobs_subqueue"},
    "list_active": BY_KEY,
    "newest_events": BY_KEY,
    "blockers": BY_KEY,
    "unlocks": BY_KEY,
    "lock_waiting": BY_KEY | {"jobs_waiting"},
    "decrement_waits": BY_KEY,
    "save_dependents": BY_KEY,
    "failing_dependents": BY_KEY,
    "downstream": BY_KEY,
    "note_open_cascades": BY_KEY,
    "first_places": {"jobs_ready"},
    "first_like": BY_KEY | {"jobs_subqueue"},
    "has_higher": {"jobs_ready", "jobs_subqueue"},
    "waiting_jobs": {"jobs_subqueue"},
    "waiting_by_limit": {"jobs_subqueue"},
    "claim_chosen": BY_KEY,
    "flow_ranks": {"jobs_ready"},
    "pick_jobs": {"jobs_subqueue"},
    "pick_plain_jobs": {"jobs_ready"},
    "count_slots": BY_KEY,
    "close_empty_subqueues": {"jobs_subqueue"},
    "ready_subqueues": {"jobs_subqueue"},
    "leaf_events": BY_KEY,
    "leaf_events_of_job": BY_KEY,
    "events": BY_KEY,
    "events_of_jobs": BY_KEY,
    "rare_events": BY_KEY,
    "find_event": BY_KEY,
    "tidy_claims": BY_KEY,
    "delete_batches": BY_KEY,
    "with_locked_parts": BY_KEY,
}
EVENT_INDEXES = {
    *("event_rows_pkey", "event_rows_pos", "event_rows_type", "event_rows_time"),
    *("event_batches_pkey", "event_batches_claim", "event_batches_time"),
}
DELAYED = 100_000


def add_history(connection: "psycopg.Connection[Any]", schema: str, batch: int) -> None:
    """Add finished jobs with their events, in batches of this many jobs, as the ledger would write them. A tenth of the
    jobs also have a heartbeat with a payload, which is a row."""
    tables = {name: sql.Identifier(schema, name) for name in ("jobs", "event_batches", "event_rows", "open_claims")}
    params = {"jobs": HISTORY, "batch": batch, "first": FIRST_POS}
    connection.execute(
        sql.SQL("""
            INSERT INTO {jobs} (id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at,
                profile_id, policy_id, incarnation, token, claimed_at, last_beat_at, started_at, finished_at, progressed_at,
                last_owner, last_lease_expires_at, enqueued_pos, claim_pos, last_pos, payload, result)
            SELECT 1000000 + n, 'default', 'work', false, 'succeeded', 4 + (n %% 10 = 0)::integer, 1, 0, now(), now(), now(), 1,
                1, 'i', md5(n::text), now(), now(), now(), now(), now(), 'worker', now(), at.pos, at.pos + 2048,
                at.pos + 3 * 2048, '{{}}', '{{}}'
            FROM generate_series(0, %(jobs)s - 1) AS n
            CROSS JOIN LATERAL (SELECT %(first)s + n / %(batch)s * 4 * 2048) AS at (pos)
        """).format(**tables),
        params,
    )
    connection.execute(
        sql.SQL("""
            INSERT INTO {event_batches} (
                pos, received_at, claim_pos, size, rev, attempt, policy_id, starts, type, from_status, to_status, actor, jobs,
                revs)
            SELECT g.pos + step.after * 2048, now(), CASE step.type WHEN 'succeeded' THEN g.pos + 2048 END,
                g.size * (1 + step.starts::integer), step.rev, 1, 1, step.starts, step.type, step.was, step.becomes, 'worker:w#i',
                g.jobs, CASE step.type WHEN 'succeeded' THEN g.revs END
            FROM (
                SELECT %(first)s + n / %(batch)s * 4 * 2048 AS pos, count(*) AS size, array_agg(1000000 + n) AS jobs,
                    array_agg(4 + (n %% 10 = 0)::integer) AS revs
                FROM generate_series(0, %(jobs)s - 1) AS n GROUP BY 1) AS g
            CROSS JOIN (VALUES (0, 1, 'enqueued', NULL, 'queued', false), (1, 2, 'claimed', 'queued', 'claimed', true),
                (3, 4, 'succeeded', 'running', 'succeeded', false)) AS step (after, rev, type, was, becomes, starts)
            ORDER BY 1
        """).format(**tables),
        params,
    )
    connection.execute(
        sql.SQL("""
            INSERT INTO {event_rows} (
                pos, job_id, received_at, claim_pos, rev, attempt, type, from_status, to_status, actor, payload)
            SELECT at.pos + 2 * 2048 + n %% %(batch)s, 1000000 + n, now(), at.pos + 2048, 4, 1, 'heartbeat', 'running', 'running',
                'worker:w#i', '{{}}'
            FROM generate_series(0, %(jobs)s - 1, 10) AS n
            CROSS JOIN LATERAL (SELECT %(first)s + n / %(batch)s * 4 * 2048) AS at (pos)
        """).format(**tables),
        params,
    )
    for table in tables.values():
        connection.execute(sql.SQL("ANALYZE {}").format(table))


def numbered(statement: str) -> tuple[str, int]:
    """Replace named parameters by $1, $2 …, one number for each name."""
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement)
    return text.replace("%%", "%"), len(names)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def scans_of(tables: set[str], plan: dict[str, Any], above: str = "") -> Iterator[str]:
    """The name of an index or the kind of scan by which each part of a plan reads these tables."""
    kind = plan["Node Type"]
    if plan.get("Relation Name") in tables and kind not in ("ModifyTable", "Bitmap Heap Scan"):
        yield plan.get("Index Name", kind)
    if kind == "Bitmap Index Scan" and above in tables:
        yield plan["Index Name"]
    for child in plan.get("Plans", []):
        yield from scans_of(tables, child, plan.get("Relation Name", above))


def explained(connection: "psycopg.Connection[Any]", statement: str) -> dict[str, Any]:
    """The generic plan of a prepared statement."""
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    [found] = row[0] if isinstance(row[0], list) else json.loads(row[0])
    plan: dict[str, Any] = found["Plan"]
    assert any("$" in json.dumps(node) for node in nodes(plan)), "the plan is not generic"
    return plan


@pytest.fixture
def batch() -> int:
    """Jobs in each batch of the history. With few, there are many batches."""
    return 10


@pytest.fixture
def with_history(pg_url: str, postgres_url: str, on_postgres: Ledger, batch: int) -> "Iterator[psycopg.Connection[Any]]":
    """A connection to a ledger with much history, a queue and some running jobs; plans are generic."""
    on_postgres.enqueue_many([{"kind": "work"}] * 500)
    on_postgres.claim("worker", limit=100, start=True)
    on_postgres.claim("worker", limit=100)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        add_history(connection, pg_url.partition("schema=")[2], batch)
        connection.execute("SET plan_cache_mode = force_generic_plan")
        yield connection


@pytest.mark.parametrize("batch", [10, 1_000])
def test_hot_statements_reach_jobs_by_key_only(on_postgres: Ledger, with_history: "psycopg.Connection[Any]", batch: int) -> None:
    found: dict[str, set[str]] = {}
    scanned: dict[str, set[str]] = {}
    for name in STATEMENTS:
        text, count = numbered(on_postgres._store._sql[name])  # type: ignore[attr-defined]
        with_history.execute(f"PREPARE {name} AS {text}".encode())
        plan = explained(with_history, f"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE {name} ({', '.join(['NULL'] * count)})")
        found[name] = set(scans_of({"jobs"}, plan))
        scanned[name] = set(scans_of({"event_rows", "event_batches"}, plan)) - EVENT_INDEXES
    assert {name: ways for name, ways in found.items() if not ways or not ways <= STATEMENTS[name]} == {}
    # A few large batches are few rows: a scan of the table is a good plan.
    assert batch > 10 or {name: ways for name, ways in scanned.items() if ways} == {}


@pytest.mark.parametrize("batch", [10, 1_000])
def test_leaves_are_read_by_position_only(on_postgres: Ledger, with_history: "psycopg.Connection[Any]", batch: int) -> None:
    text, _ = numbered(on_postgres._store._sql["leaf_events"])  # type: ignore[attr-defined]
    with_history.execute(f"PREPARE leaf_events AS {text}".encode())
    after = FIRST_POS + 10 * 4 * 2_048 - 1
    plan = explained(with_history, f"EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) EXECUTE leaf_events ({after}, {after + 4 * 2_048})")
    assert plan["Actual Rows"] == 4 * batch + batch // 10
    ways = set(scans_of({"event_rows", "event_batches"}, plan))
    assert ways == {"event_rows_pos", "event_batches_pkey"} or (batch > 10 and ways == {"event_rows_pos", "Seq Scan"})
    assert set(scans_of({"jobs"}, plan)) == BY_KEY
    if batch == 10:
        read = [
            node["Actual Rows"] * node["Actual Loops"] for node in nodes(plan) if node.get("Relation Name") == "event_batches"
        ]
        assert sum(read) <= 4


def delay_many(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Enqueue ready jobs and jobs with a delay of an hour, in two queues."""
    connection.execute(
        sql.SQL("""
            INSERT INTO {jobs} (id, queue, kind, queued, status, rev, attempt, priority, available_at, created_at, updated_at,
                profile_id, enqueued_pos, last_pos, payload)
            SELECT 2000000 + n, 'q' || n %% 2, 'work', true, 'queued', 1, 0, 0, now() + interval '1 hour' + n * interval '1 s',
                now(), now(), 1, 1, 1, '{{}}'
            FROM generate_series(1, %s) AS n
        """).format(jobs=sql.Identifier(schema, "jobs")),
        (DELAYED,),
    )


@pytest.mark.parametrize("analyzed", [False, True])
def test_only_the_first_delayed_job_of_each_queue_is_read(
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


def test_only_the_first_delayed_job_of_each_queue_is_read_on_sqlite(on_sqlite: Ledger, sqlite_url: str) -> None:
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


IN_A_FILE = {
    "jobs": (
        "guards",
        "signed_guards",
        "settle",
        "load",
        "due",
        "next_checks",
        "list_active",
        "delete_batches",
        "batches_of_jobs",
    ),
    "jobs and events": ("leaf_events", "leaf_events_of_job", "events", "events_of_jobs", "find_event"),
    "events": ("page_end", "next_block", "events_after", "forget_blocks"),
}
"""Statements about batches, by the tables they read."""


@pytest.mark.parametrize(("name", "reads"), [(name, reads) for reads, names in IN_A_FILE.items() for name in names])
def test_batches_reach_jobs_by_key_only_on_sqlite(on_sqlite: Ledger, sqlite_url: str, name: str, reads: str) -> None:
    text = SQL[name]
    params = [None] if "?" in text else dict.fromkeys(re.findall(r":(\w+)", text))
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    try:
        tables = dict(connection.execute("SELECT rootpage, tbl_name FROM sqlite_schema WHERE rootpage > 0"))
        steps = [row[1:4] for row in connection.execute(f"EXPLAIN {text}", params)]
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", params)]
    finally:
        connection.close()
    opened = {cursor: tables[page] for code, cursor, page in steps if code in ("OpenRead", "OpenWrite")}
    scanned = {opened[cursor] for code, cursor, _ in steps if code in ("Rewind", "Last") and cursor in opened}
    assert not scanned & {"holdfast_jobs", "holdfast_event_rows", "holdfast_event_batches"}
    assert ("jobs" in reads) == ("holdfast_jobs" in opened.values())
    assert "events" not in reads or {"holdfast_event_rows", "holdfast_event_batches"} <= set(opened.values())
    ways = {step.partition(" USING ")[2] for step in plan if re.match(r"\w+ (j|holdfast_jobs)\b", step)}
    assert ways == ({"INTEGER PRIMARY KEY (rowid=?)"} if "jobs" in reads else set())


def test_a_new_ledger_needs_no_statistics(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is analyzed. Claims read only the first jobs of the index, and jobs of holders are found by key."""
    plans: dict[str, dict[str, Any]] = {}
    run = PostgresSession._run

    def explaining(session: PostgresSession, name: str, params: Any = None, cursor: Any = None) -> Any:
        if name in ("claim", "beat", "settle", "settle_alike"):
            session._cursor.execute(f"EXPLAIN (FORMAT JSON) {session._sql[name]}", params)
            [(found,)] = session._cursor.fetchall()
            plans[name] = found[0]["Plan"]
        return run(session, name, params, cursor)

    for _ in range(4):
        on_postgres.enqueue_many([{"kind": "work"}] * 10_000)
    monkeypatch.setattr(PostgresSession, "_run", explaining)
    first, second = (on_postgres.claim("w", limit=500, start=True, kinds=["work", "other"]) for _ in range(2))
    fences = [job.fence for job in first]
    on_postgres.heartbeat_many(fences)
    on_postgres.settle_many([(fence, None) for fence in fences], request_id="r-1")
    on_postgres.settle_many([(job.fence, job.id) for job in second], request_id="r-2")
    assert set(plans) == {"claim", "beat", "settle", "settle_alike"}
    assert set(scans_of({"jobs"}, plans["claim"])) == {"jobs_ready", "jobs_pkey"}
    assert not [node for node in nodes(plans["claim"]) if "priority" in str(node.get("Sort Key"))]
    loops = [node for plan in plans.values() for node in nodes(plan) if node["Node Type"] == "Nested Loop"]
    assert not [node for node in loops if "Join Filter" in node and "j.id" in node["Join Filter"]]


def test_the_driver_remembers_every_statement() -> None:
    """psycopg parses a statement of more than 4,096 characters anew for each call. The name of the schema may be longer."""
    longest = max(len(text) for text in statements("holdfast.store.postgres").values())
    assert longest <= 4_096 - 200


def test_plans_of_a_nearly_empty_ledger_use_indexes(on_postgres: Ledger) -> None:
    """A plan is kept on its connection. One that was made for a few rows must not read all rows of a table that has grown."""
    for number in range(40):
        on_postgres.enqueue_many([{"kind": "k"}] * 3)
        jobs = on_postgres.claim("w", limit=3, start=True, keep=False)
        first, *others = [job.fence for job in jobs]
        on_postgres.heartbeat_many([first, *others])
        on_postgres.complete(first)
        on_postgres.settle_many([(fence, None) for fence in others], request_id=f"r-{number}")
    # Another thread may have a connection for a moment.
    ways = wait_until(lambda: found if len(found := _generic_plans(on_postgres)) >= 3 else None, what="generic plans")
    assert ways is not None
    assert all(found <= BY_KEY | {"jobs_ready"} for found in ways.values()), ways


def test_no_plan_is_compiled(on_postgres: Ledger) -> None:
    """The wheel's server cannot compile plans. Most others do it by default, for plans that they take for expensive."""
    on_postgres.enqueue("work")
    settings = [connection.execute("SHOW jit").fetchone() for connection in on_postgres._store._pool.idle]  # type: ignore[attr-defined]
    assert set(settings) == {("off",)}


def _generic_plans(ledger: Ledger) -> dict[str, set[str]]:
    """The ways in which the generic plans of idle connections read jobs, by statement."""
    ways: dict[str, set[str]] = {}
    for connection in ledger._store._pool.idle:  # type: ignore[attr-defined]
        prepared = connection.execute(
            "SELECT name, cardinality(parameter_types), statement FROM pg_prepared_statements"
            " WHERE generic_plans > 0 AND statement LIKE '%UPDATE %jobs j%'"
        ).fetchall()
        for name, count, statement in prepared:
            row = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({', '.join(['NULL'] * count)})").fetchone()
            [found] = row[0] if isinstance(row[0], list) else json.loads(row[0])
            ways[statement] = set(scans_of({"jobs"}, found["Plan"]))
    return ways
