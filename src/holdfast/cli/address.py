"""Which ledger a command is for."""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from holdfast.cli.envelope import misuse

SETTINGS = "holdfast.toml"
DEFAULT = "sqlite:///holdfast.db"


def ledger_url(db: str | None) -> str:
    """What was typed, else HOLDFAST_URL, else the url in holdfast.toml, else a file here."""
    return db or os.environ.get("HOLDFAST_URL") or _settings().get("url") or DEFAULT


def key_files(given: Sequence[str]) -> Sequence[str]:
    """What was typed, else what HOLDFAST_KEYS names, else the keys in holdfast.toml."""
    named = os.environ.get("HOLDFAST_KEYS", "").split(os.pathsep)
    return given or [path for path in named if path] or _settings().get("keys", [])


def is_new(url: str) -> bool:
    """Whether opening it makes a file that is not there yet. Of a server nothing is known before it is asked."""
    path = url.removeprefix("sqlite:///")
    try:
        return path != url and not Path(unquote(path)).exists()
    except (OSError, ValueError):
        return False


def _settings() -> dict[str, Any]:
    """Of this folder only, where a relative path in it means what it says. An unknown name is a mistake, not a wish."""
    try:
        found = tomllib.loads(Path(SETTINGS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise misuse(f"{SETTINGS} cannot be read: {error}", action=f"Correct {SETTINGS}.") from None
    if unknown := found.keys() - {"keys", "url"}:
        raise misuse(f"{SETTINGS} has no setting {min(unknown)!r:.80}; it has: keys, url", action=f"Correct {SETTINGS}.")
    if not isinstance(found.get("url", ""), str):
        raise misuse(f"{SETTINGS}: url must be a text", action=f"Correct {SETTINGS}.")
    keys = found.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(path, str) and path for path in keys):
        raise misuse(f"{SETTINGS}: keys must be a list of files", action=f"Correct {SETTINGS}.")
    return found


def without_password(url: str) -> str:
    """For people to see."""
    parts = urlsplit(url)
    if parts.password is None and "password" not in parts.query:
        return url
    host = parts.netloc.replace(f":{parts.password}@", ":…@") if parts.password is not None else parts.netloc
    kept = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    return urlunsplit(parts._replace(netloc=host, query=urlencode(kept)))
