"""decide(job, command, now): rules that the matrix of the contract suite does not test."""

from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import payloads
from holdfast.core.audit import check_history
from holdfast.core.decide import decide
from holdfast.core.draft import AttemptFailure, failure_of, invalid_transition
from holdfast.core.model import (
    SYSTEM,
    Actor,
    EventType,
    FailureStage,
    Fence,
    Policy,
    ReasonCode,
    Role,
    Status,
)
from holdfast.errors import HoldfastError
from tests.unit.histories import CLIENT, ERROR, OPERATOR, SECOND, T0, WINDOW, WORKER, History, code_of, refusal_of

OTHER = Actor(Role.WORKER, "w-2", "boot-1")
ASKS: dict[str, Any] = {"token": "t", "policy": Policy()}


# Preconditions


def test_a_missing_job_is_not_found():
    with pytest.raises(HoldfastError) as caught:
        decide(None, c.Requeue(actor=SYSTEM, job_id=7), T0)
    assert (caught.value.code, caught.value.context) == ("not_found", {"job_id": 7})


def test_the_fence_is_checked_before_the_revision():
    history = History().start()
    assert code_of(history, c.Complete, fence=Fence(7, 1, "no"), payload=b"{}", expected_rev=99) == "fence_lost"
    assert code_of(history, c.Complete, payload=b"{}", expected_rev=99) == "conflict"


def test_a_conflict_names_both_revisions():
    found = refusal_of(History().start(), c.Release, expected_rev=1)
    assert (found.context["expected_rev"], found.context["rev"]) == (1, 3)


@pytest.mark.parametrize("fence", [Fence(7, 1, "no"), Fence(7, 2, "token-1"), Fence(7, 0, "token-1")], ids=repr)
def test_a_fence_is_compared_as_a_whole(fence: Fence):
    assert code_of(History().start(), c.Release, fence=fence) == "fence_lost"


@pytest.mark.parametrize("history", [History(), History().start().fail(), History().start()], ids=["new", "requeued", "held"])
def test_an_empty_fence_is_never_valid(history: History):
    assert code_of(history, c.Release, fence=Fence(7, history.job.attempt, "")) == "fence_lost"


def test_the_event_names_the_holder_and_not_the_commands_actor():
    history = History().start().do(c.Complete, actor=OTHER, fence=Fence(7, 1, "token-1", "w-2"), payload=b'{"result":1}')
    assert history.events[-1].actor == WORKER


@pytest.mark.parametrize(
    ("kind", "fields", "actor"),
    [
        (c.Stall, {}, OPERATOR),
        (c.Resume, {}, CLIENT),
        (c.Requeue, {}, OTHER),
        (c.Sweep, {}, OPERATOR),
        (c.Cancel, {}, OTHER),
        (c.DeadLetter, {"reason_code": ReasonCode.TIMEOUT, "failure_stage": FailureStage.EXEC}, CLIENT),
        (c.Assist, {"on": True}, SYSTEM),
        (c.Annotate, {"note": EventType.DISCARDED}, CLIENT),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_role_that_the_table_does_not_allow_is_forbidden(kind: type[c.JobCommand], fields: dict[str, Any], actor: Actor):
    assert code_of(History(WINDOW).start().wait(31), kind, actor=actor, **fields) == "forbidden"


def test_times_of_a_job_never_go_back():
    history = History().start().wait(-100).beat()
    assert history.events[-1].received_at == history.job.updated_at == T0


# Claiming by id


@pytest.mark.parametrize("history", [History().claim(), History().start()], ids=["claimed", "running"])
def test_a_claim_by_the_holder_renews_the_lease(history: History):
    job = history.wait(10).claim().job
    assert (history.types[-1], job.attempt, job.token, job.lease_expires_at) == ("heartbeat", 1, "token-1", T0 + 70 * SECOND)


@pytest.mark.parametrize("actor", [OTHER, Actor(Role.WORKER, "w-1", "boot-2")], ids=["another", "another incarnation"])
def test_a_live_lease_of_another_is_a_conflict(actor: Actor):
    assert code_of(History().claim().wait(30), c.ClaimJob, actor=actor, **ASKS) == "lease_conflict"


def test_a_lease_past_its_limit_is_stalled_first():
    history = History().claim().wait(31).claim(OTHER)
    assert history.types == ["enqueued", "claimed", "stalled", "claimed"]
    assert (history.job.owner, history.job.attempt, history.job.token) == ("w-2", 2, "token-2")
    assert history.events[-2].actor == SYSTEM


@pytest.mark.parametrize(
    ("history", "reason"),
    [(History().claim(), "LEASE_EXPIRED"), (History().start(), "NO_HEARTBEAT")],
    ids=["claimed", "running"],
)
def test_a_claim_by_the_holder_after_its_lease_begins_a_new_attempt(history: History, reason: str):
    job = history.wait(61).claim().job
    assert history.types[-2:] == ["stalled", "claimed"]
    assert (history.events[-2].actor, history.events[-2].reason) == (SYSTEM, reason)
    assert (job.attempt, job.token, job.phase, job.started_at) == (2, "token-2", None, None)


def test_a_claim_by_the_holder_after_a_clock_step_begins_a_new_attempt():
    history = History().start().wait(61)
    assert history.claim(fresh_since=history.now).job.attempt == 2


def test_the_last_holder_may_claim_within_the_resume_window():
    assert History(WINDOW).start().stall().claim().job.attempt == 2
    assert code_of(History(WINDOW).start().stall(), c.ClaimJob, actor=Actor(Role.WORKER, "w-1", "boot-2"), **ASKS) == (
        "not_claimable"
    )


def test_the_holder_cannot_claim_again_without_attempts_left():
    for history, why in (
        (History().start().cancel(), "cancelling"),
        (History(Policy(attempts_max=1)).start(), "exhausted"),
    ):
        found = refusal_of(history.wait(61), c.ClaimJob, actor=WORKER, **ASKS)
        assert (found.code, found.context["why"]) == ("not_claimable", why)


@pytest.mark.parametrize(
    ("history", "fields", "why"),
    [
        (History(), {"paused": True}, "paused"),
        (History(delay_us=5), {}, "scheduled"),
        (History().start().fail(), {}, "backoff"),
        (History(WINDOW).start().stall(), {}, "resume_window"),
        (History(WINDOW).start().cancel().stall(), {}, "cancelling"),
        (History(Policy(attempts_max=1)).start().stall(), {}, "exhausted"),
        (History().start().stall(), {"paused": True}, "paused"),
    ],
    ids=["paused", "scheduled", "backoff", "window", "cancelling", "exhausted", "stalled and paused"],
)
def test_a_refused_claim_has_a_reason(history: History, fields: dict[str, Any], why: str):
    found = refusal_of(history, c.ClaimJob, actor=OTHER, **ASKS, **fields)
    assert (found.code, found.context["why"]) == ("not_claimable", why)


def test_a_stalled_job_is_claimed_at_the_end_of_its_window():
    assert History(WINDOW).start().stall().wait(60).claim(OTHER).job.attempt == 2


def test_a_given_ttl_is_part_of_the_policy_of_the_lease():
    history = History().claim(ttl_ms=900_000)
    policy = history.events[-1].policy
    assert policy is not None
    assert (policy.lease_ttl_ms, policy.stall_after_ms) == (900_000, 900_000)


def test_the_end_of_a_job_has_the_facts_of_its_newest_failure() -> None:
    history = History().start().fail(failure_stage=FailureStage.OUTPUT, reason_code=ReasonCode.PARSE_ERROR, retryable=True)
    assert failure_of(history.job) == AttemptFailure(ERROR, FailureStage.OUTPUT, ReasonCode.PARSE_ERROR)


@pytest.mark.parametrize(("ttl_ms", "length_ms"), [(None, None), (90_000, 90_000)])
def test_a_holder_renews_its_own_claim_for_the_length_that_it_gives(ttl_ms: int | None, length_ms: int | None) -> None:
    history = History().start().claim(ttl_ms=ttl_ms)
    renewed = history.events[-1]
    assert renewed.type is EventType.HEARTBEAT
    assert (None if renewed.policy is None else renewed.policy.lease_ttl_ms) == length_ms
    assert check_history(history.events, history.job) == []


@pytest.mark.parametrize("retryable", [False, True])
def test_a_result_that_a_validator_refuses_is_refused(retryable: bool) -> None:
    history = History().start()
    payload = payloads.result_payload(b"1")
    refused = refusal_of(history, c.Complete, payload=payload, objection=c.Objection("too small", retryable))
    assert (refused.code, refused.retryable) == ("refused_by_validator", retryable)
    assert "too small" in refused.message


def test_a_requeue_is_not_a_release() -> None:
    history = History(WINDOW).start().stall()
    assert code_of(history, c.Requeue, actor=SYSTEM, jitter=1.0, reason="RELEASED") == "validation_error"


@pytest.mark.parametrize(
    ("status", "verb", "advice"),
    [
        (Status.SUCCEEDED, "replay", "enqueue a new job"),
        (Status.SUCCEEDED, "cancel", "holdfast job get 1"),
        (Status.FAILED, "cancel", "holdfast job replay 1"),
        (Status.RUNNING, "replay", "this one has not. To see what happens next: holdfast explain 1"),
        (Status.QUEUED, "complete", "A job must be running for this."),
        (Status.QUEUED, "stall", "A job must be claimed or running for this."),
    ],
)
def test_the_advice_depends_on_the_status(status: Status, verb: str, advice: str):
    job = msgspec.structs.replace(History().job, id=1, status=status)
    assert advice in invalid_transition(verb, job).action
