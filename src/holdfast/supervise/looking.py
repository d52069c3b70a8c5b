"""What is known of a run right now: its parts, the time, and the receipts that say how it is."""

import selectors
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from holdfast.core.limits import check_name
from holdfast.core.liveness import HealthVerdict
from holdfast.core.restart import TerminalReason
from holdfast.errors import HoldfastError
from holdfast.ledger import Ledger
from holdfast.supervise.agenda import Agenda
from holdfast.supervise.child import Child
from holdfast.supervise.ears import Ears
from holdfast.supervise.lease import JobLease
from holdfast.supervise.policy import RunPolicy
from holdfast.supervise.recorder import Recorder
from holdfast.supervise.run import Run
from holdfast.supervise.watch import Watch, Why

LOOK_SECONDS = 5.0
"""Between two receipts. The duty of the run lasts three times as long."""


class Voice(Protocol):
    """Who is told what happens."""

    def happened(self, what: str, **facts: Any) -> None: ...


class Ending(msgspec.Struct, frozen=True):
    """How a run has ended."""

    run_id: str
    reason: TerminalReason | None
    """None where another supervisor has it."""
    restarts: int
    exit_code: int | None
    """The command's last one; 126 or 127, as a shell has it, where it could not be started."""
    receipt: dict[str, Any] | None = None
    error: HoldfastError | None = None
    """What could not be recorded, and why."""


def after(restarts: int) -> str:
    return "after 1 restart" if restarts == 1 else f"after {restarts} restarts"


class Looking:
    """What a supervisor has in hand, and what it makes of that. Everything here is done in one thread."""

    run: Run
    ears: Ears
    recorder: Recorder

    def __init__(
        self, ledger: Ledger, command: Sequence[str], name: str, policy: RunPolicy, voice: Voice, *, url: str, from_start: bool
    ) -> None:
        self.name = check_name("name", name)
        self.policy = policy
        self.child: Child | None = None
        self.watch: Watch | None = None
        """Of the newest start."""
        self._strangers: frozenset[int] = frozenset()
        """What was below this process before it supervised anything: it is none of its business."""
        self.lease: JobLease | None = None
        self.ending: Ending | None = None
        self._command = list(command)
        self._voice = voice
        self._url = url
        self._from_start = from_start
        supervision = ledger.supervision
        self._monotonic, self._jitter = supervision.monotonic, supervision.jitter
        self._base_ms = supervision.tick() - self._monotonic() * 1_000
        self._agenda = Agenda(self._monotonic)
        self._selector = selectors.DefaultSelector()
        self._shell_code: int | None = None
        self._hurry = False
        self._settling_since: float | None = None

    def tick(self) -> int:
        """The ledger's time when this began, in milliseconds, and what has passed since: no step of a clock changes it."""
        return int(self._base_ms + self._monotonic() * 1_000)

    def _look(self) -> None:
        """Issue a receipt, and have it kept."""
        self._issue()
        assert self.run.receipt is not None
        self._voice.happened("receipt", receipt=self.run.receipt.to_object())
        self.recorder.tell(self.run.snapshot())
        self._agenda.after(LOOK_SECONDS, self._look)

    def _issue(self) -> None:
        verdict, detail = self._verdict()
        watch, tick = self.watch, self.tick()
        self.run.issue(
            tick,
            verdict,
            uptime_ms=0 if watch is None or self.child is None else tick - watch.started_tick,
            beat="" if watch is None else f"{watch.beats} {watch.beaten_tick}",
            episode=None if self.lease is None else self.lease.episode,
            detail=detail,
        )

    def _verdict(self) -> tuple[HealthVerdict, str | None]:
        watch, reason = self.watch, self.run.controller.terminal_reason()
        if watch is None:
            return HealthVerdict.AMBIGUOUS, "not started yet"
        if watch.why is Why.STALL:
            return HealthVerdict.STALLED, reason or "silent for too long"
        if self.child is not None:
            return (HealthVerdict.HEALTHY, watch.describe()) if watch.why is None else (HealthVerdict.AMBIGUOUS, "stopping")
        if reason in (TerminalReason.CLEAN_EXIT, TerminalReason.OPERATOR_SHUTDOWN):
            return HealthVerdict.AMBIGUOUS, reason
        return HealthVerdict.CRASHED, reason or f"ended with {self.run.body.exit_code}"
