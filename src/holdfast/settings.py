"""`holdfast.toml`: what a folder says to the commands that are typed in it, and to apps that name no ledger themselves."""

import os
from typing import Any

from holdfast.regular_file import read_regular

FILE_NAME = "holdfast.toml"
BYTES_MAX = 65_536
DEFAULT_URL = "sqlite:///holdfast.db"
TEXT_SETTINGS = ("agent", "session", "url", "validators")
SETTINGS = ("agent", "keys", "session", "url", "validators")


class SettingsError(Exception):
    """The file cannot be meant; the message names it, and the setting."""


def named_url() -> tuple[str, str] | None:
    """The ledger that is named outside of any program, and by what: by HOLDFAST_URL, else by holdfast.toml."""
    if url := os.environ.get("HOLDFAST_URL"):
        return url, "HOLDFAST_URL"
    url = read_settings().get("url")
    return None if url is None else (url, FILE_NAME)


def ledger_url() -> str:
    """The ledger of who names none: HOLDFAST_URL, else the url in holdfast.toml, else a file here."""
    named = named_url()
    return DEFAULT_URL if named is None else named[0]


def read_settings() -> dict[str, Any]:
    """Of this folder only, where a relative path in it means what it says. An unknown name is a mistake, not a wish."""
    try:
        text = read_regular(FILE_NAME, BYTES_MAX).decode()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{FILE_NAME} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{FILE_NAME} cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})") from None
    import tomllib  # here, as most folders have no such file and a beat has no time

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{FILE_NAME} cannot be read: {error}") from None
    _check_settings(found)
    return found


def _check_settings(found: dict[str, Any]) -> None:
    if unknown := found.keys() - set(SETTINGS):
        raise SettingsError(f"{FILE_NAME} has no setting {min(unknown)!r:.80}; it has: {', '.join(SETTINGS)}")
    for name in TEXT_SETTINGS:
        if name in found and not (isinstance(found[name], str) and found[name]):
            raise SettingsError(f"{FILE_NAME}: {name} must be a text, and not an empty one")
    keys = found.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(path, str) and path for path in keys):
        raise SettingsError(f"{FILE_NAME}: keys must be a list of files")
