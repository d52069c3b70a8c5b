"""`holdfast.toml`: what a folder says to the commands that are typed in it, and to apps that name no ledger themselves."""

import os
from typing import Any

from holdfast.plainfile import read_plain

FILE = "holdfast.toml"
BYTES_MAX = 65_536
DEFAULT_URL = "sqlite:///holdfast.db"
TEXTS = ("agent", "session", "url", "validators")
NAMES = ("agent", "keys", "session", "url", "validators")


class WrongSettings(Exception):
    """The file cannot be meant; the message names it, and the setting."""


def named_url() -> tuple[str, str] | None:
    """The ledger that is named outside of any program, and by what: by HOLDFAST_URL, else by holdfast.toml."""
    if url := os.environ.get("HOLDFAST_URL"):
        return url, "HOLDFAST_URL"
    url = read().get("url")
    return None if url is None else (url, FILE)


def ledger_url() -> str:
    """The ledger of who names none: HOLDFAST_URL, else the url in holdfast.toml, else a file here."""
    named = named_url()
    return DEFAULT_URL if named is None else named[0]


def read() -> dict[str, Any]:
    """Of this folder only, where a relative path in it means what it says. An unknown name is a mistake, not a wish."""
    try:
        text = read_plain(FILE, BYTES_MAX).decode()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise WrongSettings(f"{FILE} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WrongSettings(f"{FILE} cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})") from None
    import tomllib  # here, as most folders have no such file and a beat has no time

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise WrongSettings(f"{FILE} cannot be read: {error}") from None
    _check(found)
    return found


def _check(found: dict[str, Any]) -> None:
    if unknown := found.keys() - set(NAMES):
        raise WrongSettings(f"{FILE} has no setting {min(unknown)!r:.80}; it has: {', '.join(NAMES)}")
    for name in TEXTS:
        if name in found and not (isinstance(found[name], str) and found[name]):
            raise WrongSettings(f"{FILE}: {name} must be a text, and not an empty one")
    keys = found.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(path, str) and path for path in keys):
        raise WrongSettings(f"{FILE}: keys must be a list of files")
