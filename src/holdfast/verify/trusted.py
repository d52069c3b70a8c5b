"""The public keys that somebody trusts, from outside of the file."""

from typing import Any

import msgspec

from holdfast.core.proof.keys import KeyRole, PublicKey
from holdfast.core.proof.notes import origin_of, parse_key
from holdfast.core.proof.spelling import from_hex
from holdfast.errors import ValidationError
from holdfast.verify.wording import decoded, in_words

VERSION = 1


class TrustedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as `holdfast key export` tells of it."""

    key_id: str
    role: KeyRole
    name: str
    public: str
    enrolled_pos: int
    revoked_pos: int | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    holdfast_keys: int
    ledger: str
    keys: list[TrustedKey]
    vkey: str | None = None


class Trusted(msgspec.Struct, frozen=True):
    """What is trusted: a ledger's keys as they were at one time, or the one key that signs its heads."""

    origin: str
    keys: dict[str, TrustedKey] = msgspec.field(default_factory=dict)
    """By id; empty where only `server` is known."""
    server: PublicKey | None = None

    @property
    def stand(self) -> int:
        """The position up to which all changes of keys are known."""
        found = [pos for key in self.keys.values() for pos in (key.enrolled_pos, key.revoked_pos) if pos is not None]
        return max(found, default=0)


def parse_trusted(text: str) -> Trusted:
    """What `holdfast key export` wrote, alone or as its answer to --json, or the line of a note key."""
    text = text.strip()
    if not text.startswith("{"):
        server = parse_key(text)
        return Trusted(server.name, server=server.public)
    try:
        value: Any = msgspec.json.decode(text)
        if isinstance(value, dict) and "schema_version" in value:
            value = value.get("data")
            if isinstance(value, dict):
                value.pop("file", None)
        found = msgspec.convert(value, type=_Document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValidationError(f"these are no keys of Holdfast's: {in_words(str(error), decoded(text))}", field="keys") from None
    if found.holdfast_keys != VERSION:
        raise ValidationError(f"there are no keys of version {VERSION} here", field="keys")
    if not found.keys:
        raise ValidationError("there is no key in the file: the ledger had none when it was exported", field="keys")
    for key in found.keys:
        if PublicKey(from_hex("public", key.public)).key_id != key.key_id:
            raise ValidationError(f"the key {key.key_id:.80} does not fit its own id", field="keys")
    return Trusted(origin_of(found.ledger), {key.key_id: key for key in found.keys})
