"""The credentials of a request, and the callers that they belong to."""

import hashlib
import logging
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from holdfast.core import limits
from holdfast.errors import HoldfastError
from holdfast.ledger import SessionRecord, TokenRecord
from holdfast.server.origins import Headers
from holdfast.server.principal import Principal, session_principal, token_principal

log = logging.getLogger("holdfast.server")

SECURE_COOKIE, PLAIN_COOKIE = "__Host-holdfast", "holdfast"
"""The cookie over TLS, which browsers accept only over TLS and from the host itself, and the one without TLS."""
STALE_S = 3_600.0
"""How long a credential that was valid is remembered, so that it is looked up even if wrong tokens come from its address."""


class Credential(NamedTuple):
    """What a request proves its caller with."""

    kind: Literal["token", "session"]
    secret: str

    @property
    def key(self) -> bytes:
        """A hash: no secret is compared, and none is kept longer than needed."""
        return hashlib.sha256(f"{self.kind} {self.secret}".encode(errors="replace")).digest()

    def __repr__(self) -> str:
        return f"<Credential {self.kind}>"


def read_credential(headers: Headers, *, secure: bool) -> Credential | None:
    """Return the credential of a request: a bearer token or else the cookie. None if there is neither.

    A request with an Authorization header never falls back to its cookie.
    """
    given = headers.get("authorization")
    if given is not None:
        scheme, _, token = given.partition(" ")
        return Credential("token", token.strip() if scheme.lower() == "bearer" else "")
    secret = read_cookie(headers.get("cookie") or "", SECURE_COOKIE if secure else PLAIN_COOKIE)
    return None if secret is None else Credential("session", secret)


def read_cookie(header: str, name: str) -> str | None:
    """Return the value of a cookie. None if it is missing, or there twice with different values."""
    found = {value.strip() for part in header.split(";") for key, _, value in [part.partition("=")] if key.strip() == name}
    return found.pop() if len(found) == 1 else None


def set_cookie(secret: str, *, secure: bool) -> str:
    """Return the Set-Cookie header of a new session. An empty secret deletes the cookie."""
    name = SECURE_COOKIE if secure else PLAIN_COOKIE
    end = "" if secret else "; Max-Age=0"
    return f"{name}={secret}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}{end}"


class AccessLedger(Protocol):
    """The verbs that a server needs to find its callers."""

    def find_token(self, text: str) -> TokenRecord | None: ...
    def find_session(self, secret: str) -> SessionRecord | None: ...
    def touch_token(self, token_id: str) -> None: ...
    def touch_session(self, secret: str) -> None: ...


class _Remembered(NamedTuple):
    principal: Principal
    at: float


class Principals:
    """Finds the callers of credentials, and remembers valid ones for HTTP_PRINCIPAL_MS.

    `remembered` and `was_valid` never wait. `find` and `tick` read and write the ledger, so call them in a thread. Safe to use
    from many threads.
    """

    def __init__(
        self, ledger: AccessLedger, monotonic: Callable[[], float], *, fresh_s: float = limits.HTTP_PRINCIPAL_MS / 1_000
    ) -> None:
        self._ledger, self._monotonic, self._fresh_s = ledger, monotonic, fresh_s
        self._known: dict[bytes, _Remembered] = {}
        """In the order in which they were found, the oldest first."""
        self._used: dict[bytes, tuple[Credential, Principal]] = {}
        """Credentials whose use is not recorded yet."""
        self._lock = threading.Lock()

    def remembered(self, credential: Credential) -> Principal | None:
        """Return the caller if it was found a short time ago."""
        found = self._known.get(credential.key)
        return found.principal if found is not None and self._monotonic() - found.at < self._fresh_s else None

    def was_valid(self, credential: Credential) -> bool:
        """Return whether the credential was valid some time ago. It may be revoked meanwhile."""
        found = self._known.get(credential.key)
        return found is not None and self._monotonic() - found.at < STALE_S

    def find(self, credential: Credential) -> Principal | None:
        """Look up a caller in the ledger. Return None if the credential is wrong, expired or revoked."""
        principal, key = self._look_up(credential), credential.key
        with self._lock:
            self._known.pop(key, None)
            if principal is not None:
                while len(self._known) >= limits.HTTP_PRINCIPALS_MAX:
                    del self._known[next(iter(self._known))]
                self._known[key] = _Remembered(principal, self._monotonic())
                if len(self._used) < limits.HTTP_PRINCIPALS_MAX:
                    self._used[key] = (credential, principal)
        return principal

    def forget(self) -> None:
        """Look up every credential anew with its next request. Call it when a token is revoked or a session is ended."""
        with self._lock:
            self._known.clear()

    def tick(self) -> int:
        """Record the use of tokens and sessions since the last tick, and return how many were used. Call it once a minute.

        A request never waits for these writes.
        """
        with self._lock:
            used, self._used = self._used, {}
        for credential, principal in used.values():
            try:
                if credential.kind == "session":
                    self._ledger.touch_session(credential.secret)
                elif principal.token_id is not None:
                    self._ledger.touch_token(principal.token_id)
            except HoldfastError as error:
                log.warning("the use of a token was not recorded", extra={"error": error.message, "token": principal.token_id})
        return len(used)

    def _look_up(self, credential: Credential) -> Principal | None:
        if credential.kind == "token":
            token = self._ledger.find_token(credential.secret)
            return None if token is None else token_principal(token)
        session = self._ledger.find_session(credential.secret)
        return None if session is None else session_principal(session, credential.secret)
