"""What holds where nothing else is typed: which ledger a command is for, with which keys, and who asks."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus

from holdfast import settings
from holdfast.cli.envelope import misuse

DEFAULT = "sqlite:///holdfast.db"
_PASSWORD = re.compile(r"^(\w+://[^:@/]*):(?:[^/]*|[^?]*)@", re.DOTALL)
"""Up to the last @ that may end it, whether or not it was escaped as it should be."""


def ledger_url(db: str | None) -> str:
    """What was typed, else HOLDFAST_URL, else the url in holdfast.toml, else a file here."""
    return _named(db) or DEFAULT


def is_named(db: str | None) -> bool:
    """Whether somebody said which ledger; else it is whatever the folder has, and the folder may be the wrong one."""
    return _named(db) is not None


def _named(db: str | None) -> str | None:
    return db or os.environ.get("HOLDFAST_URL") or setting("url") or None


def key_files(given: Sequence[str]) -> Sequence[str]:
    """What was typed, else what HOLDFAST_KEYS names, else the keys in holdfast.toml."""
    named = os.environ.get("HOLDFAST_KEYS", "").split(os.pathsep)
    return given or [path for path in named if path] or setting("keys") or []


def setting(name: str) -> Any:
    """What holdfast.toml says; None where it says nothing of that."""
    try:
        return settings.read().get(name)
    except settings.WrongSettings as error:
        raise misuse(str(error), action=f"Correct {settings.FILE}.") from None


def is_new(url: str) -> bool:
    """Whether opening it makes a file that is not there yet. Of a server nothing is known before it is asked."""
    path = url.removeprefix("sqlite:///")
    try:
        return path != url and not Path(unquote(path)).exists()
    except (OSError, ValueError):
        return False


def without_password(url: str, instead: str = ":…") -> str:
    """For people to see, whether or not it is a url that can be used."""
    place, mark, query = _PASSWORD.sub(rf"\1{instead}@", url, count=1).partition("?")
    kept = [part for part in query.split("&") if "password" not in unquote_plus(part.partition("=")[0]).casefold()]
    return f"{place}{mark}{'&'.join(kept)}" if kept else place
