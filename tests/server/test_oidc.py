"""Sign-in at a real OpenID Connect provider, and every way in which a provider's answer can be wrong."""

import contextlib
import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import KeySet

from holdfast import HoldfastError, Ledger
from holdfast.core import limits
from holdfast.core.access import AccessRole
from holdfast.server.oidc import OidcClient, Person
from holdfast.server.start import OidcOptions
from tests.support.provider import (
    EC,
    ED,
    OTHER_RSA,
    RSA,
    WAIT_SECONDS,
    Forger,
    query_of,
    running_provider,
    sign_in_at,
    signed_with_public_key,
    unsigned,
)

ORIGIN = "https://jobs.example.org"
ROLES = {"ops": AccessRole.OPERATOR, "staff": AccessRole.READER, "root": AccessRole.ADMIN}


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(HoldfastError) as refused:
        call()
    return refused.value.code


# A real provider


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with running_provider() as address:
        yield address


def sign_in(address: str, who: str) -> dict[str, str]:
    """Return the query with which the browser comes back from the provider."""
    location = sign_in_at(address, who)
    assert location.startswith(f"{ORIGIN}/auth/callback?"), location
    return query_of(location)


def client_of(provider: str, **options: Any) -> OidcClient:
    chosen: dict[str, Any] = {"issuer": provider, "client_id": "holdfast", "roles": ROLES} | options
    return OidcClient(OidcOptions(**chosen), ORIGIN, "a-secret-of-the-client")


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


def client_at(forger: Forger, **options: Any) -> OidcClient:
    chosen: dict[str, Any] = {"issuer": forger.issuer, "client_id": "holdfast", "roles": ROLES} | options
    return OidcClient(OidcOptions(**chosen), ORIGIN, wall=lambda: forger.now)


def finish(forger: Forger, client: OidcClient, key: Any = RSA, header: dict[str, Any] | None = None, **changes: Any) -> Person:
    """Sign in with an ID token whose claims are changed. None leaves a claim out."""
    address, cookie = client.begin()
    asked = query_of(address)
    forger.issue(asked["nonce"], key, header, **changes)
    return client.finish({"code": "c", "state": asked["state"]}, cookie)


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
    assert finish(forger, client_at(forger), key, header) == Person("kim@example.org", AccessRole.OPERATOR)


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
    assert code_of(lambda: finish(forger, client_at(forger), **changes)) == "unauthenticated"


def test_clocks_may_differ_by_a_minute(forger: Forger) -> None:
    assert finish(forger, client_at(forger), exp=forger.now - 59, iat=forger.now + 59).name == "kim@example.org"


def test_a_token_without_a_valid_signature_is_refused(forger: Forger) -> None:
    for forged in (OTHER_RSA, unsigned, signed_with_public_key):
        assert code_of(partial(finish, forger, client_at(forger), forged)) == "unauthenticated"
    assert code_of(lambda: finish(forger, client_at(forger), RSA, {"alg": "RS384", "kid": "rsa"})) == "unauthenticated"


@pytest.mark.parametrize("token", ["", "a.b.c", "a" * 10_000, 7, None], ids=lambda token: str(token)[:9])
def test_a_token_that_is_none_is_refused(forger: Forger, token: Any) -> None:
    assert code_of(lambda: finish(forger, client_at(forger), lambda _: token)) == "unauthenticated"


def test_a_new_key_of_the_provider_is_found_once_a_minute(forger: Forger) -> None:
    client = client_at(forger)
    finish(forger, client)
    forger.publish(KeySet([OTHER_RSA]))
    assert code_of(lambda: finish(forger, client, OTHER_RSA)) == "unauthenticated", "the keys were read just now"
    forger.now += 60
    assert finish(forger, client, OTHER_RSA).name == "kim@example.org"
    assert code_of(lambda: finish(forger, client, RSA)) == "unauthenticated"
    assert forger.requests.count("/keys") == 2


def test_keys_are_kept_for_an_hour(forger: Forger) -> None:
    client = client_at(forger)
    for _ in range(3):
        finish(forger, client)
    assert len(forger.requests) == 2
    forger.now += 3_600
    finish(forger, client)
    assert len(forger.requests) == 4


def test_a_sign_in_takes_10_minutes_at_most(forger: Forger) -> None:
    client = client_at(forger)
    address, cookie = client.begin()
    forger.now += 600
    assert code_of(lambda: client.finish({"code": "c", "state": query_of(address)["state"]}, cookie)) == "unauthenticated"


@pytest.mark.parametrize(
    "query",
    [{"error": "access_denied"}, {"iss": "https://evil.example"}, {"code": ""}, {"code": "x" * 5_000}, {"state": "other"}],
)
def test_a_wrong_answer_of_the_browser_is_refused(forger: Forger, query: dict[str, str]) -> None:
    client = client_at(forger)
    address, cookie = client.begin()
    given = {"code": "c", "state": query_of(address)["state"]} | query
    assert code_of(lambda: client.finish(given, cookie)) == "unauthenticated"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"groups": ["root", "staff", 7, None]}, None),
        ({"groups": None}, "forbidden"),
        ({"groups": ["visitors"]}, "forbidden"),
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
        assert finish(forger, client_at(forger), **changes).name == "kim@example.org"
    else:
        assert code_of(lambda: finish(forger, client_at(forger), **changes)) == code


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
    assert code_of(lambda: finish(forger, client_at(forger))) == "unavailable"


def test_a_large_or_packed_answer_is_not_read(forger: Forger) -> None:
    whole = json.dumps(forger.configuration).encode()
    for document in (whole + b" " * limits.OIDC_ANSWER_BYTES_MAX, gzip.compress(whole)):
        forger.documents["/.well-known/openid-configuration"] = document
        assert code_of(client_at(forger).begin) == "unavailable"


@pytest.mark.parametrize(
    ("methods", "secret", "shown"),
    [
        (None, "a+b/c: %", ("Basic aG9sZGZhc3Q6YSUyQmIlMkZjJTNBJTIwJTI1", {})),
        (["client_secret_post"], "a+b/c: %", (None, {"client_id": "holdfast", "client_secret": "a+b/c: %"})),
        (None, None, (None, {"client_id": "holdfast"})),
    ],
    ids=["basic", "post", "no secret"],
)
def test_the_server_shows_that_it_is_the_client(
    forger: Forger, methods: list[str] | None, secret: str | None, shown: tuple[str | None, dict[str, str]]
) -> None:
    if methods is not None:
        forger.configuration["token_endpoint_auth_methods_supported"] = methods  # type: ignore[assignment]
    options = OidcOptions(issuer=forger.issuer, client_id="holdfast", roles=ROLES)
    finish(forger, OidcClient(options, ORIGIN, secret, wall=lambda: forger.now))
    [(authorization, form)] = forger.exchanges
    assert len(form.pop("code_verifier")) == 64
    sent = {"grant_type": "authorization_code", "code": "c", "redirect_uri": f"{ORIGIN}/auth/callback"}
    assert (authorization, form) == (shown[0], sent | shown[1])


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("address", ["http://login.example.org/x", "file:///etc/passwd", "", None])
def test_every_step_needs_tls(forger: Forger, name: str, address: str | None) -> None:
    forger.documents["/.well-known/openid-configuration"] = forger.configuration | {name: address}
    assert code_of(client_at(forger).begin) == "unavailable"


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


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], ids=["head", "body"])
def test_a_provider_that_never_ends_its_answer_has_a_deadline(head: bytes) -> None:
    """It sends a byte more often than any timeout of a socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(head)
                while not closed.wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        options = OidcOptions(issuer=f"http://127.0.0.1:{listening.getsockname()[1]}", client_id="holdfast", roles=ROLES)
        assert code_of(OidcClient(options, ORIGIN, answer_s=0.3).begin) == "unavailable"
        closed.set()
        thread.join(WAIT_SECONDS)


def test_a_provider_that_does_not_answer_tls_has_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        options = OidcOptions(issuer=f"https://127.0.0.1:{listening.getsockname()[1]}", client_id="holdfast", roles=ROLES)
        assert code_of(OidcClient(options, ORIGIN, answer_s=0.3).begin) == "unavailable"


def test_the_address_to_sign_out_is_the_provider_s(provider: str, forger: Forger) -> None:
    assert client_of(provider).end_address() == f"{provider}/oauth2/end_session?client_id=holdfast"
    assert client_at(forger).end_address() is None
    forger.documents["/.well-known/openid-configuration"] = forger.configuration | {"end_session_endpoint": "javascript:x"}
    assert client_at(forger).end_address() is None
