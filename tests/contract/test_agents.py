"""Agents: tasks by id, without fences, each verb one transaction."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from holdfast import Ledger
from holdfast.agent import Agent, Task
from holdfast.errors import FenceLost, HoldfastError, IdempotencyConflict, InvalidTransition, NotFound
from holdfast.testing import ManualClock
from tests.contract.builders import queued
from tests.support.histories import problems

MINUTES = timedelta(minutes=1)


def types(ledger: Ledger, id_: int) -> list[str]:
    return [event.type.value for event in ledger.events(id_)]


def refusal(verb: Any, *given: Any, **options: Any) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        verb(*given, **options)
    return caught.value


def test_start_claims_and_starts_a_task_and_returns_its_details(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    made = queued(ledger)
    task = ada.start(made.id)
    assert (task.status, task.claimed_by, task.session, task.attempt) == ("running", "ada", "agent", 1)
    assert task.args == {"n": 1}
    assert task.claimed_at == task.last_heartbeat_at == clock.now()
    assert task.claim_expires_at == clock.now() + 5 * MINUTES
    assert types(ledger, made.id) == ["enqueued", "claimed", "started"]


def test_no_answer_shows_a_token(ledger: Ledger, ada: Agent) -> None:
    made = queued(ledger)
    assert not {"token", "fence"} & set(Task.__struct_fields__)
    ada.start(made.id, request_id="r1")
    assert ledger.get(made.id).fence is None


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_a_held_task_is_renewed_for_the_given_or_the_previous_ttl(
    ledger: Ledger, ada: Agent, clock: ManualClock, verb: str
) -> None:
    def renew(**options: Any) -> timedelta:
        task = ada.start(made.id, **options) if verb == "start" else ada.resume(**options).task
        assert task is not None and task.claim_expires_at is not None and task.attempt == 1
        return task.claim_expires_at - clock.now()

    made = queued(ledger)
    assert renew() == 5 * MINUTES
    assert renew(ttl="1h") == 60 * MINUTES
    assert renew() == 60 * MINUTES
    clock.advance(3_600)
    assert ada.gc().released == []
    assert renew(ttl="5m") == 5 * MINUTES
    assert renew(ttl="30s") == timedelta(seconds=30)
    clock.advance(31)
    assert ada.gc().released == [made.id]
    assert problems(ledger) == []


def test_a_claimed_task_is_started_for_the_given_ttl(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    made = queued(ledger)
    ledger.claim_job(made.id, "ada", incarnation="agent")
    task = ada.start(made.id, ttl="20m")
    assert (task.status, task.attempt, task.claim_expires_at) == ("running", 1, clock.now() + 20 * MINUTES)
    assert problems(ledger) == []


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_a_start_after_the_own_claim_expired_begins_a_new_attempt(
    ledger: Ledger, ada: Agent, clock: ManualClock, verb: str
) -> None:
    made = queued(ledger)
    ada.start(made.id)
    ada.heartbeat(made.id, checkpoint={"page": 7})
    clock.advance(301)
    again = ada.start(made.id, request_id="r1") if verb == "start" else ada.resume(request_id="r1").task
    assert again is not None
    assert (again.status, again.attempt, again.checkpoint) == ("running", 2, {"page": 7})
    assert types(ledger, made.id)[-3:] == ["stalled", "claimed", "started"]
    assert refusal(ada.heartbeat, made.id, attempt=1).code == "fence_lost"
    replayed = ada.start(made.id, request_id="r1") if verb == "start" else ada.resume(request_id="r1").task
    assert replayed is not None and replayed.attempt == ledger.get(made.id).attempt == 2
    assert problems(ledger) == []


def test_a_start_after_an_unstarted_claim_expired_begins_a_new_attempt(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    made = queued(ledger)
    ledger.claim_job(made.id, "ada", incarnation="agent")
    clock.advance(3_600)
    assert (ada.start(made.id).attempt, types(ledger, made.id)[-3:]) == (2, ["stalled", "claimed", "started"])
    assert problems(ledger) == []


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release"])
def test_beats_and_ends_after_the_own_claim_expired_resume_the_attempt(
    ledger: Ledger, ada: Agent, clock: ManualClock, verb: str
) -> None:
    made, rest = queued(ledger), ("broke",) if verb == "fail" else ()
    ada.start(made.id)
    clock.advance(301)
    assert getattr(ada, verb)(made.id, *rest).attempt == 1
    assert types(ledger, made.id)[3:5] == ["stalled", "resumed"]
    assert problems(ledger) == []


def test_a_last_attempt_that_has_expired_is_not_claimed_again_but_can_be_ended(
    ledger: Ledger, ada: Agent, clock: ManualClock
) -> None:
    made = queued(ledger, policy={"attempts_max": 1})
    ada.start(made.id)
    clock.advance(301)
    before = ledger.events(made.id)
    error = refusal(ada.start, made.id)
    assert (error.code, error.context["why"]) == ("not_claimable", "exhausted")
    assert error.action.startswith("Attempt 1 is still yours: a heartbeat resumes it")
    assert ada.resume().why == "nothing"
    assert ledger.events(made.id) == before
    assert ada.complete(made.id).status == "succeeded"


def test_an_expired_claim_is_recorded_as_stalled_and_taken_over(
    ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock
) -> None:
    made = queued(ledger)
    ada.start(made.id)
    clock.advance(301)
    task = bob.start(made.id)
    assert (task.claimed_by, task.attempt) == ("bob", 2)
    assert types(ledger, made.id)[-3:] == ["stalled", "claimed", "started"]
    assert refusal(ada.heartbeat, made.id).code == "fence_lost"
    assert problems(ledger) == []


def test_a_claim_holds_for_its_ttl_under_any_silence_limit(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock) -> None:
    made = queued(ledger, policy={"heartbeat_interval": "1s"})
    ada.start(made.id)
    clock.advance(300)
    assert (ledger.sweep(), bob.gc().released) == ({}, [])
    assert refusal(bob.start, made.id).code == "lease_conflict"
    clock.advance(1)
    assert bob.start(made.id).attempt == 2


def test_only_new_claims_raise_the_attempt(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock) -> None:
    made = queued(ledger)
    counted = [ada.get(made.id).attempt, ada.start(made.id, request_id="r1").attempt, ada.start(made.id, request_id="r1").attempt]
    counted += [ada.start(made.id).attempt, ada.heartbeat(made.id).attempt, ada.release(made.id).attempt]
    assert counted == [0, 1, 1, 1, 1, 1]
    counted = [bob.start(made.id).attempt]
    clock.advance(301)
    counted += [ada.start(made.id).attempt]
    clock.advance(301)
    ada.gc()
    clock.advance(60)
    assert [*counted, ada.get(made.id).attempt, ada.start(made.id).attempt] == [2, 3, 3, 4]
    assert problems(ledger) == []


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release"])
def test_only_the_holder_may_change_a_task(ledger: Ledger, ada: Agent, bob: Agent, verb: str) -> None:
    made, rest = queued(ledger), ("broke",) if verb == "fail" else ()
    for claimed in (False, True):
        if claimed:
            ada.start(made.id)
        before = ledger.events(made.id)
        assert refusal(getattr(bob, verb), made.id, *rest).code == "fence_lost"
        assert ledger.events(made.id) == before


def test_a_beat_renews_the_lease_and_records_its_contents(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    made = queued(ledger)
    ada.start(made.id)
    clock.advance(30)
    task = ada.heartbeat(made.id, stage="reading", progress=3, checkpoint={"page": 7}, attempt=1)
    assert (task.stage, task.progress, task.attempt, task.last_heartbeat_at) == ("reading", 3, 1, clock.now())
    assert task.claim_expires_at == clock.now() + 5 * MINUTES
    assert ada.get(made.id).checkpoint == {"page": 7}
    assert types(ledger, made.id)[-1] == "heartbeat"


@pytest.mark.parametrize("verb", ["start", "heartbeat", "complete", "fail", "release"])
def test_a_repeated_request_has_one_effect_and_the_same_answer(ledger: Ledger, ada: Agent, clock: ManualClock, verb: str) -> None:
    made = queued(ledger)
    other = queued(ledger)
    for id_ in (made.id, other.id) if verb != "start" else ():
        ada.start(id_)
    rest = ("broke",) if verb == "fail" else ()
    first = getattr(ada, verb)(made.id, *rest, request_id="r1")
    rev = ledger.get(made.id).rev
    clock.advance(10)
    assert getattr(ada, verb)(made.id, *rest, request_id="r1") == replace(first, replayed=True)
    assert ledger.get(made.id).rev == rev
    assert isinstance(refusal(getattr(ada, verb), other.id, *rest, request_id="r1"), IdempotencyConflict)


def test_a_task_is_completed_failed_or_released(ledger: Ledger, ada: Agent) -> None:
    done, failed, retried, given_back = (queued(ledger).id for _ in range(4))
    for id_ in (done, failed, retried, given_back):
        ada.start(id_)
    assert ada.complete(done, [1]).status == "succeeded"
    assert ada.get(done).result == [1]
    assert ada.fail(failed, "broken", retryable=False).status == "failed"
    assert ada.get(failed).last_error == {"message": "broken"}
    again = ada.fail(retried, "later", retry_after="1h")
    assert (again.status, again.claimed_by) == ("queued", None)
    assert ada.release(given_back).status == "queued"
    assert isinstance(refusal(ada.complete, done), InvalidTransition)
    assert isinstance(refusal(ada.complete, given_back), FenceLost)
    assert isinstance(refusal(ada.get, 10**6), NotFound)
    assert problems(ledger) == []


def test_a_refusal_leaves_no_trace(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    made = queued(ledger)
    ada.start(made.id)
    before = ledger.events(made.id)
    refusal(bob.start, made.id, request_id="r1")
    assert ledger.events(made.id) == before
    ada.release(made.id)
    assert bob.start(made.id, request_id="r1").claimed_by == "bob"


def test_gc_releases_expired_tasks_and_lists_them(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock) -> None:
    old, older, kept = (queued(ledger).id for _ in range(3))
    ada.start(old)
    ada.start(older, ttl="2m")
    bob.start(kept, ttl="1h")
    clock.advance(400)
    assert bob.gc(request_id="r1").released == [old, older]
    assert [ledger.get(id_).status.value for id_ in (old, older, kept)] == ["queued", "queued", "running"]
    again = bob.gc(request_id="r1")
    assert (again.released, again.replayed) == ([old, older], True)
    assert (bob.gc().released, bob.gc().replayed) == ([], UNSET)


def test_gc_skips_tasks_that_are_due_for_other_reasons(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    stalled, expired = (queued(ledger, policy={"resume_window": "1s"}).id for _ in range(2))
    ada.start(stalled)
    clock.advance(301)
    ledger.sweep()
    ada.start(expired, ttl="1s")
    clock.advance(5)
    assert ada.gc(limit=1).released == [expired]
    assert [ledger.get(id_).status.value for id_ in (stalled, expired)] == ["stalled", "stalled"]


def test_tasks_are_listed_by_filter(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    one, two, three = (queued(ledger).id for _ in range(3))
    ada.start(one)
    bob.start(two)
    assert [task.id for task in ada.list()] == [one, two, three]
    assert [task.id for task in ada.list(mine=True)] == [one]
    assert [task.claimed_by for task in ada.list(status="in_progress")] == ["ada", "bob"]
    assert ada.list(mine=True, status="queued") == []


def test_a_page_of_held_tasks_is_full(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    others, own, elsewhere, later = ([queued(ledger).id for _ in range(2)] for _ in range(4))
    for agent, ids in ((bob, others), (ada, own), (Agent(ledger, "ada", session="two"), elsewhere), (ada, later)):
        for id_ in ids:
            agent.start(id_)
    assert [task.id for task in ada.list(mine=True, limit=3)] == [*own, later[0]]
    assert [task.id for task in ada.list(mine=True, limit=3, after=later[0])] == [later[1]]
    assert [job.id for job in ledger.list(owner="ada", limit=3)] == [*own, elsewhere[0]]
    assert [job.id for job in ledger.list(owner="bob", status="running")] == others
    correlated = ledger.get(own[0]).correlation_id
    assert [job.id for job in ledger.list(owner="ada", correlation_id=correlated)] == own[:1]
    assert ledger.list(owner="ada", waiting=True) == []


def test_held_tasks_are_listed_beside_many_other_tasks(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    made = [job.id for job in ledger.enqueue_many([{"kind": "work"}] * 1_003)]
    ledger.claim("w", limit=1_000)
    bob.start(made[1_000])
    for id_ in made[1_001:]:
        ada.start(id_)
    Agent(ledger, "ada", session="other").start(queued(ledger).id)
    assert [task.id for task in ada.list(mine=True)] == made[1_001:]
    assert [task.id for task in ada.list(mine=True, limit=1)] == made[1_001:1_002]
    assert [task.id for task in ada.list(mine=True, after=made[1_001])] == made[1_002:]
    assert refusal(ada.list, mine=True, limit=0).code == "limit_exceeded"


def test_large_values_are_omitted_from_kept_answers(ledger: Ledger, ada: Agent) -> None:
    job = ledger.enqueue("read", {"text": "x" * 20_000})
    task = ada.start(job.id)
    assert task.omitted == {"args": len('{"text":""}') + 20_000}
    assert ada.get(job.id).args == {"text": "x" * 20_000}


@pytest.mark.parametrize("queues", [None, ["zz"]])
def test_a_task_is_found_beside_many_queues_with_blocked_tasks(ledger: Ledger, ada: Agent, queues: list[str] | None) -> None:
    ledger.set_limit("api", concurrent=1)
    blocked = [f"a{number:03}" for number in range(101)]
    ledger.enqueue_many([{"kind": "work", "queue": queue, "limits": ["api"]} for queue in ["first", *blocked]])
    assert len(ledger.claim("w", ["first"])) == 1
    assert ledger.claim("w", blocked) == []
    free = ledger.enqueue("work", queue="zz", partition="p")
    assert ledger.claim("w", ["first"]) == []
    task = ada.resume(queues=queues).task
    assert task is not None
    assert task.id == free.id
