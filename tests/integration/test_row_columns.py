"""Rows are read by name: the columns of each statement are the fields of the record that its rows become."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import holdfast.store
from holdfast import Ledger
from holdfast.store.rows import ClaimedRow, EventRow
from holdfast.store.sqlite.session import SQL, _Guard
from holdfast.watch.tally import edge_of

SOURCE = Path(holdfast.store.__file__).parent
EVENTS = ("find_event", "events", "events_of_jobs", "rare_events", "newest_events", "leaf_events", "leaf_events_of_job")


def reads(file: Path) -> Iterator[tuple[str, Any]]:
    """The statements whose rows become records in this file, each with its record."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("record", "records"):
            record, name, *_ = node.args
            assert isinstance(record, ast.Name)
            assert isinstance(name, ast.Constant)
            yield str(name.value), getattr(importlib.import_module(f"holdfast.store.{file.stem}"), record.id)


RECORDS = [pair for file in sorted(SOURCE.glob("*.py")) if file.stem != "statement_session" for pair in reads(file)]
RECORDS += [(name, EventRow) for name in EVENTS]


def fields(record: Any) -> list[str]:
    return list(getattr(record, "_fields", ()) or record.__struct_fields__)


def described_by_sqlite(connection: apsw.Connection, statement: str) -> list[str]:
    """The names of the columns. The statement is prepared, and not run."""
    found: list[str] = []

    def stop(cursor: apsw.Cursor, _: str, __: Any) -> bool:
        found.extend(column[0] for column in cursor.get_description())
        return False

    cursor = connection.cursor()
    cursor.exec_trace = stop
    params = [None] if "?" in statement else dict.fromkeys(re.findall(r":(\w+)", statement))
    with pytest.raises(apsw.ExecTraceAbort):
        cursor.execute(statement, params)
    return found


def described_by_postgres(connection: "psycopg.Connection[Any]", statement: str) -> list[str]:
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement).replace("%%", "%")
    connection.pgconn.prepare(b"described", text.encode())
    result = connection.pgconn.describe_prepared(b"described")
    connection.execute("DEALLOCATE described")
    return [(result.fname(number) or b"").decode() for number in range(result.nfields)]


def test_records_have_the_columns_of_their_statements_in_a_file(on_sqlite: Ledger, sqlite_url: str) -> None:
    assert len(RECORDS) > 25
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    connection.create_scalar_function("holdfast_edge_of", edge_of, 1)  # type: ignore[arg-type]
    try:
        found = {
            name: described_by_sqlite(connection, SQL[name])
            for name in [*dict(RECORDS), "signed_guards", "guards", "claim", "claim_lone"]
        }
    finally:
        connection.close()
    assert found.pop("claim") == found.pop("claim_lone") == fields(ClaimedRow)
    assert found.pop("guards") == fields(_Guard)[:-1]
    assert found.pop("signed_guards") == fields(_Guard)
    assert found == {name: fields(record) for name, record in RECORDS}


def test_records_have_the_columns_of_their_statements_on_a_server(on_postgres: Ledger, postgres_url: str) -> None:
    sql: dict[str, str] = on_postgres._store._sql  # type: ignore[attr-defined]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        found = {name: described_by_postgres(connection, sql[name]) for name in [*dict(RECORDS), "claim"]}
    assert found.pop("claim") == [*fields(ClaimedRow), "took", "flow"]
    assert found == {name: fields(record) for name, record in RECORDS}
