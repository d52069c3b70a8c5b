"""A handler: a function and how it is to be run."""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import ValidationError
from holdfast.ledger import admit
from holdfast.ledger.validating import Hooks, Validator, callables
from holdfast.worker.context import AsyncContext, Context
from holdfast.worker.judge import Rules
from holdfast.worker.signature import Signature

Isolation = Literal["thread", "loop", "process"]
Check = Callable[[Context], Any]
"""Looks at a job before it starts. Raising, or answering False, keeps it from starting."""

TIMEOUT_MS_MAX = 30 * policies.DAY_MS
CONCURRENCY_MAX = 10_000


class Place(msgspec.Struct, frozen=True):
    """How another process finds a handler's function: the module and the name in it, or the script that was the main program."""

    module: str
    name: str
    path: str | None = None


class Handler(msgspec.Struct, frozen=True, eq=False):
    kind: str
    queue: str
    function: Callable[..., Any]
    signature: Signature
    isolation: Isolation
    policy: dict[str, Any]
    """What it declares for its kind, by the names of `set_policy`; empty where it leaves that to the ledger."""
    concurrency: int | None
    """How many of these one worker runs at once; None for as many as it has room for."""
    timeout_s: float | None
    rules: Rules
    checks: tuple[Check, ...]
    hooks: Hooks
    """What looks at its results."""
    check_result: Callable[[Any], None] | None
    """Raises for a plain result that does not fit the return annotation; None where nothing is checked."""
    gate: bool
    """Whether a result is recorded only if the gate lets the attempt pass at that moment."""
    options: dict[str, Any]
    """What its jobs are enqueued with unless the caller says otherwise."""
    context_type: type[Context]
    place: Place


def make(
    kind: str,
    function: Callable[..., Any],
    *,
    queue: str,
    isolation: Isolation | None,
    policy: dict[str, Any],
    concurrency: int | None,
    timeout: Any,
    retry_on: Sequence[type[BaseException]],
    fail_on: Sequence[type[BaseException]],
    checks: Sequence[Check],
    validators: Sequence[Validator],
    conflicts: Sequence[Validator],
    check_result: bool,
    gate: bool,
    options: dict[str, Any],
) -> Handler:
    """A handler, or a ValidationError for what cannot work."""
    policies.settings(policy)
    signature = Signature(function, Context)
    return Handler(
        kind=limits.check_name("kind", kind),
        queue=limits.check_name("queue", queue),
        function=function,
        signature=signature,
        isolation=_isolation(function, isolation),
        policy=policy,
        concurrency=None if concurrency is None else limits.check_integer("concurrency", concurrency, 1, CONCURRENCY_MAX),
        timeout_s=None if timeout is None else policies.duration_ms("timeout", timeout, 1, TIMEOUT_MS_MAX) / 1_000,
        rules=Rules(_errors("retry_on", retry_on), _errors("fail_on", fail_on)),
        checks=callables("checks", checks),
        hooks=Hooks(callables("validators", validators), callables("conflicts", conflicts)),
        check_result=signature.result_check() if admit.switch("check_result", check_result) else None,
        gate=admit.switch("gate", gate),
        options=options,
        context_type=_context_type(function, signature.context_type),
        place=_place(function, isolation),
    )


def _isolation(function: Callable[..., Any], asked: Any) -> Isolation:
    is_async = inspect.iscoroutinefunction(function)
    chosen: Isolation = asked or ("loop" if is_async else "thread")
    if chosen not in ("thread", "loop", "process"):
        raise ValidationError('isolation must be "thread", "loop" or "process"', field="isolation")
    if chosen == "thread" and is_async:
        raise ValidationError('an async handler runs on the loop, or in isolation="process"', field="isolation")
    if chosen == "loop" and not is_async:
        raise ValidationError('only an async handler runs on the loop: use "thread" or "process"', field="isolation")
    return chosen


def _context_type(function: Callable[..., Any], annotated: type[Context] | None) -> type[Context]:
    is_async = inspect.iscoroutinefunction(function)
    if annotated is AsyncContext and not is_async:
        raise ValidationError("an AsyncContext is awaited: only an async def can take one", field="handler")
    return annotated or (AsyncContext if is_async else Context)


def _errors(what: str, given: Any) -> tuple[type[BaseException], ...]:
    kinds = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise ValidationError(f"{what} must be classes of exceptions", field=what)
    return kinds


def _place(function: Callable[..., Any], isolation: Any) -> Place:
    name: str = getattr(function, "__qualname__", "")
    if isolation == "process" and (not name or "<" in name):
        raise ValidationError(
            "a handler for child processes is a function of a module: they import it by name", field="isolation"
        )
    module: str = getattr(function, "__module__", "")
    if module != "__main__":
        return Place(module, name)
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # python -m package.module: it can be imported by that name
        return Place(spec.name, name)
    path = getattr(main, "__file__", None)
    if isolation == "process" and path is None:
        raise ValidationError(
            "a handler for child processes lives in a file: they cannot import what was typed in", field="isolation"
        )
    return Place(module, name, path)
