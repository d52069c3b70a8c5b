"""`holdfast.toml`: the settings of a folder, for commands that run in it and for apps that name no ledger themselves."""

import os
from typing import Any

from holdfast.files.regular import read_regular

FILE_NAME = "holdfast.toml"
BYTES_MAX = 65_536
DEFAULT_URL = "sqlite:///holdfast.db"
TEXT_SETTINGS = ("agent", "ca_file", "session", "token_file", "url", "validators")
SETTINGS = ("agent", "ca_file", "keys", "server", "session", "token_file", "url", "validators")


class SettingsError(Exception):
    """The file is invalid. The message names it, and the setting."""


def named_url() -> tuple[str, str] | None:
    """Return the url of the ledger and its source: HOLDFAST_URL, else holdfast.toml. Return None if neither has one."""
    if url := os.environ.get("HOLDFAST_URL"):
        return url, "HOLDFAST_URL"
    url = read_settings().get("url")
    return None if url is None else (url, FILE_NAME)


def ledger_url() -> str:
    """Return the default url: HOLDFAST_URL, else the url in holdfast.toml, else a file in this folder."""
    named = named_url()
    return DEFAULT_URL if named is None else named[0]


def read_settings() -> dict[str, Any]:
    """Read holdfast.toml of the current folder only, so that relative paths in it work. An unknown setting is an error."""
    try:
        text = read_regular(FILE_NAME, BYTES_MAX).decode()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{FILE_NAME} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{FILE_NAME} cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})") from None
    import tomllib  # imported here to keep `task heartbeat` fast: most folders have no such file

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
            raise SettingsError(f"{FILE_NAME}: {name} must be a non-empty text")
    if not isinstance(found.get("server", {}), dict):
        raise SettingsError(f"{FILE_NAME}: server must be a table: write [server], and its options below it")
    keys = found.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(path, str) and path for path in keys):
        raise SettingsError(f"{FILE_NAME}: keys must be a list of files")
