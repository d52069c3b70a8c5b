"""Where a ledger on PostgreSQL is."""

from typing import NamedTuple, Self
from urllib.parse import parse_qs, urlsplit


class Place(NamedTuple):
    server: str
    """The address of the database, for a connection past the ledger."""
    schema: str

    @classmethod
    def of(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(parts._replace(query="").geturl(), parse_qs(parts.query).get("schema", ["holdfast"])[0])
