"""Standard Webhooks: the headers by which a receiver knows who sent a message, and that nobody has changed it."""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime

from holdfast.errors import ValidationError

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
SECRETS_MAX = 5


class Signer:
    """Signs with each of its secrets, so that a receiver may know the old one or the new one. Never shows any of them."""

    def __init__(self, secret: str) -> None:
        if not isinstance(secret, str):
            raise ValidationError("secret must be a text", field="secret")
        found = secret.split()
        if not 1 <= len(found) <= SECRETS_MAX:
            raise ValidationError(f"secret must hold 1 to {SECRETS_MAX} secrets, separated by blanks", field="secret")
        self._keys = tuple(_key(text) for text in found)

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


def _key(text: str) -> bytes:
    try:
        if not text.startswith(PREFIX):
            raise ValueError
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise ValidationError(f"a secret is {PREFIX} and base64", field="secret") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValidationError(f"a secret has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes", field="secret")
    return key
