"""Finding the apps that are named on a command line."""

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.address import named_url, without_password
from holdfast.cli.envelope import Failed, misuse

if TYPE_CHECKING:
    from holdfast.core.proof.keyfile import KeyFile
    from holdfast.ledger.validating import Hooks
    from holdfast.worker import App

log = logging.getLogger("holdfast.cli")

_NAME_IT = "Name it as module:app."


class NamedHooks:
    """The validators and conflict detectors of the app that holdfast.toml names, imported when they are first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: App | None = None

    def load(self) -> "App":
        if self._found is None:
            _look_here()
            try:
                self._found = _app(self._name)
            except Failed as error:
                error.message = f"validators in holdfast.toml: {error.message}"
                raise
        return self._found

    def has_hooks(self) -> bool:
        return self.load().has_hooks()

    def hooks_of(self, kind: str) -> "Hooks":
        return self.load().hooks_of(kind)


def _look_here() -> None:
    """Modules of the current folder are found too."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - what sys.path holds are texts


def load(names: Sequence[str], db: str | None, keys: "Sequence[KeyFile]" = ()) -> "list[App]":
    """The apps by their names, `module:app`, for the ledger `db` and with the keys that are given. They share one ledger."""
    _look_here()
    apps = [_app(name) for name in dict.fromkeys(names)]
    for app in apps:
        if db is not None or keys:
            app.move(db or app.url, keys=keys or None)
    urls = {app.url for app in apps}
    if len(urls) > 1:
        shown = ", ".join(sorted(map(without_password, urls)))
        raise misuse(f"these apps are for different ledgers: {shown}", action="Name one with --db, or start a worker for each.")
    if db is None:
        _warn_of_another(urls.pop())
    return apps


def _warn_of_another(url: str) -> None:
    """An app's own ledger wins. Whoever named another one beside it should hear of that, not of jobs that never run."""
    named = named_url()
    if named is not None and named[0] != url:
        other, by = named
        told = {"ledger": without_password(url), "not": without_password(other)}
        log.warning("the app names its ledger itself, and that is used: %s names another one", by, extra=told)


def _app(name: str) -> "App":
    from holdfast.worker import App

    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise misuse(f"{name:.200} does not name an app", action=_NAME_IT)
    found: Any = _module(module)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise misuse(f"there is no {path:.200} in {module:.200}", action=_NAME_IT) from None
    if not isinstance(found, App):
        raise misuse(f"{name:.200} is not an App but of type {type(found).__name__}", action=_NAME_IT)
    return found


def _module(name: str) -> ModuleType:
    """The module. What goes wrong inside it is its author's to see, from where their code begins."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"Name the module, not its file: {name[:-3]}." if name.endswith(".py") else "Check its name and the folder."
            raise misuse(f"there is no module {name:.200}", action=hint) from None
        _show(error)
    except (TypeError, ValueError) as error:
        if not name.strip(".") or name.startswith("."):
            raise misuse(f"{name:.200} is not the name of a module", action=_NAME_IT) from None
        _show(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's module
        _show(error)
    raise Failed("import_failed", f"{name:.200} failed while it was imported", action="The traceback says where.", module=name)


def _show(error: BaseException) -> None:
    lines = traceback.format_exception(type(error), error, _from_their_code(error.__traceback__))
    click.echo("".join(lines), err=True, nl=False)


def _from_their_code(trace: TracebackType | None) -> TracebackType | None:
    ours = (__file__, importlib.__file__)
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in ours or "<frozen importlib" in trace.tb_frame.f_code.co_filename
    ):
        trace = trace.tb_next
    return trace
