"""A key as text, one JSON object. Where it lies, and who may read it there, is others' business.

{"holdfast_key":1,"role":"worker","name":"arm-1","key_id":"…","public":HEX,"secret":HEX}. Without its "secret" it is
the half to hand out.
"""

import msgspec

from holdfast.core import strictjson
from holdfast.core.limits import check_name
from holdfast.core.proof.keys import KeyRole, PublicKey, SecretKey
from holdfast.core.proof.spelling import from_hex
from holdfast.errors import HoldfastError, ValidationError

VERSION = 1
FILE_BYTES_MAX = 4_096


class KeyFile(msgspec.Struct, frozen=True):
    """A key and whose it is. `secret` is None in the half to hand out."""

    role: KeyRole
    name: str
    public: PublicKey
    secret: SecretKey | None = None

    @property
    def key_id(self) -> str:
        return self.public.key_id


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    holdfast_key: int
    role: KeyRole
    name: str
    key_id: str
    public: str
    secret: str | None = None


def encode_key(key: KeyFile) -> str:
    """`key` as the text of its file, the secret included where it is known."""
    secret = None if key.secret is None else key.secret.seed.hex()
    shape = _Shape(VERSION, key.role, check_name("name", key.name), key.key_id, key.public.public.hex(), secret)
    return msgspec.json.encode(shape).decode() + "\n"


def decode_key(text: str) -> KeyFile:
    """The key in a file's text. No refusal tells anything of what the text holds."""
    shape = _read(text)
    if shape is None or shape.holdfast_key != VERSION:
        raise ValidationError(f"this is not a Holdfast key file of version {VERSION}", field="key")
    public = PublicKey(from_hex("public", shape.public))
    secret = None if shape.secret is None else SecretKey(from_hex("secret", shape.secret))
    if public.key_id != shape.key_id or (secret is not None and secret.public_key != public):
        raise ValidationError("the parts of this key file belong to different keys", field="key")
    return KeyFile(shape.role, check_name("name", shape.name), public, secret)


def _read(text: str) -> _Shape | None:
    """What the text says, or None: an error of the reader's could carry the text itself along."""
    try:
        body = strictjson.check("key", text.encode(), FILE_BYTES_MAX)
        return msgspec.json.decode(body, type=_Shape)
    except (HoldfastError, ValueError):
        return None
