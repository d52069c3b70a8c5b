"""A supervised run: its policy, its state in the ledger, and the process that holds it."""

import hashlib
import logging
import math
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
from holdfast.core.text import truncate_bytes
from holdfast.errors import Conflict, HoldfastError, ValidationError
from holdfast.keeping.service import Service, ServiceLoop
from holdfast.ledger.verbs.services import NEEDS_RESET, RunBody, Supervision

STALL_TIMEOUT_MS = 60_000
"""Default stall timeout of a program that has sent a heartbeat."""
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
    """How a command is restarted and how it is stopped."""

    max_restarts: int = 10
    """The most restarts in any window."""
    window_ms: int = 600_000
    breaker_failures: int = 5
    """After this many restarts within the breaker's window, the command is never restarted again."""
    breaker_window_ms: int = 30_000
    stall_timeout_ms: int | None = None
    """The longest time without a heartbeat. None: a minute, after the first heartbeat."""
    backoff_ms: int = 500
    """The wait before the first restart in a window. It doubles with each further restart."""
    backoff_max_ms: int = 30_000
    grace_ms: int = 10_000
    """The time between the signal to stop and SIGKILL."""

    @property
    def config(self) -> RestartPolicyConfig:
        """The policy for the restart controller. A tick is a millisecond."""
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
        """Return the wait before the restart with this number in its window."""
        backoff_ms: int = min(self.backoff_ms << min(attempt - 1, 40), self.backoff_max_ms)
        return backoff_ms * jitter / 1_000


def run_policy(fields: Mapping[str, Any]) -> RunPolicy:
    """Return the policy from public names (`max_restarts=3`, `window="10m"`). None leaves a field at its default.

    The breaker's window is never longer than the window, because restarts before the window are not kept.
    """
    policy: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in COUNTS:
            policy[name] = check_integer(name, value, *COUNTS[name])
        elif name in DURATIONS_MS:
            policy[f"{name}_ms"] = policies.duration_ms(name, value, *DURATIONS_MS[name])
        else:
            raise ValidationError(f"a run's policy has no {name!r:.80}", field="policy")
    longest = policy.get("window_ms", RunPolicy().window_ms)
    if policy.setdefault("breaker_window_ms", min(RunPolicy().breaker_window_ms, longest)) > longest:
        raise ValidationError("breaker_window must not be longer than window", field="breaker_window")
    return RunPolicy(**policy)


_PROCESS_IDENTITY = re.compile(r"([^/]+)/(\d+)/(\d+)/[^/]+")
_LINUX = sys.platform.startswith("linux")


def process_identity(nonce: str) -> str:
    """Return a unique name for this process, from the system, the pid, its start time and the nonce."""
    return f"{_system_identity()}/{os.getpid()}/{_process_start_time(os.getpid())}/{nonce}"


def is_dead_process(identity: str) -> bool:
    """Return whether a holder is a process of this system that has ended. Return False for other systems."""
    match = _PROCESS_IDENTITY.fullmatch(identity)
    return match is not None and match[1] == _system_identity() and _process_start_time(int(match[2])) != match[3]


def _system_identity() -> str:
    """Return the boot id and the pid namespace: a pid is unique only within both."""
    if not _LINUX:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _process_start_time(pid: int) -> str:
    """Return the start time of a process in the kernel's ticks since boot; "" if there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


log = logging.getLogger("holdfast.supervise")

DUTY_SECONDS = 15.0
"""How long a run stays reserved for a supervisor on another system after its last renewal."""
RUN_DOMAIN = b"holdfast run v1\n"
BEAT_DOMAIN = b"holdfast run beat v1\n"


class ResetNeeded(Exception):
    """The last run of this name ended with a reason that an operator has to reset."""

    def __init__(self, name: str, reason: TerminalReason) -> None:
        super().__init__(f"the last run of {name!r} ended with {reason.value}")
        self.name = name
        self.reason = reason


class RunSnapshot(NamedTuple):
    """The state of a run. A later snapshot has a higher number."""

    number: int
    body: RunBody


class SupervisedRun:
    """One run: from its first start until it has a terminal reason, under any number of supervisors."""

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
        """The newest receipt."""
        self.is_new = True
        """False if an earlier supervisor has started the run and did not end it."""
        self.controller = RestartController(policy.config)
        self._acquire()
        try:
            body = self._load(supervision.find(name))
        except BaseException:
            self.release()
            raise
        self.body = msgspec.structs.replace(body, program=command[0], job_id=job_id)

    def _load(self, last: RunBody | None) -> RunBody:
        """Return the body of a new run, or of the last run if that has not ended. Raise ResetNeeded."""
        if last is not None and last.terminal_reason in NEEDS_RESET:
            raise ResetNeeded(self.name, last.terminal_reason)
        if last is None or last.is_over:
            number = 1 if last is None else last.run + 1
            return RunBody(run=number, holder=self._holder, incarnation=self._supervision.nonce(), program="")
        assert isinstance(last.controller, msgspec.Raw)
        self.is_new = False
        self.controller = RestartController.from_json(bytes(last.controller), self._policy.config)
        return msgspec.structs.replace(last, holder=self._holder)

    def _acquire(self) -> None:
        """Acquire the run. Take it over from a dead supervisor on this machine: its keeper has ended its command."""
        if self._supervision.take(self.name, self._holder, DUTY_SECONDS):
            return
        last = self._supervision.find(self.name)
        if last is not None and is_dead_process(last.holder):
            self._supervision.drop(self.name, last.holder)
            if self._supervision.take(self.name, self._holder, DUTY_SECONDS):
                return
        raise Conflict(f"{self.name!r} has another supervisor", run=self.name)

    @property
    def run_id(self) -> str:
        return f"{self.name}/{self.body.run}"

    # Restarts and the end

    def restart(self, tick: int) -> int | None:
        """Record a restart and return its number in the window. Return None if it is not allowed; the run has then ended."""
        decision = self.controller.record_restart(tick)
        if isinstance(decision, Allow):
            self.body = msgspec.structs.replace(self.body, restarts=self.body.restarts + 1)
            return decision.attempt
        return None

    def end(self, reason: TerminalReason) -> None:
        """Set the terminal reason, unless there is one already."""
        self.controller.record_terminal(reason)

    def record_exit(self, code: int | None) -> None:
        self.body = msgspec.structs.replace(self.body, exit_code=code)

    # Receipts

    def issue_receipt(
        self, tick: int, verdict: HealthVerdict, *, uptime_ms: int, beat: str, episode: bytes | None, detail: str | None
    ) -> LivenessHeartbeatReceiptV1:
        """Issue a receipt. `beat` identifies the newest heartbeat; `episode` is that of the run's job, if it has one."""
        limit = tick - self._policy.window_ms
        short_detail = None if detail is None else truncate_bytes(detail, MAX_HEARTBEAT_DETAIL_LENGTH)
        identity = f"{self._supervision.ledger_id}\n{self.run_id}".encode()
        self.receipt = LivenessHeartbeatReceiptV1(
            run_id=self.run_id,
            episode_id=episode or hashlib.sha256(RUN_DOMAIN + identity).digest(),
            emitted_at_tick=tick,
            time_envelope_ref=hashlib.sha256(BEAT_DOMAIN + identity + f"\n{beat}".encode()).digest(),
            health_verdict=verdict,
            restart_count=sum(1 for at in self.controller.restart_ticks if at >= limit),
            max_restarts=self._policy.max_restarts,
            uptime_ms=uptime_ms,
            detail=short_detail,
        )
        return self.receipt

    # Saving

    def snapshot(self) -> RunSnapshot:
        """Return the current state. Call it in the thread that changes the run."""
        self._snapshot_count += 1
        receipt = UNSET if self.receipt is None else msgspec.Raw(self.receipt.to_json().encode())
        reason = self.controller.terminal_reason()
        controller = msgspec.Raw(self.controller.to_json().encode())
        body = msgspec.structs.replace(self.body, controller=controller, terminal_reason=reason, receipt=receipt)
        return RunSnapshot(self._snapshot_count, body)

    def save(self, snapshot: RunSnapshot) -> None:
        """Save the snapshot, unless a later one is saved already. Raise Conflict if another supervisor has the run."""
        with self._save_lock:
            if snapshot.number > self._saved_number:
                self._supervision.keep(self.name, snapshot.body, DUTY_SECONDS)
                self._saved_number = snapshot.number

    def release(self) -> None:
        """Release the run, so that another supervisor can acquire it at once."""
        try:
            self._supervision.drop(self.name, self._holder)
        except HoldfastError as error:
            log.warning("the run stays reserved until its duty expires", extra={"run": self.name, "error": error.code})


class SnapshotWriter(Service):
    """Saves the newest submitted snapshot, in its own thread."""

    name = "run"
    every_s = math.inf
    log = log

    def __init__(self, run: SupervisedRun, wake: Callable[[], None]) -> None:
        self._run = run
        self._wake_supervisor = wake
        self._newest: RunSnapshot | None = None
        self.superseded = False
        """Another supervisor has the run."""
        self.loop = ServiceLoop([self])
        self.loop.start()

    def submit(self, snapshot: RunSnapshot) -> None:
        self._newest = snapshot
        self.loop.wake()

    def tick(self) -> None:
        try:
            if self._newest is not None:
                self._run.save(self._newest)
        except Conflict:
            self.superseded = True
            self._wake_supervisor()
