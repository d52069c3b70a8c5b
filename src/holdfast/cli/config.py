"""The ledger, keys, agent and apps of a command: from its options, the environment or holdfast.toml."""

import importlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import click

from holdfast.cli.output import CommandError, usage_error
from holdfast.files import settings

if TYPE_CHECKING:
    from holdfast.ledger.validators import Hooks
    from holdfast.proof.keys import KeyFile
    from holdfast.services.sinks import Sink
    from holdfast.worker import App


log = logging.getLogger("holdfast.cli")

_APP_NAME_HINT = "Name it as module:app."


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


class LazyAppHooks:
    """The validators and conflict detectors of the app that holdfast.toml names, imported when they are first used."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: App | None = None

    def load(self) -> "App":
        if self._found is None:
            _add_current_folder_to_path()
            try:
                self._found = _load_app(self._name)
            except CommandError as error:
                error.message = f"validators in holdfast.toml: {error.message}"
                raise
        return self._found

    def has_hooks(self) -> bool:
        return self.load().has_hooks()

    def hooks_of(self, kind: str) -> "Hooks":
        return self.load().hooks_of(kind)


def _add_current_folder_to_path() -> None:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings


def load_apps(names: Sequence[str], db: str | None, keys: "Sequence[KeyFile]" = ()) -> "list[App]":
    """Return the apps named `module:app`, using the ledger `db` and the given keys. Raise if they have different ledgers."""
    _add_current_folder_to_path()
    apps = [_load_app(name) for name in dict.fromkeys(names)]
    for app in apps:
        if db is not None or keys:
            app.move(db or app.url, keys=keys or None)
    urls = {app.url for app in apps}
    if len(urls) > 1:
        shown = ", ".join(sorted(map(without_password, urls)))
        raise usage_error(
            f"these apps are for different ledgers: {shown}", action="Name one with --db, or start a worker for each."
        )
    if db is None:
        _warn_about_other_ledger(urls.pop())
    return apps


def load_sinks(name: str | None) -> "Sequence[Sink]":
    """Return the sinks of the app that is named `module:app`. Without a name there are none."""
    if name is None:
        return ()
    _add_current_folder_to_path()
    return _load_app(name).sinks


def _warn_about_other_ledger(url: str) -> None:
    """Warn if the environment or holdfast.toml names another ledger than the app. The app's own ledger is used.

    Without the warning, an operator would only see jobs that never run.
    """
    named = named_url()
    if named is not None and named[0] != url:
        other, by = named
        ledgers = {"ledger": without_password(url), "not": without_password(other)}
        log.warning("using the ledger that the app names; %s names another one", by, extra=ledgers)


def _load_app(name: str) -> "App":
    from holdfast.worker import App

    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise usage_error(f"{name:.200} does not name an app", action=_APP_NAME_HINT)
    found: Any = _import_module(module)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise usage_error(f"there is no {path:.200} in {module:.200}", action=_APP_NAME_HINT) from None
    if not isinstance(found, App):
        raise usage_error(f"{name:.200} is not an App but of type {type(found).__name__}", action=_APP_NAME_HINT)
    return found


def _import_module(name: str) -> ModuleType:
    """Import a module. If its own code fails, print the traceback from the first line of that code."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"Name the module, not its file: {name[:-3]}." if name.endswith(".py") else "Check its name and the folder."
            raise usage_error(f"there is no module {name:.200}", action=hint) from None
        _print_traceback(error)
    except (TypeError, ValueError) as error:
        if not name.strip(".") or name.startswith("."):
            raise usage_error(f"{name:.200} is not the name of a module", action=_APP_NAME_HINT) from None
        _print_traceback(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the module is not part of Holdfast
        _print_traceback(error)
    raise CommandError(
        "import_failed", f"{name:.200} failed while it was imported", action="The traceback says where.", module=name
    )


def _print_traceback(error: BaseException) -> None:
    lines = traceback.format_exception(type(error), error, _skip_own_frames(error.__traceback__))
    click.echo("".join(lines), err=True, nl=False)


def _skip_own_frames(trace: TracebackType | None) -> TracebackType | None:
    ours = (__file__, importlib.__file__)
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in ours or "<frozen importlib" in trace.tb_frame.f_code.co_filename
    ):
        trace = trace.tb_next
    return trace
