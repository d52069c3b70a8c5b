"""Ed25519 keys: who may sign, and checking that they did. Nothing here draws a key; the seed is given."""

from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Any

from holdfast.errors import ValidationError

SEED_BYTES = 32
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
KEY_ID_DIGITS = 16


class KeyRole(StrEnum):
    """Whose key it is. A server signs as the system, and signs heads."""

    WORKER = "worker"
    OPERATOR = "operator"
    SERVER = "server"


def key_id_of(public: bytes) -> str:
    """The short name of a public key: the first 16 hex digits of its SHA-256."""
    return sha256(public).hexdigest()[:KEY_ID_DIGITS]


class PublicKey:
    """A key that signatures can be checked with. There is none for a point with which anything verifies."""

    __slots__ = ("key_id", "public")

    def __init__(self, public: bytes) -> None:
        """Refuses what is no point of the curve, one of small order, or one that is not spelled canonically."""
        if len(public) != PUBLIC_BYTES:
            raise ValidationError(f"a public key has {PUBLIC_BYTES} bytes, not {len(public)}", field="public")
        if not _bindings().crypto_core_ed25519_is_valid_point(public):
            raise ValidationError("the public key is not a sound Ed25519 point", field="public")
        self.public = bytes(public)
        self.key_id = key_id_of(self.public)

    def __repr__(self) -> str:
        return f"PublicKey({self.key_id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.public == other.public

    def __hash__(self) -> int:
        return hash(self.public)


class SecretKey:
    """A key that signs. Its seed shows nowhere but in `seed`."""

    __slots__ = ("_pair", "_sign", "public_key", "seed")

    def __init__(self, seed: bytes) -> None:
        """The key of 32 random bytes, which somebody else has drawn."""
        if len(seed) != SEED_BYTES:
            raise ValidationError(f"a secret key has {SEED_BYTES} bytes", field="secret")
        if not any(seed):
            raise ValidationError("a secret key of zeros is none", field="secret")
        bindings = _bindings()
        public, self._pair = bindings.crypto_sign_seed_keypair(bytes(seed))
        self._sign: Callable[[bytes, bytes], bytes] = bindings.crypto_sign
        self.seed = bytes(seed)
        self.public_key = PublicKey(public)

    @property
    def key_id(self) -> str:
        return self.public_key.key_id

    def sign(self, message: bytes) -> bytes:
        return self._sign(message, self._pair)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"SecretKey({self.key_id})"

    def __reduce__(self) -> Any:
        raise TypeError("a secret key is not pickled")


def verify(public: PublicKey, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is that of `message` by `public`. Only one spelling of a signature is one (S below L)."""
    if len(signature) != SIGNATURE_BYTES:
        return False
    bindings, refusal = _opening()
    try:
        bindings.crypto_sign_open(signature + message, public.public)
    except refusal:
        return False
    return True


def _bindings() -> Any:
    return _opening()[0]


def _opening() -> tuple[Any, type[Exception]]:
    """PyNaCl, where it is installed, and what it raises at a signature that is none."""
    try:
        from nacl import bindings
        from nacl.exceptions import BadSignatureError
    except ImportError:
        raise ValidationError("signatures need PyNaCl: pip install 'holdfast[proof]'", action="Install it.") from None
    return bindings, BadSignatureError
