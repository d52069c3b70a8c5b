"""Verbs of operators, clients and the system on jobs, dead letters among them."""

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
from holdfast.store.base import DeadLetterFilter, Session


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
        """By fence: the holder cannot go on, and may say why by an `error`, with its `reason_code` and `failure_stage`. By id:
        the system calls the holder dead, past the limit only."""
        who = self._target(job, request_id, expected_rev, actor)
        code = None if reason_code is None else validate.choice("reason_code", ReasonCode, reason_code)
        stage = None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage)
        if error is not None and "fence" not in who:
            raise ValidationError("only the holder itself has an error to tell", field="error")
        for field, value in (("reason_code", code), ("failure_stage", stage)):
            if value is not None and error is None:
                raise ValidationError(f"{field} tells of an error, and none is given", field=field)
        said = None if error is None else validate.error_value(error)
        command = c.Stall(reason=validate.stall_reason(reason), error=said, reason_code=code, failure_stage=stage, **who)
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
        """A stalled job may be claimed again after its backoff; one without attempts left is exhausted instead."""
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
        """An operator helps a running job."""
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
        """The operator steps back."""
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
        """Soft: a running job is asked to make its safe exit. Hard: its fence dies at once."""
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
        """Put a queued job into another queue. Where it is there already, nothing changes."""
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
        """Give a queued job another priority."""
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
        """Make a queued job available from another time: a moment, or so long from now. With neither, from now on."""
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
        """Take a live job out of circulation, for a person or a tool to look at.

        Without an `error`, error and stage are those of the newest attempt, if it failed. Else the stage is exec.
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
        """Dead-lettered jobs by ascending id; the next page is `after=` the last id of this one.

        `since` and `until` are about when they were dead-lettered. Those that were discarded are left out unless asked for.
        """
        chosen = DeadLetterFilter(
            **_filter_fields(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit)
        )

        def work(session: Session) -> list[Job]:
            ids = session.dead_letters(chosen)
            found = session.load(ids, lock=False)
            return [public_job(found[id_]) for id_ in ids]

        return self._store.read(work)

    def newest_replays(self, job_ids: Iterable[int]) -> dict[int, Job]:
        """Of each of these jobs that was replayed, the newest replay."""
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
        """Replay the dead letters that `dead_letters` would give, in one transaction. One answer each, in their order.

        A dead letter that has been replayed is skipped, unless `again` is true: its answer is its newest replay, as not new. It
        has been replayed if one of its replays is live, has succeeded or was dead-lettered. A replay that failed or was cancelled
        does not count, unless it was replayed itself. With `again`, a live replay is still given back instead of a second one.

        At most `limit` are replayed, and at most 1,000 are looked at. The next page is `after=` the last `replay_of` of this one.
        `reason` says why they are replayed; `reason_code` chooses them.
        """
        chosen = _filter_fields(queue, kind, reason_code, failure_stage, since, until, discarded, after, limit)
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


def _filter_fields(
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
