"""Verbs on jobs that are given by their ids: their options, and one call for many jobs."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple

from msgspec import UNSET

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import Actor, EventType, FailureStage, ReasonCode, Role
from holdfast.errors import HoldfastError, ValidationError
from holdfast.ledger import validate
from holdfast.ledger.base import LedgerBase, public_job
from holdfast.ledger.commit import only_answer
from holdfast.ledger.public import Duration, Job
from holdfast.ledger.requests import FoundJob, Request
from holdfast.store.rows import chunks

VerbOnJobs = Literal["cancel", "dead_letter", "discard", "move", "replay", "reprioritise", "requeue", "reschedule"]
ChosenJob = int | tuple[int, int | None]
"""A job by its id, or the id with the revision at which the job must still be. With None, any revision will do."""
_PAIR = 2


class OnJobsVerb(LedgerBase):
    def on_jobs(
        self,
        verb: VerbOnJobs,
        jobs: Iterable[ChosenJob],
        *,
        request_id: str | None = None,
        actor: str | Actor | None = None,
        **options: Any,
    ) -> list[Job | HoldfastError]:
        """Use a verb on jobs, each given by its id or as (id, revision), 1,000 at most. Return one answer each, in order.

        The options are those of the verb. The answer is the job, or the error that the verb would raise. A job that is no longer
        at its revision is a Conflict and is not changed. 200 jobs at a time share a transaction, in the given order.

        The answer to "replay" is the replay. A job that was replayed before is not replayed, unless `again` is true: its answer
        is that replay, with `is_new` false. It was replayed before if one of its replays is live, has succeeded or was
        dead-lettered. A replay that failed or was cancelled does not count, but its own replays do. With `again`, a live replay
        is still returned instead of a second one.
        """
        if verb not in tuple(_VERBS):
            raise ValidationError(f"verb must be one of {', '.join(_VERBS)}", field="verb")
        chosen = _chosen(jobs)
        if verb == "replay":
            options = {"again": False, **options}
        role, make, fields = self._read_options(verb, options)
        drawn = validate.request_id(request_id) or self._entropy.nonce()
        commands = [make(**self._outside(id_, drawn, rev, actor, role)) for id_, rev in chosen.items()]
        hashed = validate.body_hash(verb, list(chosen.items()), fields)
        answers = self._submit_chosen(Request(verb, commands, request_id is not None, keep=True, body_hash=hashed))
        return [_public(id_, answer) for id_, answer in zip(chosen, answers, strict=True)]

    def _on_one(self, verb: VerbOnJobs, job_id: int, request_id: Any, actor: Any, expected_rev: Any, **options: Any) -> Job:
        """Use a verb on one job."""
        role, make, fields = self._read_options(verb, options)
        command = make(**self._outside(job_id, request_id, expected_rev, actor, role))
        hashed = validate.body_hash(verb, command.job_id, command.expected_rev, fields)
        answer = only_answer(self._pipeline.submit(Request(verb, [command], request_id is not None, keep=True, body_hash=hashed)))
        return _public_job(answer)

    def _read_options(self, verb: VerbOnJobs, options: dict[str, Any]) -> tuple[Role, Callable[..., c.JobCommand], Any]:
        """Return who uses the verb, a function that makes its command, and the options as part of the request's body."""
        found = _VERBS[verb]
        if unknown := options.keys() - found.options.__kwdefaults__.keys():
            raise ValidationError(f"{verb} has no option {min(unknown)!r:.80}", field=min(unknown))
        fields = found.options(**options)

        def make(**who: Any) -> c.JobCommand:
            drawn: dict[str, Any] = {"jitter": self._entropy.jitter()} if verb == "requeue" else {}
            return found.command(**fields, **drawn, **who)

        return found.role, make, sorted(fields.items())

    def _submit_chosen(self, request: Request) -> list[Any]:
        """Return one answer for each command. Each transaction has SWEEP_BATCH of them."""
        answers: list[Any] = []
        for number, part in enumerate(chunks(request.commands, limits.SWEEP_BATCH)):
            answers += self._pipeline.submit(request._replace(commands=part, chunk=number)).answers
        return answers


def _chosen(given: Any) -> dict[int, int | None]:
    """Return the revision of each job, by id, in the given order."""
    found: dict[int, int | None] = {}
    items = validate.items("jobs", given)
    limits.check_count("jobs", len(items), limits.BULK_MAX)
    for item in items:
        if isinstance(item, tuple | list) and len(item) != _PAIR:
            raise ValidationError("jobs takes ids, or (id, revision) pairs", field="jobs")
        id_, rev = item if isinstance(item, tuple | list) else (item, None)
        job_id = validate.job_id_of(id_)
        if job_id in found:
            raise ValidationError(f"jobs has job {job_id} twice", field="jobs")
        found[job_id] = validate.rev(rev)
    return found


def _public(job_id: int, answer: Any) -> Job | HoldfastError:
    if isinstance(answer, HoldfastError):
        answer.context.setdefault("job_id", job_id)
        return answer
    return _public_job(answer)


def _public_job(answer: Any) -> Job:
    return Job(answer.job.id, answer.job, is_new=answer.is_new) if isinstance(answer, FoundJob) else public_job(answer)


# The options of each verb, as fields of its command


def _with_reason(*, reason: str | None = None) -> dict[str, Any]:
    return {"reason": validate.reason_if_any(reason)}


def _cancel(*, hard: bool = False, reason: str = "requested") -> dict[str, Any]:
    return {"hard": validate.switch("hard", hard), "reason": validate.reason(reason)}


def _dead_letter(*, reason_code: Any = None, failure_stage: Any = None, error: Any = None) -> dict[str, Any]:
    return {
        "reason_code": validate.choice("reason_code", ReasonCode, reason_code),
        "failure_stage": None if failure_stage is None else validate.choice("failure_stage", FailureStage, failure_stage),
        "error": None if error is None else validate.error_value(error),
    }


def _discard(*, reason: str | None = None) -> dict[str, Any]:
    return {"note": EventType.DISCARDED, **_with_reason(reason=reason)}


def _move(*, queue: Any = None, for_worker: Any = UNSET, reason: str | None = None) -> dict[str, Any]:
    if queue is None and for_worker is UNSET:
        raise ValidationError("move needs a queue or for_worker", field="queue")
    worker = None if for_worker is UNSET else "" if for_worker is None else limits.check_name("for_worker", for_worker)
    place = None if queue is None else limits.check_name("queue", queue)
    return {"queue": place, "for_worker": worker, **_with_reason(reason=reason)}


def _replay(*, again: bool = True, reason: str | None = None) -> dict[str, Any]:
    return {"again": validate.switch("again", again), **_with_reason(reason=reason)}


def _reprioritise(*, priority: Any = None, reason: str | None = None) -> dict[str, Any]:
    wanted = limits.check_integer("priority", priority, -limits.PRIORITY_MAX, limits.PRIORITY_MAX)
    return {"priority": wanted, **_with_reason(reason=reason)}


def _reschedule(
    *, available_at: datetime | None = None, delay: Duration | None = None, reason: str | None = None
) -> dict[str, Any]:
    at, delay_us = validate.availability(available_at, delay)
    return {"available_at": at, "delay_us": delay_us, **_with_reason(reason=reason)}


class _Verb(NamedTuple):
    role: Role
    command: type[c.JobCommand]
    options: Any
    """A function of the verb's options that checks them."""


_VERBS: dict[VerbOnJobs, _Verb] = {
    "cancel": _Verb(Role.CLIENT, c.Cancel, _cancel),
    "dead_letter": _Verb(Role.OPERATOR, c.DeadLetter, _dead_letter),
    "discard": _Verb(Role.OPERATOR, c.Annotate, _discard),
    "move": _Verb(Role.CLIENT, c.MoveJob, _move),
    "replay": _Verb(Role.OPERATOR, c.Replay, _replay),
    "reprioritise": _Verb(Role.CLIENT, c.Reprioritise, _reprioritise),
    "requeue": _Verb(Role.SYSTEM, c.Requeue, _with_reason),
    "reschedule": _Verb(Role.CLIENT, c.Reschedule, _reschedule),
}
