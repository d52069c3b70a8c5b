"""Validators and conflict detectors: functions that check a result before it is recorded."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from holdfast.core import commands as c
from holdfast.core import limits
from holdfast.core.model import TERMINAL, Actor, Status
from holdfast.core.model import JobRecord as Record
from holdfast.errors import HoldfastError, RefusedByValidator, TransientError, ValidationError
from holdfast.ledger.public import Job
from holdfast.store.base import Store
from holdfast.store.rows import chunks

Validator = Callable[[Any, Any], Any]
"""Looks at a job and its result before that is recorded. Raising, or answering False, refuses it."""

MESSAGE_BYTES_MAX = 2_000
"""How much of what a validator says is passed on."""


class Hooks(NamedTuple):
    """What looks at the results of one kind of job: validators first, then conflict detectors."""

    validators: tuple[Validator, ...] = ()
    conflicts: tuple[Validator, ...] = ()

    def check(self, job: Any, result: Any) -> None:
        """Raise what the first of them raises. An answer of False is RefusedByValidator, or TransientError for a conflict."""
        for validator in self.validators:
            if _answer(validator, job, result) is False:
                raise RefusedByValidator(f"{_name(validator)} refused the result")
        for detector in self.conflicts:
            if _answer(detector, job, result) is False:
                raise TransientError(f"{_name(detector)} found a conflict")


@runtime_checkable
class HookSource(Protocol):
    """Where hooks are registered: an app, for example."""

    def has_hooks(self) -> bool:
        """False where no kind has any: results are then recorded without a look at their jobs."""

    def hooks_of(self, kind: str) -> Hooks: ...


class HooksByKind:
    """Validators that are given by the kind of job."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._hooks = {limits.check_name("kind", kind): Hooks(callables("validators", found)) for kind, found in given.items()}

    def has_hooks(self) -> bool:
        return bool(self._hooks)

    def hooks_of(self, kind: str) -> Hooks:
        return self._hooks.get(kind, Hooks())


class Completion(Job):
    """The job that a validator is given outside of a worker. `job` is the job itself: one function serves both callers."""

    __slots__ = ()

    @property
    def job(self) -> Job:
        return self


_NOT_SEEN = c.Objection("its caller claimed it while this was asked, and no validator has seen the result", retryable=True)
"""For a result of a job that the caller does not hold: refused, should the caller have the job by the time of the transaction."""


class Submission(NamedTuple):
    """A completion that is asked for, and whether its caller holds the job."""

    job_id: int
    payload: bytes
    holds: Callable[[Record], bool]


class Validation:
    """The hooks of one ledger, run on the results that it is given."""

    def __init__(self, store: Store, source: HookSource) -> None:
        self._store = store
        self._source = source

    def weighed(self, commands: Sequence[c.Complete]) -> list[c.Complete]:
        """Each completion with what its job's hooks object to."""
        found = self.objections([Submission(command.job_id, command.payload, _has_fence(command)) for command in commands])
        return [
            command if objection is None else msgspec.structs.replace(command, objection=objection)
            for command, objection in zip(commands, found, strict=True)
        ]

    def objections(self, asked: Sequence[Submission]) -> list[c.Objection | None]:
        """What the hooks object to each; None where they do not, or where the job is over."""
        if not self._source.has_hooks():
            return [None] * len(asked)
        found: list[c.Objection | None] = []
        for part in chunks(asked, limits.WRITE_CHUNK):
            ids = list({one.job_id for one in part})
            jobs = self._store.read(lambda session: session.load(ids, lock=False))  # noqa: B023 - called at once
            found += [self._objection(jobs.get(one.job_id), one) for one in part]
        return found

    def _objection(self, job: Record | None, asked: Submission) -> c.Objection | None:
        if job is None:
            return _NOT_SEEN
        if job.status in TERMINAL or (hooks := self._source.hooks_of(job.kind)) == Hooks():
            return None
        if job.status is Status.QUEUED or not asked.holds(job):
            return _NOT_SEEN
        result = msgspec.json.decode(asked.payload)["result"]
        try:
            hooks.check(Completion(job.id, msgspec.structs.replace(job, token=None)), result)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of a hook keeps the result from being recorded
            return _objection_of(error)
        return None


def read_source(given: Any) -> HookSource | None:
    """The `validators` of `holdfast.open`."""
    if given is None or isinstance(given, HookSource):
        return given
    if not isinstance(given, Mapping):
        raise ValidationError("validators must be an app, or functions by the kind of job", field="validators")
    return HooksByKind(given)


def callables(what: str, given: Any) -> tuple[Callable[..., Any], ...]:
    """One plain function, or several."""
    found = (given,) if callable(given) else tuple(given) if isinstance(given, list | tuple) else (None,)
    if not all(callable(item) and not inspect.iscoroutinefunction(item) for item in found):
        raise ValidationError(f"{what} must be plain functions", field=what)
    return found


def held_by(who: Actor) -> Callable[[Record], bool]:
    return lambda job: job.token is not None and job.is_of(who)


def _has_fence(command: c.Complete) -> Callable[[Record], bool]:
    """A signed statement has no token: whether it is its holder's is for the transaction to say."""
    fence = command.fence
    return lambda job: job.attempt == fence.attempt and fence.token in ("", job.token)


def _objection_of(error: BaseException) -> c.Objection:
    words = cut(safe_text(error), MESSAGE_BYTES_MAX)
    if not isinstance(error, HoldfastError):
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return c.Objection(words, retryable=isinstance(error, TransientError))


def _answer(function: Validator, job: Any, result: Any) -> Any:
    """What a hook says. One that has not run yet when it answers, such as a coroutine, has looked at nothing."""
    answer = function(job, result)
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{_name(function)} must be a plain function; it answered a {type(answer).__name__}")
    return answer


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - somebody else's __str__ must not keep us from going on
        return ""


def cut(text: str, bytes_max: int) -> str:
    """Bounded, and valid Unicode whatever came."""
    safe = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    return safe[-bytes_max:].decode("utf-8", "ignore")
