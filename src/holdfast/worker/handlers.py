"""Handlers: a function, its options, and the registry that finds it by kind or by function."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.public import Duration, HandlerOptions, PolicyFields
from holdfast.ledger.validators import Hooks, Validator, callables
from holdfast.worker.context import AsyncContext, BatchContext, Context
from holdfast.worker.failures import RetryRules
from holdfast.worker.signature import BatchSignature, Signature

Isolation = Literal["thread", "loop", "process"]
Check = Callable[[Context], Any]
"""Checks a job before it starts. The job does not start if it raises or returns False."""

TIMEOUT_MS_MAX = 30 * policies.DAY_MS
CONCURRENCY_MAX = 10_000


class HandlerLocation(msgspec.Struct, frozen=True):
    """Where another process finds a handler's function: a module, or the script of the main program, and the name in it."""

    module: str
    name: str
    path: str | None = None


BATCH_WAIT_MS_MAX = 60_000


class Handler(msgspec.Struct, frozen=True, eq=False):
    kind: str
    queue: str
    function: Callable[..., Any]
    signature: Signature
    isolation: Isolation
    policy: dict[str, Any]
    """The policy that it declares for its kind, with the field names of `set_policy`. May be empty."""
    concurrency: int | None
    """How many jobs of this kind one worker runs at once; None for no limit but the pool's size."""
    timeout_s: float | None
    rules: RetryRules
    checks: tuple[Check, ...]
    hooks: Hooks
    """Validators and conflict detectors of its results."""
    check_result: Callable[[Any], None] | None
    """Raises for a plain result that does not match the return annotation; None if results are not checked."""
    takes_none: bool
    """Whether nothing can refuse None as a result: no hook is registered, and the return annotation allows it."""
    gate: bool
    """Whether a result is recorded only if the attempt passes the gate at that moment."""
    options: dict[str, Any]
    """The options with which its jobs are enqueued unless the caller gives others."""
    context_type: type[Context]
    location: HandlerLocation
    batch: int | None = None
    """The most jobs of a batch, if the function takes a list of jobs."""
    batch_wait_s: float = 0.0
    """How long a batch that is not full waits for more jobs."""
    schedules: dict[str, dict[str, Any]] = {}
    """Schedules of its jobs by name, with the arguments of `ledger.set_schedule`. A worker declares them when it starts."""

    @property
    def pool(self) -> str:
        """The name of the pool that runs it: that of its isolation, or one of its own."""
        return self.isolation if self.batch is None else f"batch {self.kind}"

    def call(self, context: Context, args: Mapping[str, Any]) -> Any:
        """Call the function. An async function returns its coroutine."""
        return self.function(context, **args) if self.signature.takes_context else self.function(**args)


class HandlerSettings(HandlerOptions, total=False):
    """The arguments of `app.handler` besides the kind, for type checkers."""

    queue: str
    isolation: Isolation | None
    lease_ttl: Duration | None
    attempts_max: int | None
    timeout: Duration | None
    concurrency: int | None
    retry_on: Sequence[type[BaseException]] | type[BaseException]
    fail_on: Sequence[type[BaseException]] | type[BaseException]
    checks: Sequence[Check] | Check
    validators: Sequence[Validator] | Validator
    conflicts: Sequence[Validator] | Validator
    check_result: bool | None
    gate: bool
    policy: PolicyFields | None


def make_handler(
    kind: str,
    function: Callable[..., Any],
    *,
    queue: str = "default",
    isolation: Isolation | None = None,
    lease_ttl: Any = None,
    attempts_max: int | None = None,
    policy: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    timeout: Any = None,
    retry_on: Any = (Exception,),
    fail_on: Any = (),
    checks: Sequence[Check] = (),
    validators: Sequence[Validator] = (),
    conflicts: Sequence[Validator] = (),
    check_result: bool = True,
    gate: bool = False,
    batch: int | None = None,
    batch_wait: Any = None,
    **options: Any,
) -> Handler:
    """Return a handler. Raise ValidationError for options that are invalid or do not fit the function."""
    shortcuts = {"lease_ttl": lease_ttl, "attempts_max": attempts_max}
    declared = {**(policy or {}), **{name: value for name, value in shortcuts.items() if value is not None}}
    policies.read_settings(declared)
    if batch is not None:
        _check_batch(function, isolation, concurrency)
    elif batch_wait is not None:
        raise ValidationError("batch_wait needs batch", field="batch_wait")
    signature = Signature(function, Context) if batch is None else BatchSignature(function, BatchContext)
    hooks = Hooks(callables("validators", validators), callables("conflicts", conflicts))
    is_checked = validate.switch("check_result", check_result) and batch is None
    result_check = signature.result_check() if is_checked else None
    return Handler(
        kind=limits.check_name("kind", kind),
        queue=limits.check_name("queue", queue),
        function=function,
        signature=signature,
        isolation=_isolation(function, isolation),
        policy=declared,
        concurrency=None if concurrency is None else limits.check_integer("concurrency", concurrency, 1, CONCURRENCY_MAX),
        timeout_s=None if timeout is None else policies.duration_ms("timeout", timeout, 1, TIMEOUT_MS_MAX) / 1_000,
        rules=RetryRules(_exception_types("retry_on", retry_on), _exception_types("fail_on", fail_on)),
        checks=callables("checks", checks),
        hooks=hooks,
        check_result=result_check,
        takes_none=hooks == Hooks() and _allows_none(result_check),
        gate=validate.switch("gate", gate),
        options=options,
        context_type=_context_type(function, signature.context_type),
        location=_location(function, isolation),
        batch=None if batch is None else limits.check_integer("batch", batch, 1, limits.CLAIM_BATCH_MAX),
        batch_wait_s=policies.duration_ms("batch_wait", batch_wait or 0, 0, BATCH_WAIT_MS_MAX) / 1_000,
    )


def _check_batch(function: Callable[..., Any], isolation: Any, concurrency: Any) -> None:
    if inspect.iscoroutinefunction(function) or isolation not in (None, "thread"):
        raise ValidationError("a batch handler runs in a thread: it is no async def and has no isolation", field="batch")
    if concurrency is not None:
        raise ValidationError("a worker runs one batch of a kind at a time: batch takes the place of concurrency", field="batch")


def _allows_none(check_result: Callable[[Any], None] | None) -> bool:
    if check_result is not None:
        try:
            check_result(None)
        except Exception:  # noqa: BLE001 - an annotation may run user code; its result is then checked at each call
            return False
    return True


def _isolation(function: Callable[..., Any], requested: Any) -> Isolation:
    is_async = inspect.iscoroutinefunction(function)
    chosen: Isolation = requested or ("loop" if is_async else "thread")
    if chosen not in ("thread", "loop", "process"):
        raise ValidationError('isolation must be "thread", "loop" or "process"', field="isolation")
    if chosen == "thread" and is_async:
        raise ValidationError('an async handler runs on the loop, or in isolation="process"', field="isolation")
    if chosen == "loop" and not is_async:
        raise ValidationError('only an async handler runs on the loop: use "thread" or "process"', field="isolation")
    return chosen


def _context_type(function: Callable[..., Any], annotated: type[Context] | None) -> type[Context]:
    if annotated is BatchContext:
        return BatchContext
    is_async = inspect.iscoroutinefunction(function)
    if annotated is AsyncContext and not is_async:
        raise ValidationError("the methods of an AsyncContext are awaited: only an async def can take one", field="handler")
    return annotated or (AsyncContext if is_async else Context)


def _exception_types(what: str, given: Any) -> tuple[type[BaseException], ...]:
    kinds = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise ValidationError(f"{what} must be classes of exceptions", field=what)
    return kinds


def _location(function: Callable[..., Any], isolation: Any) -> HandlerLocation:
    name: str = getattr(function, "__qualname__", "")
    if isolation == "process" and (not name or "<" in name):
        raise ValidationError(
            "a handler for child processes must be a function of a module: they import it by name", field="isolation"
        )
    module: str = getattr(function, "__module__", "")
    if module != "__main__":
        return HandlerLocation(module, name)
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # python -m package.module: it can be imported by that name
        return HandlerLocation(spec.name, name)
    path = getattr(main, "__file__", None)
    if isolation == "process" and path is None:
        raise ValidationError(
            "a handler for child processes must be in a file: they cannot import code that was typed in", field="isolation"
        )
    return HandlerLocation(module, name, path)


class HandlerRegistry:
    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        self._by_kind: dict[str, Handler] = {}
        self._by_function: dict[Callable[..., Any], Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        if handler.kind in self._by_kind:
            raise ValidationError(f"there are two handlers for {handler.kind!r}", field="kind")
        self._by_kind[handler.kind] = handler
        self._by_function[handler.function] = handler

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)

    def of_kind(self, kind: str) -> Handler | None:
        return self._by_kind.get(kind)

    def find(self, named: Any) -> Handler:
        """Return the handler of a function or a kind. Raise ValidationError if there is none."""
        handler = self._by_kind.get(named) if isinstance(named, str) else self._by_function.get(named)
        if handler is None:
            name = named if isinstance(named, str) else getattr(named, "__qualname__", repr(named))
            raise ValidationError(f"{name:.200} is not a handler of this app", field="handler")
        return handler

    def item(self, named: Any, args: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item for `enqueue_many`, with the arguments checked against the handler's signature."""
        handler = self.find(named)
        return {"kind": handler.kind, "queue": handler.queue, **handler.options, **options, "args": handler.signature.admit(args)}
