"""Two OpenID Connect providers: a real one as a process of its own, and one whose answers the test decides."""

import base64
import hmac
import http.client
import http.server
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import DEVNULL
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from tests.support import forked

WAIT_SECONDS = 30.0
GZIP = b"\x1f\x8b"
PEOPLE = (
    {"sub": "kim", "email": "kim@example.org", "groups": ["staff", "ops"]},
    {"sub": "ann", "email": "ann@example.org", "groups": ["shop"]},
    {"sub": "eve", "email": "eve@example.org"},
)
"""Two persons who have a role, and one who has none."""


@contextmanager
def running_provider(host: str = "127.0.0.1") -> Iterator[str]:
    """Run a provider, and return its address with this name of the machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    claims = [word for person in PEOPLE for word in ("--user-claims", json.dumps(person))]
    options = ["--port", str(port), "--require-nonce", "true", *claims]
    process = forked.popen([sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", *options], stdout=DEVNULL, stderr=DEVNULL)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://{host}:{port}"
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)


def query_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def sign_in_at(address: str, who: str) -> str:
    """Do what a person does in a browser at the provider. Return the address to which the browser is sent back."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WAIT_SECONDS)
    try:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", f"{parts.path}?{parts.query}", urlencode({"sub": who}), form)
        answer = connection.getresponse()
        answer.read()
        return answer.getheader("Location") or ""
    finally:
        connection.close()


RSA, OTHER_RSA = RSAKey.generate_key(2048, {"kid": "rsa"}), RSAKey.generate_key(2048, {"kid": "rsa"})
EC, ED = ECKey.generate_key("P-256", {"kid": "ec"}), OKPKey.generate_key("Ed25519", {"kid": "ed"})


class Forger:
    """A provider on a real socket. `token` is its next ID token, `documents` are its other answers by path."""

    def __init__(self) -> None:
        self.token: Any = ""
        self.keys = KeySet([RSA, EC, ED])
        self.requests: list[str] = []
        self.exchanges: list[tuple[str | None, dict[str, str]]] = []
        """The Authorization header and the form of each request for a token."""
        self.now = 1_800_000_000.0
        forger = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                forger.requests.append(self.path)
                self._answer(forger.documents.get(self.path))

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                forger.exchanges.append((self.headers.get("Authorization"), dict(parse_qsl(form))))
                self._answer({"access_token": "x", "token_type": "Bearer", "id_token": forger.token})

            def _answer(self, found: Any) -> None:
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                status = 404 if found is None else 302 if found == b"moved" else 200
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if body.startswith(GZIP):
                    self.send_header("Content-Encoding", "gzip")
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

    def issue(self, asked_nonce: str, /, key: Any = RSA, header: dict[str, Any] | None = None, **changes: Any) -> None:
        """Make the next ID token, with claims that are changed. None leaves a claim out."""
        claims = {"iss": self.issuer, "aud": "holdfast", "sub": "kim", "exp": self.now + 300, "iat": self.now, "groups": "ops"}
        claims |= {"nonce": asked_nonce, "email": "kim@example.org"} | changes
        kept = {name: value for name, value in claims.items() if value is not None}
        used = header or {"alg": "RS256", "kid": "rsa"}
        self.token = key(kept) if callable(key) else jwt.encode(used, kept, key, algorithms=[used["alg"]])


def unsigned(claims: dict[str, Any]) -> str:
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def signed_with_public_key(claims: dict[str, Any]) -> str:
    """A token whose secret is the provider's public key, for a server that lets the token choose the kind of signature."""
    signed = f"{_part({'alg': 'HS256', 'kid': 'rsa'})}.{_part(claims)}"
    digest = hmac.digest(RSA.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
