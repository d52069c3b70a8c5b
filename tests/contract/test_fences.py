"""Rule 1: after attempt k+1 is claimed, no write from attempt ≤ k is accepted, ever."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Fence, HoldfastError, Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import (
    WINDOW,
    WORKER,
    claim,
    claimed,
    held,
    queued,
    refusal_of,
    refused,
    refused_without_trace,
    running,
    trace,
)

HolderVerb = Callable[[Ledger, Fence], Any]

HOLDER_VERBS: dict[str, HolderVerb] = {
    "start": lambda ledger, fence: ledger.start(fence),
    "heartbeat": lambda ledger, fence: ledger.heartbeat(fence),
    "complete": lambda ledger, fence: ledger.complete(fence, 1),
    "fail": lambda ledger, fence: ledger.fail(fence, "broken"),
    "fail for good": lambda ledger, fence: ledger.fail(fence, "broken", retryable=False),
    "release": lambda ledger, fence: ledger.release(fence),
    "acknowledge_cancel": lambda ledger, fence: ledger.acknowledge_cancel(fence),
    "stall": lambda ledger, fence: ledger.stall(fence),
    "resume": lambda ledger, fence: ledger.resume(fence),
}
LOST = dict.fromkeys(HOLDER_VERBS, "fence_lost")


def refusals(ledger: Ledger, fence: Fence) -> dict[str, str]:
    """The code with which each verb of a holder refuses this fence. None of them changes anything."""
    before = trace(ledger)
    found = {name: refusal_of(verb, ledger, fence) for name, verb in HOLDER_VERBS.items()}
    assert trace(ledger) == before
    return found


@pytest.mark.parametrize("next_worker", ["w-2", WORKER])
def test_an_older_attempt_is_lost_once_a_newer_one_is_claimed(ledger: Ledger, next_worker: str):
    old = running(ledger)
    ledger.release(old.fence)
    claim(ledger, old.id, next_worker)
    assert refusals(ledger, old.fence) == LOST


@pytest.mark.parametrize("swept", [False, True])
def test_a_fence_is_lost_once_the_job_is_queued_again(ledger: Ledger, clock: ManualClock, swept: bool):
    old = running(ledger)
    if swept:
        clock.advance(61)
        ledger.sweep()
    else:
        ledger.release(old.fence)
    assert ledger.get(old.id).status == "queued"
    assert refusals(ledger, old.fence) == LOST


def test_a_late_holder_has_lost_its_fence_once_another_worker_has_claimed(ledger: Ledger, clock: ManualClock):
    old = running(ledger)
    clock.advance(61)
    claim(ledger, old.id, "w-2")
    assert refusals(ledger, old.fence) == LOST


def test_a_hard_cancel_ends_the_fence(ledger: Ledger):
    made = running(ledger)
    ledger.cancel(made.id, hard=True)
    assert refusals(ledger, made.fence) == LOST


def test_a_guessed_token_is_refused(ledger: Ledger):
    made = running(ledger)
    for token in ("guessed", "", "é", "x" * 10_000, made.fence.token[:-1], made.fence.token + "0"):
        assert refusals(ledger, Fence(made.id, 1, token, WORKER)) == LOST


def test_a_token_is_refused_for_another_attempt_or_job(ledger: Ledger):
    first, second = running(ledger), running(ledger)
    for job_id, attempt in ((first.id, 0), (first.id, 2), (first.id, 2**31 - 1), (second.id, 1)):
        assert refusals(ledger, Fence(job_id, attempt, first.fence.token, WORKER)) == LOST


@pytest.mark.parametrize(
    "fence",
    [
        ("1", 1, "t", "w"),
        (True, 1, "t", "w"),
        (0, 1, "t", "w"),
        (2**63, 1, "t", "w"),
        (1, "1", "t", "w"),
        (1, 2**31, "t", "w"),
        (1, 2**63, "t", "w"),
        (1, 1, "\x00", "w"),
        (1, 1, None, "w"),
        (1, 1, "\ud800", "w"),
        (1, 1, "t", None),
        (1, 1, "t", "\ud800"),
    ],
    ids=repr,
)
def test_a_fence_with_wrong_values_is_refused(ledger: Ledger, fence: tuple[Any, ...]):
    running(ledger)
    with pytest.raises(HoldfastError) as caught:
        ledger.heartbeat(Fence(*fence))
    assert caught.value.code in ("validation_error", "limit_exceeded", "fence_lost", "not_found")


@pytest.mark.parametrize("given", [None, 7, "1-2", (1, 1, "t")], ids=repr)
def test_values_that_are_not_fences_are_refused(ledger: Ledger, given: Any):
    with refused("validation_error"):
        ledger.heartbeat(given)


def test_another_incarnation_of_the_same_name_is_another_worker(ledger: Ledger):
    made = claimed(ledger)
    with refused_without_trace(ledger, "lease_conflict") as caught:
        ledger.claim_job(made.id, WORKER, incarnation="after-reboot")
    assert caught.value.context["holder"] == WORKER


def test_a_new_incarnation_takes_over_and_the_old_one_is_fenced_off(ledger: Ledger, clock: ManualClock):
    old = running(ledger)
    clock.advance(61)
    new = claim(ledger, old.id, WORKER, incarnation="after-reboot")
    assert new.fence.attempt == 2
    with refused_without_trace(ledger, "fence_lost"):
        ledger.complete(old.fence, 1)
    assert ledger.check(old.id) == []


def test_the_fence_stays_the_same_through_renewals_stalls_and_resumes(ledger: Ledger):
    made = running(ledger, policy=WINDOW)
    ledger.heartbeat(made.fence)
    ledger.stall(made.fence)
    ledger.resume(made.fence)
    assert held(ledger.claim_job(made.id, WORKER)) == made.fence
    assert ledger.complete(made.fence, 1).status == "succeeded"


def test_each_claim_draws_a_new_token(ledger: Ledger):
    old = claimed(ledger)
    ledger.release(old.fence)
    assert claim(ledger, old.id).fence.token != old.fence.token


def test_the_worker_name_in_a_fence_is_not_compared(ledger: Ledger):
    made = running(ledger)
    ledger.complete(Fence(made.id, 1, made.fence.token, "another"), 1)
    assert ledger.events(made.id)[-1].actor == f"worker:{WORKER}#{ledger.incarnation}"


def test_an_incarnation_with_a_number_sign_is_refused(ledger: Ledger):
    queued(ledger)
    with refused("validation_error"):
        ledger.claim(WORKER, incarnation="boot#2")


@pytest.mark.parametrize("incarnation", ["a:b", "boot 2"])
def test_any_incarnation_reads_back_as_it_was_written(ledger: Ledger, incarnation: str):
    made = queued(ledger)
    fence = claim(ledger, made.id, "w:1#x", incarnation=incarnation).fence
    ledger.start(fence)
    ledger.complete(fence, 1)
    assert ledger.check(made.id) == []


def test_only_the_claimer_gets_the_fence(ledger: Ledger):
    made = running(ledger)
    assert ledger.get(made.id).fence is None
    assert made.fence.token not in repr(made.fence)
    assert made.fence.token not in repr(ledger.events(made.id))


def test_a_refusal_names_the_holder_and_its_lease(ledger: Ledger):
    made = claimed(ledger)
    with refused("lease_conflict") as caught:
        ledger.claim_job(made.id, "w-2")
    context = caught.value.context
    assert (context["holder"], context["attempt"], context["rev"], context["status"]) == (WORKER, 1, 2, "claimed")
