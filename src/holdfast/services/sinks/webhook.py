"""Webhooks: CloudEvents in the body, Standard Webhooks signatures in the headers."""

import base64
import binascii
import hashlib
import hmac
import http.client
import re
import ssl
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.core import policy as policies
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.remote.sockets import RequestDeadline
from holdfast.services.messages import Message
from holdfast.services.sinks.base import DeliveryFailed, Sink
from holdfast.services.sinks.http_client import (
    Resolver,
    checked_addresses,
    connect,
    parse_target,
    post,
    system_resolver,
)

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
SECRETS_MAX = 5


class WebhookSigner:
    """Sign with each secret, so that a receiver may have the old one or the new one. Its repr shows none of them."""

    def __init__(self, secret: str) -> None:
        if not isinstance(secret, str):
            raise ValidationError("secret must be a text", field="secret")
        secrets = secret.split()
        if not 1 <= len(secrets) <= SECRETS_MAX:
            raise ValidationError(f"secret must contain 1 to {SECRETS_MAX} secrets, separated by blanks", field="secret")
        self._keys = tuple(_decode_secret(text) for text in secrets)

    def headers(self, key: str, at: datetime, body: bytes) -> dict[str, str]:
        seconds = str(int(at.timestamp()))
        signed = f"{key}.{seconds}.".encode() + body
        return {
            "webhook-id": key,
            "webhook-timestamp": seconds,
            "webhook-signature": " ".join(_signature(secret, signed) for secret in self._keys),
        }

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} secrets)"


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def _decode_secret(text: str) -> bytes:
    try:
        if not text.startswith(PREFIX):
            raise ValueError
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise ValidationError(f"a secret must be {PREFIX} followed by base64", field="secret") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValidationError(f"a secret must have {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes", field="secret")
    return key


CONTENT_TYPE = "application/cloudevents+json"
TIMEOUT_MS_MAX = 20_000
"""A duty is renewed before a try if a third of its 30 seconds is over. A try has to end within the other two thirds."""
GONE = 410
_RESERVED_HEADERS = frozenset(
    {"connection", "content-length", "content-type", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")


class WebhookSink(Sink):
    """POST each message to `url`. Any 2xx status is a delivery, 410 ends the sink, and all others, redirects too, are failures.

    `secret` is one secret or several (`"whsec_new whsec_old"`); a receiver needs one of them. The host's addresses are resolved
    again for each try. None of them may be private, local or reserved, unless `allow_private` is set. `timeout` limits a whole
    try. `tls` replaces the default TLS context with the system's certificates.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str,
        timeout: Any = 10,
        allow_private: bool = False,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver = system_resolver,
        name: str = "webhook",
        **options: Any,
    ) -> None:
        super().__init__(name=name, **options)
        self._target = parse_target(url)
        self._signer = WebhookSigner(secret)
        self._seconds = policies.duration_ms("timeout", timeout, 1, TIMEOUT_MS_MAX) / 1_000
        self._allow_private = validate.switch("allow_private", allow_private)
        self._headers = _checked_headers(headers or {})
        self._tls = (tls or ssl.create_default_context()) if self._target.scheme == "https" else None
        self._resolver = resolver

    def deliver(self, message: Message, at: datetime) -> None:
        self.send(message.key, message.body, at)

    def send(self, key: str, body: bytes, at: datetime) -> None:
        """Try once to deliver a CloudEvent. `key` has to be the same for every try of the same event."""
        try:
            status = self._post(key, body, at)
        except DeliveryFailed:
            raise
        except Exception as error:  # noqa: BLE001 - its own text might quote a url or a header
            raise DeliveryFailed(_failure_text(error)) from None
        if 300 <= status < 400:  # noqa: PLR2004
            raise DeliveryFailed(f"HTTP {status}: redirects are not followed")
        if not 200 <= status < 300:  # noqa: PLR2004
            raise DeliveryFailed(f"HTTP {status}", final=status == GONE)

    def _post(self, key: str, body: bytes, at: datetime) -> int:
        deadline = RequestDeadline(self._seconds)
        to = self._target
        addresses = checked_addresses(
            self._resolver, to.host, to.port, allow_private=self._allow_private, seconds=deadline.left()
        )
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": "Holdfast", **self._headers}
        headers |= self._signer.headers(key, at, body)
        with connect(addresses, to, self._tls, deadline) as sock:
            return post(sock, to, headers, body, deadline)

    def __repr__(self) -> str:
        return f"WebhookSink(name={self.name!r}, host={self._target.host!r})"


def _checked_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """Return the headers. Raise ValidationError for a header that is not allowed. Values are not quoted: they may be secrets."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValidationError("names of headers must consist of letters, digits and dashes", field="headers")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("webhook-"):
            raise ValidationError(f"the header {name} is reserved", field="headers")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ValidationError(f"the value of {name} must be a printable ASCII text", field="headers")
    return dict(headers)


def _failure_text(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"TLS: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS: {error.reason or 'failed'}"
        case TimeoutError():
            return "timed out"
        case ConnectionError() | OSError():
            return f"connection failed: {error.strerror or type(error).__name__}"
        case http.client.HTTPException():
            return f"the response is not valid HTTP: {type(error).__name__}"
    return type(error).__name__
