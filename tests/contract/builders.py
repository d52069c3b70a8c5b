"""Builders of a job in any status, and common checks."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from holdfast import Fence, HeldJob, HoldfastError, Ledger, PolicyFields

WORKER = "w-1"
WINDOW: PolicyFields = {"resume_window": "60s"}
"""A policy under which a stalled job waits for its holder."""

_queues = (f"q-{number}" for number in itertools.count(1))


class Made(NamedTuple):
    """A job and the fence of its newest attempt, or a guessed fence if it was never claimed."""

    id: int
    fence: Fence


def queued(ledger: Ledger, **options: Any) -> Made:
    job = ledger.enqueue(options.pop("kind", "index_page"), {"n": 1}, queue=options.pop("queue", next(_queues)), **options)
    return Made(job.id, Fence(job.id, 1, "guessed", WORKER))


def claim(ledger: Ledger, job_id: int, worker: str = WORKER, **options: Any) -> Made:
    """Claim the job by its id."""
    fence = ledger.claim_job(job_id, worker, **options).fence
    return Made(job_id, fence)


def claimed(ledger: Ledger, **options: Any) -> Made:
    made = queued(ledger, **options)
    [job] = ledger.claim(WORKER, [ledger.get(made.id).queue])
    assert job.id == made.id
    return Made(job.id, job.fence)


def running(ledger: Ledger, **options: Any) -> Made:
    made = claimed(ledger, **options)
    ledger.start(made.fence)
    return made


def aborting(ledger: Ledger, **options: Any) -> Made:
    made = running(ledger, **options)
    ledger.cancel(made.id, reason="not needed")
    return made


def assisted(ledger: Ledger, **options: Any) -> Made:
    made = running(ledger, **options)
    ledger.assist(made.id)
    return made


def _stalled(build: Callable[..., Made], ledger: Ledger, options: dict[str, Any]) -> Made:
    made = build(ledger, **{"policy": WINDOW} | options)
    ledger.stall(made.fence)
    return made


def claimed_stalled(ledger: Ledger, **options: Any) -> Made:
    """Stalled before it was started."""
    return _stalled(claimed, ledger, options)


def running_stalled(ledger: Ledger, **options: Any) -> Made:
    return _stalled(running, ledger, options)


def aborting_stalled(ledger: Ledger, **options: Any) -> Made:
    return _stalled(aborting, ledger, options)


def succeeded(ledger: Ledger, **options: Any) -> Made:
    made = running(ledger, **options)
    ledger.complete(made.fence, {"pages": 3})
    return made


def failed(ledger: Ledger, **options: Any) -> Made:
    made = running(ledger, **options)
    ledger.fail(made.fence, "no such page", retryable=False)
    return made


def cancelled(ledger: Ledger, **options: Any) -> Made:
    """Cancelled hard while it ran."""
    made = running(ledger, **options)
    ledger.cancel(made.id, hard=True)
    return made


def dead_lettered(ledger: Ledger, **options: Any) -> Made:
    """Taken out by an operator while it ran."""
    made = running(ledger, **options)
    ledger.dead_letter(made.id, reason_code="policy_violation")
    return made


BUILDERS: dict[str, Callable[..., Made]] = {
    "queued": queued,
    "claimed": claimed,
    "running": running,
    "aborting": aborting,
    "assisted": assisted,
    "claimed_stalled": claimed_stalled,
    "running_stalled": running_stalled,
    "aborting_stalled": aborting_stalled,
    "succeeded": succeeded,
    "failed": failed,
    "cancelled": cancelled,
    "dead_lettered": dead_lettered,
}

LIVE = ("queued", "claimed", "running", "aborting", "assisted", "claimed_stalled", "running_stalled", "aborting_stalled")
FINISHED = ("succeeded", "failed", "cancelled", "dead_lettered")


ON_A_JOB: dict[str, tuple[Callable[..., Made], Callable[..., Any]]] = {
    "claim_job": (queued, lambda ledger, made, **extra: ledger.claim_job(made.id, WORKER, **extra)),
    "start": (claimed, lambda ledger, made, **extra: ledger.start(made.fence, **extra)),
    "heartbeat": (running, lambda ledger, made, **extra: ledger.heartbeat(made.fence, **extra)),
    "heartbeat, full": (running, lambda ledger, made, **extra: ledger.heartbeat(made.fence, progress=1, **extra)),
    "complete": (running, lambda ledger, made, **extra: ledger.complete(made.fence, 1, **extra)),
    "fail": (running, lambda ledger, made, **extra: ledger.fail(made.fence, "x", **extra)),
    "release": (running, lambda ledger, made, **extra: ledger.release(made.fence, **extra)),
    "acknowledge_cancel": (aborting, lambda ledger, made, **extra: ledger.acknowledge_cancel(made.fence, **extra)),
    "stall": (running, lambda ledger, made, **extra: ledger.stall(made.fence, **extra)),
    "resume": (running_stalled, lambda ledger, made, **extra: ledger.resume(made.fence, **extra)),
    "requeue": (running_stalled, lambda ledger, made, **extra: ledger.requeue(made.id, **extra)),
    "assist": (running, lambda ledger, made, **extra: ledger.assist(made.id, **extra)),
    "unassist": (assisted, lambda ledger, made, **extra: ledger.unassist(made.id, **extra)),
    "cancel": (running, lambda ledger, made, **extra: ledger.cancel(made.id, **extra)),
    "cancel hard": (running, lambda ledger, made, **extra: ledger.cancel(made.id, hard=True, **extra)),
    "dead_letter": (running, lambda ledger, made, **extra: ledger.dead_letter(made.id, reason_code="timeout", **extra)),
    "replay": (failed, lambda ledger, made, **extra: ledger.replay(made.id, **extra)),
    "discard": (failed, lambda ledger, made, **extra: ledger.discard(made.id, **extra)),
}
"""The verbs on one job, each with a job that it can be used on. They take further options."""


def types(ledger: Ledger, job_id: int, after_rev: int = 0) -> list[str]:
    """The types of the job's events after a revision."""
    return [event.type.value for event in ledger.events(job_id) if event.rev > after_rev]


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[HoldfastError]]:
    with pytest.raises(HoldfastError) as caught:
        yield caught
    assert caught.value.code == code, caught.value


def refusal_of(verb: Callable[..., Any], *given: Any, **options: Any) -> str:
    """The code with which a verb is refused, or an empty text."""
    try:
        verb(*given, **options)
    except HoldfastError as error:
        return error.code
    return ""


def trace(ledger: Ledger) -> tuple[list[Any], list[Any]]:
    """Everything that a refusal must not change."""
    return [job.record for job in ledger.list(limit=1_000)], ledger.events()


@contextmanager
def refused_without_trace(ledger: Ledger, code: str) -> Iterator[pytest.ExceptionInfo[HoldfastError]]:
    before = trace(ledger)
    with refused(code) as caught:
        yield caught
    assert trace(ledger) == before


def held(job: HeldJob) -> Fence:
    return job.fence
