"""Resume: which task an agent continues, and what is in its brief."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import msgspec

from holdfast import Ledger
from holdfast.agent import Agent, get_task
from holdfast.agent.agent import _seconds_until_due
from holdfast.testing import ManualClock
from tests.contract.builders import held, queued, refused
from tests.support.histories import problems

MINUTES = timedelta(minutes=1)


def took(agent: Agent, **options: object) -> tuple[int | None, str]:
    brief = agent.resume(**options)  # type: ignore[arg-type]
    return (None if brief.task is None else brief.task.id), brief.why


def test_ready_tasks_are_taken_by_priority_time_and_id_over_all_queues(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    late = queued(ledger, delay="10s", queue="b").id
    first, second = queued(ledger, queue="z").id, queued(ledger, queue="a").id
    waiting = queued(ledger, priority=9, delay="1h", queue="a").id
    urgent = queued(ledger, priority=5, queue="m").id
    clock.advance(20)
    for id_ in (urgent, first, second, late):
        assert took(ada) == (id_, "next")
        ada.complete(id_)
    assert took(ada) == (None, "nothing")
    assert ledger.get(waiting).status == "queued"


def test_resume_takes_only_given_queues_and_kinds_and_no_paused_queue(ledger: Ledger, ada: Agent) -> None:
    a, b, c = queued(ledger, queue="a").id, queued(ledger, queue="b").id, queued(ledger, queue="c", kind="read").id
    assert took(ada, queues=["b", "nowhere"]) == (b, "next")
    ada.complete(b)
    assert took(ada, kinds=["read"]) == (c, "next")
    ada.complete(c)
    ledger.pause("a")
    assert took(ada) == (None, "nothing")
    ledger.unpause("a")
    assert took(ada) == (a, "next")


def test_an_empty_answer_has_the_time_of_the_next_task(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    assert ada.resume().until is None
    queued(ledger, delay="1h")
    queued(ledger, delay="30m", priority=-3)
    brief = ada.resume(request_id="r1")
    assert (brief.task, brief.until) == (None, clock.now() + 30 * MINUTES)
    clock.advance(1_800)
    assert ada.resume(request_id="r1").task is not None


def idle_counts(agent: Agent, **options: object) -> tuple[object, ...]:
    """Resume without a free task: the counts of held, waiting, scheduled and paused tasks, and the advice."""
    brief = agent.resume(**options)  # type: ignore[arg-type]
    assert brief.task is None and brief.nothing is not None
    return msgspec.structs.astuple(brief.nothing)


def test_an_empty_answer_says_why_and_whether_to_try_again(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    assert idle_counts(ada) == (0, 0, 0, 0, 0, "done")
    one = queued(ledger, queue="a").id
    two = queued(ledger, queue="a", depends_on=[one], kind="review").id
    queued(ledger, queue="b", depends_on=[two])
    queued(ledger, queue="b", delay="1h")
    queued(ledger, queue="c", delay="1h")
    queued(ledger, queue="c")
    ledger.pause("c")
    bob.start(one)
    assert idle_counts(ada) == (1, 2, 1, 2, 0, "wait")
    assert idle_counts(ada, queues=["a"]) == (1, 1, 0, 0, 0, "wait")
    assert idle_counts(ada, queues=["c", "b"]) == (0, 1, 1, 2, 0, "wait")
    assert idle_counts(ada, kinds=["review"]) == (0, 1, 0, 0, 0, "wait")
    assert idle_counts(ada, queues=["nowhere"]) == (0, 0, 0, 0, 0, "done")
    bob.complete(one)
    assert bob.resume(queues=["a"]).nothing is None
    bob.complete(two)
    assert idle_counts(ada, queues=["a"]) == (0, 0, 0, 0, 0, "done")


def test_the_counts_of_an_empty_answer_have_a_limit(ledger: Ledger, ada: Agent) -> None:
    ledger.enqueue_many([{"kind": "work", "delay": "1h"}] * 1_001)
    assert idle_counts(ada) == (0, 0, 1_000, 0, 0, "wait")


def test_undo_jobs_do_not_count_as_live_tasks(ledger: Ledger, ada: Agent) -> None:
    fence = ledger.claim_job(queued(ledger).id, "w").fence
    ledger.start(fence)
    ledger.heartbeat(fence, undo={"kind": "unread"})
    ledger.fail(fence, "broken", retryable=False)
    ledger.sweep()
    assert idle_counts(ada) == (0, 0, 0, 0, 0, "done")


def test_without_ready_tasks_the_longest_expired_claim_is_taken_over(
    ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock
) -> None:
    later, first, kept = (queued(ledger).id for _ in range(3))
    bob.start(later, ttl="4m")
    bob.start(first, ttl="3m")
    bob.start(kept, ttl="1h")
    assert idle_counts(ada)[0] == 3
    clock.advance(400)
    ready = queued(ledger).id
    assert took(ada) == (ready, "next")
    ada.complete(ready)
    assert took(ada) == (first, "expired")
    assert (ledger.get(first).attempt, ledger.get(first).owner) == (2, "ada")
    assert [event.type.value for event in ledger.events(first)][-3:] == ["stalled", "claimed", "started"]
    ada.complete(first)
    assert took(ada) == (later, "expired")
    ada.complete(later)
    assert idle_counts(ada) == (1, 0, 0, 0, 0, "wait")
    assert problems(ledger) == []


def test_expired_claims_that_cannot_be_taken_over_are_skipped(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock) -> None:
    cancelled, exhausted, other, paused = (
        queued(ledger, **options).id for options in ({}, {"policy": {"attempts_max": 1}}, {"kind": "other"}, {"queue": "still"})
    )
    for id_ in (cancelled, exhausted, other, paused):
        bob.start(id_)
    ledger.cancel(cancelled)
    ledger.pause("still")
    clock.advance(400)
    before = [ledger.get(id_).rev for id_ in (cancelled, exhausted, paused)]
    assert took(ada, kinds=["another"]) == (None, "nothing")
    assert took(ada) == (other, "expired")
    assert [ledger.get(id_).rev for id_ in (cancelled, exhausted, paused)] == before
    assert problems(ledger) == []


def test_the_focus_is_kept_and_its_claim_renewed(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    one, two = queued(ledger).id, queued(ledger, priority=9).id
    ada.start(one)
    clock.advance(60)
    brief = ada.resume()
    assert brief.task is not None
    assert (brief.task.id, brief.why, brief.task.attempt) == (one, "focus", 1)
    assert (brief.task.claim_expires_at, brief.task.last_heartbeat_at) == (clock.now() + 5 * MINUTES, clock.now())
    clock.advance(3_600)
    assert took(ada) == (one, "focus")
    assert ledger.get(one).attempt == 2
    assert ledger.get(two).status == "queued"
    assert problems(ledger) == []


def test_a_focus_that_has_stalled_is_kept_and_claimed_within_its_window(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    one, two = queued(ledger, policy={"resume_window": "10m"}).id, queued(ledger, priority=9).id
    ada.start(one)
    clock.advance(301)
    assert ledger.sweep() == {"stalled": 1}
    assert took(ada) == (one, "focus")
    assert (ledger.get(one).status, ledger.get(one).attempt, ledger.get(two).status) == ("running", 2, "queued")


def test_a_refused_start_does_not_change_the_focus(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    ada.start(one)
    bob.start(two)
    with refused("lease_conflict"):
        ada.start(two)
    assert took(ada) == (one, "focus")


def test_a_finished_task_is_not_the_focus(ledger: Ledger, ada: Agent) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    ada.start(one)
    ledger.cancel(one, hard=True)
    assert took(ada) == (two, "next")
    ada.complete(two)
    assert took(ada) == (None, "nothing")


def test_held_tasks_are_taken_by_id_and_repeatedly_the_same(ledger: Ledger, ada: Agent) -> None:
    ids = [queued(ledger, priority=number).id for number in range(3)]
    for id_ in reversed(ids):
        ledger.start(held(ledger.claim_job(id_, "ada", incarnation="agent")))
    assert took(ada) == (ids[0], "running")
    assert took(ada) == (ids[0], "focus")
    ada.complete(ids[0])
    assert took(ada) == (ids[1], "running")


def test_after_the_focus_come_held_running_tasks_then_held_claimed_tasks(ledger: Ledger, ada: Agent) -> None:
    claimed, running, focus = (queued(ledger).id for _ in range(3))
    ledger.claim_job(claimed, "ada", incarnation="agent")
    ada.start(running)
    ada.start(focus)
    assert took(ada) == (focus, "focus")
    ada.complete(focus)
    assert took(ada) == (running, "running")
    ada.complete(running)
    assert took(ada) == (claimed, "claimed")
    assert ledger.get(claimed).status == "running"


def test_after_held_tasks_comes_the_last_task_if_it_was_requeued(
    ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock
) -> None:
    one = queued(ledger).id
    ada.start(one)
    urgent = queued(ledger, priority=9).id
    clock.advance(301)
    bob.gc()
    clock.advance(60)
    assert took(ada) == (one, "last")
    assert ledger.get(one).attempt == 2
    ada.fail(one, "later", retry_after="1h")
    assert took(ada) == (urgent, "next")


def test_a_task_of_another_agent_is_no_longer_the_focus(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    ada.start(one)
    clock.advance(301)
    bob.start(one)
    assert took(ada) == (two, "next")
    ada.complete(two)
    assert took(ada) == (None, "nothing")
    assert took(bob) == (one, "focus")


def test_two_sessions_of_a_name_are_two_agents(ledger: Ledger, ada: Agent) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    assert took(ada) == (one, "next")
    assert took(Agent(ledger, "ada", session="other")) == (two, "next")
    assert took(ada) == (one, "focus")


def test_the_same_request_gets_the_same_brief(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    one = queued(ledger).id
    queued(ledger)
    brief = ada.resume(request_id="r1")
    rev = ledger.get(one).rev
    ada.complete(one)
    assert ada.resume(request_id="r1") == msgspec.structs.replace(brief, replayed=True)
    assert brief.replayed is msgspec.UNSET
    assert ledger.get(one).rev == rev + 1


def test_the_brief_has_the_history_since_the_last_brief(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger).id
    first = ada.resume()
    assert [entry.type for entry in first.history] == ["enqueued", "claimed", "started"]
    assert [entry.alias for entry in first.history][1] == "task_claimed"
    ada.heartbeat(one, stage="reading")
    second = ada.resume()
    assert [(entry.type, entry.alias) for entry in second.history] == [("heartbeat", "task_heartbeat")] * 2
    assert second.history[0].payload == {"stage": "reading"}
    assert second.cursor > first.cursor
    assert ada.resume().cursor > second.cursor


def test_the_brief_of_a_new_task_has_its_whole_history(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    bob.start(two)
    bob.release(two)
    first = ada.resume()
    ada.complete(one)
    ada.start(two)
    second = ada.resume()
    assert second.task is not None and second.task.id == two
    assert [entry.type for entry in second.history[:3]] == ["enqueued", "claimed", "started"]
    assert second.cursor > first.cursor


def test_a_long_history_is_cut_and_counted(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    one = queued(ledger).id
    ada.start(one)
    for number in range(60):
        ada.heartbeat(one, progress=number)
    brief = ada.resume()
    assert (len(brief.history), brief.history_omitted) == (50, 3 + 61 - 50)
    for number in range(70):
        ada.heartbeat(one, progress=number)
    brief = ada.resume()
    assert (len(brief.history), brief.history_omitted) == (50, 71 - 50)
    assert brief.cursor == ledger.events(one)[-1].pos
    ada.release(one)
    brief = bob.resume()
    assert brief.history[-1].rev == ledger.get(one).rev
    assert brief.history_omitted == ledger.get(one).rev - 50


def test_the_brief_has_checkpoints_of_earlier_attempts_and_the_last_error(
    ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock
) -> None:
    one = queued(ledger).id
    ada.start(one)
    ada.heartbeat(one, checkpoint={"page": 1})
    ada.heartbeat(one, checkpoint={"page": 2})
    ada.fail(one, "no paper", retry_after=0)
    bob.start(one)
    bob.release(one)
    brief = bob.resume()
    assert brief.task is not None
    assert (brief.task.checkpoint, brief.task.last_error) == ({"page": 2}, {"message": "no paper"})
    assert [(left.attempt, left.by, left.checkpoint) for left in brief.checkpoints] == [(1, "worker:ada#agent", {"page": 2})]


def test_the_brief_has_the_last_checkpoint_of_each_earlier_attempt(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger, policy={"attempts_max": 20}).id
    for attempt in range(1, 9):
        ada.start(one)
        for page in range(1, 30 if attempt == 8 else 3):
            ada.heartbeat(one, checkpoint=[attempt, page])
        ada.fail(one, "no paper", retry_after=0)
    brief = ada.resume()
    assert [left.checkpoint for left in brief.checkpoints] == [[8, 29], [7, 2], [6, 2], [5, 2], [4, 2]]


def test_a_cancel_request_is_in_the_brief(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger).id
    ada.start(one)
    ledger.cancel(one)
    brief = ada.resume()
    assert brief.task is not None and brief.task.cancel_requested
    assert ada.release(one).status == "cancelled"


def test_a_brief_has_an_estimate_of_its_tokens(ledger: Ledger, ada: Agent) -> None:
    queued(ledger)
    brief = ada.resume()
    without = len(msgspec.json.encode(msgspec.structs.replace(brief, tokens=0)))
    assert brief.tokens == -(-without // 4)
    ada.complete(1)
    ledger.enqueue("read", {"text": "字" * 400})
    assert 500 < ada.resume().tokens - brief.tokens < 700


def test_undo_jobs_are_not_taken_by_agents(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger).id
    fence = ledger.claim_job(one, "w").fence
    ledger.start(fence)
    ledger.heartbeat(fence, undo={"kind": "unread"})
    ledger.fail(fence, "broken", retryable=False)
    ledger.sweep()
    assert took(ada) == (None, "nothing")


def test_waiting_tasks_are_not_taken_and_a_brief_names_the_dependents(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    one = queued(ledger).id
    two = queued(ledger, priority=9, depends_on=[one]).id
    three = queued(ledger, priority=9, depends_on=[one, two]).id
    brief = ada.resume()
    assert brief.task is not None and brief.task.id == one
    assert [(task.id, task.waits_for) for task in brief.unlocks] == [(two, 1), (three, 2)]
    nothing = bob.resume()
    assert (nothing.task, nothing.until) == (None, None)
    assert [task.id for task in get_task(ledger, three).blocked_by] == [one, two]
    ada.complete(one)
    brief = bob.resume()
    assert brief.task is not None and brief.task.id == two
    assert (brief.blocked_by, [task.id for task in brief.unlocks]) == ([], [three])
    assert "unblocked" in [entry.type for entry in brief.history]
    bob.complete(two)
    assert took(ada) == (three, "next")
    assert problems(ledger) == []


def test_a_released_task_goes_to_other_agents_first(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    assert took(ada) == (one, "next")
    clock.advance(1)
    ada.release(one)
    assert took(ada) == (two, "next")
    ada.release(two)
    assert took(ada) == (one, "next")
    ada.fail(one, "no route")
    clock.advance(3_600)
    assert took(ada) == (one, "last")


def test_resume_waits_until_a_task_is_enqueued(ledger: Ledger, ada: Agent) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ada.resume, wait="5m", request_id="r1")
        id_ = queued(ledger).id
        brief = asked.result(timeout=60)
    assert brief.task is not None and brief.task.id == id_
    assert ada.resume(request_id="r1").replayed is True


def test_resume_waits_for_a_task_that_another_agent_releases(ledger: Ledger, ada: Agent) -> None:
    bob = Agent(ledger, "bob")
    id_ = queued(ledger).id
    bob.start(id_)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ada.resume, wait="5m")
        bob.release(id_)
        brief = asked.result(timeout=60)
    assert brief.task is not None and brief.task.id == id_


def test_resume_does_not_wait_longer_than_its_timeout(ledger: Ledger, ada: Agent) -> None:
    queued(ledger, delay="1h")
    assert took(ada, wait="10ms") == (None, "nothing")
    for odd, code in (("soon", "validation_error"), ("2d", "limit_exceeded")):
        with refused(code):
            ada.resume(wait=odd)


def test_the_time_to_try_again_is_when_a_task_becomes_due(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    """The time of the next task, or the end of the next claim, or a second from now if that is past."""
    bob = Agent(ledger, "bob")
    assert _seconds_until_due(ledger, ada.resume(), 300) == 300
    queued(ledger, delay="60s")
    assert _seconds_until_due(ledger, ada.resume(), 300) == 60.001
    bob.start(queued(ledger).id, ttl="20s")
    assert _seconds_until_due(ledger, brief := ada.resume(), 300) == 20.001
    clock.advance(60)
    assert _seconds_until_due(ledger, brief, 300) == 0.001
    clock.advance(1)
    assert _seconds_until_due(ledger, brief, 300) == 1.0
