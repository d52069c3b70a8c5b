"""A supervised run: its policy, its state in the ledger, and the process that holds it."""

import hashlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.core import policy as policies
from holdfast.core.limits import check_integer
from holdfast.core.liveness import MAX_HEARTBEAT_DETAIL_LENGTH, HealthVerdict, LivenessHeartbeatReceiptV1
from holdfast.core.payloads import UNSET
from holdfast.core.restart import (
    MAX_CIRCUIT_BREAKER_FAILURES,
    MAX_RESTARTS_LIMIT,
    Allow,
    RestartController,
    RestartPolicyConfig,
    TerminalReason,
)
from holdfast.errors import Conflict, HoldfastError, ValidationError
from holdfast.ledger.verbs.runs import NEEDS_RESET, RunBody, Supervision

STALL_TIMEOUT_MS = 60_000
"""For a program that has beaten, where nobody has said how long it may be silent."""
_HOUR_MS, _MONTH_MS = 3_600_000, 30 * policies.DAY_MS

COUNTS = {"max_restarts": (0, MAX_RESTARTS_LIMIT), "breaker_failures": (0, MAX_CIRCUIT_BREAKER_FAILURES)}
DURATIONS_MS = {
    "window": (1_000, _MONTH_MS),
    "breaker_window": (100, _MONTH_MS),
    "stall_timeout": (100, policies.DAY_MS),
    "backoff": (0, _HOUR_MS),
    "backoff_max": (0, _HOUR_MS),
    "grace": (0, _HOUR_MS),
}


class RunPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is restarted, and how it is ended."""

    max_restarts: int = 10
    """In any window."""
    window_ms: int = 600_000
    breaker_failures: int = 5
    """So many restarts within the breaker's window, and there is never another."""
    breaker_window_ms: int = 30_000
    stall_timeout_ms: int | None = None
    """How long it may be silent. None: a minute, once it has beaten."""
    backoff_ms: int = 500
    """Before the first restart in a window; doubled for each one after it."""
    backoff_max_ms: int = 30_000
    grace_ms: int = 10_000
    """Between being told to end and being killed."""

    @property
    def config(self) -> RestartPolicyConfig:
        """For the controller. A tick is a millisecond."""
        return RestartPolicyConfig(
            max_restarts=self.max_restarts,
            window_ticks=self.window_ms,
            circuit_breaker_threshold_ticks=self.breaker_window_ms,
            circuit_breaker_max_failures=self.breaker_failures,
            stall_timeout_ticks=self.silence_ms,
        )

    @property
    def silence_ms(self) -> int:
        return STALL_TIMEOUT_MS if self.stall_timeout_ms is None else self.stall_timeout_ms

    def backoff_seconds(self, attempt: int, jitter: float) -> float:
        """Before the restart with this number in its window."""
        plain_ms: int = min(self.backoff_ms << min(attempt - 1, 40), self.backoff_max_ms)
        return plain_ms * jitter / 1_000


def run_policy(fields: Mapping[str, Any]) -> RunPolicy:
    """From the names people write (`max_restarts=3`, `window="10m"`). None leaves a field at its default.

    What has left the window is forgotten, so the breaker's is never longer.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in COUNTS:
            found[name] = check_integer(name, value, *COUNTS[name])
        elif name in DURATIONS_MS:
            found[f"{name}_ms"] = policies.duration_ms(name, value, *DURATIONS_MS[name])
        else:
            raise ValidationError(f"a run's policy has no {name!r:.80}", field="policy")
    longest = found.get("window_ms", RunPolicy().window_ms)
    if found.setdefault("breaker_window_ms", min(RunPolicy().breaker_window_ms, longest)) > longest:
        raise ValidationError("breaker_window must not be longer than window", field="breaker_window")
    return RunPolicy(**found)


_PROCESS_IDENTITY = re.compile(r"([^/]+)/(\d+)/(\d+)/[^/]+")
_LINUX = sys.platform.startswith("linux")


def process_identity(nonce: str) -> str:
    """A name for this process that no other ever has: which system, which process, since when."""
    return f"{_system_identity()}/{os.getpid()}/{_process_start_time(os.getpid())}/{nonce}"


def is_dead_process(of: str) -> bool:
    """Whether a holder is a process of this very system, and gone. False where nobody here can know."""
    found = _PROCESS_IDENTITY.fullmatch(of)
    return found is not None and found[1] == _system_identity() and _process_start_time(int(found[2])) != found[3]


def _system_identity() -> str:
    """This boot, and which processes are seen from here: numbers of processes mean something only within both."""
    if not _LINUX:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _process_start_time(pid: int) -> str:
    """When a process began, in the kernel's ticks since boot; nothing where there is no such process, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


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


class RunSnapshot(NamedTuple):
    """A run as it was; of two the one with the higher number is the later one."""

    number: int
    body: RunBody


class SupervisedRun:
    """One run: from its first start until a terminal reason stands, through any number of supervisors."""

    def __init__(
        self, supervision: Supervision, name: str, policy: RunPolicy, command: Sequence[str], job_id: int | None
    ) -> None:
        self._supervision = supervision
        self.name = name
        self._policy = policy
        self._holder = process_identity(supervision.nonce())
        self._save_lock = threading.Lock()
        self._snapshot_count = self._saved_number = 0
        self.receipt: LivenessHeartbeatReceiptV1 | None = None
        """The newest."""
        self.is_new = True
        """False where an earlier supervisor has begun it and was not there to end it."""
        self.controller = RestartController(policy.config)
        self._acquire()
        try:
            kept = self._load(supervision.find(name))
        except BaseException:
            self.release()
            raise
        self.body = msgspec.structs.replace(kept, program=command[0], job_id=job_id)

    def _load(self, found: RunBody | None) -> RunBody:
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

    def _acquire(self) -> None:
        """A supervisor of this machine that is dead cannot object: its keeper has ended its command."""
        if self._supervision.take(self.name, self._holder, DUTY_SECONDS):
            return
        found = self._supervision.find(self.name)
        if found is not None and is_dead_process(found.holder):
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

    def record_exit(self, code: int | None) -> None:
        self.body = msgspec.structs.replace(self.body, exit_code=code)

    # Receipts

    def issue_receipt(
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

    def snapshot(self) -> RunSnapshot:
        """All of it, as it is now. For the thread that changes it."""
        self._snapshot_count += 1
        receipt = UNSET if self.receipt is None else msgspec.Raw(self.receipt.to_json().encode())
        reason = self.controller.terminal_reason()
        kept = msgspec.Raw(self.controller.to_json().encode())
        whole = msgspec.structs.replace(self.body, controller=kept, terminal_reason=reason, receipt=receipt)
        return RunSnapshot(self._snapshot_count, whole)

    def save(self, snapshot: RunSnapshot) -> None:
        """Durable when it returns, it or a later one. Conflict where another supervisor has the run."""
        with self._save_lock:
            if snapshot.number > self._saved_number:
                self._supervision.keep(self.name, snapshot.body, DUTY_SECONDS)
                self._saved_number = snapshot.number

    def release(self) -> None:
        """Others may supervise it at once."""
        try:
            self._supervision.drop(self.name, self._holder)
        except HoldfastError as error:
            log.warning("the run is not free before its time is over", extra={"run": self.name, "error": error.code})


class SnapshotWriter:
    """Keeps the newest snapshot it was told of."""

    def __init__(self, run: SupervisedRun, wake: Callable[[], None]) -> None:
        self._run = run
        self._wake_loop = wake
        self._changed = threading.Event()
        self._newest: RunSnapshot | None = None
        self._closing = False
        self.superseded = False
        """Another supervisor has the run."""
        self._thread = threading.Thread(target=self._write_loop, name="holdfast-record", daemon=True)
        self._thread.start()

    def submit(self, snapshot: RunSnapshot) -> None:
        self._newest = snapshot
        self._changed.set()

    def _write_loop(self) -> None:
        while self._changed.wait() and not self._closing:
            self._changed.clear()
            try:
                if self._newest is not None:
                    self._run.save(self._newest)
            except Conflict:
                self.superseded = True
                self._wake_loop()
            except HoldfastError as error:
                log.warning("the run could not be kept", extra={"run": self._run.name, "error": error.code})

    def close(self) -> None:
        self._closing = True
        self._changed.set()
        self._thread.join()
