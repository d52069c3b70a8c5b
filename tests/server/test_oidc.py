"""Sign-in at a real OpenID Connect provider, and every way in which a provider's answer can be wrong."""

import base64
import hmac
import http.client
import http.server
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from subprocess import DEVNULL
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from holdfast import HoldfastError, Ledger
from holdfast.core.access import AccessRole
from holdfast.server.oidc import OidcClient, Person, set_login_cookie
from holdfast.server.start import OidcOptions
from tests.support import forked
from tests.support.waiting import wait_until

ORIGIN = "https://jobs.example.org"
WAIT_SECONDS = 30.0
ROLES = {"ops": AccessRole.OPERATOR, "staff": AccessRole.READER, "root": AccessRole.ADMIN}


def query_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(HoldfastError) as refused:
        call()
    return refused.value.code


# A real provider


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of a provider that runs as a process, with a person who has a role and one who has none."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    people = [{"sub": "kim", "email": "kim@example.org", "groups": ["staff", "ops"]}, {"sub": "eve", "email": "eve@example.org"}]
    claims = [word for person in people for word in ("--user-claims", json.dumps(person))]
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "oidc_provider_mock",
        "--port",
        str(port),
        "--require-nonce",
        "true",
        *claims,
    ]
    process = forked.popen(command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or _listens(port))
        assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def client_of(provider: str, **options: Any) -> OidcClient:
    chosen: dict[str, Any] = {"issuer": provider, "client_id": "holdfast", "roles": ROLES} | options
    return OidcClient(OidcOptions(**chosen), ORIGIN, "a-secret-of-the-client")


def sign_in(address: str, who: str) -> dict[str, str]:
    """Do what a person does in a browser at the provider. Return the query of the callback."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WAIT_SECONDS)
    try:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", f"{parts.path}?{parts.query}", urlencode({"sub": who}), form)
        answer = connection.getresponse()
        answer.read()
        location = answer.getheader("Location") or ""
    finally:
        connection.close()
    assert location.startswith(f"{ORIGIN}/auth/callback?"), (answer.status, location)
    return query_of(location)


def test_a_person_signs_in(provider: str, ledger: Ledger) -> None:
    client = client_of(provider)
    address, cookie = client.begin()
    person = client.finish(sign_in(address, "kim"), cookie)
    assert person == Person("kim@example.org", AccessRole.OPERATOR), "the strongest of two roles"
    found = ledger.find_session(ledger.new_person_session(person.name, person.role))
    assert found is not None and (found.name, found.role, found.token_id) == ("kim@example.org", "operator", None)


def test_the_request_has_pkce_state_and_nonce(provider: str) -> None:
    client = client_of(provider)
    asked, again = (parse_qs(urlsplit(client.begin()[0]).query) for _ in range(2))
    assert asked["response_type"] == ["code"] and asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == [f"{ORIGIN}/auth/callback"]
    for name in ("state", "nonce", "code_challenge"):
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", asked[name][0])
        assert asked[name] != again[name]


def test_a_person_without_a_role_is_refused(provider: str) -> None:
    client = client_of(provider)
    address, cookie = client.begin()
    assert code_of(lambda: client.finish(sign_in(address, "eve"), cookie)) == "forbidden"


def test_a_code_is_used_once(provider: str) -> None:
    client = client_of(provider)
    address, cookie = client.begin()
    query = sign_in(address, "kim")
    client.finish(query, cookie)
    assert code_of(lambda: client.finish(query, cookie)) == "unauthenticated"


def test_a_code_of_another_browser_is_refused(provider: str) -> None:
    """An attacker gives a victim the link of a sign-in of its own."""
    client = client_of(provider)
    address, _ = client.begin()
    _, victim = client.begin()
    query = sign_in(address, "kim")
    assert code_of(lambda: client.finish(query, victim)) == "unauthenticated"
    own = query_of(client.begin()[0])
    assert code_of(lambda: client.finish(query | {"state": own["state"]}, victim)) == "unauthenticated"


@pytest.mark.parametrize("cookie", [None, "", "x", "e30", "bnVsbA", "\u00fc", "W10"])
def test_a_callback_without_its_cookie_is_refused(provider: str, cookie: str | None) -> None:
    client = client_of(provider)
    assert code_of(lambda: client.finish({"code": "a", "state": "b"}, cookie)) == "unauthenticated"


def test_a_provider_that_is_gone_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert code_of(client_of(f"http://127.0.0.1:{port}").begin) == "unavailable"


# A provider whose answers the test decides

RSA, OTHER_RSA = RSAKey.generate_key(2048, {"kid": "rsa"}), RSAKey.generate_key(2048, {"kid": "rsa"})
EC, ED = ECKey.generate_key("P-256", {"kid": "ec"}), OKPKey.generate_key("Ed25519", {"kid": "ed"})


class Forger:
    """A provider on a real socket. `token` is its next ID token, `documents` are its other answers by path."""

    def __init__(self) -> None:
        self.token: Any = ""
        self.keys = KeySet([RSA, EC, ED])
        self.requests: list[str] = []
        self.now = 1_800_000_000.0
        forger = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                forger.requests.append(self.path)
                self._answer(forger.documents.get(self.path))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer({"access_token": "x", "token_type": "Bearer", "id_token": forger.token})

            def _answer(self, found: Any) -> None:
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                status = 404 if found is None else 302 if found == b"moved" else 200
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", f"{forger.issuer}/keys")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        self.configuration = {"issuer": self.issuer} | {name: f"{self.issuer}/{path}" for name, path in paths.items()}
        self.documents: dict[str, Any] = {"/.well-known/openid-configuration": self.configuration}
        self.publish(self.keys)
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def publish(self, keys: KeySet) -> None:
        self.documents["/keys"] = keys.as_dict(private=False)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def client(self, **options: Any) -> OidcClient:
        chosen: dict[str, Any] = {"issuer": self.issuer, "client_id": "holdfast", "roles": ROLES} | options
        return OidcClient(OidcOptions(**chosen), ORIGIN, wall=lambda: self.now)

    def finish(self, client: OidcClient, key: Any = RSA, header: dict[str, Any] | None = None, **changes: Any) -> Person:
        """Sign in with an ID token whose claims are changed. None leaves a claim out."""
        address, cookie = client.begin()
        asked = query_of(address)
        claims = {"iss": self.issuer, "aud": "holdfast", "sub": "kim", "exp": self.now + 300, "iat": self.now, "groups": "ops"}
        claims |= {"nonce": asked["nonce"], "email": "kim@example.org"} | changes
        kept = {name: value for name, value in claims.items() if value is not None}
        used = header or {"alg": "RS256", "kid": "rsa"}
        self.token = key(kept) if callable(key) else jwt.encode(used, kept, key, algorithms=[used["alg"]])
        return client.finish({"code": "c", "state": asked["state"]}, cookie)


def unsigned(claims: dict[str, Any]) -> str:
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def signed_with_public_key(claims: dict[str, Any]) -> str:
    """A token whose secret is the provider's public key, for a server that lets the token choose the kind of signature."""
    signed = f"{_part({'alg': 'HS256', 'kid': 'rsa'})}.{_part(claims)}"
    digest = hmac.digest(RSA.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.fixture
def forger() -> Iterator[Forger]:
    made = Forger()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("key", "header"),
    [(RSA, {"alg": "RS256", "kid": "rsa"}), (EC, {"alg": "ES256", "kid": "ec"}), (ED, {"alg": "Ed25519", "kid": "ed"})],
    ids=["RS256", "ES256", "Ed25519"],
)
def test_a_correct_token_is_accepted(forger: Forger, key: Any, header: dict[str, Any]) -> None:
    assert forger.finish(forger.client(), key, header) == Person("kim@example.org", AccessRole.OPERATOR)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"aud": ["holdfast", "another"]},
        {"aud": ["holdfast", "another"], "azp": "another"},
        {"azp": "another"},
        {"exp": 1_800_000_000 - 61},
        {"exp": None},
        {"exp": "later"},
        {"iat": 1_800_000_000 + 61},
        {"iat": None},
        {"nbf": 1_800_000_000 + 61},
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": 7},
        {"sub": None},
        {"sub": ""},
    ],
    ids=str,
)
def test_a_token_with_a_wrong_claim_is_refused(forger: Forger, changes: dict[str, Any]) -> None:
    assert code_of(lambda: forger.finish(forger.client(), **changes)) == "unauthenticated"


def test_clocks_may_differ_by_a_minute(forger: Forger) -> None:
    assert forger.finish(forger.client(), exp=forger.now - 59, iat=forger.now + 59).name == "kim@example.org"


def test_a_token_without_a_valid_signature_is_refused(forger: Forger) -> None:
    for forged in (OTHER_RSA, unsigned, signed_with_public_key):
        assert code_of(partial(forger.finish, forger.client(), forged)) == "unauthenticated"
    assert code_of(lambda: forger.finish(forger.client(), RSA, {"alg": "RS384", "kid": "rsa"})) == "unauthenticated"


@pytest.mark.parametrize("token", ["", "a.b.c", "a" * 10_000, 7, None], ids=lambda token: str(token)[:9])
def test_a_token_that_is_none_is_refused(forger: Forger, token: Any) -> None:
    assert code_of(lambda: forger.finish(forger.client(), lambda _: token)) == "unauthenticated"


def test_a_new_key_of_the_provider_is_found_once_a_minute(forger: Forger) -> None:
    client = forger.client()
    forger.finish(client)
    forger.publish(KeySet([OTHER_RSA]))
    assert code_of(lambda: forger.finish(client, OTHER_RSA)) == "unauthenticated", "the keys were read just now"
    forger.now += 60
    assert forger.finish(client, OTHER_RSA).name == "kim@example.org"
    assert code_of(lambda: forger.finish(client, RSA)) == "unauthenticated"
    assert forger.requests.count("/keys") == 2


def test_keys_are_kept_for_an_hour(forger: Forger) -> None:
    client = forger.client()
    for _ in range(3):
        forger.finish(client)
    assert len(forger.requests) == 2
    forger.now += 3_600
    forger.finish(client)
    assert len(forger.requests) == 4


def test_a_sign_in_takes_10_minutes_at_most(forger: Forger) -> None:
    client = forger.client()
    address, cookie = client.begin()
    forger.now += 600
    assert code_of(lambda: client.finish({"code": "c", "state": query_of(address)["state"]}, cookie)) == "unauthenticated"


@pytest.mark.parametrize(
    "query",
    [{"error": "access_denied"}, {"iss": "https://evil.example"}, {"code": ""}, {"code": "x" * 5_000}, {"state": "other"}],
)
def test_a_wrong_answer_of_the_browser_is_refused(forger: Forger, query: dict[str, str]) -> None:
    client = forger.client()
    address, cookie = client.begin()
    given = {"code": "c", "state": query_of(address)["state"]} | query
    assert code_of(lambda: client.finish(given, cookie)) == "unauthenticated"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"groups": ["root", "staff", 7, None]}, None),
        ({"groups": None}, "forbidden"),
        ({"groups": ["strangers"]}, "forbidden"),
        ({"groups": {"ops": True}}, "forbidden"),
        ({"email": None}, "forbidden"),
        ({"email": "a\nb"}, "forbidden"),
        ({"email_verified": False}, "forbidden"),
        ({"email_verified": True}, None),
    ],
    ids=str,
)
def test_a_person_needs_a_role_and_a_name(forger: Forger, changes: dict[str, Any], code: str | None) -> None:
    if code is None:
        assert forger.finish(forger.client(), **changes).name == "kim@example.org"
    else:
        assert code_of(lambda: forger.finish(forger.client(), **changes)) == code


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/.well-known/openid-configuration", None),
        ("/.well-known/openid-configuration", b"moved"),
        ("/.well-known/openid-configuration", b"not json"),
        ("/.well-known/openid-configuration", []),
        ("/.well-known/openid-configuration", b"[" * 100_000),
        ("/.well-known/openid-configuration", b" " * 2_000_000),
        ("/.well-known/openid-configuration", {"issuer": "https://evil.example"}),
        ("/keys", None),
        ("/keys", {"keys": 7}),
        ("/keys", {}),
        ("/keys", {"keys": [{"kty": "RSA"}]}),
    ],
    ids=lambda given: ascii(given)[:40],
)
def test_a_provider_that_answers_nonsense_is_unavailable(forger: Forger, path: str, document: Any) -> None:
    forger.documents[path] = document
    assert code_of(lambda: forger.finish(forger.client())) == "unavailable"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("address", ["http://login.example.org/x", "file:///etc/passwd", "", None])
def test_every_step_needs_tls(forger: Forger, name: str, address: str | None) -> None:
    forger.documents["/.well-known/openid-configuration"] = forger.configuration | {name: address}
    assert code_of(forger.client().begin) == "unavailable"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"issuer": "http://login.example.org"}, "issuer"),
        ({"issuer": "login.example.org"}, "issuer"),
        ({"issuer": "https://login.example.org?x"}, "issuer"),
        ({"issuer": "https://[x"}, "issuer"),
        ({"client_id": ""}, "client_id"),
        ({"roles": {}}, "roles"),
        ({"roles": {"arms": AccessRole.WORKER}}, "roles"),
        ({"role_claim": ""}, "role_claim"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, Any], field: str) -> None:
    chosen: dict[str, Any] = {"issuer": "https://login.example.org", "client_id": "x", "roles": ROLES} | options
    with pytest.raises(HoldfastError) as refused:
        OidcClient(OidcOptions(**chosen), ORIGIN)
    assert (refused.value.code, refused.value.context["field"]) == ("validation_error", field)


def test_the_login_cookie_comes_back_from_another_site() -> None:
    assert set_login_cookie("x", secure=True) == "__Host-holdfast-login=x; Path=/; HttpOnly; SameSite=Lax; Max-Age=600; Secure"
    assert set_login_cookie("", secure=False) == "holdfast-login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
