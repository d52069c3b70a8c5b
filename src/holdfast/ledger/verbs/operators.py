"""Verbs of operators, clients and the system on jobs and dead letters."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import Actor, EventType, FailureStage, ReasonCode, Role
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import JobOrFence, LedgerBase, public_job
from holdfast.ledger.public import Duration, Job
from holdfast.ledger.verbs.on_jobs import OnJobsVerb
from holdfast.store.jobs import DeadLetterFilter
from holdfast.store.session import Session


class OperatorVerbs(OnJobsVerb):
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
        return self._on_job("resume", command, request_id, (reason,))

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
        return self._on_one("requeue", job_id, request_id, actor, expected_rev, reason=reason)

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
        return self._on_job("assist", command, request_id, (reason,))

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
        return self._on_job("unassist", command, request_id, (reason,))

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
        return self._on_one("cancel", job_id, request_id, actor, expected_rev, hard=hard, reason=reason)

    def move(
        self,
        job_id: int,
        queue: str | None = None,
        *,
        for_worker: str | UnsetType | None = UNSET,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Move a queued job to another queue, to another worker, or both. Where it is already, nothing changes.

        With `for_worker`, only that worker may have it from now on; with None, any worker.
        """
        options: dict[str, Any] = {"queue": queue, "for_worker": for_worker, "reason": reason}
        return self._on_one("move", job_id, request_id, actor, expected_rev, **options)

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
        return self._on_one("reprioritise", job_id, request_id, actor, expected_rev, priority=priority, reason=reason)

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
        times: dict[str, Any] = {"available_at": available_at, "delay": delay}
        return self._on_one("reschedule", job_id, request_id, actor, expected_rev, **times, reason=reason)

    def replay(
        self,
        job_id: int,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        expected_rev: int | None = None,
    ) -> Job:
        """Create a job that repeats a failed, cancelled or dead-lettered one. If a replay of it is live, return that one."""
        return self._on_one("replay", job_id, request_id, actor, expected_rev, reason=reason)

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
        where: dict[str, Any] = {"reason_code": reason_code, "failure_stage": failure_stage}
        return self._on_one("dead_letter", job_id, request_id, actor, expected_rev, **where, error=error)

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
        return self._on_one("discard", job_id, request_id, actor, expected_rev, reason=reason)

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
        **validate.page(after, limit),
    }
