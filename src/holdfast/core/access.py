"""Access rules: roles, the texts of tokens and other secrets, when they are valid, and patterns of names.

A token is `hft_`, its id, `_`, its secret and a check sum: scanners find leaked ones by this form. Only a hash of the secret is
stored. Secrets have 256 random bits, so a plain hash is enough: there is no list of likely secrets to try.
"""

import re
from base64 import b32encode, urlsafe_b64encode
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

from holdfast.core.limits import TOKEN_PATTERNS_MAX, check_count, check_name
from holdfast.core.model import Micros
from holdfast.errors import ValidationError

TOKEN_PREFIX = "hft_"  # noqa: S105 - every token begins with it
ID_CHARACTERS = 12
_TOKEN = re.compile(r"hft_([a-z2-7]{12})_([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
ANY = "*"
"""The pattern of every name."""
_ACTORS = ("client", "worker", "operator")


class AccessRole(StrEnum):
    """What a token allows. The roles of actors in events are others: `holdfast.Role`."""

    READER = "reader"
    CLIENT = "client"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


class TokenParts(NamedTuple):
    """The id and the secret of a token that has the right form."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        """The token as its owner sends it."""
        head = f"{TOKEN_PREFIX}{self.id}_{self.secret}"
        return head + _check_sum(head)


def make_token(id_bytes: bytes, secret_bytes: bytes) -> TokenParts:
    """Return a token from random bytes, of which an id takes the first 60 bits and a secret 32 bytes."""
    return TokenParts(b32encode(id_bytes)[:ID_CHARACTERS].decode().lower(), make_secret(secret_bytes))


def make_secret(random_bytes: bytes) -> str:
    """Return 32 random bytes as text: the secret of a token, a session or a login code."""
    return _base64(random_bytes)


def parse_token(text: Any) -> TokenParts | None:
    """Return the parts of a token, or None if the text does not have the form of a token."""
    found = _TOKEN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    id_, secret, check_sum = found.groups()
    return TokenParts(id_, secret) if _check_sum(text[: -len(check_sum)]) == check_sum else None


def is_secret(text: Any) -> bool:
    """Return whether a text has the form of a session's or login code's secret."""
    return isinstance(text, str) and _SECRET.fullmatch(text) is not None


def hash_secret(secret: str) -> bytes:
    """Return what is stored of a secret."""
    return sha256(secret.encode()).digest()


def _check_sum(text: str) -> str:
    return _base64(crc32(text.encode()).to_bytes(4, "big"))


def _base64(body: bytes) -> str:
    return urlsafe_b64encode(body).rstrip(b"=").decode()


def is_valid_at(now: Micros, revoked_at: Micros | None, expires_at: Micros | None) -> bool:
    """Return whether something that can be revoked and can expire is neither."""
    return revoked_at is None and (expires_at is None or now < expires_at)


# Patterns


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern. `*` stands for any number of characters; all others stand for themselves.

    There is no backtracking: the time is proportional to the lengths, for every pattern.
    """
    first, *rest = pattern.split(ANY)
    if not rest:
        return name == pattern
    *middle, last = rest
    end = len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last) or end < len(first):
        return False
    at = len(first)
    for piece in middle:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def matches_any(patterns: tuple[str, ...], name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


def check_queue_patterns(given: Any) -> tuple[str, ...]:
    """Return patterns of queues: at least one, without duplicates."""
    found = _check_patterns("queues", given)
    if not found:
        raise ValidationError("queues must have at least one pattern; * means every queue", field="queues")
    return found


def check_actor_patterns(given: Any, role: AccessRole) -> tuple[str, ...]:
    """Return patterns of the actors that a token may act as: `*`, or ROLE:NAME where NAME may contain `*`."""
    found = _check_patterns("act_as", given)
    for pattern in found:
        actor, colon, name = pattern.partition(":")
        if pattern != ANY and not (actor in _ACTORS and colon and name):
            wanted = ", ".join(f"{known}:NAME" for known in _ACTORS)
            raise ValidationError(f"a pattern of act_as is *, or one of {wanted}, where NAME may contain *", field="act_as")
    if found and role is AccessRole.READER:
        raise ValidationError("a reader changes nothing, so it cannot act as another", field="act_as")
    return found


def _check_patterns(what: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise ValidationError(f"{what} must be a list of patterns", field=what)
    check_count(what, len(given), TOKEN_PATTERNS_MAX)
    return tuple(dict.fromkeys(check_name(what, pattern) for pattern in given))
