"""A worker: claims, runs, beats and settles until it is told to stop, and then leaves nothing behind."""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict

import msgspec

from holdfast import supervised
from holdfast.core import limits
from holdfast.core import policy as policies
from holdfast.core.model import UNDO_KIND
from holdfast.core.urls import without_password
from holdfast.errors import SignatureInvalid, ValidationError
from holdfast.ledger import Ledger
from holdfast.ledger.options import Duration
from holdfast.services.duties import TTL_SECONDS
from holdfast.services.presence import Presence
from holdfast.services.prune import KEEP_BEATS, Prune
from holdfast.services.supervised import Supervised
from holdfast.services.sweep import Sweep
from holdfast.services.ticker import Service, Ticker
from holdfast.version import __version__
from holdfast.worker.attempt import Attempts
from holdfast.worker.beats import GRACE_SECONDS, Beater, Deadlines
from holdfast.worker.context import Context
from holdfast.worker.crews import Crew, ThreadCrew
from holdfast.worker.handlers import Handler
from holdfast.worker.intake import Intake, Order, groups
from holdfast.worker.registry import Registry
from holdfast.worker.settle import Settler
from holdfast.worker.shift import Shift, log
from holdfast.worker.signals import calling

if TYPE_CHECKING:
    from holdfast.services.anchors import Anchor
    from holdfast.services.relay import Relay
    from holdfast.services.seal import Sealer
    from holdfast.services.sinks import Sink

THREADS, TASKS = 10, 100
ABANDONED_MAX = 100
"""With so many threads given up on, the process itself is given up on: whoever supervises it starts another."""
SHUTDOWN_SECONDS = 30.0
AGAIN_SECONDS = 5.0
BESIDE_SECONDS = 30.0
"""How long a relay or a sealer has to finish what it is at when the worker stops."""
FAREWELL_SECONDS = 2.0
"""How long a worker that has stopped waits for each answer when it hands its duties over and signs out."""


class WorkerSettings(TypedDict, total=False):
    """How a worker is made: the arguments of `app.work`, as type checkers see them."""

    name: str | None
    queues: Sequence[str] | Mapping[str, int] | None
    threads: int
    tasks: int
    processes: int | None
    shutdown_timeout: Duration
    keep_jobs: Duration | None
    keep_failed: Duration | None
    keep_beats: Duration | None
    relay_duty_ttl: Duration
    seal: bool
    anchors: "Sequence[Anchor]"
    anchor_every: Duration


class Worker:
    """Made by `App.work` and `holdfast worker run`. `beats` is the same ledger as `ledger`, opened for heartbeats alone."""

    def __init__(
        self,
        ledger: Ledger,
        beats: Ledger,
        registry: Registry,
        *,
        url: str,
        name: str | None = None,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        threads: int = THREADS,
        tasks: int = TASKS,
        processes: int | None = None,
        shutdown_timeout: Any = SHUTDOWN_SECONDS,
        keep_jobs: Any = None,
        keep_failed: Any = None,
        keep_beats: Any = KEEP_BEATS,
        sinks: "Sequence[Sink]" = (),
        relay_duty_ttl: Any = TTL_SECONDS,
        seal: bool = False,
        anchors: "Sequence[Anchor]" = (),
        anchor_every: Any = "60s",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = limits.check_name("worker", name or ledger.ring.worker or f"{socket.gethostname()}-{os.getpid()}")
        self._patience = policies.duration_ms("shutdown_timeout", shutdown_timeout, 0, policies.DAY_MS) / 1_000
        self._queues = _queues(queues, registry)
        self._url = url
        self._ledgers = (ledger, beats)
        self.shift = shift = Shift(ledger, registry, self.name, monotonic)
        served = shift.serve(
            set(self._queues), without=() if queues is None else unsignable(ledger, self.name, list(registry))[0]
        )
        self._settler = Settler(shift)
        attempts = Attempts(shift, self._settler)
        sizes = {"thread": threads, "loop": tasks, "process": processes or os.cpu_count() or 1}
        self._crews: dict[str, Crew] = {
            isolation: self._crew(isolation, _size(isolation, sizes[isolation]), attempts, url)
            for isolation in sorted({handler.isolation for handler in served})
        }
        self._intake = Intake(shift, groups(served, self._crews, list(self._queues)), Order(self._queues), self._settler.released)
        shift.let_go = self._intake.freed
        self._deadlines = Deadlines(shift, self._settler.timed_out, self._abandon)
        self._beater = Beater(shift, beats, self._deadlines.doom)
        self._served = served
        holder = f"{self.name}#{ledger.incarnation}"
        self._prune = Prune(ledger, holder, jobs=keep_jobs, failed=keep_failed, beats=keep_beats)
        presence = Presence(ledger, self.name, self._description)
        self._services = Ticker([Sweep(ledger, holder), presence, self._prune, *self._pulse()])
        # A thread of its own: a ledger out of reach holds up the other services, and is no reason to start a worker again.
        self._alive = Ticker([Supervised()], name="holdfast-supervised") if supervised.is_supervised() else None
        self._relay = _relay(ledger, sinks, relay_duty_ttl) if sinks else None
        self._sealer = _sealer(ledger, anchors, anchor_every) if seal else None
        self._beside: list[threading.Thread] = []
        self._at_work = False
        self._gave_up = False
        self._gone = threading.Event()
        self._now = self._settler.hurry
        """Set by the second request to stop: no more waiting."""

    def _crew(self, isolation: str, size: int, attempts: Attempts, url: str) -> Crew:
        """What no handler needs is not even imported."""
        if isolation == "loop":
            from holdfast.worker.loop import LoopCrew

            return LoopCrew(size, attempts, self._freed)
        if isolation == "process":
            from holdfast.worker.processes import ProcessCrew

            return ProcessCrew(size, self.shift, attempts, self._freed, url)
        return ThreadCrew(size, self.shift, attempts.run, self._freed, "thread")

    def _pulse(self) -> list[Service]:
        if "loop" not in self._crews:
            return []
        from holdfast.worker.loop import LoopCrew, Pulse

        crew = self._crews["loop"]
        assert isinstance(crew, LoopCrew)
        return [Pulse(crew)]

    # Running

    def start(self) -> None:
        """Begin to work, in threads of its own."""
        check_signs(self.shift.ledger, self.name, self._served)
        declare(self.shift.ledger, self._served, self.name)
        self._at_work = True
        self._services.start()
        if self._alive is not None:
            self._alive.start()
        self._beater.start()
        self._deadlines.start()
        self._settler.start()
        for name, service in (("relay", self._relay), ("sealer", self._sealer)):
            if service is not None:
                thread = threading.Thread(target=self._keep_up, args=(name, service), name=f"holdfast-{name}", daemon=True)
                self._beside.append(thread)
                thread.start()
        told = {"worker": self.name, "queues": list(self._queues), "ledger": without_password(self._url)}
        log.info("worker started", extra=told)
        self._intake.start()

    def _keep_up(self, name: str, service: "Relay | Sealer") -> None:
        while not self._gone.is_set():
            try:
                service.run(self._gone)
            except Exception:  # noqa: BLE001 - a worker whose sinks hear no more must not look alive
                log.exception("the %s failed", name)
                self._gone.wait(AGAIN_SECONDS)

    def run(self) -> bool:
        """Work until a signal or `stop`, then finish in order. False where it gave up instead: the process should end."""
        with calling(self.stop):
            self.start()
            self.shift.stopping.wait()
            self.finish()
        return not self._gave_up

    def stop(self) -> None:
        """Once: claim no more, finish what runs. Again: hand everything back now."""
        said = "stopping: what runs may finish"
        if self.shift.stopping.is_set():
            said = "stopping at once: what runs is handed back"
            self._now.set()
        # Before it is logged: a log handler that raises must not keep the worker from stopping.
        self.shift.stopping.set()
        log.info(said, extra={"worker": self.name})

    def _description(self) -> dict[str, Any]:
        """What it tells of itself when it signs in."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "queues": list(self._queues),
            "kinds": [handler.kind for handler in self._served],
            "room": {name: crew.size for name, crew in self._crews.items()},
            "holding": len(self.shift.leases),
            "abandoned": self.shift.abandoned,
            "keep": self._prune.kept_ms,
        }

    def close(self) -> None:
        """Finish, if it has not, and let go of the ledger."""
        if self._at_work:
            self.finish()
        for ledger in self._ledgers:
            ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _freed(self) -> None:
        self._intake.freed()

    def _abandon(self, context: Context) -> None:
        crew = self._crews[context.handler.isolation]
        if context in crew.running():
            crew.abandon(context)
        if self.shift.abandoned > ABANDONED_MAX and not self._gave_up:
            log.critical("too many abandoned handlers: stopping", extra={"worker": self.name})
            self._gave_up = True
            self.stop()

    # Stopping

    def finish(self) -> None:
        """Leave no job behind: what has not begun is handed back, what runs may finish, what does not finish is handed back."""
        self._at_work = False
        self.shift.stopping.set()
        self._intake.join()
        for crew in self._crews.values():
            for context in crew.take_back():
                self._settler.released(context)
        if not self._wait(self._patience):
            for context in self._running():
                context.ask_to_leave()
            self._wait(min(GRACE_SECONDS, self._patience))
        for context in self._running():
            log.warning("handing back a job that did not finish", extra={"job_id": context.job.id, "kind": context.job.kind})
            context.abandoned = True
            self._settler.released(context)
            self._crews[context.handler.isolation].abandon(context)
        for crew in self._crews.values():
            crew.close()
        self._settler.close()
        self._beater.close()
        self._deadlines.close()
        self._gone.set()
        for thread in self._beside:
            thread.join(BESIDE_SECONDS)
        self.shift.ledger.patience = min(self.shift.ledger.patience, FAREWELL_SECONDS)
        self._services.close()
        if self._alive is not None:
            self._alive.close()
        log.info("worker stopped", extra={"worker": self.name})

    def _running(self) -> list[Context]:
        return [context for crew in self._crews.values() for context in crew.running()]

    def _wait(self, seconds: float) -> bool:
        """Until nothing runs; False when the time is over or somebody is in a hurry."""
        deadline = time.monotonic() + seconds
        while any(crew.held() for crew in self._crews.values()):
            if self._now.is_set() or time.monotonic() >= deadline:
                return False
            self._now.wait(0.02)
        return True


def declare(ledger: Ledger, handlers: Sequence[Handler], worker: str | None) -> None:
    """Declare the handlers' queues and policies, where the ledger has another declaration or none.

    Only the start of a worker calls this, and an app for a kind that has no declaration yet. Two versions of an app that run
    side by side do not overwrite each other's declarations in turn.
    """
    known = ledger.declarations()
    for handler in handlers:
        if handler.kind == UNDO_KIND:
            continue
        found, wanted = known.get(handler.kind), msgspec.to_builtins(policies.settings(handler.policy))
        if found is None or (found.queue, found.policy) != (handler.queue, wanted):
            ledger.declare_policy(handler.kind, queue=handler.queue, actor=worker, **handler.policy)


def check_signs(ledger: Ledger, worker: str, handlers: Sequence[Handler]) -> None:
    """Refuse to work where what is done would go unrecorded: a handler's kind has to be signed, and the key is not here."""
    signed, why = unsignable(ledger, worker, handlers)
    if signed:
        raise ValidationError(
            f"worker {worker!r} would have to sign what it does for {', '.join(signed):.200}: {why}", field="keys"
        )


def unsignable(ledger: Ledger, worker: str, handlers: Sequence[Handler]) -> tuple[list[str], str]:
    """The kinds that have to be signed and cannot be, since the worker's key is not here; and why it is not."""
    by_operator = ledger.policies()["kind"]
    wishes = {one.kind: by_operator.get(one.kind, {}).get("signed") or one.policy.get("signed") for one in handlers}
    signed = [kind for kind, wish in wishes.items() if wish not in (None, "none")]
    if signed:
        try:
            ledger.check_key(worker)
        except SignatureInvalid as refused:
            return signed, refused.message
    return [], ""


def _relay(ledger: Ledger, sinks: "Sequence[Sink]", duty_ttl: Any) -> "Relay":
    """Imported only where there is something to tell."""
    from holdfast.services.relay import Relay

    return Relay(ledger, sinks, duty_ttl=duty_ttl)


def _sealer(ledger: Ledger, anchors: "Sequence[Anchor]", anchor_every: Any) -> "Sealer":
    from holdfast.services.seal import Sealer

    return Sealer(ledger, anchors=anchors, anchor_every=anchor_every)


def _queues(given: Any, registry: Registry) -> list[str] | dict[str, int]:
    if given is None:
        return sorted({handler.queue for handler in registry})
    if isinstance(given, Mapping):
        return {limits.check_name("queue", name): limits.check_integer("weight", w, 1, 1_000) for name, w in given.items()}
    if isinstance(given, str):
        raise ValidationError("queues takes a list of names, or names with weights", field="queues")
    return [limits.check_name("queue", name) for name in given]


def _size(what: str, given: Any) -> int:
    return limits.check_integer(what, given, 1, 10_000)
