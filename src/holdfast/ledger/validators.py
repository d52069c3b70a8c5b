"""Validators and conflict detectors: functions that check a result before it is recorded."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import TERMINAL, Actor, Status
from holdfast.core.model import JobRecord as Record
from holdfast.core.text import safe_str, truncate_start
from holdfast.errors import HoldfastError, RefusedByValidator, TransientError, ValidationError
from holdfast.ledger.public import Job
from holdfast.store.base import Store
from holdfast.store.rows import chunks

Validator = Callable[[Any, Any], Any]
"""Checks a job's result before it is recorded. It refuses the result by raising an error or returning False."""

MESSAGE_BYTES_MAX = 2_000
"""The longest part of a validator's message that is passed on."""


class Hooks(NamedTuple):
    """The functions that check the results of one kind of job: validators first, then conflict detectors."""

    validators: tuple[Validator, ...] = ()
    conflicts: tuple[Validator, ...] = ()

    def check(self, job: Any, result: Any) -> None:
        """Run the hooks. For one that returns False, raise RefusedByValidator, or TransientError if it detects conflicts."""
        for validator in self.validators:
            if _answer(validator, job, result) is False:
                raise RefusedByValidator(f"{_name(validator)} refused the result")
        for detector in self.conflicts:
            if _answer(detector, job, result) is False:
                raise TransientError(f"{_name(detector)} found a conflict")


@runtime_checkable
class HookSource(Protocol):
    """An object where hooks are registered, such as an app."""

    def has_hooks(self) -> bool:
        """Return False if no kind has hooks. Results are then recorded without loading their jobs."""

    def hooks_of(self, kind: str) -> Hooks: ...


class Completion(Job):
    """The job as a validator gets it outside of a worker. `job` is the job itself, so that the same function works in both."""

    __slots__ = ()

    @property
    def job(self) -> Job:
        return self


_NOT_SEEN = c.Objection("its caller claimed it during this call, and no validator has seen the result", retryable=True)
"""For a job that the caller does not hold when validators run. The result is refused if the caller holds it at the commit."""


class Submission(NamedTuple):
    """A result to validate, and a function that says whether its caller holds the job."""

    job_id: int
    payload: bytes
    holds: Callable[[Record], bool]


class Validation:
    """Runs the hooks of one ledger on results."""

    def __init__(self, store: Store, source: HookSource) -> None:
        self._store = store
        self._source = source

    def validated(self, commands: Sequence[c.Complete]) -> list[c.Complete]:
        """Return the completions, each with the objection of its job's hooks, if any."""
        found = self.objections([Submission(command.job_id, command.payload, _has_fence(command)) for command in commands])
        return [
            command if objection is None else msgspec.structs.replace(command, objection=objection)
            for command, objection in zip(commands, found, strict=True)
        ]

    def objections(self, submissions: Sequence[Submission]) -> list[c.Objection | None]:
        """Return the objection to each submission, or None if the hooks accept it or the job has ended."""
        if not self._source.has_hooks():
            return [None] * len(submissions)
        found: list[c.Objection | None] = []
        for part in chunks(submissions, limits.WRITE_CHUNK):
            ids = list({one.job_id for one in part})
            jobs = self._store.read(lambda session: session.load(ids, lock=False))  # noqa: B023 - called at once
            found += [self._objection(jobs.get(one.job_id), one) for one in part]
        return found

    def _objection(self, job: Record | None, submission: Submission) -> c.Objection | None:
        if job is None:
            return _NOT_SEEN
        if job.status in TERMINAL or (hooks := self._source.hooks_of(job.kind)) == Hooks():
            return None
        if job.status is Status.QUEUED or not submission.holds(job):
            return _NOT_SEEN
        result = msgspec.json.decode(submission.payload)["result"]
        try:
            hooks.check(Completion(job.id, msgspec.structs.replace(job, token=None)), result)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of a hook keeps the result from being recorded
            return _objection_of(error)
        return None


def read_source(given: Any) -> HookSource | None:
    """Check the `validators` argument of `holdfast.open`."""
    if given is None or isinstance(given, HookSource):
        return given
    refused = ValidationError("validators must be an app", field="validators")
    refused.action = "Register them in an app, and give that: validators=app."
    raise refused


def callables(what: str, given: Any) -> tuple[Callable[..., Any], ...]:
    """Return one plain function, or several, as a tuple."""
    found = (given,) if callable(given) else tuple(given) if isinstance(given, list | tuple) else (None,)
    if not all(callable(item) and not inspect.iscoroutinefunction(item) for item in found):
        raise ValidationError(f"{what} must be plain functions", field=what)
    return found


def held_by(who: Actor) -> Callable[[Record], bool]:
    return lambda job: job.token is not None and job.is_of(who)


def _has_fence(command: c.Complete) -> Callable[[Record], bool]:
    """Return a check that the command has the job's fence. A signed statement has no token: the transaction checks it."""
    fence = command.fence
    return lambda job: job.attempt == fence.attempt and fence.token in ("", job.token)


def _objection_of(error: BaseException) -> c.Objection:
    message = truncate_start(safe_str(error), MESSAGE_BYTES_MAX)
    if not isinstance(error, HoldfastError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return c.Objection(message, retryable=isinstance(error, TransientError))


def _answer(function: Validator, job: Any, result: Any) -> Any:
    """Run a hook and return its answer. Raise TypeError for a coroutine or a generator: it has not checked anything yet."""
    answer = function(job, result)
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{_name(function)} must be a plain function; it returned a {type(answer).__name__}")
    return answer


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
