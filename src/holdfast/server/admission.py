"""Who sends a request, and whether it may: host, credential, forged requests, limits."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.core.access import AccessRole
from holdfast.errors import Unauthenticated
from holdfast.ledger import Ledger
from holdfast.server.access import Principal
from holdfast.server.credentials import Credential, Principals, read_credential, set_cookie
from holdfast.server.origins import Headers, SiteOrigins
from holdfast.server.redact import Redaction
from holdfast.server.throttles import RequestRates, RequestSlots, WrongTokens

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Caller(NamedTuple):
    """The sender of a request. Without a valid credential it has no principal."""

    principal: Principal | None
    credential: Credential | None


class Admission:
    """The rules that each request meets before its route. Used on the event loop; only look-ups run in threads."""

    def __init__(
        self,
        ledger: Ledger,
        origins: SiteOrigins,
        *,
        secure: bool,
        redact: Sequence[str] = (),
        redact_for: Sequence[str] = ("reader", "client"),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origins = origins
        self.principals = Principals(ledger, monotonic)
        self._secure = secure
        self._redaction = Redaction(redact) if redact else None
        self._redact_for = frozenset(AccessRole(role) for role in redact_for)
        self._slots = RequestSlots()
        self._rates = RequestRates(monotonic)
        self._wrong = WrongTokens(monotonic)

    async def caller(self, method: str, headers: Headers, peer: str, in_thread: InThread) -> Caller:
        """Return the sender of a request. Raise Unauthenticated if its credential is wrong, and Forbidden if it is forged."""
        credential = read_credential(headers, secure=self._secure)
        if credential is None:
            return Caller(None, None)
        principal = self.principals.remembered(credential)
        if principal is None:
            if not self.principals.was_valid(credential):
                self._wrong.check(peer)
            principal = await in_thread(partial(self.principals.find, credential))
        if principal is None:
            self._wrong.note(peer)
            raise Unauthenticated("a valid token is needed")
        if principal.by_cookie:
            self.origins.check_forgery(method, headers)
        else:
            self.origins.check_origin(headers)
        return Caller(principal, credential)

    @contextlib.contextmanager
    def under_way(self, principal: Principal | None, peer: str) -> Iterator[None]:
        """Count a request against the limits of its caller, or of its address if it has no token."""
        key = f"address:{peer}" if principal is None else principal.key
        self._rates.take(key)
        with self._slots.slot(key):
            yield

    def redaction(self, principal: Principal | None) -> Redaction | None:
        """Return what the caller may not read. None if it may read all."""
        return self._redaction if principal is None or principal.role in self._redact_for else None

    def session_cookie(self, secret: str) -> str:
        return set_cookie(secret, secure=self._secure)
