"""The composition root: the only place that assembles the parts, reads a clock or draws a random number."""

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from holdfast.core.limits import check_name
from holdfast.core.model import Micros
from holdfast.core.urls import is_server, is_sqlite, sqlite_file
from holdfast.errors import ValidationError
from holdfast.keyfiles import KeySource, keyring
from holdfast.ledger import Ledger
from holdfast.ledger.public import to_micros
from holdfast.ledger.sweep import Entropy
from holdfast.ledger.validators import HookSource, Validator, read_source
from holdfast.proof.keys import SEED_BYTES, KeyFile, KeyRole, SecretKey
from holdfast.store.base import Store
from holdfast.telemetry.metrics import Metrics

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class Clock(Protocol):
    """A source of time, for tests."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...


class SystemEntropy:
    """Random values from the operating system. Tokens are secrets."""

    def token(self) -> str:
        return os.urandom(16).hex()

    def nonce(self) -> str:
        return os.urandom(8).hex()

    def secret(self) -> bytes:
        return os.urandom(32)

    def jitter(self) -> float:
        return random.uniform(0.5, 1.5)  # noqa: S311 - spreads retries, protects nothing


def _draw_ledger_id() -> str:
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(8))


def open(
    url: str,
    *,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    actor: str = "client",
    metrics: Metrics | None = None,
    keys: Iterable[KeySource] | None = None,
    create: bool = True,
    validators: Mapping[str, Validator | Sequence[Validator]] | HookSource | None = None,
) -> Ledger:
    """Open the ledger at `url`: `sqlite:///path/to/file.db` (four slashes for an absolute path) or `postgresql://…`.

    The tables are created or migrated. With `create=False`, raise NoLedger if there is no ledger.
    `clock` replaces the ledger's time in tests. `actor` is the name of the caller for verbs that are not given one.
    `metrics` collects the counts. Pass the same object to several ledgers to count them together. The default is a new one.
    `keys` are the keys, or key files, that this process signs with. The default are the files that HOLDFAST_KEYS names.
    `validators` check results before they are recorded. They are functions of a job and its result, by kind, or an app with its
    validators and conflict detectors. If one refuses a result, RefusedByValidator is raised and the job stays running.
    """
    check_name("actor", actor)
    if not isinstance(url, str):
        raise ValidationError(f"url must be a text, not {type(url).__name__}", field="url")
    if metrics is not None and not isinstance(metrics, Metrics):
        raise ValidationError(f"metrics must be a Metrics, not {type(metrics).__name__}", field="metrics")
    ring, hooks = keyring(keys), read_source(validators)
    source = entropy or SystemEntropy()
    store = _open_store(url, None if clock is None else _read_micros(clock), create)
    monotonic = time.monotonic if clock is None else clock.monotonic
    wall = _system_micros if clock is None else _read_micros(clock)
    return Ledger(
        store,
        source,
        monotonic,
        actor=actor,
        incarnation=source.nonce(),
        metrics=metrics,
        ring=ring,
        wall=wall,
        validators=hooks,
    )


def draw_key(role: str, name: str) -> KeyFile:
    """Return a new random key for a role (worker, operator or server) and name. Enrol its public half to use it."""
    try:
        key_role = KeyRole(role)
    except (ValueError, TypeError, RecursionError):
        raise ValidationError(f"role must be one of {', '.join(KeyRole)}", field="role") from None
    secret = SecretKey(os.urandom(SEED_BYTES))
    return KeyFile(key_role, check_name("name", name), secret.public_key, secret)


def _read_micros(clock: Clock) -> Callable[[], Micros]:
    return lambda: to_micros(clock.now())


def _system_micros() -> Micros:
    return time.time_ns() // 1_000


def _open_store(url: str, clock: Callable[[], Micros] | None, create: bool) -> Store:
    if is_sqlite(url) or url[:7].casefold() == "sqlite:":
        from holdfast.store.sqlite import SqliteStore

        return SqliteStore(_sqlite_path(url), clock or _system_micros, _draw_ledger_id, create=create)
    if is_server(url):
        try:
            from holdfast.store.postgres import PostgresStore
        except ImportError as error:
            raise ValidationError(
                "PostgreSQL needs a driver: pip install 'holdfast[postgres]'", action="Install it.", field="url"
            ) from error

        return PostgresStore(url, clock, _draw_ledger_id, create=create)
    raise ValidationError("a ledger's url starts with sqlite:/// or postgresql://", field="url")


def _sqlite_path(url: str) -> Path:
    rest = sqlite_file(url)
    if not rest or "?" in rest or rest == ":memory:":
        raise ValidationError(
            "a SQLite url is sqlite:///file.db or sqlite:////absolute/file.db; a ledger is always a file", field="url"
        )
    path = unquote(rest)
    if "\0" in path:
        raise ValidationError("a file name must not contain NUL", field="url")
    return Path(path)
