"""The durable half of a supervisor: what it knows of its run, kept in the ledger before it acts on it."""

import hashlib
import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.liveness import MAX_HEARTBEAT_DETAIL_LENGTH, HealthVerdict, LivenessHeartbeatReceiptV1
from holdfast.core.payloads import UNSET
from holdfast.core.restart import Allow, RestartController, TerminalReason
from holdfast.errors import Conflict, HoldfastError
from holdfast.ledger.runs import NEEDS_RESET, RunBody, Supervision
from holdfast.supervise import place
from holdfast.supervise.policy import RunPolicy

log = logging.getLogger("holdfast.supervise")

DUTY_SECONDS = 15.0
"""How long nobody else may supervise a run whose supervisor cannot be asked whether it lives."""
RUN_DOMAIN = b"holdfast run v1\n"
BEAT_DOMAIN = b"holdfast run beat v1\n"


class ResetNeeded(Exception):
    """The last run of this name ended in a way that only an operator clears."""

    def __init__(self, name: str, reason: TerminalReason) -> None:
        super().__init__(f"the last run of {name!r} ended with {reason.value}")
        self.name = name
        self.reason = reason


class Snapshot(NamedTuple):
    """A run as it was; of two the one with the higher number is the later one."""

    number: int
    body: RunBody


class Run:
    """One run: from its first start until a terminal reason stands, through any number of supervisors."""

    def __init__(
        self, supervision: Supervision, name: str, policy: RunPolicy, command: Sequence[str], job_id: int | None
    ) -> None:
        self._supervision = supervision
        self.name = name
        self._policy = policy
        self._holder = place.holder(supervision.nonce())
        self._saving = threading.Lock()
        self._taken = self._kept = 0
        self.receipt: LivenessHeartbeatReceiptV1 | None = None
        """The newest."""
        self.is_new = True
        """False where an earlier supervisor has begun it and was not there to end it."""
        self.controller = RestartController(policy.config)
        self._take()
        try:
            kept = self._look_up(supervision.find(name))
        except BaseException:
            self.drop()
            raise
        self.body = msgspec.structs.replace(kept, program=command[0], job_id=job_id)

    def _look_up(self, found: RunBody | None) -> RunBody:
        """What a run begins with, or goes on with."""
        if found is not None and found.terminal_reason in NEEDS_RESET:
            raise ResetNeeded(self.name, found.terminal_reason)
        if found is None or found.is_over:
            number = 1 if found is None else found.run + 1
            return RunBody(run=number, holder=self._holder, incarnation=self._supervision.nonce(), program="")
        assert isinstance(found.controller, msgspec.Raw)
        self.is_new = False
        self.controller = RestartController.from_json(bytes(found.controller), self._policy.config)
        return msgspec.structs.replace(found, holder=self._holder)

    def _take(self) -> None:
        """A supervisor of this machine that is dead cannot object: its keeper has ended its command."""
        if self._supervision.take(self.name, self._holder, DUTY_SECONDS):
            return
        found = self._supervision.find(self.name)
        if found is not None and place.is_dead(found.holder):
            self._supervision.drop(self.name, found.holder)
            if self._supervision.take(self.name, self._holder, DUTY_SECONDS):
                return
        raise Conflict(f"{self.name!r} is supervised by somebody else", run=self.name)

    @property
    def run_id(self) -> str:
        return f"{self.name}/{self.body.run}"

    # What happens to it

    def restart(self, tick: int) -> int | None:
        """Whether it may be started again: the number of the restart in its window, or None, and then a reason stands."""
        decision = self.controller.record_restart(tick)
        if isinstance(decision, Allow):
            self.body = msgspec.structs.replace(self.body, restarts=self.body.restarts + 1)
            return decision.attempt
        return None

    def end(self, reason: TerminalReason) -> None:
        """The first reason stays."""
        self.controller.record_terminal(reason)

    def exited(self, code: int | None) -> None:
        self.body = msgspec.structs.replace(self.body, exit_code=code)

    # Receipts

    def issue(
        self, tick: int, verdict: HealthVerdict, *, uptime_ms: int, beat: str, episode: bytes | None, detail: str | None
    ) -> LivenessHeartbeatReceiptV1:
        """`beat` names the newest one; `episode` is that of a job, where the run is for one."""
        limit = tick - self._policy.window_ms
        cut = None if detail is None else detail.encode()[:MAX_HEARTBEAT_DETAIL_LENGTH].decode(errors="ignore")
        whole = f"{self._supervision.ledger_id}\n{self.run_id}".encode()
        self.receipt = LivenessHeartbeatReceiptV1(
            run_id=self.run_id,
            episode_id=episode or hashlib.sha256(RUN_DOMAIN + whole).digest(),
            emitted_at_tick=tick,
            time_envelope_ref=hashlib.sha256(BEAT_DOMAIN + whole + f"\n{beat}".encode()).digest(),
            health_verdict=verdict,
            restart_count=sum(1 for at in self.controller.restart_ticks if at >= limit),
            max_restarts=self._policy.max_restarts,
            uptime_ms=uptime_ms,
            detail=cut,
        )
        return self.receipt

    # Keeping it

    def snapshot(self) -> Snapshot:
        """All of it, as it is now. For the thread that changes it."""
        self._taken += 1
        receipt = UNSET if self.receipt is None else msgspec.Raw(self.receipt.to_json().encode())
        reason = self.controller.terminal_reason()
        kept = msgspec.Raw(self.controller.to_json().encode())
        whole = msgspec.structs.replace(self.body, controller=kept, terminal_reason=reason, receipt=receipt)
        return Snapshot(self._taken, whole)

    def keep(self, snapshot: Snapshot) -> None:
        """Durable when it returns, it or a later one. Conflict where another supervisor has the run."""
        with self._saving:
            if snapshot.number > self._kept:
                self._supervision.keep(self.name, snapshot.body, DUTY_SECONDS)
                self._kept = snapshot.number

    def drop(self) -> None:
        """Others may supervise it at once."""
        try:
            self._supervision.drop(self.name, self._holder)
        except HoldfastError as error:
            log.warning("the run is not free before its time is over", extra={"run": self.name, "error": error.code})
