"""Verbs on many jobs that a person has chosen: each job with the revision at which it was seen."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import Actor, EventType, FailureStage, ReasonCode, Role
from holdfast.errors import HoldfastError, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase, public_job
from holdfast.ledger.public import Job
from holdfast.ledger.requests import FoundJob, Request
from holdfast.store.rows import chunks

ChosenJob = int | tuple[int, int | None]
"""A job by its id, or the id with the revision at which the job must still be. With None, any revision will do."""
_PAIR = 2


class BulkVerbs(LedgerBase):
    def cancel_many(
        self,
        jobs: Iterable[ChosenJob],
        *,
        hard: bool = False,
        reason: str = "requested",
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Cancel jobs, each given by its id or as (id, revision), 1,000 at most. Return one answer each, in order.

        The answer is the job, or the error that `cancel` would raise. A job that is no longer at its revision is a Conflict and
        is not changed. 200 jobs at a time share a transaction.
        """
        hard, reason = validate.switch("hard", hard), validate.reason(reason)
        command = partial(c.Cancel, hard=hard, reason=reason)
        return self._on_each("cancel_many", jobs, command, request_id, actor, Role.CLIENT, (hard, reason))

    def dead_letter_many(
        self,
        jobs: Iterable[ChosenJob],
        *,
        reason_code: ReasonCode | str,
        failure_stage: FailureStage | str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Dead-letter live jobs. The jobs and the answers are those of `cancel_many`."""
        code = validate.choice("reason_code", ReasonCode, reason_code)
        stage = None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage)
        command = partial(c.DeadLetter, reason_code=code, failure_stage=stage)
        return self._on_each("dead_letter_many", jobs, command, request_id, actor, Role.OPERATOR, (code, stage))

    def discard_many(
        self,
        jobs: Iterable[ChosenJob],
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Note on finished jobs that they need no more attention. The jobs and the answers are those of `cancel_many`."""
        why = validate.reason_if_any(reason)
        command = partial(c.Annotate, note=EventType.DISCARDED, reason=why)
        return self._on_each("discard_many", jobs, command, request_id, actor, Role.OPERATOR, (why,))

    def requeue_many(
        self,
        jobs: Iterable[ChosenJob],
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Queue stalled jobs again. The jobs and the answers are those of `cancel_many`."""
        why = validate.reason_if_any(reason)

        def command(**fields: Any) -> c.Requeue:
            return c.Requeue(jitter=self._entropy.jitter(), reason=why, **fields)

        return self._on_each("requeue_many", jobs, command, request_id, actor, Role.SYSTEM, (why,))

    def replay_jobs(
        self,
        jobs: Iterable[ChosenJob],
        *,
        reason: str | None = None,
        request_id: str | None = None,
        actor: str | Actor | None = None,
    ) -> list[Job | HoldfastError]:
        """Replay failed, cancelled or dead-lettered jobs. The jobs and the answers are those of `cancel_many`.

        The answer to each is its replay. If a replay of it is live already, that one is returned, with `is_new` false.
        `replay_many` chooses dead letters by a filter instead.
        """
        why = validate.reason_if_any(reason)
        command = partial(c.Replay, reason=why)
        return self._on_each("replay_jobs", jobs, command, request_id, actor, Role.OPERATOR, (why,))

    def _on_each(
        self,
        verb: str,
        jobs: Any,
        command: Callable[..., c.JobCommand],
        request_id: str | None,
        actor: str | Actor | None,
        role: Role,
        body: tuple[Any, ...],
    ) -> list[Job | HoldfastError]:
        chosen = _chosen("jobs", jobs)
        drawn = validate.request_id(request_id) or self._entropy.nonce()
        # In the order of ids, so that two callers lock jobs in the same order.
        commands = [command(**self._outside(id_, drawn, rev, actor, role)) for id_, rev in sorted(chosen.items())]
        hashed = validate.body_hash(verb, sorted(chosen.items()), body)
        request = Request(verb, commands, request_id is not None, keep=True, body_hash=hashed)
        answers = _answers(commands, self._submit_chosen(request))
        return [answers[id_] for id_ in chosen]

    def _submit_chosen(self, request: Request) -> list[Any]:
        """Return one answer for each command. Each transaction has SWEEP_BATCH of them."""
        answers: list[Any] = []
        for number, part in enumerate(chunks(request.commands, limits.SWEEP_BATCH)):
            answers += self._pipeline.submit(request._replace(commands=part, chunk=number)).answers
        return answers


def _chosen(what: str, given: Any) -> dict[int, int | None]:
    """Return the revision of each job, by id, in the given order."""
    found: dict[int, int | None] = {}
    items = validate.items(what, given)
    limits.check_count(what, len(items), limits.BULK_MAX)
    for item in items:
        if isinstance(item, tuple | list) and len(item) != _PAIR:
            raise ValidationError(f"{what} takes ids, or (id, revision) pairs", field=what)
        id_, rev = item if isinstance(item, tuple | list) else (item, None)
        job_id = validate.job_id_of(id_)
        if job_id in found:
            raise ValidationError(f"{what} has job {job_id} twice", field=what)
        found[job_id] = validate.rev(rev)
    return found


def _answers(commands: Sequence[c.JobCommand], found: Sequence[Any]) -> dict[int, Job | HoldfastError]:
    return {command.job_id: _public(command.job_id, answer) for command, answer in zip(commands, found, strict=True)}


def _public(job_id: int, answer: Any) -> Job | HoldfastError:
    if isinstance(answer, HoldfastError):
        answer.context.setdefault("job_id", job_id)
        return answer
    return Job(answer.job.id, answer.job, is_new=answer.is_new) if isinstance(answer, FoundJob) else public_job(answer)
