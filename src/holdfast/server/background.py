"""The services that run inside a server. Duties make one process of a fleet do each of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.doctor import Diagnosis, HealthFinding, Severity
from holdfast.keeping.service import Service, ServiceLoop
from holdfast.ledger import Ledger
from holdfast.proof.keys import KeyRole
from holdfast.server.access import AccessRules
from holdfast.server.service_options import SERVICES, SealOptions
from holdfast.services.history import HistoryService
from holdfast.services.pruner import SERVER_DUTY, PruneService
from holdfast.services.sweeper import SweepService

if TYPE_CHECKING:
    from holdfast.server.start import StartPlan
    from holdfast.services.sinks import Sink

DROP_SECONDS = 2.0
"""How long a server that stops waits for each answer when it drops its duties."""


class ServiceState(msgspec.Struct, frozen=True):
    """The state of one service in this process."""

    state: str
    """`active`, `standby` while another process has its duty or there is nothing to do, `failing`, or `off`."""
    code: str | None = None
    """The code of its last error, while it is failing."""


OFF = ServiceState("off")


class UseService(Service):
    """Records the last use of tokens and sessions, so that no request has to wait for it."""

    name = "token_use"
    every_s = 60.0

    def __init__(self, access: AccessRules) -> None:
        self._access = access

    def tick(self) -> int:
        return self._access.tick()

    def close(self) -> None:
        self._access.tick()


class ServerServices:
    """What a server does beside its requests. A service that fails is tried again, and affects nothing else."""

    def __init__(self, ledger: Ledger, access: AccessRules, plan: "StartPlan") -> None:
        self._ledger = ledger
        services: list[Service] = [UseService(access)]
        options, holder = plan.options, f"server#{ledger.incarnation}"
        if "sweep" in options.services:
            services.append(SweepService(ledger, holder))
        if "prune" in options.services:
            kept = {"jobs": options.keep_jobs, "failed": options.keep_failed, "beats": options.keep_beats}
            services.append(PruneService(ledger, holder, duty=SERVER_DUTY, **kept))
        if "history" in options.services:
            services.append(HistoryService(ledger, holder))
        if "relay" in options.services and plan.sinks:
            services.append(_relay(ledger, plan.sinks))
        if "seal" in options.services and any(key.role is KeyRole.SERVER for key in ledger.ring):
            services.append(_sealer(ledger, options.seal))
        # A loop for each: a service that waits for a lock or a slow answer delays no other one.
        self._loops = [ServiceLoop([service]) for service in services]

    def states(self) -> dict[str, ServiceState]:
        """Return the state of every service of this process, by name."""
        return {**dict.fromkeys(SERVICES, OFF), **{loop.name: _state(loop) for loop in self._loops}}

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def close(self) -> None:
        """Stop all services, let each finish its current work, and drop the duties."""
        self._ledger.patience = min(self._ledger.patience, DROP_SECONDS)
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.close()


def _state(loop: ServiceLoop) -> ServiceState:
    if loop.failing is not None:
        return ServiceState("failing", loop.failing)
    return ServiceState("active" if loop.is_active else "standby")


def with_services(found: Diagnosis, states: Mapping[str, ServiceState]) -> Diagnosis:
    """Add a finding about the services of this server to a diagnosis."""
    if not states:
        return found
    failing = {name: state.code for name, state in states.items() if state.state == "failing"}
    if failing:
        named = ", ".join(f"{name} ({code})" for name, code in failing.items())
        words, action = f"services of this server fail and are tried again: {named}", "The log of the server says why."
        finding = HealthFinding("services", Severity.WARNING, words, action)
    else:
        active = ", ".join(name for name, state in states.items() if state.state == "active") or "none"
        finding = HealthFinding("services", Severity.WELL, f"no service of this server fails; active: {active}")
    return msgspec.structs.replace(found, findings=[*found.findings, finding], well=found.well and not failing)


def _relay(ledger: Ledger, sinks: "Sequence[Sink]") -> Service:
    from holdfast.services.relay import Relay

    return Relay(ledger, sinks)


def _sealer(ledger: Ledger, given: SealOptions) -> Service:
    from holdfast.services.anchors import FileAnchor
    from holdfast.services.sealer import Sealer

    anchors = [] if given.anchor is None else [FileAnchor(given.anchor)]
    return Sealer(ledger, every=given.every, every_events=given.every_events, anchors=anchors, anchor_every=given.anchor_every)
