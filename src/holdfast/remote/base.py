"""The base of the verbs of a remote ledger: requests that read, and requests of an operator that change something."""

from datetime import datetime
from typing import Any, TypeVar, cast

from holdfast.core.model import Actor, Role
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase
from holdfast.remote import answers as a
from holdfast.remote.pipeline import RemotePipeline
from holdfast.remote.transport import Transport

T = TypeVar("T")


class RemoteVerbs(LedgerBase):
    _transport: Transport
    _remote: RemotePipeline

    def _get(self, target: str, answer: type[T], /, **query: Any) -> T:
        return self._transport.call("GET", target, answer, query=query)

    def _field(self, target: str, name: str, kind: type[T], /, **query: Any) -> T:
        """Return one field of an answer."""
        return cast(T, getattr(self._get(target, a.having(name, kind), **query), name))

    def _send_change(
        self,
        method: str,
        target: str,
        answer: type[T],
        actor: str | Actor | None = None,
        request_id: str | None = None,
        **options: Any,
    ) -> T:
        """Change something. The actor is an operator, unless it is an Actor."""
        who, key = validate.actor(actor, Role.OPERATOR, self._actor), validate.request_id(request_id) or self._entropy.nonce()
        return cast(T, self._remote.call(method, target, answer, actor=who, key=key, **options))

    def _changed(self, method: str, target: str, name: str, kind: type[T], actor: str | Actor | None = None, **options: Any) -> T:
        """Change something, and return one field of the answer."""
        return cast(T, getattr(self._send_change(method, target, a.having(name, kind), actor, **options), name))


def time_text(what: str, given: datetime | None) -> str | None:
    """Return a time as a query has it."""
    if given is None:
        return None
    validate.moment(what, given)
    return given.isoformat()
