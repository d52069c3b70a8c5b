"""Leases of jobs: one service sends the heartbeats of all leases that a process keeps.

A lease has a deadline on the process's own monotonic clock, counted from before the last heartbeat that was answered. The keeper
may wait for the ledger, so it does not enforce the deadline: the code that works on the job does.
"""

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from holdfast.core.model import Status
from holdfast.errors import (
    HoldfastError,
    InternalError,
    LeaseConflictError,
    LimitExceeded,
    NotFound,
    SignatureInvalid,
    Unavailable,
    ValidationError,
)
from holdfast.keeping.outage import Outage
from holdfast.keeping.service import Service
from holdfast.ledger import Beat, Job

TICK_SECONDS = 0.25
"""How often leases are checked while there are any. Heartbeats that are due at almost the same time share a batch."""
FIELDS_SECONDS = 0.5
"""The shortest time between two batches of heartbeats that are sent early because of their fields."""
RETRY_SECONDS = 0.5

Fields = dict[str, Any]


class KeptLease:
    """A lease that a keeper renews until its job has ended or the lease is lost. All times are of the monotonic clock."""

    lost = False
    """The lease is over: another worker may hold the job. The ledger refuses every write of this attempt."""
    refusal: HoldfastError | None = None
    """The error with which the ledger refused the fence."""
    cancel_requested = False
    """A soft cancel was requested."""
    is_settling = False
    """Its outcome is being sent to the ledger."""
    retry_s = RETRY_SECONDS
    """The wait after a heartbeat that could not be recorded."""
    sends_fields_early = True
    """Whether fields are sent before the next heartbeat is due."""
    _in_flight: Fields | None = None
    """Fields that the keeper is sending now. They may not be recorded yet."""

    def __init__(self, period: float, ttl: float, began: float) -> None:
        """The lease was granted by a call that began at `began`. It lasts for `ttl`; heartbeats are a `period` apart."""
        self.period = period
        self.ttl = ttl
        self.due = began + period
        """When the next heartbeat is sent."""
        self.expires = began + ttl
        """After this time another holder may have the job."""
        self._unsent: Fields = {}
        """Fields that no heartbeat has sent yet."""

    @property
    @abstractmethod
    def log_fields(self) -> dict[str, Any]:
        """The job and the attempt, for log lines."""

    # Fields of heartbeats. Several threads may queue and take them: each line that changes `_unsent` is atomic.

    def queue_fields(self, fields: Mapping[str, Any]) -> None:
        """Add fields to the next heartbeat. They replace older ones that are not sent yet."""
        self._unsent.update(fields)

    def requeue_fields(self, fields: Mapping[str, Any]) -> None:
        """Queue fields again that could not be sent, except what newer ones replace."""
        for name, value in fields.items():
            self._unsent.setdefault(name, value)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def take_unsent(self) -> Fields | None:
        if not self._unsent:
            return None
        unsent: Fields = {}
        with contextlib.suppress(KeyError):
            while True:
                name, value = self._unsent.popitem()
                unsent[name] = value
        return unsent

    def begin_sending(self) -> Fields | None:
        """Return the fields for the next heartbeat. `finish_sending` has to follow.

        Return None once the attempt has ended: they are then sent together with the outcome.
        """
        self._in_flight = None if self.is_settling else self.take_unsent()
        return self._in_flight

    def finish_sending(self, fields: Fields | None, *, resend: bool) -> None:
        """Note the answer to the heartbeat. With `resend`, queue its fields once more."""
        if resend and fields:
            self.requeue_fields(fields)
        self._in_flight = None

    @property
    def is_sending(self) -> bool:
        """Whether a heartbeat with fields is under way."""
        return self._in_flight is not None

    # Answers

    def apply_answer(self, answer: Beat | HoldfastError, sent: float, fields: Mapping[str, Any] | None = None) -> None:
        """Apply the ledger's answer to a heartbeat that was sent with `fields` at the time `sent`."""
        if isinstance(answer, Beat):
            self.due = sent + self.period
            if answer.status is not Status.STALLED:
                self.expires = sent + self.ttl
            if answer.cancel_requested and not self.cancel_requested:
                self.cancel_requested = True
                self._interrupt()
        elif isinstance(answer, LeaseConflictError | NotFound) or answer.code == "invalid_transition":
            self.refusal = answer
            self.mark_lost()

    def apply_resume(self, job: Job | None, sent: float) -> None:
        """Note that the attempt had stalled and holds its job again."""
        self.expires = sent + self.ttl

    def mark_lost(self) -> None:
        if not self.lost:
            self.lost = True
            self._interrupt()

    def _interrupt(self) -> None:
        """Tell the code that works on the job that it has to stop."""


L = TypeVar("L", bound=KeptLease)


class LeaseKeeper(Service, Generic[L]):
    """The service that sends the heartbeats of leases. Its loop has to be woken when there are leases again."""

    name = "heartbeats"
    every_s = TICK_SECONDS

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._outage = Outage(self.log, self.name)
        self._fields_sent_at = float("-inf")
        self._is_refusal_logged = False
        self._locked: set[L] = set()
        """Leases whose last heartbeat found the job locked by another transaction."""

    @abstractmethod
    def leases(self) -> Collection[L]:
        """Return the leases to keep."""

    @abstractmethod
    def send(self, beats: Sequence[tuple[L, Fields | None]], left_s: float) -> Sequence[Beat | HoldfastError]:
        """Send heartbeats and return an answer for each. `left_s` is the time until the first of the leases is over."""

    def resume(self, lease: L) -> Job | None:
        """Resume an attempt that was marked as stalled. Without a fence the heartbeat has to do: a sweep resumes the job."""
        return None

    def forget(self, lease: L) -> None:
        """Called when a lease is lost or has ended. `leases` may not return it any longer."""

    def on_lost(self, lease: L) -> None:
        """Called when a lease is lost, after `forget`."""
        error = None if lease.refusal is None else lease.refusal.message
        self.log.warning("lease lost", extra={**lease.log_fields, "error": error})

    def tick(self) -> None:
        """Send the heartbeats that are due. Jobs that were locked the last time come after the others, in a separate batch."""
        now, leases = self.monotonic(), list(self.leases())
        self.every_s = TICK_SECONDS if leases else math.inf
        sends_fields = now - self._fields_sent_at >= FIELDS_SECONDS
        due = [lease for lease in leases if lease.due <= now or (sends_fields and _has_early_fields(lease))]
        if due:
            self._fields_sent_at = now
            self._locked.intersection_update(leases)
            for batch in ([one for one in due if one not in self._locked], [one for one in due if one in self._locked]):
                if batch:
                    self.beat(batch)

    def beat(self, due: Sequence[L]) -> Sequence[Beat | HoldfastError]:
        """Send heartbeats now, in one batch, and apply their answers. Return them."""
        now = self.monotonic()
        beats = [(lease, lease.begin_sending()) for lease in due]
        try:
            answers = self.send(beats, min(lease.expires for lease in due) - now)
        except HoldfastError as error:
            answers = [error] * len(due)
        except Exception as error:
            self.log.exception("sending heartbeats failed")
            answers = [InternalError(str(error))] * len(due)
        self._note_outage(answers)
        pairs = zip(beats, answers, strict=True)
        lost = [lease for (lease, fields), answer in pairs if self._apply(lease, fields, answer, now)]
        for lease in lost:
            self.on_lost(lease)
        return answers

    def _apply(self, lease: L, fields: Fields | None, answer: Beat | HoldfastError, now: float) -> bool:
        """Apply an answer. Return whether the lease is lost."""
        self._note_locked(lease, answer)
        # After these the process still holds the job. A missing key may be added later, or another process has it.
        is_open = isinstance(answer, Unavailable | SignatureInvalid | InternalError)
        lease.finish_sending(fields, resend=is_open)
        if lease.is_settling and not is_open and not isinstance(answer, Beat):
            # Its outcome arrived before this heartbeat, or will be refused and logged for the same reason.
            self.forget(lease)
            return False
        self._log_refusal(lease, answer)
        lease.apply_answer(answer, now, fields)
        if not isinstance(answer, Beat):
            lease.due = now + lease.retry_s
        elif answer.status is Status.STALLED:
            self._resume_stalled(lease, now)
        if lease.lost:
            self.forget(lease)
        return lease.lost

    def _resume_stalled(self, lease: L, now: float) -> None:
        """Resume an attempt that was marked as stalled. No other worker holds its job yet."""
        try:
            resumed = self.resume(lease)
        except (Unavailable, SignatureInvalid):
            lease.due = now + lease.retry_s
        except HoldfastError as error:
            lease.apply_answer(error, now)
        else:
            lease.apply_resume(resumed, now)

    # Log lines

    def _note_outage(self, answers: Sequence[Beat | HoldfastError]) -> None:
        failed = [answer for answer in answers if isinstance(answer, Unavailable) and not answer.locked]
        if failed:
            self._outage.began(failed[0])
        elif any(isinstance(answer, Beat) for answer in answers):
            self._outage.over()

    def _note_locked(self, lease: L, answer: Beat | HoldfastError) -> None:
        if isinstance(answer, Unavailable) and answer.locked:
            if lease not in self._locked:
                self.log.warning("heartbeats cannot be written: another transaction has locked the job", extra=lease.log_fields)
            self._locked.add(lease)
        elif lease in self._locked:
            self._locked.discard(lease)
            if isinstance(answer, Beat):
                self.log.info("the job is no longer locked: heartbeats are written again", extra=lease.log_fields)

    def _log_refusal(self, lease: L, answer: Beat | HoldfastError) -> None:
        """Log refused fields, and a refused signature once."""
        if isinstance(answer, SignatureInvalid) and not self._is_refusal_logged:
            self.log.error(
                "heartbeats are refused because of their signature", extra={**lease.log_fields, "error": answer.message}
            )
        if isinstance(answer, SignatureInvalid | Unavailable):
            self._is_refusal_logged = isinstance(answer, SignatureInvalid)
        elif isinstance(answer, ValidationError | LimitExceeded):
            self.log.warning("the fields of a heartbeat were refused", extra={**lease.log_fields, "error": answer.message})


def _has_early_fields(lease: KeptLease) -> bool:
    return lease.sends_fields_early and lease.has_unsent and not lease.is_settling
