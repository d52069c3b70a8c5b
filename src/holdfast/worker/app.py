"""App: registers handlers, enqueues jobs for them and makes workers that run them."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from holdfast.composition import Clock, open
from holdfast.core import limits
from holdfast.core.schedule import Missed, Overlap
from holdfast.errors import Forbidden, ValidationError
from holdfast.files import settings
from holdfast.files.keys import KeySource
from holdfast.ledger import Job, Ledger, validate
from holdfast.ledger.options import check_options
from holdfast.ledger.public import CallOptions, Duration, HandlerOptions
from holdfast.ledger.sweep import Entropy
from holdfast.ledger.validators import Hooks, Validator
from holdfast.ledger.verbs.schedules import read_timing
from holdfast.worker.enqueue import OPTIONS, EnqueueMethods
from holdfast.worker.handlers import Check, Handler, HandlerRegistry, HandlerSettings, make_handler
from holdfast.worker.worker import Worker, WorkerSettings, declare_handlers

if TYPE_CHECKING:
    from holdfast.services.sinks import Sink
    from holdfast.worker.async_app import AsyncApp
    from holdfast.worker.context import BatchContext

F = TypeVar("F", bound=Callable[..., Any])


class Enqueuer(EnqueueMethods):
    """Enqueue jobs with options: `app.options(priority=5, delay="5m").enqueue(index_page, url=…)`."""

    def __init__(self, app: "App", options: Mapping[str, Any]) -> None:
        self._app = app
        self._call_options = {name: options[name] for name in ("request_id", "actor", "connection") if name in options}
        self._options = {name: value for name, value in options.items() if name not in self._call_options}

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        return self.enqueue_many(handler, [self._app.registry.find(handler).signature.bind_arguments(args, kwargs)])[0]

    def enqueue_many(self, handler: Any, args: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs for one handler in one transaction: all or none."""
        items = [self._app.registry.item(handler, arguments, self._options) for arguments in args]
        self._app.declare_new(self._app.registry.find(handler))
        return self._app.ledger.enqueue_many(items, **self._call_options)


class App(EnqueueMethods):
    """A set of handlers and the ledger with their jobs. The ledger is opened when it is first used.

    Without a url, the app uses the same ledger as the command line: HOLDFAST_URL, else the url in holdfast.toml, else
    sqlite:///holdfast.db. With `check_result=False`, results are not checked against the return annotations of handlers, unless
    a handler sets `check_result=True`.
    """

    def __init__(
        self,
        url: str | Ledger | None = None,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        keys: Iterable[KeySource] | None = None,
        check_result: bool = True,
    ) -> None:
        self._opening = threading.Lock()
        self._bind(_configured_url() if url is None else url, clock, entropy, keys)
        self._check_result = validate.switch("check_result", check_result)
        self.registry = HandlerRegistry()
        self._checks: list[Check] = []
        self._validators: list[Validator] = []
        self._conflicts: list[Validator] = []
        self._declared: tuple[Ledger | None, set[str]] = (None, set())
        """The kinds that are known to be declared, and in which ledger."""
        self.sinks: list[Sink] = []

    def _bind(self, url: str | Ledger, clock: Clock | None, entropy: Entropy | None, keys: Iterable[KeySource] | None) -> None:
        self._url = url if isinstance(url, str) else None
        self._ledger = url if isinstance(url, Ledger) else None
        self.clock = clock
        """The clock that a test gives the ledger; None for the real clock."""
        self._entropy = entropy
        self._keys = None if keys is None else list(keys)

    @property
    def ledger(self) -> Ledger:
        with self._opening:
            if self._ledger is None:
                assert self._url is not None
                self._ledger = open(self._url, clock=self.clock, entropy=self._entropy, keys=self._keys, validators=self)
            return self._ledger

    @cached_property
    def aio(self) -> "AsyncApp":
        """The same methods as coroutines: `await app.aio.enqueue(handler, …)`."""
        from holdfast.worker.async_app import AsyncApp

        return AsyncApp(self)

    @contextlib.contextmanager
    def bound_to(
        self,
        url: str | Ledger,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        keys: Iterable[KeySource] | None = None,
    ) -> Iterator[Self]:
        """Use another ledger within a `with app.bound_to(url):` block, for example the ledger of a test."""
        before = self._url, self._ledger, self.clock, self._entropy, self._keys
        self._bind(url, clock, entropy, keys)
        try:
            yield self
        finally:
            self.close()
            self._url, self._ledger, self.clock, self._entropy, self._keys = before

    # Handlers

    @overload
    def handler(self, function: F, /) -> F: ...
    @overload
    def handler(
        self, kind: str | None = None, *, batch: int, **options: Any
    ) -> "Callable[[Callable[[list[BatchContext]], Any]], Callable[..., Any]]": ...
    @overload
    def handler(self, kind: str | None = None, **options: Unpack[HandlerSettings]) -> Callable[[F], F]: ...
    def handler(self, kind: Any = None, **options: Any) -> Any:
        """Register a function as the handler of a kind of job. The kind is the function's name unless `kind` is given.

        `lease_ttl`, `attempts_max` and `policy` (the fields of `set_policy`) are declared to the ledger when a worker starts.
        `timeout` limits the time of one attempt. `concurrency` limits how many jobs of this kind one worker runs at once.
        An attempt that raises an exception of `retry_on` (by default any) is retried; one of `fail_on` is not. `checks` run
        before the start, `validators` and `conflicts` before a result is recorded. A result that does not match the return
        annotation is a permanent failure, unless `check_result` is false; the default is the app's `check_result`. With `gate`,
        a result is recorded only if the attempt passes the gate at that moment. With `batch`, the function takes a list of up to
        so many jobs, each a BatchContext; a batch that is not full waits up to `batch_wait` for more jobs.
        Other options (priority, tier, …) are the defaults with which its jobs are enqueued.
        """
        if callable(kind):
            return self.handler()(kind)
        if kind is not None and not isinstance(kind, str):
            raise ValidationError("a kind is a text", field="kind")
        check_options("handler", options, _HANDLER_OPTIONS)
        validate.draws(options.get("limits") or ())
        validate.labels("requires", options.get("requires") or (), limits.LABELS_REQUIRED_MAX)

        def register(function: F) -> F:
            by_all: dict[str, list[Any]] = {"checks": self._checks, "validators": self._validators, "conflicts": self._conflicts}
            settings = options | {name: [*hooks, *_as_list(options.get(name, ()))] for name, hooks in by_all.items()}
            if settings.get("check_result") is None:
                settings["check_result"] = self._check_result
            registered = make_handler(validate.unreserved_name("kind", kind or function.__name__), function, **settings)
            self.registry.add(registered)
            function.__holdfast_handler__ = registered  # type: ignore[attr-defined]
            function.__holdfast_app__ = self  # type: ignore[attr-defined]
            return function

        return register

    def schedule(
        self,
        name: str,
        handler: Any = None,
        *,
        args: Mapping[str, Any] | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        missed: str = "one",
        overlap: str = "allow",
        jitter: Duration = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Any:
        """Declare a schedule of jobs for a handler. Workers store it in the ledger when they start.

        The arguments are those of `ledger.set_schedule`; `args` are checked against the handler's signature. Without a handler
        this is a decorator, to be written above that of the handler.
        """
        timing = {"cron": cron, "every": every, "tz": tz, "jitter": jitter, "start": start, "end": end}
        if handler is None:

            def decorate(function: F) -> F:
                self.schedule(name, function, args=args, missed=missed, overlap=overlap, **timing, **options)  # type: ignore[arg-type]
                return function

            return decorate
        found = self.registry.find(handler)
        limits.check_name("name", name)
        if any(name in other.schedules for other in self.registry):
            raise ValidationError(f"there are two schedules {name!r}", field="name")
        read_timing(**timing)
        validate.choice("missed", Missed, missed)
        validate.choice("overlap", Overlap, overlap)
        check_options("schedule", options, _HANDLER_OPTIONS)
        item = self.registry.item(handler, args or {}, options)
        del item["kind"]
        found.schedules[name] = {**item, **timing, "missed": missed, "overlap": overlap}
        return handler

    def check(self, function: Check) -> Check:
        """Register a check that runs before the start, for every handler registered after this call."""
        self._checks.append(function)
        return function

    def validator(self, function: Validator) -> Validator:
        """Register a validator of results, for every handler registered after this call and for kinds without a handler here.

        It is called with the job and the result. A worker passes the Context as the job; every other way to complete a job
        passes the Job.
        """
        self._validators.append(function)
        return function

    def conflict_detector(self, function: Validator) -> Validator:
        """Register a check for conflicts before a result is recorded. It is called for the same kinds as a `validator`, and with
        the same arguments."""
        self._conflicts.append(function)
        return function

    def has_hooks(self) -> bool:
        """Return whether any validator or conflict detector is registered."""
        return bool(self._validators or self._conflicts) or any(handler.hooks != Hooks() for handler in self.registry)

    def hooks_of(self, kind: str) -> Hooks:
        """Return the validators and conflict detectors of the kind's handler, or those of the app if the kind has no handler."""
        handler = self.registry.of_kind(kind)
        return Hooks(tuple(self._validators), tuple(self._conflicts)) if handler is None else handler.hooks

    def sink(self, sink: "Sink") -> None:
        """Let workers of this app deliver every event to `sink`, in order and at least once. One worker at a time does so."""
        self.sinks.append(sink)

    # Jobs

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        return Enqueuer(self, {}).enqueue_many(handler, [self.registry.find(handler).signature.bind_arguments(args, kwargs)])[0]

    def enqueue_many(self, handler: Any, args: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs for one handler in one transaction: all or none."""
        return Enqueuer(self, {}).enqueue_many(handler, args)

    def options(self, **options: Unpack[CallOptions]) -> Enqueuer:
        """Set options of `ledger.enqueue` for a call: priority, delay, dedupe_key, queue, tier, request_id, connection…"""
        check_options("enqueue", options, OPTIONS)
        return Enqueuer(self, options)

    def declare_new(self, handler: Handler) -> None:
        """Declare the handler's kind if no worker has declared it yet, so that the command line can use its queue and policy.

        A kind is checked once per ledger.
        """
        ledger = self.ledger
        if self._declared[0] is not ledger:
            self._declared = (ledger, set())
        kinds = self._declared[1]
        if handler.kind in kinds:
            return
        if handler.kind not in ledger.declarations():
            with contextlib.suppress(Forbidden):  # only a holder of a key may set this policy: a worker declares it
                declare_handlers(ledger, [handler], None)
        kinds.add(handler.kind)

    # Work

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """Return a worker for this app's handlers; `settings` as for `work`."""
        return worker_of([self], **settings)

    def work(self, **settings: Unpack[WorkerSettings]) -> bool:
        """Run jobs until SIGTERM, SIGINT or SIGHUP. The first signal lets running jobs finish; the second releases them at once.

        Return False if the worker stopped because too many of its handlers did not stop when asked to: end the process then.
        Settings: name, queues (a list in strict order, or a mapping of weights), labels (for jobs that require them), threads,
        tasks, processes, shutdown_timeout, relay_duty_ttl (the longest time that sinks wait for another worker if this one dies).
        """
        with self.worker(**settings) as worker:
            return worker.run()

    def move(self, url: str, *, keys: Iterable[KeySource] | None = None) -> None:
        """Use the ledger at `url` from now on, with `keys` if they are given. A ledger that was open before is closed."""
        if url != self._url or keys is not None:
            self.close()
            self._url, self._ledger = url, None
            self._keys = self._keys if keys is None else list(keys)

    def close(self) -> None:
        if self._ledger is not None and self._url is not None:
            self._ledger.close()
            self._ledger = None

    @property
    def url(self) -> str:
        if self._url is None:
            raise ValidationError("an app that runs workers needs the ledger's url, since workers open the ledger more than once")
        return self._url

    def open_again(self) -> Ledger:
        """Open the same ledger again with its own connections and the first one's metrics.

        It has no validators: a worker runs them itself.
        """
        return open(self.url, clock=self.clock, entropy=self._entropy, metrics=self.ledger.metrics, keys=list(self.ledger.ring))

    @property
    def monotonic(self) -> Callable[[], float]:
        return time.monotonic if self.clock is None else self.clock.monotonic


_HANDLER_OPTIONS = HandlerSettings.__optional_keys__ | {"kind", "batch", "batch_wait"}


def worker_of(apps: Sequence[App], **settings: Unpack[WorkerSettings]) -> Worker:
    """Return one worker for the handlers of several apps that share a ledger."""
    if _is_child_process():
        raise ValidationError(
            "a worker's child process ran this program again to find a handler: start workers under `if __name__ == '__main__':`",
            field="handler",
        )
    if len({app.url for app in apps}) != 1:
        raise ValidationError("the apps of one worker must have the same ledger", field="apps")
    check_options("worker", settings, WorkerSettings.__optional_keys__)
    first = apps[0]
    registry = first.registry if len(apps) == 1 else HandlerRegistry(handler for app in apps for handler in app.registry)
    sinks = [sink for app in apps for sink in app.sinks]
    with contextlib.ExitStack() as opened:
        ledger, beats = opened.enter_context(first.open_again()), opened.enter_context(first.open_again())
        worker = Worker(ledger, beats, registry, url=first.url, clock=first.clock, sinks=sinks, **settings)
        opened.pop_all()
    return worker


def _is_child_process() -> bool:
    """Return whether a worker started this process to run handlers. A worker in it would start children without end."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "holdfast.worker.child"


def _configured_url() -> str:
    try:
        return settings.ledger_url()
    except settings.SettingsError as error:
        raise ValidationError(str(error), field="url") from None


def _as_list(given: Any) -> list[Any]:
    return [given] if callable(given) else list(given)
