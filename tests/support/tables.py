"""Every row of a ledger's store, as its driver gives it."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import apsw
import psycopg


def all_rows(url: str) -> dict[str, list[Any]]:
    """Return the rows of each table, in a fixed order."""
    if url.startswith("sqlite:///"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"'))) for name in names}
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    with psycopg.connect(url.partition("?")[0]) as session:
        found = session.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        tables = [name for (name,) in found]
        return {name: sorted(map(repr, session.execute(f'SELECT t::text FROM {schema}."{name}" t'.encode()))) for name in tables}
