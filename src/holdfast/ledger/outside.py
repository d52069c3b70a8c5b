"""Verbs of everybody else: the system's on liveness, an operator's, a client's."""

from datetime import datetime
from typing import Any, Literal

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import Actor, EventType, FailureStage, ReasonCode, Role
from holdfast.errors import ValidationError
from holdfast.ledger import admit
from holdfast.ledger.desk import Desk, JobOrFence, given
from holdfast.ledger.face import Job
from holdfast.ledger.options import Duration


class Outside(Desk):
    def stall(
        self,
        job: JobOrFence,
        *,
        reason: str | None = None,
        error: Any = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """By fence: the holder cannot go on, and may say why by an `error`, with its `reason_code` and `failure_stage`. By id:
        the system calls the holder dead, past the limit only."""
        who = self._target(job, request_id, expected_rev, actor)
        code = None if reason_code is None else admit.choice("reason_code", ReasonCode, reason_code)
        stage = None if failure_stage is None else admit.choice("failure_stage", FailureStage, failure_stage)
        if error is not None and "fence" not in who:
            raise ValidationError("only the holder itself has an error to tell", field="error")
        for field, value in (("reason_code", code), ("failure_stage", stage)):
            if value is not None and error is None:
                raise ValidationError(f"{field} tells of an error, and none is given", field=field)
        said = None if error is None else admit.error_value(error)
        command = c.Stall(reason=admit.stall_reason(reason), error=said, reason_code=code, failure_stage=stage, **who)
        told = () if code is None and stage is None else (code, stage)
        return self._on_job("stall", command, request_id, (reason, said, *told) if said else (reason,))

    def resume(
        self,
        job: JobOrFence,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """By fence: the last holder is back. By id: the system, after a beat that came after the stall."""
        command = c.Resume(reason=admit.reason_if_any(reason), **self._target(job, request_id, expected_rev, actor))
        return self._on_job("resume", command, request_id, given(reason))

    def requeue(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A stalled job may be claimed again after its backoff; one without attempts left is exhausted instead."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.SYSTEM)
        command = c.Requeue(jitter=self._entropy.jitter(), reason=admit.reason_if_any(reason), **who)
        return self._on_job("requeue", command, request_id, given(reason))

    def assist(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """An operator helps a running job."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR)
        command = c.Assist(on=True, reason=admit.reason_if_any(reason), **who)
        return self._on_job("assist", command, request_id, given(reason))

    def unassist(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """The operator steps back."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR)
        command = c.Assist(on=False, reason=admit.reason_if_any(reason), **who)
        return self._on_job("unassist", command, request_id, given(reason))

    def cancel(
        self,
        job_id: int,
        *,
        hard: bool = False,
        reason: str = "requested",
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Soft: a running job is asked to make its safe exit. Hard: its fence dies at once."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        return self._on_job(
            "cancel", c.Cancel(hard=admit.switch("hard", hard), reason=admit.reason(reason), **who), request_id, (hard, reason)
        )

    def move(
        self,
        job_id: int,
        queue: str,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Put a queued job into another queue. Where it is there already, nothing changes."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        command = c.MoveJob(queue=limits.check_name("queue", queue), reason=admit.reason_if_any(reason), **who)
        return self._on_job("move", command, request_id, (command.queue, *given(reason)))

    def reprioritise(
        self,
        job_id: int,
        priority: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Give a queued job another priority."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        wanted = limits.check_integer("priority", priority, -limits.PRIORITY_MAX, limits.PRIORITY_MAX)
        command = c.Reprioritise(priority=wanted, reason=admit.reason_if_any(reason), **who)
        return self._on_job("reprioritise", command, request_id, (wanted, *given(reason)))

    def reschedule(
        self,
        job_id: int,
        *,
        available_at: datetime | None = None,
        delay: Duration | None = None,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Make a queued job available from another time: a moment, or so long from now. With neither, from now on."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        at, delay_us = admit.availability(available_at, delay)
        command = c.Reschedule(available_at=at, delay_us=delay_us, reason=admit.reason_if_any(reason), **who)
        return self._on_job("reschedule", command, request_id, (at, delay_us, *given(reason)))

    def dead_letter(
        self,
        job_id: int,
        *,
        reason_code: ReasonCode | str,
        failure_stage: FailureStage | str | None = None,
        error: Any = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Take a live job out of circulation, for a person or a tool to look at.

        Without an `error`, error and stage are those of the newest attempt, if it failed. Else the stage is exec.
        """
        command = c.DeadLetter(
            reason_code=admit.choice("reason_code", ReasonCode, reason_code),
            failure_stage=None if failure_stage is None else admit.choice("failure_stage", FailureStage, failure_stage),
            error=None if error is None else admit.error_value(error),
            **self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR),
        )
        body = (command.reason_code, command.failure_stage, command.error)
        return self._on_job("dead_letter", command, request_id, body)

    def discard(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Note on a finished job that nobody needs to look at it any more."""
        return self.annotate(job_id, "discarded", reason=reason, request_id=request_id, actor=actor, expected_rev=expected_rev)

    def annotate(
        self,
        job_id: int,
        note: Literal["discarded", "compensated", "compensation_failed"],
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """A note on a finished job; its status stays."""
        if note not in ("discarded", "compensated", "compensation_failed"):
            raise ValidationError("note must be discarded, compensated or compensation_failed", field="note")
        command = c.Annotate(
            note=EventType(note),  # type: ignore[arg-type]
            reason=admit.reason_if_any(reason),
            **self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR),
        )
        return self._on_job("annotate", command, request_id, (note, reason))
