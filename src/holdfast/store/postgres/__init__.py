"""The ledger on a PostgreSQL server."""

from holdfast.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
