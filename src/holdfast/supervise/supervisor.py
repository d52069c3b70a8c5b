"""The supervisor: one loop that waits for signals, beats, its child and the time, and acts on whatever comes first."""

import contextlib
import logging
import os
import selectors
import signal
from collections.abc import Sequence

from holdfast.core.restart import TerminalReason
from holdfast.ledger import Ledger
from holdfast.services.ticker import Ticker
from holdfast.supervise import keeper
from holdfast.supervise.course import Course
from holdfast.supervise.ears import Ears, Heard
from holdfast.supervise.lease import JobLease
from holdfast.supervise.looking import LOOK_SECONDS, Ending, Voice
from holdfast.supervise.policy import RunPolicy
from holdfast.supervise.recorder import Recorder
from holdfast.supervise.run import Run
from holdfast.supervise.signals import STOPPING, Signals
from holdfast.supervise.watch import Why

log = logging.getLogger("holdfast.supervise")

FROZEN_MS = 2_000 * LOOK_SECONDS
"""Whoever looks every few seconds, and has not for so long, was stopped itself; perhaps its command was too."""
NEWS_SECONDS = 0.5
"""How soon there is a receipt of what a beat has told."""


class Supervisor(Course):
    """Runs one command until a terminal reason stands. It belongs into a process of its own: it ends whatever comes below it."""

    def __init__(
        self,
        ledger: Ledger,
        command: Sequence[str],
        *,
        name: str,
        url: str,
        voice: Voice,
        policy: RunPolicy | None = None,
        expect_beats: bool = False,
        job_id: int | None = None,
    ) -> None:
        policy = policy or RunPolicy()
        from_start = expect_beats or policy.stall_timeout_ms is not None
        super().__init__(ledger, command, name, policy, voice, url=url, from_start=from_start)
        self._ledger = ledger
        self._job_id = job_id
        self._minded_tick = self.tick()

    def supervise(self) -> Ending:
        """Raises ResetNeeded, or what the ledger refuses, where nothing could be begun."""
        self._strangers = frozenset(keeper.descendants(os.getpid()))
        keeper.adopt_orphans()
        self.run = Run(self._ledger.supervision, self.name, self.policy, self._command, self._job_id)
        try:
            with contextlib.ExitStack() as stack:
                self._signals = stack.enter_context(Signals(self._monotonic))
                self.ears = stack.enter_context(Ears(f"{self._ledger.id}/{self.name}", self._hear))
                stack.enter_context(self._selector)
                self._selector.register(self._signals, selectors.EVENT_READ, self._hear_signals)
                self.ears.join(self._selector)
                self._hold(stack)
                self.recorder = Recorder(self.run, self._signals.ring)
                stack.callback(self.recorder.close)
                stack.callback(self._clear_up)
                return self._loop()
        finally:
            self.run.drop()

    def _hold(self, stack: contextlib.ExitStack) -> None:
        if self._job_id is None:
            return
        incarnation, ring = self.run.body.incarnation, self._signals.ring
        self.lease = JobLease(self._ledger, self._job_id, self.name, incarnation, self._monotonic, ring)
        self.lease.claim()
        beats = Ticker([self.lease], name="holdfast-lease")
        beats.start()
        stack.callback(beats.close)

    def _clear_up(self) -> None:
        if self.child is not None:
            self.child.close()
        self._result.unlink(missing_ok=True)

    def _loop(self) -> Ending:
        self._begin()
        while self.ending is None:
            for key, _ in self._selector.select(self._agenda.patience_s()):
                key.data()
            self._mind_the_lease()
            self._mind_the_silence()
            if self.ending is None:
                self._agenda.act()
        return self.ending

    # What comes in

    def _hear(self, heard: Heard) -> None:
        if self.watch is not None and self.watch.hear(self.tick(), heard):
            self._agenda.within(NEWS_SECONDS, self._look)
        if self.lease is not None:
            self.lease.hear(heard)

    def _hear_signals(self) -> None:
        for number in self._signals.read():
            if number in STOPPING:
                self._shut_down(number)
            elif self.child is not None:
                self.child.signal(number)
        if self.recorder.superseded:
            self._give_up(Why.SUPERSEDED)

    def _shut_down(self, number: signal.Signals) -> None:
        """The first signal is passed on, and the grace begins; the second ends all waiting."""
        again = self.watch is not None and self.watch.why is Why.SHUTDOWN
        self._voice.happened("stopping at once" if again else "stopping", signal=number.name)
        if self.child is not None and self.watch is not None:
            if again:
                self._kill(self.child)
            else:
                self.watch.why = Why.SHUTDOWN
                self._stop(self.child, number)
        elif self.run.controller.terminal_reason() is None:
            self._finish(TerminalReason.OPERATOR_SHUTDOWN)
        else:
            self._hurry = True

    # What must not go on

    def _mind_the_lease(self) -> None:
        lease = self.lease
        if lease is None:
            return
        if not lease.lost and self._monotonic() >= lease.expires:
            log.warning("the lease could not be renewed in time", extra={"job_id": self._job_id})
            lease.lose()
        if lease.lost:
            self._give_up(Why.LOST)
            return
        if lease.cancel_requested:
            self._cancel()
        self._agenda.after(lease.expires - self._monotonic(), self._wake)

    def _cancel(self) -> None:
        if self.child is None:
            if self.run.controller.terminal_reason() is None:
                self._finish(TerminalReason.OPERATOR_SHUTDOWN)
        elif self.watch is not None and self.watch.why is None:
            self._voice.happened("stopping", cancelled_job=self._job_id)
            self.watch.why = Why.CANCEL
            self._stop(self.child, signal.SIGTERM)

    def _give_up(self, why: Why) -> None:
        """Nobody may go on: what runs is killed at once."""
        if self.child is not None and self.watch is not None:
            if self.watch.why is not why:
                self.watch.why = why
                self._kill(self.child)
        elif self.ending is None and self.run.controller.terminal_reason() is None:
            self._ended(why, None)

    def _mind_the_silence(self) -> None:
        watch, child = self.watch, self.child
        if watch is None or watch.why is not None or watch.silent_since is None or child is None:
            return
        now = self.tick()
        if now - self._minded_tick > FROZEN_MS:
            watch.excuse(now)
        self._minded_tick = now
        if self.run.controller.check_stall(watch.silent_since, now):
            self._voice.happened("stalled", silent_ms=now - watch.silent_since, beats=watch.beats, pid=child.pid)
            watch.why = Why.STALL
            self._stop(child, signal.SIGTERM)
            self._look()
        else:
            self._agenda.after((watch.silent_since + self.policy.silence_ms + 1 - now) / 1_000, self._listen)

    def _listen(self) -> None:
        """The silence is minded whenever anything comes, time included."""

    def _wake(self) -> None:
        """Likewise the lease."""
