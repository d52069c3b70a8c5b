"""Answers to requests, kept for the case that a request is repeated."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.core.model import Micros
from holdfast.store.statement_session import StatementSession


class StoredRequest(NamedTuple):
    """A request that was answered before."""

    actor: str
    request_id: str
    verb: str
    body_hash: bytes
    answer: bytes


class SqlRequests(StatementSession):
    @abstractmethod
    def take_requests(self, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Lock these request ids until the transaction ends, without waiting. Return those that another transaction has."""

    @abstractmethod
    def _keys(self, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Return actors and request ids as statement parameters."""

    def find_requests(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        found = self.records(StoredRequest, "find_requests", **self._keys(keys))
        return {(row.actor, row.request_id): row for row in found}

    def keep_requests(self, rows: Sequence[StoredRequest]) -> None:
        for row in rows:
            self.rows("keep_request", now_at=self.stamp(), **row._asdict())

    def prune_requests(self, before: Micros, limit: int) -> int:
        return len(self.rows("prune_requests", before_at=before, limit=limit))
