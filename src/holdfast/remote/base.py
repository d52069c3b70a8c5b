"""The base of the verbs of a remote ledger that only read."""

from datetime import datetime
from typing import Any, TypeVar, cast

from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.remote import answers as a
from holdfast.remote.pipeline import RemotePipeline
from holdfast.remote.transport import Transport

T = TypeVar("T")


class RemoteReads(LedgerBase):
    _transport: Transport
    _remote: RemotePipeline

    def _get(self, target: str, answer: type[T], /, **query: Any) -> T:
        return self._transport.call("GET", target, answer, query=query)

    def _field(self, target: str, name: str, kind: type[T], /, **query: Any) -> T:
        """Return one field of an answer."""
        return cast(T, getattr(self._get(target, a.having(name, kind), **query), name))


def time_text(what: str, given: datetime | None) -> str | None:
    """Return a time as a query has it."""
    if given is None:
        return None
    validate.moment(what, given)
    return given.isoformat()
