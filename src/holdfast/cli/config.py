"""The ledger, keys and agent of a command: from its options, the environment or holdfast.toml."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from holdfast import settings
from holdfast.cli.output import usage_error

__all__ = ["is_named", "is_new", "key_files", "ledger_url", "named_url", "setting", "without_password"]


def without_password(url: str, instead: str | None = None) -> str:
    """Return the url with its password replaced by `instead`, for output."""
    from holdfast.core import urls

    return urls.hide_password(url) if instead is None else urls.hide_password(url, instead)


T = TypeVar("T")
_FILE_PATH = re.compile(r"[\w./~ -]+")
"""Matches a file path. Other text may be a connection string with a password, so messages do not repeat it."""


def ledger_url(db: str | None) -> str:
    """Return `db`, else HOLDFAST_URL, else the url in holdfast.toml, else that of a file in the current folder."""
    url = db or _or_usage_error(settings.ledger_url)
    if "://" not in url:
        is_file = _FILE_PATH.fullmatch(url) is not None
        named = f"{url!r:.200}" if is_file else "the value given for the ledger"
        action = (
            f"Name it as sqlite:///{url:.200}" if is_file else "Name it as sqlite:///FILE or postgresql://USER@HOST/DATABASE."
        )
        raise usage_error(f"{named} is not the url of a ledger", action=action)
    return url


def is_named(db: str | None) -> bool:
    """Return whether --db, the environment or holdfast.toml names the ledger. If not, the current folder may be the wrong one."""
    return bool(db) or named_url() is not None


def named_url() -> tuple[str, str] | None:
    """Return the ledger that the environment or holdfast.toml names, and which of them names it."""
    return _or_usage_error(settings.named_url)


def key_files(given: Sequence[str]) -> Sequence[str]:
    """Return the key files from the options, else from HOLDFAST_KEYS, else from holdfast.toml."""
    named = os.environ.get("HOLDFAST_KEYS", "").split(os.pathsep)
    return given or [path for path in named if path] or setting("keys") or []


def setting(name: str) -> Any:
    """Return a setting of holdfast.toml, or None if it is not set."""
    return _or_usage_error(settings.read_settings).get(name)


def _or_usage_error(read: Callable[[], T]) -> T:
    """Return what `read` returns. Report a mistake in holdfast.toml as a usage error."""
    try:
        return read()
    except settings.SettingsError as error:
        raise usage_error(str(error), action=f"Correct {settings.FILE_NAME}.") from None


def is_new(url: str) -> bool:
    """Return whether opening the ledger would create a SQLite file. For a server, return False without connecting."""
    from holdfast.core.urls import sqlite_file

    path = sqlite_file(url)
    try:
        return bool(path) and not Path(unquote(path)).exists()
    except (OSError, ValueError):
        return False
