"""A server that others can reach starts only with credentials and TLS. Everything is checked before it listens."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from holdfast import HoldfastError, Ledger, ValidationError
from holdfast.core.access import AccessRole
from holdfast.server.start import OidcOptions, ServerOptions, check_start, read_options, read_secret
from tests.server.test_connections import PLAIN, QUICK, serving

ANYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens
PROXY: dict[str, Any] = {"behind_proxy": ("10.0.0.0/24",), "public_url": "https://jobs.example.org"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate with its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = trustme.CA().issue_cert("localhost")
    made.cert_chain_pems[0].write_to_path(cert)
    made.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    return cert, key


def refused_field(*, has_tokens: bool = True, **options: Any) -> str | None:
    """The option that is refused, or None if the server may start."""
    try:
        check_start(ServerOptions(**options), has_tokens=has_tokens)
    except ValidationError as refused:
        return str(refused.context["field"]) if refused.action else "an action is missing"
    return None


def test_a_loopback_address_needs_nothing() -> None:
    plan = check_start(ServerOptions(), has_tokens=False)
    assert (plan.url, plan.secure, plan.prints_link) == ("http://127.0.0.1:8470", False, True)
    assert plan.sign_in_link("abc") == "http://127.0.0.1:8470/#code=abc"
    for host in ("::1", "localhost", "127.0.0.7"):
        assert refused_field(has_tokens=False, host=host) is None
    assert check_start(ServerOptions(host="::1"), has_tokens=False).url == "http://[::1]:8470"


def test_a_link_is_printed_where_there_are_no_tokens() -> None:
    assert not check_start(ServerOptions(), has_tokens=True).prints_link
    assert check_start(ServerOptions(link=True), has_tokens=True).prints_link
    assert not check_start(ServerOptions(link=False), has_tokens=False).prints_link


def test_the_code_of_a_link_signs_in(ledger: Ledger) -> None:
    link = check_start(ServerOptions(), has_tokens=ledger.has_tokens()).sign_in_link(ledger.local_login_code())
    secret = ledger.log_in(link.partition("#code=")[2])
    assert secret is not None
    found = ledger.find_session(secret)
    assert found is not None and found.role is AccessRole.ADMIN
    assert check_start(ServerOptions(), has_tokens=ledger.has_tokens()).prints_link, "the server's own token is not a credential"


@pytest.mark.parametrize("host", [ANYWHERE, "::", "192.168.0.7", "2001:db8::1", "jobs.example.org"])
def test_a_public_address_needs_credentials_and_tls(host: str, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    tls: dict[str, Any] = {"tls_cert": cert, "tls_key": key}
    assert refused_field(has_tokens=False, host=host) == "host"
    assert refused_field(has_tokens=False, host=host, **tls) == "host"
    assert refused_field(has_tokens=False, host=host, **PROXY) == "host"
    assert refused_field(host=host) == "tls_cert"
    assert refused_field(host=host, **tls) is None
    assert refused_field(host=host, **PROXY) is None
    provider = OidcOptions(issuer="https://login.example.org", client_id="holdfast", roles={"ops": AccessRole.OPERATOR})
    assert refused_field(has_tokens=False, oidc=provider, host=host, **tls) == "public_url"
    assert refused_field(has_tokens=False, oidc=provider, host=host, public_url="https://jobs.example.org", **tls) is None


def test_a_server_behind_a_proxy_is_public_on_any_address() -> None:
    assert refused_field(has_tokens=False, **PROXY) == "host"
    assert refused_field(public_url="https://jobs.example.org") == "tls_cert"
    plan = check_start(ServerOptions(**PROXY), has_tokens=True)
    assert (plan.url, plan.secure, plan.prints_link) == ("https://jobs.example.org", True, False)
    plan.origins.check_host({"host": "jobs.example.org"})
    assert plan.origins.is_own("https://jobs.example.org", {"host": "jobs.example.org"})


def test_forwarded_headers_are_read_from_declared_proxies_only() -> None:
    plain = check_start(ServerOptions(), has_tokens=True).uvicorn_options()
    assert (plain["proxy_headers"], plain["forwarded_allow_ips"]) == (False, [])
    behind = check_start(ServerOptions(**PROXY), has_tokens=True).uvicorn_options()
    assert (behind["proxy_headers"], behind["forwarded_allow_ips"]) == (True, ["10.0.0.0/24"])


def test_forwarded_headers_of_others_have_no_effect() -> None:
    sent = PLAIN[:-2] + b"X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n\r\n"
    behind = PROXY | {"behind_proxy": ("127.0.0.0/8",)}
    seen = []
    for options in ({}, PROXY, behind):
        plan = check_start(ServerOptions(**options, port=0), has_tokens=True)
        with serving(plan.options.limits.of_connections, **plan.uvicorn_options()) as served:
            assert served.answer(sent)[0] == 200
            seen.append(served.app.client)
    assert seen == ["127.0.0.1", "127.0.0.1", "203.0.113.7"]


def test_a_slow_client_is_refused_over_tls(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    plan = check_start(ServerOptions(tls_cert=cert, tls_key=key, port=0), has_tokens=True)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    for loop in ("asyncio", "uvloop"):
        with serving(QUICK, loop, **plan.uvicorn_options()) as served:
            with served.connect(trusting) as peer:
                peer.send(PLAIN)
                assert peer.answer()[0] == 200
            with served.connect(trusting) as peer:
                peer.send(PLAIN[:-4])
                assert peer.answer()[0] == 408
                assert peer.is_closed()


@pytest.mark.parametrize("proxy", ["*", "everyone", "10.0.0.1/24", "0.0.0.0/0", "::/0", ""])
def test_a_proxy_is_an_address_or_a_network(proxy: str) -> None:
    assert refused_field(behind_proxy=(proxy,), public_url="https://jobs.example.org") == "behind_proxy"


@pytest.mark.parametrize(
    "url",
    [None, "", "jobs.example.org", "http://jobs.example.org", "https://", "https://a.example/path", "https://a.example?q", "https://a@b",
     "https://[::1", "https://a.example#x", "ftp://a.example"],
)  # fmt: skip
def test_a_server_behind_a_proxy_needs_its_public_url(url: str | None) -> None:
    assert refused_field(behind_proxy=("10.0.0.7",), public_url=url) == "public_url"


def test_a_certificate_needs_its_own_key(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    assert refused_field(tls_cert=cert) == "tls_key"
    assert refused_field(tls_key=key) == "tls_cert"
    assert refused_field(tls_cert=cert, tls_key=tmp_path / "none.pem") == "tls_key"
    assert refused_field(tls_cert=tmp_path / "none.pem", tls_key=key) == "tls_cert"
    assert refused_field(tls_cert=key, tls_key=key) == "tls_cert"
    plan = check_start(ServerOptions(tls_cert=cert, tls_key=key), has_tokens=True)
    assert (plan.url, plan.secure) == ("https://127.0.0.1:8470", True)
    assert isinstance(ssl.create_default_context(cafile=str(plan.uvicorn_options()["ssl_certfile"])), ssl.SSLContext)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o666, 0o644])
def test_a_key_that_others_may_read_is_refused(certificate: tuple[Path, Path], tmp_path: Path, mode: int) -> None:
    cert, key = certificate
    shared = tmp_path / "key.pem"
    shared.write_bytes(key.read_bytes())
    shared.chmod(mode)
    assert refused_field(tls_cert=cert, tls_key=shared) == "tls_key"


def test_an_encrypted_key_is_refused_without_a_question(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    locked = tmp_path / "locked.pem"
    secret = serialization.load_pem_private_key(key.read_bytes(), None)
    sealed = serialization.BestAvailableEncryption(b"abcd")
    locked.write_bytes(secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, sealed))
    locked.chmod(0o600)
    assert refused_field(tls_cert=cert, tls_key=locked) == "tls_cert"


@pytest.mark.parametrize("secret", ["secret", "changeme", "Password", "", "short", "x" * 15])
def test_an_example_or_short_secret_is_refused(tmp_path: Path, secret: str) -> None:
    file = tmp_path / "secret"
    file.write_text(secret + "\n")
    file.chmod(0o600)
    with pytest.raises(HoldfastError) as refused:
        read_secret("client_secret_file", file)
    assert refused.value.context["field"] == "client_secret_file"


def test_a_secret_is_read_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a-long-random-text-0123\n")
    file.chmod(0o600)
    assert read_secret("client_secret_file", file) == "a-long-random-text-0123"
    file.chmod(0o644)
    for wrong in (file, tmp_path / "none", tmp_path):
        with pytest.raises(HoldfastError):
            read_secret("client_secret_file", wrong)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"port": -1}, "port"),
        ({"port": 65_536}, "port"),
        ({"host": ""}, "host"),
        ({"host": "http://x"}, "host"),
        ({"host": "127.0.0.1:80"}, "host"),
        ({"allowed_hosts": ("a b",)}, "allowed_hosts"),
        ({"allow_origins": ("*",)}, "allow_origin"),
        ({"redact": ("",)}, "redact"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], field: str) -> None:
    assert refused_field(**options) == field


def test_options_are_read_from_a_table() -> None:
    found = read_options(
        {
            "port": 9_000,
            "tls_cert": "a.pem",
            "redact": ["*.password"],
            "redact_for": ["reader"],
            "limits": {"rate": 10, "head_s": 1.5},
        }
    )
    assert (found.port, found.tls_cert, found.redact, found.redact_for) == (9_000, Path("a.pem"), ("*.password",), ("reader",))
    assert found.limits.of_callers.rate == 10 and found.limits.of_connections.head_s == 1.5
    assert read_options({}) == ServerOptions()
    provider = {"issuer": "https://login.example.org", "client_id": "x", "client_secret_file": "s", "roles": {"ops": "operator"}}
    oidc = read_options({"oidc": provider}).oidc
    assert oidc is not None and (oidc.client_secret_file, oidc.roles) == (Path("s"), {"ops": AccessRole.OPERATOR})


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"prot": 1}, "server"),
        ({"port": "80"}, "port"),
        ({"redact_for": ["everyone"]}, "redact_for[0]"),
        ({"limits": {"rate": "x"}}, "limits.rate"),
        ({"limits": {"speed": 1}}, "limits"),
    ],
)
def test_a_wrong_table_is_refused(table: dict[str, Any], field: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        read_options(table)
    assert (refused.value.code, refused.value.context["field"]) == ("validation_error", field)


@pytest.mark.parametrize("name", ["rate", "requests_max", "head_s", "connections_max", "wrong_tokens_max"])
def test_a_limit_cannot_be_switched_off(name: str) -> None:
    for value in (0, -1):
        with pytest.raises(HoldfastError) as refused:
            check_start(read_options({"limits": {name: value}}), has_tokens=True)
        assert refused.value.context["field"] == f"limits.{name}"
