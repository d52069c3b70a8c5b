"""The course of a run: started, started again as often as its controller lets it, and ended for a reason that is kept."""

import os
import selectors
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.restart import TerminalReason
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.supervise.child import KEEPER_SECONDS, Child
from holdfast.supervise.looking import Ending, Looking, after
from holdfast.supervise.settling import settle
from holdfast.supervise.watch import Watch, Why, shell_code

AGAIN_SECONDS = 1.0
"""How soon a ledger that is out of reach is tried again, where nothing can go on without it."""
SETTLE_SECONDS = 60.0
"""How long the end of a run waits for such a ledger."""
_OF_A_JOB = ("HOLDFAST_JOB", "HOLDFAST_ATTEMPT", "HOLDFAST_RESULT")
"""What the environment of a supervisor may have from another one."""


class Course(Looking):
    """What a supervisor does about its run."""

    @property
    def _result(self) -> Path:
        return self.ears.path.with_suffix(".result")

    # Starting

    def _begin(self) -> None:
        """A run that an earlier supervisor could not end goes on, and that is a restart like any other."""
        if self.run.is_new:
            self._start()
        else:
            self._voice.happened("continuing", run_id=self.run.run_id, restarts=self.run.body.restarts)
            self._again(None)

    def _start(self) -> None:
        """Kept first: whoever comes after this process knows that there was another start."""
        try:
            self.run.keep(self.run.snapshot())
        except Unavailable as error:
            self._voice.happened("waiting for the ledger", error=error.message)
            self._agenda.after(AGAIN_SECONDS, self._start)
            return
        except Conflict:
            self._ended(Why.SUPERSEDED, None)
            return
        self.ears.drain()
        self._result.unlink(missing_ok=True)
        self.watch = Watch(self.tick(), from_start=self._from_start)
        try:
            self.child = Child(
                self._command,
                self.policy.grace_ms / 1_000,
                self._environment(),
                told=self.ears.told,
                strangers=self._strangers,
            )
        except OSError as error:  # there may be room for another process later
            self._voice.happened("not started", error=str(error))
            self._again(None)
            return
        self._selector.register(self.child.channel, selectors.EVENT_READ, self._hear_child)
        self._look()

    def _environment(self) -> Mapping[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _OF_A_JOB}
        env |= self.ears.environment() | {"HOLDFAST_RUN": self.run.run_id}
        env["HOLDFAST_BEAT_EVERY"] = f"{self.policy.silence_ms / 3_000:g}"
        if self.lease is not None:
            fence = self.lease.fence
            env |= {"HOLDFAST_JOB": str(fence.job_id), "HOLDFAST_ATTEMPT": str(fence.attempt), "HOLDFAST_URL": self._url}
            env["HOLDFAST_RESULT"] = str(self._result)
        return env

    # Ending

    def _stop(self, child: Child, number: int) -> None:
        child.stop(number)
        self._agenda.after(self.policy.grace_ms / 1_000 + KEEPER_SECONDS, self._overrule)

    def _kill(self, child: Child) -> None:
        child.kill()
        self._agenda.after(KEEPER_SECONDS, self._overrule)

    def _overrule(self) -> None:
        """Whoever runs as the same user may stop the keeper, its command too: no order is carried out then."""
        if self.child is not None:
            self.child.overrule()
            self._agenda.after(KEEPER_SECONDS, self._overrule)

    def _hear_child(self) -> None:
        child = self.child
        assert child is not None and self.watch is not None
        known = child.pid
        child.hear()
        if known is None and child.pid is not None:
            self._voice.happened("started", run_id=self.run.run_id, pid=child.pid, restarts=self.run.body.restarts)
        if child.over:
            self.ears.catch_up()
            self._selector.unregister(child.channel)
            child.close()
            self.child = None
            self._agenda.drop(self._overrule)
            self._ended(self.watch.why, child)

    def _ended(self, why: Why | None, child: Child | None) -> None:
        code = None if child is None else child.exit_code
        self._shell_code = None if child is None or not child.errno else shell_code(child.errno)
        self.run.exited(self._shell_code or code)
        if child is not None:
            said = os.strerror(child.errno) if child.errno else None
            self._voice.happened("ended", exit_code=self._shell_code or code, **({"error": said} if said else {}))
        if why is Why.SUPERSEDED:
            error = Conflict(f"another supervisor has taken {self.name!r} over", run=self.name)
            self.ending = Ending(self.run.run_id, None, self.run.body.restarts, code, error=error)
        elif why in (Why.SHUTDOWN, Why.CANCEL):
            self._finish(TerminalReason.OPERATOR_SHUTDOWN)
        elif why is Why.LOST or self._shell_code is not None:
            self._finish(TerminalReason.UNRECOVERABLE_ERROR)
        elif code == 0 and why is None:
            self._finish(TerminalReason.CLEAN_EXIT)
        else:
            self._again(why)

    def _again(self, why: Why | None) -> None:
        """Start it once more, if the controller lets it."""
        if why is Why.STALL and self.policy.max_restarts == 0:
            self._finish(TerminalReason.STALL_TIMEOUT)
            return
        attempt = self.run.restart(self.tick())
        if attempt is None:
            self._settle()
            return
        seconds = self.policy.backoff_seconds(attempt, self._jitter())
        self._voice.happened("restarting", attempt=attempt, max_restarts=self.policy.max_restarts, wait_ms=round(seconds * 1_000))
        self._agenda.after(seconds, self._start)
        self._look()

    def _finish(self, reason: TerminalReason) -> None:
        self.run.end(reason)
        self._settle()

    def _settle(self) -> None:
        """The job first: work that was done must not be done again for want of a note about the run."""
        self._agenda.drop(self._start)
        reason = self.run.controller.terminal_reason()
        assert reason is not None
        self._issue()
        error: HoldfastError | None = None
        try:
            if self.lease is not None:
                settle(self.lease, reason, self._result, self._said(reason))
        except HoldfastError as refused:
            error = refused
        try:
            self.run.keep(self.run.snapshot())
        except HoldfastError as refused:
            error = error or refused
        if isinstance(error, Unavailable) and self._patient():
            self._voice.happened("waiting for the ledger", error=error.message)
            self._agenda.after(AGAIN_SECONDS, self._settle)
            return
        receipt = self.run.receipt
        self._voice.happened("over", run_id=self.run.run_id, reason=reason.value, restarts=self.run.body.restarts)
        self.ending = Ending(
            self.run.run_id,
            reason,
            self.run.body.restarts,
            self.run.body.exit_code,
            None if receipt is None else receipt.to_object(),
            error,
        )

    def _said(self, reason: TerminalReason) -> dict[str, Any]:
        ended = "could not be started" if self._shell_code else f"last ended with {self.run.body.exit_code}"
        words = f"{self._command[0]} {ended}, {after(self.run.body.restarts)}: {reason.value}"
        return {"type": reason.name.title().replace("_", ""), "message": words}

    def _patient(self) -> bool:
        now = self._monotonic()
        self._settling_since = now if self._settling_since is None else self._settling_since
        return not self._hurry and now - self._settling_since < SETTLE_SECONDS
