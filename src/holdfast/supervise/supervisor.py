"""The supervisor: starts a command, restarts it within the limits of its policy, and records how it ended."""

import contextlib
import logging
import os
import selectors
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.core.limits import check_name
from holdfast.core.liveness import HealthVerdict
from holdfast.core.restart import TerminalReason
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.keeping.service import ServiceLoop
from holdfast.keeping.signals import STOP_SIGNALS, SignalReader
from holdfast.ledger import Ledger
from holdfast.supervise import keeper
from holdfast.supervise.event_loop import FORWARDED_SIGNALS, Timers
from holdfast.supervise.heartbeats import HeartbeatListener, HeartbeatMonitor, ReceivedHeartbeat, StopReason, shell_exit_code
from holdfast.supervise.lease import JobLease, record_job_end
from holdfast.supervise.process import CommandProcess
from holdfast.supervise.run import RunPolicy, SnapshotWriter, SupervisedRun

RECEIPT_SECONDS = 5.0
"""The time between two receipts. The duty of the run lasts three times as long."""
RETRY_SECONDS = 1.0
"""When to retry a ledger that is out of reach, if the supervisor has to wait for it."""
RECORD_END_SECONDS = 60.0
"""How long the end of a run waits for a ledger that is out of reach."""
_JOB_VARIABLES = ("HOLDFAST_JOB", "HOLDFAST_ATTEMPT", "HOLDFAST_RESULT")
"""Variables that a supervisor may have inherited from an outer one."""


class RunObserver(Protocol):
    """Gets the events of a run."""

    def on_event(self, what: str, **facts: Any) -> None: ...


class RunOutcome(msgspec.Struct, frozen=True):
    """How a run has ended."""

    run_id: str
    reason: TerminalReason | None
    """None if another supervisor has the run."""
    restarts: int
    exit_code: int | None
    """The command's last exit code; 126 or 127, as in a shell, if it could not be started."""
    receipt: dict[str, Any] | None = None
    error: HoldfastError | None = None
    """Why the end could not be recorded."""


def format_restarts(restarts: int) -> str:
    return "after 1 restart" if restarts == 1 else f"after {restarts} restarts"


class RunLifecycle:
    """Starts, stops and restarts the command, and records the end of the run. All of its state is used in one thread."""

    run: SupervisedRun
    listener: HeartbeatListener
    snapshot_writer: SnapshotWriter

    def __init__(
        self,
        ledger: Ledger,
        command: Sequence[str],
        *,
        name: str,
        url: str,
        observer: RunObserver,
        policy: RunPolicy | None = None,
        expect_beats: bool = False,
        job_id: int | None = None,
    ) -> None:
        self.name = check_name("name", name)
        self.policy = policy or RunPolicy()
        self.child: CommandProcess | None = None
        self.monitor: HeartbeatMonitor | None = None
        """The monitor of the newest start."""
        self._preexisting: frozenset[int] = frozenset()
        """Processes that were below this process before. The supervisor does not signal them."""
        self.lease: JobLease | None = None
        self.outcome: RunOutcome | None = None
        self._ledger = ledger
        self._job_id = job_id
        self._command = list(command)
        self._observer = observer
        self._url = url
        self._from_start = expect_beats or self.policy.stall_timeout_ms is not None
        supervision = ledger.supervision
        self._monotonic, self._jitter = supervision.monotonic, supervision.jitter
        self._base_ms = supervision.tick() - self._monotonic() * 1_000
        self._timers = Timers(self._monotonic)
        self._selector = selectors.DefaultSelector()
        self._shell_code: int | None = None
        self._stop_waiting = False
        self._recording_since: float | None = None
        self._checked_tick = self.tick()

    def tick(self) -> int:
        """Return the ledger's time at the start plus the monotonic time since, in milliseconds. Clock steps do not change it."""
        return int(self._base_ms + self._monotonic() * 1_000)

    def _publish_receipt(self) -> None:
        """Issue a receipt and have it saved."""
        self._issue_receipt()
        assert self.run.receipt is not None
        self._observer.on_event("receipt", receipt=self.run.receipt.to_object())
        self.snapshot_writer.submit(self.run.snapshot())
        self._timers.call_later(RECEIPT_SECONDS, self._publish_receipt)

    def _issue_receipt(self) -> None:
        verdict, detail = self._verdict()
        monitor, tick = self.monitor, self.tick()
        self.run.issue_receipt(
            tick,
            verdict,
            uptime_ms=0 if monitor is None or self.child is None else tick - monitor.started_tick,
            beat="" if monitor is None else f"{monitor.beats} {monitor.last_beat_tick}",
            episode=None if self.lease is None else self.lease.episode,
            detail=detail,
        )

    def _verdict(self) -> tuple[HealthVerdict, str | None]:
        monitor, reason = self.monitor, self.run.controller.terminal_reason()
        if monitor is None:
            return HealthVerdict.AMBIGUOUS, "not started yet"
        if monitor.stop_reason is StopReason.STALL:
            return HealthVerdict.STALLED, reason or "silent for too long"
        if self.child is not None:
            return (
                (HealthVerdict.HEALTHY, monitor.describe())
                if monitor.stop_reason is None
                else (HealthVerdict.AMBIGUOUS, "stopping")
            )
        if reason in (TerminalReason.CLEAN_EXIT, TerminalReason.OPERATOR_SHUTDOWN):
            return HealthVerdict.AMBIGUOUS, reason
        return HealthVerdict.CRASHED, reason or f"ended with {self.run.body.exit_code}"

    @property
    def _result_path(self) -> Path:
        return self.listener.path.with_suffix(".result")

    # Starting

    def _start_or_continue(self) -> None:
        """Start a new run, or continue one that an earlier supervisor did not end. Continuing counts as a restart."""
        if self.run.is_new:
            self._start()
        else:
            self._observer.on_event("continuing", run_id=self.run.run_id, restarts=self.run.body.restarts)
            self._restart(None)

    def _start(self) -> None:
        """Save the run, then start the command. A later supervisor can read this start even if this process is killed."""
        try:
            self.run.save(self.run.snapshot())
        except Unavailable as error:
            self._observer.on_event("waiting for the ledger", error=error.message)
            self._timers.call_later(RETRY_SECONDS, self._start)
            return
        except Conflict:
            self._on_exit(StopReason.SUPERSEDED, None)
            return
        self.listener.discard()
        self._result_path.unlink(missing_ok=True)
        self.monitor = HeartbeatMonitor(self.tick(), from_start=self._from_start)
        try:
            self.child = CommandProcess(
                self._command,
                self.policy.grace_ms / 1_000,
                self._environment(),
                timers=self._timers,
                beat_fd=self.listener.write_fd,
                preexisting=self._preexisting,
            )
        except OSError as error:  # a later try may succeed, for example when other processes have ended
            self._observer.on_event("not started", error=str(error))
            self._restart(None)
            return
        self._selector.register(self.child.channel, selectors.EVENT_READ, self._on_keeper_message)
        self._publish_receipt()

    def _environment(self) -> Mapping[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _JOB_VARIABLES}
        env |= self.listener.environment() | {"HOLDFAST_RUN": self.run.run_id}
        env["HOLDFAST_BEAT_EVERY"] = f"{self.policy.silence_ms / 3_000:g}"
        if self.lease is not None:
            fence = self.lease.fence
            env |= {"HOLDFAST_JOB": str(fence.job_id), "HOLDFAST_ATTEMPT": str(fence.attempt), "HOLDFAST_URL": self._url}
            env["HOLDFAST_RESULT"] = str(self._result_path)
        return env

    # Ending

    def _on_keeper_message(self) -> None:
        child = self.child
        assert child is not None and self.monitor is not None
        pid_before = child.pid
        child.read_messages()
        if pid_before is None and child.pid is not None:
            self._observer.on_event("started", run_id=self.run.run_id, pid=child.pid, restarts=self.run.body.restarts)
        if child.has_ended:
            self.listener.read_remaining()
            self._selector.unregister(child.channel)
            child.close()
            self.child = None
            self._on_exit(self.monitor.stop_reason, child)

    def _on_exit(self, why: StopReason | None, child: CommandProcess | None) -> None:
        code = None if child is None else child.exit_code
        self._shell_code = None if child is None or not child.errno else shell_exit_code(child.errno)
        self.run.record_exit(self._shell_code or code)
        if child is not None:
            reason = os.strerror(child.errno) if child.errno else None
            self._observer.on_event("ended", exit_code=self._shell_code or code, **({"error": reason} if reason else {}))
        if why is StopReason.SUPERSEDED:
            error = Conflict(f"another supervisor has taken {self.name!r} over", run=self.name)
            self.outcome = RunOutcome(self.run.run_id, None, self.run.body.restarts, code, error=error)
        elif why in (StopReason.SHUTDOWN, StopReason.CANCEL):
            self._end_run(TerminalReason.OPERATOR_SHUTDOWN)
        elif why is StopReason.LOST or self._shell_code is not None:
            self._end_run(TerminalReason.UNRECOVERABLE_ERROR)
        elif code == 0 and why is None:
            self._end_run(TerminalReason.CLEAN_EXIT)
        else:
            self._restart(why)

    def _restart(self, why: StopReason | None) -> None:
        """Start the command again after a backoff, if the restart controller allows it. Else end the run."""
        if why is StopReason.STALL and self.policy.max_restarts == 0:
            self._end_run(TerminalReason.STALL_TIMEOUT)
            return
        attempt = self.run.restart(self.tick())
        if attempt is None:
            self._record_end()
            return
        seconds = self.policy.backoff_seconds(attempt, self._jitter())
        self._observer.on_event(
            "restarting", attempt=attempt, max_restarts=self.policy.max_restarts, wait_ms=round(seconds * 1_000)
        )
        self._timers.call_later(seconds, self._start)
        self._publish_receipt()

    def _end_run(self, reason: TerminalReason) -> None:
        self.run.end(reason)
        self._record_end()

    def _record_end(self) -> None:
        """Record the end of the job, then the end of the run. The job comes first, so that finished work is not repeated."""
        self._timers.cancel(self._start)
        reason = self.run.controller.terminal_reason()
        assert reason is not None
        self._issue_receipt()
        error: HoldfastError | None = None
        try:
            if self.lease is not None:
                record_job_end(self.lease, reason, self._result_path, self._describe_end(reason))
        except HoldfastError as refused:
            error = refused
        try:
            self.run.save(self.run.snapshot())
        except HoldfastError as refused:
            error = error or refused
        if isinstance(error, Unavailable) and self._may_wait():
            self._observer.on_event("waiting for the ledger", error=error.message)
            self._timers.call_later(RETRY_SECONDS, self._record_end)
            return
        receipt = self.run.receipt
        self._observer.on_event("over", run_id=self.run.run_id, reason=reason.value, restarts=self.run.body.restarts)
        self.outcome = RunOutcome(
            self.run.run_id,
            reason,
            self.run.body.restarts,
            self.run.body.exit_code,
            None if receipt is None else receipt.to_object(),
            error,
        )

    def _describe_end(self, reason: TerminalReason) -> dict[str, Any]:
        ended = "could not be started" if self._shell_code else f"last ended with {self.run.body.exit_code}"
        message = f"{self._command[0]} {ended}, {format_restarts(self.run.body.restarts)}: {reason.value}"
        return {"type": reason.name.title().replace("_", ""), "message": message}

    def _may_wait(self) -> bool:
        now = self._monotonic()
        self._recording_since = now if self._recording_since is None else self._recording_since
        return not self._stop_waiting and now - self._recording_since < RECORD_END_SECONDS


log = logging.getLogger("holdfast.supervise")

FROZEN_MS = 2_000 * RECEIPT_SECONDS
"""If the supervisor has not checked for this long, it was stopped itself, and perhaps its command too."""
CHANGE_SECONDS = 0.5
"""How soon a change in a heartbeat is in a receipt."""


class Supervisor(RunLifecycle):
    """Runs one command until the run has a terminal reason. It needs its own process: it kills orphans below that process."""

    def supervise(self) -> RunOutcome:
        """Run the command to its end. Raise ResetNeeded or the ledger's error if the run cannot be started."""
        self._preexisting = frozenset(keeper.descendants(os.getpid()))
        keeper.adopt_orphans()
        self.run = SupervisedRun(self._ledger.supervision, self.name, self.policy, self._command, self._job_id)
        try:
            with contextlib.ExitStack() as stack:
                self._signals = stack.enter_context(SignalReader(FORWARDED_SIGNALS, self._monotonic))
                self.listener = stack.enter_context(HeartbeatListener(f"{self._ledger.id}/{self.name}", self._on_heartbeat))
                stack.enter_context(self._selector)
                self._selector.register(self._signals, selectors.EVENT_READ, self._on_signals)
                self.listener.register(self._selector)
                self._claim_job(stack)
                self.snapshot_writer = SnapshotWriter(self.run, self._signals.wake)
                stack.callback(self.snapshot_writer.loop.close)
                stack.callback(self._clean_up)
                return self._loop()
        finally:
            self.run.release()

    def _claim_job(self, stack: contextlib.ExitStack) -> None:
        if self._job_id is None:
            return
        incarnation, wake = self.run.body.incarnation, self._signals.wake
        self.lease = JobLease(self._ledger, self._job_id, self.name, incarnation, self._monotonic, wake)
        self.lease.claim()
        beats = ServiceLoop([self.lease])
        beats.start()
        stack.callback(beats.close)

    def _clean_up(self) -> None:
        if self.child is not None:
            self.child.close()
        self._result_path.unlink(missing_ok=True)

    def _loop(self) -> RunOutcome:
        self._start_or_continue()
        while self.outcome is None:
            for key, _ in self._selector.select(self._timers.timeout_s()):
                key.data()
            self._check_lease()
            self._check_stall()
            if self.outcome is None:
                self._timers.run_due()
        return self.outcome

    # Heartbeats and signals

    def _on_heartbeat(self, heartbeat: ReceivedHeartbeat) -> None:
        if self.monitor is not None and self.monitor.record(self.tick(), heartbeat):
            self._timers.call_within(CHANGE_SECONDS, self._publish_receipt)
        if self.lease is not None:
            self.lease.queue_fields(heartbeat.fields)

    def _on_signals(self) -> None:
        for number in self._signals.read():
            if number in STOP_SIGNALS:
                self._shut_down(number)
            elif self.child is not None:
                self.child.signal(number)
        if self.snapshot_writer.superseded:
            self._abandon(StopReason.SUPERSEDED)

    def _shut_down(self, number: signal.Signals) -> None:
        """Pass the first signal on and start the grace. Kill the command and end all waiting on the second one."""
        is_second = self.monitor is not None and self.monitor.stop_reason is StopReason.SHUTDOWN
        self._observer.on_event("stopping at once" if is_second else "stopping", signal=number.name)
        if self.child is not None and self.monitor is not None:
            if is_second:
                self.child.kill()
            else:
                self.monitor.stop_reason = StopReason.SHUTDOWN
                self.child.stop(number)
        elif self.run.controller.terminal_reason() is None:
            self._end_run(TerminalReason.OPERATOR_SHUTDOWN)
        else:
            self._stop_waiting = True

    # Lease and stall checks

    def _check_lease(self) -> None:
        lease = self.lease
        if lease is None:
            return
        if not lease.lost and self._monotonic() >= lease.expires:
            log.warning("the lease could not be renewed in time", extra={"job_id": self._job_id})
            lease.mark_lost()
        if lease.lost:
            self._abandon(StopReason.LOST)
            return
        if lease.cancel_requested:
            self._stop_for_cancel()
        self._timers.call_later(lease.expires - self._monotonic(), self._wake_for_lease_check)

    def _stop_for_cancel(self) -> None:
        if self.child is None:
            if self.run.controller.terminal_reason() is None:
                self._end_run(TerminalReason.OPERATOR_SHUTDOWN)
        elif self.monitor is not None and self.monitor.stop_reason is None:
            self._observer.on_event("stopping", cancelled_job=self._job_id)
            self.monitor.stop_reason = StopReason.CANCEL
            self.child.stop(signal.SIGTERM)

    def _abandon(self, why: StopReason) -> None:
        """Kill the command at once: this supervisor must not continue."""
        if self.child is not None and self.monitor is not None:
            if self.monitor.stop_reason is not why:
                self.monitor.stop_reason = why
                self.child.kill()
        elif self.outcome is None and self.run.controller.terminal_reason() is None:
            self._on_exit(why, None)

    def _check_stall(self) -> None:
        monitor, child = self.monitor, self.child
        if monitor is None or monitor.stop_reason is not None or monitor.silent_since is None or child is None:
            return
        now = self.tick()
        if now - self._checked_tick > FROZEN_MS:
            monitor.reset_silence(now)
        self._checked_tick = now
        if self.run.controller.check_stall(monitor.silent_since, now):
            self._observer.on_event("stalled", silent_ms=now - monitor.silent_since, beats=monitor.beats, pid=child.pid)
            monitor.stop_reason = StopReason.STALL
            child.stop(signal.SIGTERM)
            self._publish_receipt()
        else:
            self._timers.call_later((monitor.silent_since + self.policy.silence_ms + 1 - now) / 1_000, self._check_stall)

    def _wake_for_lease_check(self) -> None:
        """Do nothing. The timer wakes the loop, which checks the lease after every wake-up."""
