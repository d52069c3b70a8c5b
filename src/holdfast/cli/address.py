"""What holds where nothing else is typed: which ledger a command is for, with which keys, and who asks."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from holdfast import settings
from holdfast.cli.envelope import misuse

DEFAULT = "sqlite:///holdfast.db"


def ledger_url(db: str | None) -> str:
    """What was typed, else HOLDFAST_URL, else the url in holdfast.toml, else a file here."""
    return db or os.environ.get("HOLDFAST_URL") or setting("url") or DEFAULT


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


def without_password(url: str) -> str:
    """For people to see."""
    parts = urlsplit(url)
    if parts.password is None and "password" not in parts.query:
        return url
    host = parts.netloc.replace(f":{parts.password}@", ":…@") if parts.password is not None else parts.netloc
    kept = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    return urlunsplit(parts._replace(netloc=host, query=urlencode(kept)))
