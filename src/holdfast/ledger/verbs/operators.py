"""Verbs of operators, clients and the system on jobs and dead letters."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import Actor, EventType, FailureStage, ReasonCode, Role
from holdfast.errors import HoldfastError, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import JobOrFence, LedgerBase, optional_reason, public_job
from holdfast.ledger.commit import only_answer
from holdfast.ledger.public import Duration, Job
from holdfast.ledger.requests import Request
from holdfast.store.jobs import DeadLetterFilter
from holdfast.store.session import Session


class OperatorVerbs(LedgerBase):
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
        """Stall a job. Given a fence, the holder itself reports that it cannot go on. Given an id, the system stalls the job.

        The holder may give an `error` with its `reason_code` and `failure_stage`. The system can only stall a job that is past
        its heartbeat or lease limit.
        """
        who = self._target(job, request_id, expected_rev, actor)
        code = None if reason_code is None else validate.choice("reason_code", ReasonCode, reason_code)
        stage = None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage)
        if error is not None and "fence" not in who:
            raise ValidationError("only the holder itself may give an error", field="error")
        for field, value in (("reason_code", code), ("failure_stage", stage)):
            if value is not None and error is None:
                raise ValidationError(f"{field} describes an error, and none is given", field=field)
        details = None if error is None else validate.error_value(error)
        command = c.Stall(reason=validate.stall_reason(reason), error=details, reason_code=code, failure_stage=stage, **who)
        where = () if code is None and stage is None else (code, stage)
        return self._on_job("stall", command, request_id, (reason, details, *where) if details else (reason,))

    def resume(
        self,
        job: JobOrFence,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Resume a stalled job. Given a fence, its last holder resumes it. Given an id, the system resumes it.

        The system can only resume a job after a heartbeat that came after the stall.
        """
        command = c.Resume(reason=validate.reason_if_any(reason), **self._target(job, request_id, expected_rev, actor))
        return self._on_job("resume", command, request_id, optional_reason(reason))

    def requeue(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Queue a stalled job again, to be claimed after its backoff. A job without attempts left is exhausted instead."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.SYSTEM)
        command = c.Requeue(jitter=self._entropy.jitter(), reason=validate.reason_if_any(reason), **who)
        return self._on_job("requeue", command, request_id, optional_reason(reason))

    def assist(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Record that an operator assists a running job."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR)
        command = c.Assist(on=True, reason=validate.reason_if_any(reason), **who)
        return self._on_job("assist", command, request_id, optional_reason(reason))

    def unassist(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Record that the operator no longer assists the job."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR)
        command = c.Assist(on=False, reason=validate.reason_if_any(reason), **who)
        return self._on_job("unassist", command, request_id, optional_reason(reason))

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
        """Cancel a job.

        A soft cancel requests the holder of a running job to stop. The holder learns of it with its next heartbeat. A hard
        cancel ends the job at once: its fence is no longer valid. A job that is not running is cancelled at once either way.
        """
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        return self._on_job(
            "cancel",
            c.Cancel(hard=validate.switch("hard", hard), reason=validate.reason(reason), **who),
            request_id,
            (hard, reason),
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
        """Move a queued job to another queue. If it is in that queue already, nothing changes."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        command = c.MoveJob(queue=limits.check_name("queue", queue), reason=validate.reason_if_any(reason), **who)
        return self._on_job("move", command, request_id, (command.queue, *optional_reason(reason)))

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
        """Change the priority of a queued job."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        wanted = limits.check_integer("priority", priority, -limits.PRIORITY_MAX, limits.PRIORITY_MAX)
        command = c.Reprioritise(priority=wanted, reason=validate.reason_if_any(reason), **who)
        return self._on_job("reprioritise", command, request_id, (wanted, *optional_reason(reason)))

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
        """Change when a queued job becomes available: at `available_at`, or after `delay`. With neither, it is available now."""
        who = self._outside(job_id, request_id, expected_rev, actor, Role.CLIENT)
        at, delay_us = validate.availability(available_at, delay)
        command = c.Reschedule(available_at=at, delay_us=delay_us, reason=validate.reason_if_any(reason), **who)
        return self._on_job("reschedule", command, request_id, (at, delay_us, *optional_reason(reason)))

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
        """Dead-letter a live job, for a person or a tool to examine.

        Without an `error`, the error and the stage are those of the newest attempt, if it failed. Otherwise the stage is exec.
        """
        command = c.DeadLetter(
            reason_code=validate.choice("reason_code", ReasonCode, reason_code),
            failure_stage=None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage),
            error=None if error is None else validate.error_value(error),
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
        """Note on a finished job that it needs no more attention. The same as `annotate` with "discarded"."""
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
        """Add a note to a finished job. Its status does not change."""
        if note not in ("discarded", "compensated", "compensation_failed"):
            raise ValidationError("note must be discarded, compensated or compensation_failed", field="note")
        command = c.Annotate(
            note=EventType(note),  # type: ignore[arg-type]
            reason=validate.reason_if_any(reason),
            **self._outside(job_id, request_id, expected_rev, actor, Role.OPERATOR),
        )
        return self._on_job("annotate", command, request_id, (note, reason))


class DeadLetterVerbs(LedgerBase):
    def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> list[Job]:
        """Return dead-lettered jobs by ascending id. For the next page, pass the last id of this one as `after`.

        `since` and `until` refer to the time at which the jobs were dead-lettered. Discarded ones are included only with
        `discarded`.
        """
        chosen = DeadLetterFilter(**filter_fields(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit))

        def work(session: Session) -> list[Job]:
            ids = session.dead_letters(chosen)
            found = session.load(ids, lock=False)
            return [public_job(found[id_]) for id_ in ids]

        return self._store.read(work)

    def newest_replays(self, job_ids: Iterable[int]) -> dict[int, Job]:
        """Return the newest replay of each of these jobs. Jobs that were not replayed are left out."""
        ids = [validate.job_id(job_id) for job_id in validate.items("job_ids", job_ids)]

        def work(session: Session) -> dict[int, Job]:
            newest = session.newest_replays(ids)
            found = session.load(sorted(newest.values()), lock=False)
            return {id_: public_job(found[replay]) for id_, replay in newest.items()}

        return self._store.read(work)

    def replay_many(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason_code: ReasonCode | str | None = None,
        failure_stage: FailureStage | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        discarded: bool = False,
        after: int = 0,
        limit: int = 100,
        again: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Replay the dead letters that `dead_letters` returns for the same filter, in one transaction. Return one answer each.

        A dead letter that has been replayed is skipped, unless `again` is true: its answer is its newest replay, with `is_new`
        false. It has been replayed if one of its replays is live, has succeeded or was dead-lettered. A replay that failed or was
        cancelled does not count, unless it was replayed itself. With `again`, a live replay is still returned instead of a second
        one.

        At most `limit` are replayed, and at most 1,000 are examined. For the next page, pass the last `replay_of` of this one as
        `after`. `reason` says why they are replayed. `reason_code` is part of the filter.
        """
        chosen = filter_fields(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit)
        command = c.ReplayMany(
            actor=validate.actor(actor, Role.OPERATOR, self._actor),
            request_id=validate.request_id(request_id) or self._entropy.nonce(),
            reason=validate.reason_if_any(reason),
            again=validate.switch("again", again),
            **chosen,
        )
        body = validate.body_hash("replay_many", sorted(chosen.items()), *optional_reason(reason), *(("again",) if again else ()))
        request = Request("replay_many", [command], request_id is not None, keep=True, body_hash=body)
        answers = only_answer(self._pipeline.submit(request))
        return [a if isinstance(a, HoldfastError) else Job(a.job.id, a.job, is_new=a.is_new) for a in answers]


def filter_fields(
    queue: Any, kind: Any, code: Any, stage: Any, since: Any, until: Any, discarded: Any, after: Any, limit: Any
) -> dict[str, Any]:
    return {
        "queue": None if queue is None else limits.check_name("queue", queue),
        "kind": None if kind is None else limits.check_name("kind", kind),
        "reason_code": None if code is None else validate.choice("reason_code", ReasonCode, code),
        "failure_stage": None if stage is None else validate.choice("failure_stage", FailureStage, stage),
        "since": None if since is None else validate.moment("since", since),
        "until": None if until is None else validate.moment("until", until),
        "discarded": validate.switch("discarded", discarded),
        "after": limits.check_integer("after", after, 0, limits.JOB_ID_MAX),
        "limit": limits.check_integer("limit", limit, 1, limits.PAGE_MAX),
    }
