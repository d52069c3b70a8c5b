"""Access control of the HTTP server: who calls, and whether the request may go on.

The rules are in `principal.py` (roles, queues, actors), `credentials.py` (tokens, sessions and their cookie), `origins.py` (host
names, forged requests, pages of other origins), `throttles.py` (limits of a caller) and `redact.py` (hidden contents).
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from holdfast.core import limits
from holdfast.core.access import AccessRole
from holdfast.server.credentials import AccessLedger, Principals, read_credential, set_cookie
from holdfast.server.origins import Headers, SiteOrigins
from holdfast.server.principal import Principal, anonymous
from holdfast.server.redact import Redaction
from holdfast.server.throttles import RequestRates, RequestSlots, WrongTokens, network_of

__all__ = ["AccessRules", "CallerLimits", "Principal"]

CallInThread = Callable[[Callable[[], Principal | None]], Awaitable[Principal | None]]
REDACT_FOR = frozenset({AccessRole.READER, AccessRole.CLIENT})
"""The roles from which contents are hidden by default."""


class CallerLimits(NamedTuple):
    """What one caller may use."""

    requests_max: int = limits.HTTP_PRINCIPAL_REQUESTS_MAX
    rate: float = limits.HTTP_PRINCIPAL_RATE
    burst: int = limits.HTTP_PRINCIPAL_BURST
    wrong_tokens_max: int = limits.HTTP_WRONG_TOKENS_MAX


DEFAULT_LIMITS = CallerLimits()


class AccessRules:
    """Identifies the callers of a server and keeps them within their limits. Used on the event loop."""

    def __init__(
        self,
        ledger: AccessLedger,
        origins: SiteOrigins,
        *,
        secure: bool,
        redaction: Redaction | None = None,
        redact_for: Collection[AccessRole] = REDACT_FOR,
        caller_limits: CallerLimits = DEFAULT_LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`secure` says that browsers see TLS: the cookie of a session then needs it."""
        self.origins = origins
        self._secure = secure
        self._redaction = redaction
        self._redact_for = frozenset(redact_for)
        self._principals = Principals(ledger, monotonic)
        self._slots = RequestSlots(caller_limits.requests_max)
        self._rates = RequestRates(monotonic, caller_limits.rate, caller_limits.burst)
        self._wrong = WrongTokens(monotonic, caller_limits.wrong_tokens_max)

    def check_host(self, headers: Headers) -> None:
        """Raise Misdirected if the request names another server."""
        self.origins.check_host(headers)

    async def identify(self, headers: Headers, peer: str, method: str, call: CallInThread) -> Principal:
        """Return the caller of a request. It is anonymous without a valid token or session. `call` runs a function in a thread.

        Raise Forbidden if a page of another origin sends it, and TooManyRequests if the peer has sent too many wrong tokens.
        A token that was valid a while ago is looked up even then: others may share its address. So is a cookie: a person
        whose session is over cannot remove it.
        """
        credential = read_credential(headers, secure=self._secure)
        if credential is not None and credential.kind == "session":
            self.origins.check_forgery(method, headers)
        else:
            self.origins.check_origin(headers)
        if credential is None:
            return anonymous(network_of(peer))
        found = self._principals.remembered(credential)
        if found is None:
            if credential.kind == "token" and not self._principals.was_valid(credential):
                self._wrong.check(peer)
            found = await call(partial(self._principals.find, credential))
            if found is None and credential.kind == "token":
                self._wrong.note(peer)
        return anonymous(network_of(peer)) if found is None else found

    def check_wrong(self, peer: str) -> None:
        """Raise TooManyRequests if the peer has sent too many wrong tokens. Call it before a session is begun."""
        self._wrong.check(peer)

    def note_wrong(self, peer: str) -> None:
        """Count a wrong code or token that was sent to begin a session."""
        self._wrong.note(peer)

    @contextmanager
    def under_way(self, principal: Principal) -> Iterator[None]:
        """Count a request of the caller. Raise TooManyRequests if it sends too many, at once or a second."""
        self._rates.take(principal.key)
        with self._slots.slot(principal.key):
            yield

    def redaction(self, principal: Principal) -> Redaction | None:
        """Return what is hidden from the caller. None if it may read all."""
        return self._redaction if principal.is_anonymous or principal.role in self._redact_for else None

    def session_cookie(self, secret: str) -> str:
        """Return the Set-Cookie header of a session. An empty secret deletes the cookie, and callers are looked up anew."""
        if not secret:
            self.forget_tokens()
        return set_cookie(secret, secure=self._secure)

    def forget_tokens(self) -> None:
        """Look up every caller anew with its next request."""
        self._principals.forget()

    def tick(self) -> int:
        """Record the last use of tokens and sessions. Call it once a minute, in a thread."""
        return self._principals.tick()
