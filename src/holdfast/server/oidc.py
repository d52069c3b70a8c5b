"""Sign-in of persons by an OpenID Connect provider: code flow with PKCE, state and nonce. Authlib does the protocol.

`begin` returns the address of the provider and a value for a short-lived cookie. `finish` takes that cookie and the query with
which the browser came back, and returns the person. Both read from the provider and block, so call them in a thread.
"""

import base64
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, urlsplit

import httpx2
import msgspec
from authlib.common.urls import add_params_to_uri
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client, OAuth2ClientAuth
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from holdfast.core import limits
from holdfast.core.access import AccessRole
from holdfast.core.hosts import is_loopback
from holdfast.errors import Forbidden, HoldfastError, Unauthenticated, Unavailable, ValidationError
from holdfast.server.oidc_provider import ProviderRequests, fetch
from holdfast.server.routes import CALLBACK_PATH
from holdfast.server.sign_in import SignIn
from holdfast.server.start import OidcOptions, StartPlan, read_secret

ALGORITHMS = ["RS256", "ES256", "EdDSA", "Ed25519"]
"""The signatures that are accepted. There is none with a shared secret, so a public key cannot be used as one."""
SCOPES = "openid profile email"
_WELL_KNOWN = "/.well-known/openid-configuration"
_STRENGTH = (AccessRole.READER, AccessRole.CLIENT, AccessRole.OPERATOR, AccessRole.ADMIN)
"""The roles of persons, the weakest first."""


def sign_in_of(options: OidcOptions, plan: StartPlan) -> SignIn:
    """Return how persons sign in to a server. Raise ValidationError if the options are wrong."""
    file = options.client_secret_file
    client = OidcClient(options, plan.url, None if file is None else read_secret("oidc.client_secret_file", file))
    return SignIn(client, options.label or urlsplit(options.issuer).netloc, plan.url, plan.secure)


class Person(NamedTuple):
    name: str
    role: AccessRole


class LoginState(msgspec.Struct, frozen=True):
    """What the browser keeps while its user is at the provider."""

    state: str
    nonce: str
    verifier: str
    began_at: float


class _ProviderAddresses(NamedTuple):
    authorization: str
    token: str
    jwks: str
    end: str | None
    """Where a person ends the session at the provider itself, if it has such an address."""
    auth_methods: list[str]
    read_at: float


class OidcClient:
    """Signs in persons at one provider. Safe to use from many threads."""

    def __init__(
        self,
        options: OidcOptions,
        public_origin: str,
        client_secret: str | None = None,
        *,
        wall: Callable[[], float] = time.time,
        answer_s: float = limits.OIDC_ANSWER_MS_MAX / 1_000,
    ) -> None:
        """`public_origin` is the server's own, such as https://jobs.example.org.

        `answer_s` is how long the answers of the provider may take, all that `begin` or `finish` needs together.
        """
        _check_options(options)
        self._options = options
        self._secret = client_secret
        self._wall = wall
        redirect_uri = public_origin + CALLBACK_PATH
        self._requests = ProviderRequests(answer_s, client_id=options.client_id, redirect_uri=redirect_uri, scope=SCOPES)
        self._lock = threading.Lock()
        self._known: _ProviderAddresses | None = None
        self._keys: tuple[KeySet, float] | None = None

    def begin(self) -> tuple[str, str]:
        """Return the address to send the browser to, and the value of the login cookie."""
        login = LoginState(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), self._wall())

        async def address(session: AsyncOAuth2Client) -> str:
            provider = await self._provider(session)
            asked = {"state": login.state, "nonce": login.nonce, "code_verifier": login.verifier}
            return str(session.create_authorization_url(provider.authorization, **asked)[0])

        return self._requests.run(address), _base64(msgspec.json.encode(login))

    def finish(self, query: Mapping[str, str], cookie: str | None) -> Person:
        """Return the person whom the provider has signed in.

        Raise Unauthenticated if anything does not fit together, and Forbidden if the person has no role.
        """
        login = self._read_login(cookie)
        if not hmac.compare_digest(query.get("state", "").encode(), login.state.encode()):
            _refuse("the sign-in was not begun by this browser")
        if "error" in query:
            _refuse(f"the provider refused the sign-in: {query['error']!r:.80}")
        if query.get("iss", self._options.issuer) != self._options.issuer:
            _refuse("the answer is from another provider")
        code = query.get("code", "")
        if not code or len(code) > limits.OIDC_CODE_BYTES_MAX:
            _refuse("the provider sent no code")

        async def token(session: AsyncOAuth2Client) -> jwt.Token:
            return await self._verify(session, await self._exchange(session, code, login.verifier))

        return self._person(self._check_claims(self._requests.run(token), login.nonce))

    def end_address(self) -> str | None:
        """Return where a person ends the session at the provider itself. None if it has no such address."""

        async def address(session: AsyncOAuth2Client) -> str | None:
            end = (await self._provider(session)).end
            return None if end is None else str(add_params_to_uri(end, [("client_id", self._options.client_id)]))

        return self._requests.run(address)

    def _read_login(self, cookie: str | None) -> LoginState:
        try:
            body = base64.urlsafe_b64decode((cookie or "").encode() + b"==")
            login = msgspec.json.decode(body, type=LoginState)
        except (ValueError, msgspec.DecodeError):
            _refuse("the sign-in was not begun by this browser")
        if not 0 <= self._wall() - login.began_at < limits.LOGIN_CODE_MS / 1_000:
            _refuse("the sign-in took too long")
        return login

    # The provider

    async def _provider(self, session: AsyncOAuth2Client) -> _ProviderAddresses:
        now = self._wall()
        with self._lock:
            if self._known is not None and 0 <= now - self._known.read_at < limits.OIDC_KEYS_MS / 1_000:
                return self._known
        found = await fetch(session, self._options.issuer.rstrip("/") + _WELL_KNOWN)
        if found.get("issuer") != self._options.issuer:
            raise Unavailable("the provider's configuration is of another issuer", outcome="none")
        methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        authorization, token, jwks = (str(found.get(name, "")) for name in names)
        if not all(map(_is_safe, (authorization, token, jwks))):
            raise Unavailable("the provider's configuration has no address with TLS for each step", outcome="none")
        end = found.get("end_session_endpoint")
        end = end if isinstance(end, str) and _is_safe(end) else None
        provider = _ProviderAddresses(authorization, token, jwks, end, list(map(str, methods)), now)
        with self._lock:
            self._known = provider
        return provider

    async def _exchange(self, session: AsyncOAuth2Client, code: str, verifier: str) -> str:
        """Return the ID token for a code."""
        provider = await self._provider(session)
        auth = self._client_auth(provider.auth_methods)
        try:
            answer = await session.fetch_token(provider.token, code=code, code_verifier=verifier, auth=auth)
        except OAuthError:
            _refuse("the provider does not accept the code")
        except httpx2.HTTPStatusError as error:
            if not error.response.is_client_error:
                raise
            _refuse("the provider does not accept the code")
        token = answer.get("id_token")
        if not isinstance(token, str):
            _refuse("the provider sent no ID token")
        return token

    def _client_auth(self, methods: list[str]) -> OAuth2ClientAuth:
        """Return how the server shows at the provider that it is the client."""
        client_id, secret = self._options.client_id, self._secret
        if secret is None:
            return OAuth2ClientAuth(client_id, None, "none")
        if "client_secret_basic" in methods:  # RFC 6749, section 2.3.1, wants both quoted, and Authlib leaves that to us
            return OAuth2ClientAuth(quote(client_id, safe=""), quote(secret, safe=""), "client_secret_basic")
        return OAuth2ClientAuth(client_id, secret, "client_secret_post")

    async def _read_keys(self, session: AsyncOAuth2Client, *, anew: bool) -> KeySet:
        """Return the provider's keys. They are read anew after an hour, or if a signature needs another one, once a minute."""
        now = self._wall()
        kept_ms = limits.OIDC_KEYS_ANEW_MS if anew else limits.OIDC_KEYS_MS
        with self._lock:
            if self._keys is not None and 0 <= now - self._keys[1] < kept_ms / 1_000:
                return self._keys[0]
        document = await fetch(session, (await self._provider(session)).jwks)
        try:
            public = [key for key in document["keys"] if key.get("kty") in ("RSA", "EC", "OKP")]
            found = KeySet.import_key_set({"keys": public})
        except (KeyError, TypeError, AttributeError, ValueError, JoseError):
            raise Unavailable("the provider's keys cannot be read", outcome="none") from None
        with self._lock:
            self._keys = (found, now)
        return found

    # The ID token

    async def _verify(self, session: AsyncOAuth2Client, token: str) -> jwt.Token:
        for anew in (False, True):
            keys = await self._read_keys(session, anew=anew)
            try:
                return jwt.decode(token, keys, algorithms=ALGORITHMS)
            except (JoseError, ValueError, TypeError, KeyError, AttributeError):
                continue  # the provider may have a new key
        raise Unauthenticated("the ID token has no valid signature", action="Sign in again.")

    def _check_claims(self, token: jwt.Token, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token whose signature is valid, after all checks of OpenID Connect Core, section 3.1.3.7."""
        wanted = {
            "iss": {"essential": True, "value": self._options.issuer},
            "aud": {"essential": True, "value": self._options.client_id},
            "sub": {"essential": True},
        }
        claims = CodeIDToken(token.claims, token.header, wanted, {"nonce": nonce, "client_id": self._options.client_id})
        try:
            claims.validate(self._wall(), limits.OIDC_SKEW_MS / 1_000)
        except JoseError as error:
            _refuse(f"the ID token is not valid: {error.description}")
        return dict(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        given = claims.get(self._options.role_claim)
        values = given if isinstance(given, list) else [given]
        found = {self._options.roles[value] for value in values if isinstance(value, str) and value in self._options.roles}
        if not found:
            raise Forbidden("no role is configured for this person", action="Ask an admin: roles come from the provider.")
        if self._options.name_claim == "email" and claims.get("email_verified") is False:
            raise Forbidden("the provider has not verified the email address", action="Verify it at the provider.")
        try:
            name = limits.check_name("name", claims.get(self._options.name_claim))
        except HoldfastError:
            raise Forbidden(f"the provider sent no usable {self._options.name_claim}", action="Ask an admin.") from None
        return Person(name, max(found, key=_STRENGTH.index))


def _check_options(options: OidcOptions) -> None:
    if not _is_safe(options.issuer) or urlsplit(options.issuer).query or urlsplit(options.issuer).fragment:
        raise ValidationError("issuer must be https://…, or http:// on a loopback address", field="issuer")
    for name in ("client_id", "role_claim", "name_claim"):
        limits.check_key(name, getattr(options, name))
    if not options.roles or not set(options.roles.values()) <= set(_STRENGTH):
        allowed = ", ".join(role.value for role in _STRENGTH)
        raise ValidationError(f"roles must give one of {allowed} for some values of the claim", field="roles")


def _is_safe(address: str) -> bool:
    """Return whether an address has TLS, or is on this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _base64(body: bytes) -> str:
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _refuse(message: str) -> NoReturn:
    raise Unauthenticated(message, action="Sign in again.")
