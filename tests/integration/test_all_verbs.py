"""All verbs mixed: one event for each acknowledged transition, and none for refused ones."""

import random
import threading
from typing import Any

import pytest

from holdfast import Fence, HoldfastError, Job, Ledger, Phase, ReasonCode, Status
from holdfast.testing import ManualClock
from tests.support.histories import all_events, problems

THREADS = 8
REFUSALS = {"invalid_transition", "not_claimable", "conflict", "fence_lost"}
Verbs = list[tuple[str, tuple[Any, ...], dict[str, Any]]]


class Walker:
    """Call random verbs on jobs and count the transitions in the answers."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self.ledger = ledger
        self.name = f"walker-{number}"
        self.chance = random.Random(number)
        self.transitions = 0
        self.refusals = 0
        self.fences: dict[int, Fence] = {}
        self.old_fences: list[Fence] = []
        self.revs: dict[int, int] = {}
        self.failure: BaseException | None = None

    def answered(self, job_id: int, rev: int) -> None:
        self.transitions += rev - self.revs.get(job_id, 0)
        self.revs[job_id] = rev

    def run(self, count: int) -> None:
        try:
            jobs = self.ledger.enqueue_many([{"kind": "walk", "queue": self.name}] * (count // 2))
            jobs += [
                self.ledger.enqueue("walk", queue=self.name, dedupe_key=f"{self.name}-{n}") for n in range(count - len(jobs))
            ]
            for job in jobs:
                self.answered(job.id, job.rev)
            for job in self.ledger.claim(self.name, [self.name], limit=count // 4, start=True):
                self.hold(job)
            for job in jobs:
                for _ in range(self.chance.randrange(1, 9)):
                    self.step(job.id)
        except BaseException as error:
            self.failure = error
            raise

    def hold(self, job: Job) -> None:
        if job.fence is not None:
            before = self.fences.get(job.id, job.fence)
            if before.attempt < job.attempt:
                self.old_fences.append(before)
            self.fences[job.id] = job.fence
        self.answered(job.id, job.rev)

    def step(self, job_id: int) -> None:
        job = self.ledger.get(job_id)
        assert job.rev == self.revs[job_id]
        try:
            self.do(job)
        except HoldfastError as refusal:
            if refusal.code not in REFUSALS:
                raise
            self.refusals += 1
            assert self.ledger.get(job_id) == job

    def do(self, job: Job) -> None:
        verbs = self.verbs(job)
        verb, arguments, options = self.chance.choice(verbs)
        answer: Any = getattr(self.ledger, verb)(*arguments, **options)
        if verb == "claim_job":
            self.hold(answer)
        elif verb == "replay":
            self.answered(answer.id, answer.rev)
        else:
            self.answered(job.id, answer.rev)

    def verbs(self, job: Job) -> Verbs:
        fence = self.fences.get(job.id)
        found: Verbs = [
            ("claim_job", (job.id, self.name), {}),
            ("cancel", (job.id,), {"expected_rev": job.rev + self.chance.choice([0, 0, 0, 1])}),
        ]
        match job.status:
            case Status.QUEUED:
                found += [("claim_job", (job.id, self.name), {})] * 8
                found += [("dead_letter", (job.id,), {"reason_code": ReasonCode.TIMEOUT}), ("requeue", (job.id,), {})]
            case Status.SUCCEEDED | Status.FAILED | Status.CANCELLED | Status.DEAD_LETTERED:
                found = [("discard", (job.id,), {}), ("annotate", (job.id, "compensated"), {}), ("replay", (job.id,), {})]
        if fence is not None:
            found += self.holders_verbs(job, fence)
        if self.old_fences:
            found.append(("complete", (self.chance.choice(self.old_fences),), {}))
        return found

    def holders_verbs(self, job: Job, fence: Fence) -> Verbs:
        match job.status:
            case Status.CLAIMED:
                begin: Verbs = [("start", (fence,), {})] * 4
                return [
                    *begin,
                    ("heartbeat", (fence,), {}),
                    ("stall", (fence,), {}),
                    ("release", (fence,), {}),
                    ("complete", (fence,), {}),
                ]
            case Status.STALLED:
                return [("heartbeat", (fence,), {}), ("resume", (fence,), {}), ("requeue", (job.id,), {})]
            case Status.RUNNING:
                found: Verbs = [
                    ("heartbeat", (fence,), {"progress": self.chance.randrange(100), "stage": "middle"}),
                    ("heartbeat", (fence,), {}),
                    ("heartbeat", (fence,), {"checkpoint": [1], "undo": {"kind": "u"}, "assist_requested": True}),
                    ("assist" if job.phase is Phase.EXECUTING else "unassist", (job.id,), {}),
                    ("complete", (fence, {"done": True}), {}),
                    ("fail", (fence, "again"), {"retry_after": 0}),
                    ("fail", (fence, "for good"), {"retryable": False}),
                    ("fail", (fence, "bad input"), {"retryable": False, "reason_code": ReasonCode.PARSE_ERROR}),
                    ("release", (fence,), {}),
                    ("stall", (fence,), {}),
                ]
                if job.phase is Phase.ABORTING:
                    found += [("acknowledge_cancel", (fence,), {})] * 5
                return found
            case _:
                return [("complete", (fence,), {}), ("heartbeat", (fence,), {}), ("start", (fence,), {})]


@pytest.mark.parametrize("jobs", [240, pytest.param(2_400, marks=pytest.mark.torture)])
def test_every_answered_transition_is_one_event(ledger: Ledger, clock: ManualClock, jobs: int) -> None:
    walkers = [Walker(ledger, number) for number in range(THREADS)]
    threads = [threading.Thread(target=walker.run, args=(jobs // THREADS,)) for walker in walkers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [walker.failure for walker in walkers if walker.failure] == []

    swept = 0
    for _ in range(3):
        clock.advance(120)
        while made := ledger.sweep():
            swept += sum(made.values())

    events = list(all_events(ledger))
    assert len(events) == sum(walker.transitions for walker in walkers) + swept
    assert swept > 0
    assert sum(walker.refusals for walker in walkers) > 0
    assert {event.type for event in events} >= {
        "enqueued", "claimed", "started", "heartbeat", "assist_started", "stalled", "resumed", "requeued", "succeeded", "failed",
        "cancel_requested", "cancelled", "dead_lettered", "compensated", "discarded",
    }  # fmt: skip
    assert problems(ledger) == []
