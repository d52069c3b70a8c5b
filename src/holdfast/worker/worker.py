"""A worker claims jobs, runs them, sends heartbeats and records outcomes until it is stopped. Then it releases its jobs."""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import msgspec

from holdfast.composition import Clock
from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.model import UNDO_KIND
from holdfast.core.urls import hide_password
from holdfast.errors import SignatureInvalid, ValidationError
from holdfast.keeping import supervised
from holdfast.keeping.duty import TTL_SECONDS
from holdfast.keeping.service import Service, ServiceLoop
from holdfast.keeping.signals import stop_on_signals
from holdfast.ledger import Ledger, validate
from holdfast.ledger.limit_keys import make_limit
from holdfast.ledger.public import Duration
from holdfast.services.presence import PresenceService, SupervisorHeartbeat
from holdfast.services.pruner import KEEP_BEATS, PruneService
from holdfast.services.sweeper import SweepService
from holdfast.version import __version__
from holdfast.worker.attempt import AttemptRunner
from holdfast.worker.batches import BatchPool
from holdfast.worker.claim_loop import ClaimLoop, QueueOrder, claim_groups
from holdfast.worker.context import Context
from holdfast.worker.handlers import Handler, HandlerRegistry
from holdfast.worker.heartbeats import GRACE_SECONDS, Deadlines, WorkerLeases
from holdfast.worker.runtime import WorkerRuntime, log
from holdfast.worker.settlement import Settler
from holdfast.worker.thread_pool import AttemptPool, ThreadPool

if TYPE_CHECKING:
    from holdfast.services.sinks import Sink

THREADS, TASKS = 10, 100
ABANDONED_MAX = 100
"""With more abandoned handlers than this, the worker stops, so that its supervisor can start a new process."""
SHUTDOWN_SECONDS = 30.0
SIGN_OUT_SECONDS = 2.0
"""How long a stopped worker waits for each answer when it drops its duties and signs out."""


class WorkerSettings(TypedDict, total=False):
    """The settings of a worker: the arguments of `app.work`, for type checkers."""

    name: str | None
    queues: Sequence[str] | Mapping[str, int] | None
    labels: Sequence[str]
    threads: int
    tasks: int
    processes: int | None
    shutdown_timeout: Duration
    keep_jobs: Duration | None
    keep_failed: Duration | None
    keep_beats: Duration | None
    relay_duty_ttl: Duration


class Worker:
    """A running set of handlers. `App.work`, `App.worker` and `holdfast worker run` make one.

    `beats` is the same ledger as `ledger`, opened a second time for heartbeats only. `clock` is its clock in a test.
    """

    def __init__(
        self,
        ledger: Ledger,
        beats: Ledger,
        registry: HandlerRegistry,
        *,
        url: str,
        sinks: "Sequence[Sink]" = (),
        clock: Clock | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> None:
        given, queues = settings.get, settings.get("queues")
        own = ledger.ring.worker or ledger.token_worker or f"{socket.gethostname()}-{os.getpid()}"
        self.name = limits.check_name("worker", given("name") or own)
        self._shutdown_seconds = (
            policies.duration_ms("shutdown_timeout", given("shutdown_timeout", SHUTDOWN_SECONDS), 0, policies.DAY_MS) / 1_000
        )
        self._queues = _check_queues(queues, registry)
        self._url = url
        self._ledgers = (ledger, beats)
        self._is_clock_manual = getattr(clock, "is_manual", False)
        monotonic = time.monotonic if clock is None else clock.monotonic
        self.runtime = runtime = WorkerRuntime(ledger, registry, self.name, monotonic)
        runtime.labels = validate.labels("labels", given("labels", ()), limits.LABELS_PER_WORKER_MAX)
        served = runtime.serve(
            set(self._queues), without=() if queues is None else unsignable_kinds(ledger, self.name, list(registry))[0]
        )
        self._settler = Settler(runtime)
        attempts = AttemptRunner(runtime, self._settler)
        processes = given("processes") or os.cpu_count() or 1
        sizes = {"thread": given("threads", THREADS), "loop": given("tasks", TASKS), "process": processes}
        self._pools: dict[str, AttemptPool] = {
            isolation: self._make_pool(isolation, _check_size(isolation, sizes[isolation]), attempts, url)
            for isolation in sorted({handler.isolation for handler in served if handler.batch is None})
        }
        for handler in served:
            if handler.batch is not None:
                self._pools[handler.pool] = BatchPool(
                    handler.batch, handler.batch_wait_s, runtime, attempts.run_batch, self._on_capacity, handler.kind
                )
        self._claim_loop = ClaimLoop(runtime, claim_groups(served, self._pools), QueueOrder(self._queues), self._settler.released)
        runtime.on_slot_freed = self._claim_loop.notify_capacity
        self._deadlines = Deadlines(runtime, self._settler.timed_out, self._abandon)
        leases = WorkerLeases(runtime, beats, self._deadlines.expect_stop)
        # A loop each: a slow ledger cannot delay deadlines, and no other call can delay heartbeats.
        self._own_loops = [ServiceLoop([leases], wake=runtime.wake), ServiceLoop([self._deadlines])]
        if sinks:
            from holdfast.services.relay import Relay

            self._own_loops.append(ServiceLoop([Relay(ledger, sinks, duty_ttl=given("relay_duty_ttl", TTL_SECONDS))]))
        self._served = served
        holder = f"{self.name}#{ledger.incarnation}"
        kept: dict[str, Any] = {name: given(f"keep_{name}") for name in ("jobs", "failed")}
        self._prune = PruneService(ledger, holder, **kept, beats=given("keep_beats", KEEP_BEATS))
        presence = PresenceService(ledger, self.name, self._describe)
        # The token of one worker allows neither duties nor pruning: the server does both.
        upkeep: list[Service] = [] if ledger.token_worker else [SweepService(ledger, holder), self._prune]
        self._services = ServiceLoop([*upkeep, presence, *self._watchdogs()], name="services")
        # A separate thread: a ledger out of reach delays the other services, but the supervisor must not restart the worker.
        self._supervisor_loop = ServiceLoop([SupervisorHeartbeat()]) if supervised.is_supervised() else None
        self._is_running = False
        self._has_too_many_abandoned = False
        """The worker stopped because too many handlers did not stop."""
        self._stop_at_once = self._settler.stop_at_once
        """Set by the second request to stop: do not wait for running jobs."""

    def _make_pool(self, isolation: str, size: int, attempts: AttemptRunner, url: str) -> AttemptPool:
        """Make a pool. A module that no handler needs is not imported."""
        if isolation == "loop":
            from holdfast.worker.event_loop import EventLoopPool

            return EventLoopPool(size, attempts, self._on_capacity)
        if isolation == "process":
            from holdfast.worker.processes import ProcessPool

            return ProcessPool(size, self.runtime, attempts, self._on_capacity, url)
        return ThreadPool(size, self.runtime, attempts.run, self._on_capacity, "thread")

    def _watchdogs(self) -> list[Service]:
        if "loop" not in self._pools:
            return []
        from holdfast.worker.event_loop import EventLoopPool, LoopWatchdog

        pool = self._pools["loop"]
        assert isinstance(pool, EventLoopPool)
        return [LoopWatchdog(pool)]

    # Running

    def start(self) -> None:
        """Start to work, in threads of its own. Raise ValidationError if a handler's kind needs a signing key that is missing."""
        check_can_sign(self.runtime.ledger, self.name, self._served)
        declare_handlers(self.runtime.ledger, self._served, self.name)
        declare_schedules(self.runtime.ledger, self._served, self.name)
        self._is_running = True
        self._services.start()
        if self._supervisor_loop is not None:
            self._supervisor_loop.start()
        for loop in self._own_loops:
            loop.start()
        self._settler.start()
        fields = {"worker": self.name, "queues": list(self._queues), "ledger": hide_password(self._url)}
        log.info("worker started", extra=fields)
        if self._is_clock_manual:
            log.warning(
                "the ledger has a ManualClock: its time stands still, so no lease ends and no delay passes until a program calls "
                "advance. Leave out clock= outside of tests",
                extra={"worker": self.name},
            )
        self._claim_loop.start()

    def run(self) -> bool:
        """Work until a signal or `stop`, then finish in order.

        Return False if the worker stopped because too many handlers were abandoned: end the process then.
        """
        with stop_on_signals(lambda _: self.stop()):
            self.start()
            self.runtime.stopping.wait()
            self.finish()
        return not self._has_too_many_abandoned

    def stop(self) -> None:
        """Stop claiming and let running jobs finish. The second call releases them at once."""
        message = "stopping: running jobs may finish"
        if self.runtime.stopping.is_set():
            message = "stopping at once: running jobs are released"
            self._stop_at_once.set()
        # Set this before logging: a log handler that raises must not keep the worker from stopping.
        self.runtime.stopping.set()
        log.info(message, extra={"worker": self.name})

    def _describe(self) -> dict[str, Any]:
        """Return what the worker records about itself when it signs in."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "queues": list(self._queues),
            "kinds": [handler.kind for handler in self._served],
            "labels": list(self.runtime.labels),
            "room": {name: pool.size for name, pool in self._pools.items()},
            "holding": len(self.runtime.leases),
            "abandoned": self.runtime.abandoned,
            "keep": {} if self.runtime.ledger.token_worker else self._prune.kept_ms,
        }

    def close(self) -> None:
        """Finish if the worker still runs, and close its ledgers."""
        if self._is_running:
            self.finish()
        for ledger in self._ledgers:
            ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_capacity(self) -> None:
        self._claim_loop.notify_capacity()

    def _abandon(self, context: Context) -> None:
        pool = self._pools[context.handler.pool]
        if context in pool.running():
            pool.abandon(context)
        if self.runtime.abandoned > ABANDONED_MAX and not self._has_too_many_abandoned:
            log.critical("too many abandoned handlers: stopping", extra={"worker": self.name})
            self._has_too_many_abandoned = True
            self.stop()

    # Stopping

    def finish(self) -> None:
        """Stop the worker. Release jobs that have not begun, let running jobs finish, and release those that do not in time."""
        self._is_running = False
        self.runtime.stopping.set()
        self._claim_loop.join()
        for pool in self._pools.values():
            for context in pool.take_waiting():
                self._settler.released(context)
        if not self._wait_until_idle(self._shutdown_seconds):
            for context in self._running():
                context.request_release()
            self._wait_until_idle(min(GRACE_SECONDS, self._shutdown_seconds))
        for context in self._running():
            log.warning("releasing a job that did not finish", extra={"job_id": context.job.id, "kind": context.job.kind})
            context.abandoned = True
            self._settler.released(context)
            self._pools[context.handler.pool].abandon(context)
        for pool in self._pools.values():
            pool.close()
        self._settler.close()
        for loop in self._own_loops:
            loop.close()
        self.runtime.ledger.patience = min(self.runtime.ledger.patience, SIGN_OUT_SECONDS)
        self._services.close()
        if self._supervisor_loop is not None:
            self._supervisor_loop.close()
        log.info("worker stopped", extra={"worker": self.name})

    def _running(self) -> list[Context]:
        return [context for pool in self._pools.values() for context in pool.running()]

    def _wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing runs. Return False after `seconds` or when the worker has to stop at once."""
        deadline = time.monotonic() + seconds
        while any(pool.held() for pool in self._pools.values()):
            if self._stop_at_once.is_set() or time.monotonic() >= deadline:
                return False
            self._stop_at_once.wait(0.02)
        return True


def declare_handlers(ledger: Ledger, handlers: Sequence[Handler], worker: str | None) -> None:
    """Declare the handlers' queues, policies, limits and labels if the ledger has no declaration or a different one.

    Only the start of a worker calls this, and an app for a kind that has no declaration yet. So two versions of an app that
    run side by side do not keep overwriting each other's declarations.
    """
    known = ledger.declarations()
    for handler in handlers:
        if handler.kind == UNDO_KIND:
            continue
        declared, policy = known.get(handler.kind), msgspec.to_builtins(policies.read_settings(handler.policy))
        draws, labels = handler.options.get("limits") or (), handler.options.get("requires") or ()
        units = {draw.limit: draw.units for draw in validate.draws(draws)}
        requires = validate.labels("requires", labels, limits.LABELS_REQUIRED_MAX)
        found = (handler.queue, policy, units, requires)
        if declared is None or (declared.queue, declared.policy, declared.limits, declared.requires) != found:
            ledger.declare_policy(
                handler.kind, queue=handler.queue, limits=units, requires=requires, actor=worker, **handler.policy
            )


def declare_schedules(ledger: Ledger, handlers: Sequence[Handler], worker: str) -> None:
    """Declare the schedules of each handler as a whole. Those that a handler had before and has no longer are removed."""
    known: set[str] = set()
    after = ""
    while page := ledger.schedules(after=after):
        known.update(found.kind for found in page if found.declared)
        after = page[-1].name
    for handler in handlers:
        if handler.schedules or handler.kind in known:
            taken = ledger.declare_schedules(handler.kind, handler.schedules, actor=worker)
            if taken:
                log.warning("an operator has set the schedule %s: the declared one is not used", ", ".join(taken))
    warn_of_missing_limits(ledger, handlers)


def warn_of_missing_limits(ledger: Ledger, handlers: Sequence[Handler]) -> None:
    """Log a warning for each limit that a handler or one of its schedules draws on and that does not exist.

    The worker starts all the same: an operator may remove a limit at any time.
    """
    drawing = [
        (what.format(handler.kind), name)
        for handler in handlers
        for what, options in [
            ("jobs of handler {} cannot be enqueued by their app", handler.options),
            *((f"schedule {name} of handler {{}} makes its jobs without it", given) for name, given in handler.schedules.items()),
        ]
        for name in _limits_of(options)
    ]
    known = {one.name for one in ledger.limits()} if drawing else set()
    for what, name in drawing:
        if name not in known:
            log.warning("there is no limit %s: %s. Make it: %s", name, what, make_limit(name), extra={"limit": name})


def _limits_of(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the limits in the options of a job. Other values are refused when a job is enqueued."""
    given = options.get("limits")
    return sorted(str(name) for name in given) if isinstance(given, Mapping | list | tuple) else []


def check_can_sign(ledger: Ledger, worker: str, handlers: Sequence[Handler]) -> None:
    """Raise ValidationError if a handler's kind must be signed and the worker's key is missing: nothing could be recorded."""
    signed, why = unsignable_kinds(ledger, worker, handlers)
    if signed:
        raise ValidationError(f"worker {worker!r} has to sign events of {', '.join(signed):.200}: {why}", field="keys")


def unsignable_kinds(ledger: Ledger, worker: str, handlers: Sequence[Handler]) -> tuple[list[str], str]:
    """Return the kinds that must be signed but cannot be, because the worker's key is missing, and the reason."""
    by_operator = ledger.policies()["kind"]
    levels = {one.kind: by_operator.get(one.kind, {}).get("signed") or one.policy.get("signed") for one in handlers}
    signed = [kind for kind, level in levels.items() if level not in (None, "none")]
    if signed:
        try:
            ledger.check_key(worker)
        except SignatureInvalid as refused:
            return signed, refused.message
    return [], ""


def _check_queues(given: Any, registry: HandlerRegistry) -> list[str] | dict[str, int]:
    if given is None:
        return sorted({handler.queue for handler in registry})
    if isinstance(given, Mapping):
        return {limits.check_name("queue", name): limits.check_integer("weight", w, 1, 1_000) for name, w in given.items()}
    if isinstance(given, str):
        raise ValidationError("queues takes a list of names, or names with weights", field="queues")
    return [limits.check_name("queue", name) for name in given]


def _check_size(what: str, given: Any) -> int:
    return limits.check_integer(what, given, 1, 10_000)
