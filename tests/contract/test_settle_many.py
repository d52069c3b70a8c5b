"""`settle_many` has the same result as single completions."""

from functools import partial
from typing import Any

import pytest

from holdfast import Ledger, Status, ValidationError
from holdfast.core import limits
from holdfast.core.commands import Settle
from holdfast.errors import LimitExceeded
from holdfast.ledger.dispatch import execute
from holdfast.ledger.public import ClaimedJob
from holdfast.ledger.requests import Request
from holdfast.ledger.verbs.holders import _completions
from holdfast.testing import ManualClock
from tests.contract.builders import Made, claimed, running

AWKWARD = [None, 0, "", '"\\\n', "é☃😀", {"a": [1.5, True, None]}, "\u0000\u001f", "\\u0041", {"kind": {"": ""}}, "{}"]


def _recorded(ledger: Ledger, made: Made) -> tuple[Any, ...]:
    """The job and its events without ids and positions."""
    job = ledger.get(made.id)
    events = [
        (event.rev, event.type, event.received_at, event.actor, event.attempt, event.to_status, event.payload)
        for event in ledger.events(made.id)
    ]
    return job.status, job.rev, job.result, job.last_owner, job.finished_at, job.updated_at, events[1:]


@pytest.mark.parametrize("result", AWKWARD, ids=range(len(AWKWARD)))
def test_a_job_of_settle_many_equals_a_completed_job(ledger: Ledger, clock: ManualClock, result: Any):
    settled, completed = running(ledger), running(ledger)
    clock.advance(1)
    assert ledger.settle_many([(settled.fence, result)], request_id="r-1") == [None]
    ledger.complete(completed.fence, result, request_id="r-1")
    assert _recorded(ledger, settled) == _recorded(ledger, completed)
    assert ledger.get(settled.id).result == result
    assert ledger.check(settled.id) == []


def test_large_and_small_results_are_kept_alike(ledger: Ledger):
    jobs = [running(ledger) for _ in range(5)]
    result = "x" * (1 << 18)
    assert ledger.settle_many([(made.fence, result) for made in jobs], request_id="r-1") == [None] * 5
    assert [ledger.get(made.id).result for made in jobs] == [result] * 5
    assert [ledger.check(made.id) for made in jobs] == [[]] * 5


def test_the_last_report_is_a_beat_before_the_completion(ledger: Ledger):
    said, silent = running(ledger), running(ledger)
    told = [(said.fence, {"stage": "done", "progress": 100})]
    for _ in range(2):
        assert ledger.settle_many([(said.fence, 1), (silent.fence, 2)], request_id="r-1", heartbeats=told) == [None, None]
    assert [event.type for event in ledger.events(said.id)] == ["enqueued", "claimed", "started", "heartbeat", "succeeded"]
    assert [event.type for event in ledger.events(silent.id)] == ["enqueued", "claimed", "started", "succeeded"]
    found = ledger.get(said.id)
    assert (found.stage, found.progress, found.result) == ("done", 100, 1)
    assert [ledger.check(made.id) for made in (said, silent)] == [[], []]


def test_the_last_report_of_a_lost_holder_is_dropped(ledger: Ledger):
    lost = running(ledger)
    ledger.cancel(lost.id, hard=True)
    [answer] = ledger.settle_many([(lost.fence, 1)], request_id="r-1", heartbeats=[(lost.fence, {"progress": 100})])
    assert answer is not None
    assert ledger.get(lost.id).progress is None


def test_a_refused_item_does_not_affect_the_others(ledger: Ledger):
    first, ended, unstarted, last = running(ledger), running(ledger), claimed(ledger), running(ledger)
    ledger.complete(ended.fence)
    batch = [(made.fence, number) for number, made in enumerate((first, ended, unstarted, last))]
    answers = ledger.settle_many(batch, request_id="r-1")
    assert [getattr(answer, "code", None) for answer in answers] == [None, "invalid_transition", "invalid_transition", None]
    assert [ledger.get(made.id).result for made in (first, last)] == [0, 3]
    assert ledger.get(unstarted.id).status is Status.CLAIMED


def test_a_repeated_request_changes_nothing(ledger: Ledger):
    made = running(ledger)
    for _ in range(2):
        assert ledger.settle_many([(made.fence, 1)], request_id="r-1") == [None]
    assert ledger.get(made.id).rev == 4


def test_a_holder_whose_lease_ran_out_loses_no_work(ledger: Ledger, clock: ManualClock):
    late, punctual = running(ledger), running(ledger)
    clock.advance(59)
    ledger.heartbeat(punctual.fence)
    clock.advance(2)
    assert ledger.settle_many([(late.fence, 1), (punctual.fence, 2)], request_id="r-1") == [None, None]
    assert [event.type for event in ledger.events(late.id)][-3:] == ["stalled", "resumed", "succeeded"]
    assert ledger.events(punctual.id)[-1].rev == 5


def test_batches_of_several_callers_keep_their_own_ids(ledger: Ledger):
    jobs = [running(ledger) for _ in range(3)]
    requests = [Request("complete", _completions(Settle, [(made.fence, None)], f"r-{made.id}")) for made in jobs]
    ledger._store.transact("work", partial(execute, requests, ledger._signer, careful=False))
    assert [ledger.events(made.id)[-1].request_id for made in jobs] == [f"r-{made.id}" for made in jobs]


def _claim(ledger: Ledger, count: int) -> list[ClaimedJob]:
    ledger.enqueue_many([{"kind": "k"}] * count)
    return [job for job in ledger.claim("w", limit=count, start=True, keep=False) if isinstance(job, ClaimedJob)]


@pytest.mark.parametrize("result", [None, {"a": 1}])
def test_a_claim_that_is_settled_at_once_looks_like_single_completions(ledger: Ledger, clock: ManualClock, result: Any) -> None:
    jobs, single = _claim(ledger, 5), running(ledger)
    clock.advance(1)
    assert ledger.settle_alike(jobs, result, request_id="r-1") is None
    ledger.complete(single.fence, result, request_id="r-1")
    [recorded] = {repr(_recorded(ledger, Made(job.id, job.fence))[:3]) for job in jobs}
    assert recorded == repr(_recorded(ledger, single)[:3])
    assert [ledger.check(job.id) for job in jobs] == [[]] * 5
    assert ledger.sweep() == {}


@pytest.mark.parametrize(
    "items",
    [
        [{"queue": "a"}, {"queue": "b"}, {"queue": "a"}],
        [{"queue": "a", "partition": "p", "priority": number} for number in range(3)],
        [{"queue": "a"}, {"queue": "a", "partition": "p", "priority": -1}, {"queue": "b"}],
    ],
    ids=["queues", "priorities of a partition", "both"],
)
def test_jobs_that_were_claimed_in_several_steps_are_settled_at_once(ledger: Ledger, items: list[dict[str, Any]]) -> None:
    ledger.enqueue_many([{"kind": "k", **item} for item in items])
    jobs = ledger.claim("w", ["a", "b"], limit=3, start=True, keep=False)
    assert ledger.settle_alike(jobs, None, request_id="r-1") is None
    assert [[event.type for event in ledger.events(job.id)][-1] for job in jobs] == ["succeeded"] * 3
    assert [ledger.check(job.id) for job in jobs] == [[]] * 3
    assert ledger.sweep() == {}


def test_settling_a_claim_leaves_out_jobs_that_were_lost(ledger: Ledger) -> None:
    jobs = _claim(ledger, 4)
    cancelled, other = jobs[1], jobs[3]
    ledger.cancel(cancelled.id, hard=True)
    ledger.complete(other.fence, 7)
    done = ledger.settle_alike(jobs, None, request_id="r-1")
    assert done is not None
    left = [job for job in jobs if job.id not in done]
    answers = ledger.settle_many([(job.fence, None) for job in left], request_id="r-1")
    by_id = dict(zip([job.id for job in left], answers, strict=True))
    assert {id_: None if answer is None else answer.code for id_, answer in by_id.items() if id_ in (cancelled.id, other.id)} == {
        cancelled.id: "fence_lost",
        other.id: "invalid_transition",
    }
    assert [ledger.get(job.id).status for job in jobs] == ["succeeded", "cancelled", "succeeded", "succeeded"]
    assert ledger.get(other.id).result == 7
    assert [ledger.check(job.id) for job in jobs] == [[]] * 4


def test_settling_a_claim_again_changes_nothing(ledger: Ledger) -> None:
    jobs = _claim(ledger, 3)
    assert ledger.settle_alike(jobs, None, request_id="r-1") is None
    assert ledger.settle_alike(jobs, None, request_id="r-1") is not None
    assert ledger.settle_many([(job.fence, None) for job in jobs], request_id="r-1") == [None] * 3
    assert [len(ledger.events(job.id)) for job in jobs] == [4] * 3


def test_only_jobs_of_one_claim_can_be_settled_alike(ledger: Ledger) -> None:
    first, second = _claim(ledger, 2), _claim(ledger, 2)
    wrong: list[list[Any]] = [[], [*first, *second], [ledger.get(first[0].id)], [*first, ledger.get(second[0].id)]]
    for jobs in wrong:
        with pytest.raises(ValidationError):
            ledger.settle_alike(jobs, None, request_id="r-1")
    with pytest.raises(LimitExceeded):
        ledger.settle_alike(first, "x" * (limits.PAYLOAD_BYTES_MAX + 1), request_id="r-1")
    assert {job.status for job in ledger.list()} == {"running"}


def test_an_older_attempt_cannot_settle_a_claim(ledger: Ledger, clock: ManualClock) -> None:
    jobs = _claim(ledger, 3)
    clock.advance(61)
    ledger.sweep()
    clock.advance(61)
    again = ledger.claim("w", limit=3, start=True, keep=False)
    assert [job.attempt for job in again] == [2] * 3
    assert ledger.settle_alike(jobs, None, request_id="r-1") is not None
    assert [ledger.get(job.id).status for job in jobs] == ["running"] * 3
    newer = [job for job in again if isinstance(job, ClaimedJob)]
    assert ledger.settle_alike(newer, None, request_id="r-2") is None


def test_a_late_claim_is_settled_by_the_usual_way(ledger: Ledger, clock: ManualClock) -> None:
    jobs = _claim(ledger, 2)
    clock.advance(61)
    assert ledger.settle_alike(jobs, None, request_id="r-1") is not None
    assert ledger.settle_many([(job.fence, None) for job in jobs], request_id="r-1") == [None] * 2
    assert [event.type for event in ledger.events(jobs[0].id)][-3:] == ["stalled", "resumed", "succeeded"]
