"""Ed25519 keys and the text of key files. Nothing here makes random keys or opens files."""

from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core import strict_json
from holdfast.core.limits import check_name
from holdfast.errors import HoldfastError, ValidationError
from holdfast.proof.encoding import from_hex
from holdfast.version import install_command

SEED_BYTES = 32
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
KEY_ID_DIGITS = 16


class KeyRole(StrEnum):
    """The role of a key's owner. A server signs for the system, and signs heads."""

    WORKER = "worker"
    OPERATOR = "operator"
    SERVER = "server"


def key_id_of(public: bytes) -> str:
    """Return the id of a public key: the first 16 hex digits of its SHA-256."""
    return sha256(public).hexdigest()[:KEY_ID_DIGITS]


class PublicKey:
    """A key to check signatures with. Weak points, with which any signature would be valid, are refused."""

    __slots__ = ("key_id", "public")

    def __init__(self, public: bytes) -> None:
        """Raise ValidationError if it is not a point of the curve, has small order, or is not encoded canonically."""
        if len(public) != PUBLIC_BYTES:
            raise ValidationError(f"a public key has {PUBLIC_BYTES} bytes, not {len(public)}", field="public")
        if not _bindings().crypto_core_ed25519_is_valid_point(public):
            raise ValidationError("the public key is not a valid Ed25519 point", field="public")
        self.public = bytes(public)
        self.key_id = key_id_of(self.public)

    def __repr__(self) -> str:
        return f"PublicKey({self.key_id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.public == other.public

    def __hash__(self) -> int:
        return hash(self.public)


class SecretKey:
    """A key that signs. Only `seed` shows its seed."""

    __slots__ = ("_pair", "_sign", "public_key", "seed")

    def __init__(self, seed: bytes) -> None:
        """Make the key from 32 random bytes, which the caller has drawn."""
        if len(seed) != SEED_BYTES:
            raise ValidationError(f"a secret key has {SEED_BYTES} bytes", field="secret")
        if not any(seed):
            raise ValidationError("a secret key of zeros is not allowed", field="secret")
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
        raise TypeError("a secret key cannot be pickled")


def verify(public: PublicKey, message: bytes, signature: bytes) -> bool:
    """Return whether `signature` is that of `message` by `public`. Only its canonical encoding is accepted (S below L)."""
    if len(signature) != SIGNATURE_BYTES:
        return False
    bindings, refusal = _load_nacl()
    try:
        bindings.crypto_sign_open(signature + message, public.public)
    except refusal:
        return False
    return True


def _bindings() -> Any:
    return _load_nacl()[0]


def _load_nacl() -> tuple[Any, type[Exception]]:
    """Return PyNaCl's bindings, and the exception that it raises for an invalid signature."""
    try:
        from nacl import bindings
        from nacl.exceptions import BadSignatureError
    except ImportError:
        raise ValidationError(f"signatures need PyNaCl: {install_command('proof')}", action="Install it.") from None
    return bindings, BadSignatureError


KEY_FILE_VERSION = 1
KEY_FILE_BYTES_MAX = 4_096


class KeyFile(msgspec.Struct, frozen=True):
    """A key with its role and name. `secret` is None in a file that has only the public key."""

    role: KeyRole
    name: str
    public: PublicKey
    secret: SecretKey | None = None

    @property
    def key_id(self) -> str:
        return self.public.key_id


class _KeyFileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    holdfast_key: int
    role: KeyRole
    name: str
    key_id: str
    public: str
    secret: str | None = None


def encode_key(key: KeyFile) -> str:
    """Return `key` as the text of its file, including the secret if it is known."""
    secret = None if key.secret is None else key.secret.seed.hex()
    shape = _KeyFileRecord(KEY_FILE_VERSION, key.role, check_name("name", key.name), key.key_id, key.public.public.hex(), secret)
    return msgspec.json.encode(shape).decode() + "\n"


def decode_key(text: str) -> KeyFile:
    """Return the key in a file's text. Error messages do not quote the text."""
    shape = _read_key_file(text)
    if shape is None or shape.holdfast_key != KEY_FILE_VERSION:
        raise ValidationError(f"this is not a Holdfast key file of version {KEY_FILE_VERSION}", field="key")
    public = PublicKey(from_hex("public", shape.public))
    secret = None if shape.secret is None else SecretKey(from_hex("secret", shape.secret))
    if public.key_id != shape.key_id or (secret is not None and secret.public_key != public):
        raise ValidationError("the parts of this key file belong to different keys", field="key")
    return KeyFile(shape.role, check_name("name", shape.name), public, secret)


def _read_key_file(text: str) -> _KeyFileRecord | None:
    """Return the content of the text, or None. An error is not raised, because it could contain the text itself."""
    try:
        body = strict_json.check("key", text.encode(), KEY_FILE_BYTES_MAX)
        return msgspec.json.decode(body, type=_KeyFileRecord)
    except (HoldfastError, ValueError):
        return None
