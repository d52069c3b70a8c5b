"""The database and schema of a ledger on PostgreSQL."""

from typing import NamedTuple, Self
from urllib.parse import parse_qs, urlsplit


class Place(NamedTuple):
    server: str
    """The url of the database, for a direct connection."""
    schema: str

    @classmethod
    def of(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(parts._replace(query="").geturl(), parse_qs(parts.query).get("schema", ["holdfast"])[0])
