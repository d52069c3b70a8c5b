"""The composition root: the only place that assembles the parts, reads a clock or draws a random number."""

import os
import random
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from holdfast.core.limits import check_name
from holdfast.core.model import Micros
from holdfast.core.urls import is_remote, is_server, is_sqlite, parse_remote_url, sqlite_file
from holdfast.errors import ValidationError
from holdfast.files.keys import KeySource, keyring
from holdfast.files.regular import read_regular
from holdfast.ledger import Ledger
from holdfast.ledger.public import to_micros
from holdfast.ledger.sweep import Entropy
from holdfast.ledger.validators import HookSource, read_source
from holdfast.proof.keys import SEED_BYTES, KeyFile, KeyRole, SecretKey
from holdfast.store.base import Store
from holdfast.version import install_command
from holdfast.watch.process import Metrics

TOKEN_FILE_BYTES_MAX = 4_096
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
    validators: HookSource | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
) -> Ledger:
    """Open the ledger at `url`: `sqlite:///path/to/file.db` (four slashes for an absolute path), `postgresql://…`, `https://…`.

    The tables are created or migrated. With `create=False`, raise NoLedger if there is no ledger.
    `clock` replaces the ledger's time in tests. `actor` is the name of the caller for verbs that are not given one.
    `metrics` collects the counts. Pass the same object to several ledgers to count them together. The default is a new one.
    `keys` are the keys, or key files, that this process signs with. The default are the files that HOLDFAST_KEYS names.
    `validators` is an app. Its validators and conflict detectors check results before they are recorded. If one refuses a result,
    RefusedByValidator is raised and the job stays running.

    A url that starts with https:// is that of a Holdfast server. `token` names the caller. Without one, it is read from
    `token_file`, from HOLDFAST_TOKEN, or from the file that HOLDFAST_TOKEN_FILE names. `ca_file` has the certificate of an
    authority that this machine does not know. A token is sent over http:// only to this machine.
    """
    check_name("actor", actor)
    if not isinstance(url, str):
        raise ValidationError(f"url must be a text, not {type(url).__name__}", field="url")
    if metrics is not None and not isinstance(metrics, Metrics):
        raise ValidationError(f"metrics must be a Metrics, not {type(metrics).__name__}", field="metrics")
    ring, hooks = keyring(keys), read_source(validators)
    source = entropy or SystemEntropy()
    if is_remote(url):
        from holdfast.remote.ledger import RemoteLedger
        from holdfast.remote.transport import Transport

        transport = Transport(
            parse_remote_url(url),
            token=_token(token, token_file),
            ca_file=None if ca_file is None else os.fspath(ca_file),
            jitter=source.jitter,
        )
        return RemoteLedger(
            transport,
            source,
            time.monotonic,
            actor=actor,
            incarnation=source.nonce(),
            metrics=metrics,
            ring=ring,
            wall=_system_micros if clock is None else _read_micros(clock),
            validators=hooks,
        )
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


def _token(token: str | None, token_file: str | os.PathLike[str] | None) -> str | None:
    """Return the token that is sent to a server. A file with one must not be readable by others."""
    if token is not None:
        return token
    if token_file is None:
        if named := os.environ.get("HOLDFAST_TOKEN"):
            return named
        token_file = os.environ.get("HOLDFAST_TOKEN_FILE") or None
    if token_file is None:
        return None
    try:
        return read_regular(token_file, TOKEN_FILE_BYTES_MAX, forbidden_mode=0o077).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it has a character that no token has"
        raise ValidationError(f"the token file cannot be read: {reason}", field="token_file") from None


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
                f"PostgreSQL needs a driver: {install_command('postgres')}", action="Install it.", field="url"
            ) from error

        return PostgresStore(url, clock, _draw_ledger_id, create=create)
    raise ValidationError("a ledger's url starts with sqlite:///, postgresql:// or https://", field="url")


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
