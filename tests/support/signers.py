"""Keys for tests, and ledgers whose keys are enrolled."""

from collections.abc import Iterable
from typing import Any

import holdfast
from holdfast import PolicyFields
from holdfast.ledger import Ledger
from holdfast.proof.keys import KeyFile, KeyRole, SecretKey

LIVENESS: PolicyFields = {"signed": "liveness"}
ALL: PolicyFields = {"signed": "all"}


def key(role: str, name: str, number: int = 1) -> KeyFile:
    """The same key every time for one role, name and number."""
    seed = f"{role} {name} {number}".encode().ljust(32, b".")[:32]
    secret = SecretKey(seed)
    return KeyFile(KeyRole(role), name, secret.public_key, secret)


SERVER, OPERATOR, WORKER = key("server", "hq"), key("operator", "ann"), key("worker", "w-1")
ALL_KEYS = (SERVER, OPERATOR, WORKER)


def enrol(ledger: Ledger, keys: Iterable[KeyFile] = ALL_KEYS) -> None:
    for each in keys:
        ledger.enrol_key(each.public, role=each.role, name=each.name)


def opened(url: str, clock: Any, keys: Iterable[KeyFile] = ALL_KEYS, token: str | None = None) -> Ledger:
    """A ledger that signs with these keys."""
    return holdfast.open(url, clock=clock, keys=list(keys), actor="ann", token=token)
