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
    """A url for people to see, with `instead` in the place of its password."""
    from holdfast.core import urls

    return urls.hide_password(url) if instead is None else urls.hide_password(url, instead)


T = TypeVar("T")
_FILE_PATH = re.compile(r"[\w./~ -]+")
"""What looks like the path of a file. Anything else may be a connection string with a password, and is not repeated."""


def ledger_url(db: str | None) -> str:
    """What was typed, else HOLDFAST_URL, else the url in holdfast.toml, else a file here."""
    url = db or _or_usage_error(settings.ledger_url)
    if "://" not in url:
        is_file = _FILE_PATH.fullmatch(url) is not None
        named = f"{url!r:.200}" if is_file else "what names the ledger"
        action = (
            f"Name it as sqlite:///{url:.200}" if is_file else "Name it as sqlite:///FILE or postgresql://USER@HOST/DATABASE."
        )
        raise usage_error(f"{named} is not the url of a ledger", action=action)
    return url


def is_named(db: str | None) -> bool:
    """Whether somebody said which ledger; else it is whatever the folder has, and the folder may be the wrong one."""
    return bool(db) or named_url() is not None


def named_url() -> tuple[str, str] | None:
    """The ledger that is named outside of any program, and by what."""
    return _or_usage_error(settings.named_url)


def key_files(given: Sequence[str]) -> Sequence[str]:
    """What was typed, else what HOLDFAST_KEYS names, else the keys in holdfast.toml."""
    named = os.environ.get("HOLDFAST_KEYS", "").split(os.pathsep)
    return given or [path for path in named if path] or setting("keys") or []


def setting(name: str) -> Any:
    """What holdfast.toml says; None where it says nothing of that."""
    return _or_usage_error(settings.read_settings).get(name)


def _or_usage_error(reading: Callable[[], T]) -> T:
    """What is wrong with the file is its author's mistake, not the command's."""
    try:
        return reading()
    except settings.SettingsError as error:
        raise usage_error(str(error), action=f"Correct {settings.FILE_NAME}.") from None


def is_new(url: str) -> bool:
    """Whether opening it makes a file that is not there yet. Of a server nothing is known before it is asked."""
    from holdfast.core.urls import sqlite_file

    path = sqlite_file(url)
    try:
        return bool(path) and not Path(unquote(path)).exists()
    except (OSError, ValueError):
        return False
