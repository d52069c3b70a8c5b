"""Send heartbeats for the jobs a worker holds, and enforce the deadlines of its handlers.

Heartbeats have a thread and a connection that nothing else uses. One batch renews all leases that are due. Deadlines have their
own thread, which never calls the ledger: a slow ledger cannot delay them.
"""

import threading
from collections.abc import Callable, Sequence

from holdfast.core.model import Policy, Status
from holdfast.errors import HoldfastError, SignatureInvalid, Unavailable
from holdfast.ledger import Beat, Ledger
from holdfast.worker.context import Context
from holdfast.worker.runtime import WorkerRuntime, log

TICK_SECONDS = 0.25
"""How often leases are checked while there are any."""
IDLE_TICK_SECONDS = 1.0
PROGRESS_SECONDS = 0.5
"""The shortest time between two heartbeats that are sent early because of progress."""
RETRY_SECONDS = 0.5
ANSWER_SECONDS_MIN, ANSWER_SECONDS_MAX = 1.0, 10.0
"""Limits of the wait for the answer to a heartbeat. Between them it is half of the time left of the shortest lease."""
GRACE_SECONDS = 5.0
"""How long a handler has to stop before it is abandoned."""


def heartbeat_seconds(policy: Policy) -> float:
    """Return the seconds between heartbeats: the policy's interval, at most half of the stall limit and of the lease."""
    return min(policy.heartbeat_interval_ms, policy.stall_after_ms / 2, policy.lease_ttl_ms / 2) / 1_000


class HeartbeatLoop:
    """Send the heartbeats of a worker. `ledger` is used for heartbeats only, so that no other call can delay them."""

    def __init__(self, runtime: WorkerRuntime, ledger: Ledger, on_lost: Callable[[Context], None]) -> None:
        """`on_lost` is called with each attempt whose lease is lost."""
        self._runtime = runtime
        self._ledger = ledger
        self._on_lost = on_lost
        self._closing = False
        self._progress_sent_at = float("-inf")
        self._is_refusal_logged = False
        self._locked: set[Context] = set()
        """Attempts whose last heartbeat found the job locked by another transaction."""
        self._thread = threading.Thread(target=self._run, name="holdfast-beats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        wake = self._runtime.wake
        while not self._closing:
            wake.wait(TICK_SECONDS if self._runtime.leases else None)
            wake.clear()
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a worker without heartbeats would lose every job it has
                log.exception("sending heartbeats failed")

    def tick(self) -> None:
        """Send the heartbeats that are due. Jobs that were locked the last time come after the others, in a separate batch."""
        now = self._runtime.monotonic()
        sends_progress = now - self._progress_sent_at >= PROGRESS_SECONDS
        due = [
            context
            for context in list(self._runtime.leases.values())
            if context.due <= now or (sends_progress and context.has_unsent_progress and not context.is_settling)
        ]
        if due:
            self._progress_sent_at = now
            self._locked.intersection_update(self._runtime.leases.values())
            self._ledger.patience = _answer_timeout(due, now)
            unlocked = [context for context in due if context not in self._locked]
            locked = [context for context in due if context in self._locked]
            for batch in (unlocked, locked):
                if batch:
                    self._send_beats(batch, now)

    def _send_beats(self, due: Sequence[Context], now: float) -> None:
        unsent = [context.begin_sending() for context in due]
        try:
            answers = self._ledger.heartbeat_many(
                [(c.fence, fields) if fields else c.fence for c, fields in zip(due, unsent, strict=True)], wait=False
            )
        except HoldfastError as error:
            answers = [error] * len(due)
        lost: list[Context] = []
        for context, fields, answer in zip(due, unsent, answers, strict=True):
            self._note_locked(context, answer)
            if isinstance(answer, Unavailable | SignatureInvalid):
                # The worker still holds the job. The missing key may be added later, or another process has it.
                self._log_signature_refusal(answer, context)
                context.apply_answer(answer, now)
                context.due = now + RETRY_SECONDS
                context.finish_sending(resend=True)
                continue
            context.finish_sending(resend=False)
            if context.is_settling and not isinstance(answer, Beat):
                # Its outcome arrived before this heartbeat, or will be refused and logged for the same reason.
                self._runtime.forget(context)
                continue
            context.apply_answer(answer, now, fields)
            if isinstance(answer, Beat) and answer.status is Status.STALLED:
                self._resume_stalled(context, now)
            if context.lost:
                self._runtime.forget(context)
                self._on_lost(context)
                lost.append(context)
        for context in lost:
            self._runtime.log_lost(context, "lease lost", self._ledger)

    def _note_locked(self, context: Context, answer: Beat | HoldfastError) -> None:
        facts = {"job_id": context.job.id, "attempt": context.job.attempt}
        if isinstance(answer, Unavailable) and answer.locked:
            if context not in self._locked:
                log.warning("heartbeats cannot be written: another transaction has locked the job", extra=facts)
            self._locked.add(context)
        elif context in self._locked:
            self._locked.discard(context)
            if isinstance(answer, Beat):
                log.info("the job is no longer locked: heartbeats are written again", extra=facts)

    def _log_signature_refusal(self, answer: HoldfastError, context: Context) -> None:
        """Log a refused signature once, until a heartbeat is accepted again."""
        if isinstance(answer, SignatureInvalid) and not self._is_refusal_logged:
            facts = {"job_id": context.job.id, "attempt": context.job.attempt, "error": answer.message}
            log.error("heartbeats are refused because of their signature", extra=facts)
        self._is_refusal_logged = isinstance(answer, SignatureInvalid)

    def _resume_stalled(self, context: Context, now: float) -> None:
        """Resume an attempt that was marked as stalled. No other worker holds its job yet."""
        try:
            resumed = self._ledger.resume(context.fence)
        except (Unavailable, SignatureInvalid):
            context.due = now + RETRY_SECONDS
        except HoldfastError as error:
            context.apply_answer(error, now)
        else:
            context.apply_resume(resumed, now)

    def close(self) -> None:
        self._closing = True
        self._runtime.wake.set()
        self._thread.join()


def _answer_timeout(due: Sequence[Context], now: float) -> float:
    left = min(context.expires for context in due) - now
    return min(max(left / 2, ANSWER_SECONDS_MIN), ANSWER_SECONDS_MAX)


class Deadlines:
    """Time out attempts that take too long, and abandon handlers that do not stop. It never waits for the ledger."""

    def __init__(self, runtime: WorkerRuntime, time_out: Callable[[Context], None], abandon: Callable[[Context], None]) -> None:
        self._runtime = runtime
        self._time_out = time_out
        self._abandon = abandon
        self._stop_deadlines: dict[Context, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-deadlines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(TICK_SECONDS if self._runtime.leases or self._stop_deadlines else IDLE_TICK_SECONDS):
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - without deadlines a worker would wait for stuck handlers forever
                log.exception("checking deadlines failed")

    def tick(self) -> None:
        now = self._runtime.monotonic()
        for context in list(self._runtime.leases.values()):
            if context.deadline is not None and now >= context.deadline and not context.timed_out:
                self._time_out(context)
                self.expect_stop(context)
        for context, until in list(self._stop_deadlines.items()):
            if now >= until:
                del self._stop_deadlines[context]
                self._abandon(context)

    def expect_stop(self, context: Context) -> None:
        """Abandon the attempt if its handler has not stopped after the grace period."""
        self._stop_deadlines.setdefault(context, self._runtime.monotonic() + GRACE_SECONDS)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
