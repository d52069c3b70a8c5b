"""The awaited verbs have the same names, parameters and answers as the others."""

import collections.abc
import inspect
import typing
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.aio import AsyncLedger, Opening
from holdfast.aio import ledger as made
from holdfast.aio.threads import AsyncWaiter
from holdfast.ledger import Ledger
from holdfast.store.base import Waiter
from holdfast.worker.app import App, Enqueuer
from holdfast.worker.async_app import AsyncApp, AsyncEnqueuer
from tools import async_ledger

FOR_SERVICES = {"history_writer", "outbox", "sealed_log", "seconds_to_firing", "supervision"}
"""Used by sweepers, relays, sealers, supervisors and the service that counts events, which run in their own threads."""


def members(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function, including names that its module imports for type checkers only."""
    return typing.get_type_hints(function, {**vars(made), **function.__globals__})


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    types = hints(function)
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default, types.get(one.name)) for one in found]


def answer(function: Callable[..., Any]) -> Any:
    return hints(function)["return"]


def test_the_generated_file_is_up_to_date() -> None:
    assert async_ledger.MADE.read_text() == async_ledger.made(), "run `make docs`"


def test_every_verb_of_a_ledger_can_be_awaited() -> None:
    assert members(AsyncLedger).keys() - {"sync"} == members(Ledger).keys() - FOR_SERVICES | {"incarnation"}


def test_verbs_have_the_same_parameters_and_answers() -> None:
    verbs = {name: verb for name, verb in members(Ledger).items() if inspect.isfunction(verb)}
    assert len(verbs) > 50
    for name, verb in verbs.items():
        awaited = getattr(AsyncLedger, name)
        assert parameters(awaited) == parameters(verb), name
        expected = answer(verb)
        if typing.get_origin(expected) is collections.abc.Generator:
            assert typing.get_origin(answer(awaited)) is collections.abc.AsyncGenerator, name
            assert typing.get_args(answer(awaited)) == typing.get_args(expected)[:2], name
            continue
        assert inspect.iscoroutinefunction(awaited), name
        assert answer(awaited) == (AsyncWaiter if expected is Waiter else expected), name


def test_properties_have_the_same_types() -> None:
    for name, found in members(AsyncLedger).items():
        if isinstance(found, property) and name not in {"sync", "incarnation"}:
            own, theirs = found.fget, getattr(Ledger, name).fget
            assert own is not None and theirs is not None
            assert answer(own) == answer(theirs), name
            assert (found.fset is None) == (getattr(Ledger, name).fset is None), name


def test_opening_takes_the_same_options() -> None:
    assert parameters(holdfast.aio.open) == parameters(holdfast.open)
    assert answer(holdfast.aio.open) is Opening


def test_fences_are_checked_with_the_same_arguments() -> None:
    assert parameters(holdfast.aio.check_fence) == parameters(holdfast.check_fence)
    assert answer(holdfast.aio.check_fence) == answer(holdfast.check_fence)


def test_every_app_method_that_writes_to_the_ledger_can_be_awaited() -> None:
    """Handlers are registered, and workers run, without `await`."""
    assert members(AsyncApp).keys() == {"enqueue", "enqueue_many", "options", "close"}
    assert members(AsyncEnqueuer).keys() == members(Enqueuer).keys()
    assert parameters(AsyncApp.options) == parameters(App.options)
    for kind, awaited in ((App, AsyncApp), (Enqueuer, AsyncEnqueuer)):
        for name in ("enqueue", "enqueue_many"):
            sync, found = getattr(kind, name), getattr(awaited, name)
            assert parameters(found) == parameters(sync)
            assert answer(found) == answer(sync)


def test_overloads_for_handlers_are_the_same() -> None:
    sync, awaited = typing.get_overloads(App.enqueue), typing.get_overloads(AsyncApp.enqueue)
    assert len(sync) == len(awaited) > 1
    for one, other in zip(sync, awaited, strict=True):
        assert inspect.iscoroutinefunction(other)
        assert (one.__annotations__, one.__kwdefaults__) == (other.__annotations__, other.__kwdefaults__)
