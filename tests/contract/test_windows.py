"""Dedupe keys with windows: throttled calls, replaced arguments and postponed jobs."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Actor, Job, Ledger, Role
from holdfast.testing import ManualClock
from tests.contract.builders import refused

POSTPONE: dict[str, Any] = {"dedupe_key": "d", "delay": "10s", "on_duplicate": "postpone"}
REPLACE: dict[str, Any] = {"dedupe_key": "d", "on_duplicate": "replace"}


def types(ledger: Ledger, job_id: int) -> list[str]:
    return [event.type.value for event in ledger.events(job_id)]


def run_one(ledger: Ledger, queue: str = "default") -> Job:
    [held] = ledger.claim("w", [queue], start=True)
    ledger.complete(held.fence, held.args)
    return ledger.get(held.id)


# Throttling


def test_a_key_stays_taken_for_its_window_after_the_job_has_ended(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, dedupe_key="d", dedupe_for="10m")
    assert first.dedupe_until == first.created_at + timedelta(minutes=10)
    done = run_one(ledger)
    clock.advance(599.999)
    again = ledger.enqueue("k", {"n": 2}, dedupe_key="d", dedupe_for="10m")
    assert (again.id, again.is_new, again.status, again.args) == (first.id, False, done.status, {"n": 1})
    clock.advance(0.001)
    later = ledger.enqueue("k", {"n": 3}, dedupe_key="d", dedupe_for="10m")
    assert (later.is_new, later.dedupe_until) == (True, clock.now() + timedelta(minutes=10))
    assert types(ledger, first.id)[-1] == "succeeded"
    assert ledger.check(first.id) == ledger.check(later.id) == []


def test_after_its_window_a_live_job_still_has_its_key(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", dedupe_key="d", dedupe_for="1s")
    clock.advance(60)
    assert ledger.enqueue("k", dedupe_key="d").id == first.id
    run_one(ledger)
    assert ledger.enqueue("k", dedupe_key="d").is_new


@pytest.mark.parametrize("end", ["cancel", "dead_letter", "dependency"])
def test_every_end_keeps_the_window(ledger: Ledger, clock: ManualClock, end: str):
    needed = ledger.enqueue("other", queue="else")
    options: dict[str, Any] = {"depends_on": [needed.id]} if end == "dependency" else {}
    first = ledger.enqueue("k", dedupe_key="d", dedupe_for="10s", **options)
    if end == "dead_letter":
        ledger.dead_letter(first.id, reason_code="timeout")
    else:
        ledger.cancel(needed.id if end == "dependency" else first.id)
    assert ledger.get(first.id).finished_at is not None
    assert ledger.enqueue("k", dedupe_key="d").id == first.id
    clock.advance(10)
    assert ledger.enqueue("k", dedupe_key="d").is_new


def test_the_window_of_the_job_counts_and_not_that_of_a_later_call(ledger: Ledger, clock: ManualClock):
    ledger.enqueue("k", dedupe_key="d")
    ledger.enqueue("k", dedupe_key="d", dedupe_for="1h")
    run_one(ledger)
    assert ledger.enqueue("k", dedupe_key="d").is_new


def test_keys_of_other_queues_are_free(ledger: Ledger):
    ledger.enqueue("k", dedupe_key="d", dedupe_for="1h")
    assert ledger.enqueue("k", queue="other", dedupe_key="d").is_new


def test_many_jobs_of_one_call_share_a_window(ledger: Ledger, clock: ManualClock):
    item = {"kind": "k", "dedupe_key": "d", "dedupe_for": "10s"}
    jobs = ledger.enqueue_many([{**item, "args": {"n": 1}}, {**item, "args": {"n": 2}}, {"kind": "k"}])
    assert [job.is_new for job in jobs] == [True, False, True]
    assert jobs[0].id == jobs[1].id != jobs[2].id


def test_a_replay_takes_over_the_key_and_begins_its_window_anew(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", dedupe_key="d", dedupe_for="10s")
    ledger.dead_letter(first.id, reason_code="timeout")
    clock.advance(5)
    replay = ledger.replay(first.id)
    assert (replay.is_new, replay.dedupe_key, replay.dedupe_until) == (True, "d", clock.now() + timedelta(seconds=10))
    assert ledger.enqueue("k", dedupe_key="d").id == replay.id
    ledger.cancel(replay.id)
    clock.advance(9)
    assert ledger.enqueue("k", dedupe_key="d").id == replay.id


def test_a_replay_meets_another_jobs_window(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", dedupe_key="d", dedupe_for="10s")
    ledger.dead_letter(first.id, reason_code="timeout")
    clock.advance(10)
    second = ledger.enqueue("k", dedupe_key="d", dedupe_for="10s")
    ledger.cancel(second.id)
    with refused("conflict") as caught:
        ledger.replay(first.id)
    assert caught.value.context["holder_id"] == second.id
    clock.advance(10)
    assert ledger.replay(first.id).is_new


def test_a_move_meets_the_window_of_the_other_queue(ledger: Ledger, clock: ManualClock):
    there = ledger.enqueue("k", queue="there", dedupe_key="d", dedupe_for="10s")
    ledger.cancel(there.id)
    here = ledger.enqueue("k", dedupe_key="d")
    with refused("conflict"):
        ledger.move(here.id, "there")
    clock.advance(10)
    assert ledger.move(here.id, "there").queue == "there"
    assert ledger.enqueue("k", queue="there", dedupe_key="d").id == here.id


def test_a_job_with_an_open_window_is_not_pruned(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", dedupe_key="d", dedupe_for="2d")
    run_one(ledger)
    clock.advance(86_400)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 0}
    assert ledger.enqueue("k", dedupe_key="d").id == first.id
    clock.advance(86_400)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 1}
    with refused("not_found"):
        ledger.get(first.id)
    assert ledger.enqueue("k", dedupe_key="d").is_new


# Replacing


def test_the_last_arguments_win(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, delay="1m", **REPLACE)
    clock.advance(1)
    fields: dict[str, Any] = {"priority": 4, "tier": "office", "policy": {"attempts_max": 2}}
    again = ledger.enqueue("k", {"n": 2}, **fields, **REPLACE)
    assert (again.id, again.is_new, again.args, again.priority, again.tier) == (first.id, False, {"n": 2}, 4, "office")
    assert (again.available_at, again.created_at, again.rev) == (first.available_at, first.created_at, 2)
    event = ledger.events(first.id, types=["replaced"])[0]
    assert event.payload == {"args": {"n": 2}, "priority": 4, "tier": "office", "policy": {"attempts_max": 2}}
    assert ledger.events(first.id)[0].payload["args"] == {"n": 1}
    assert ledger.get(first.id).record == again.record
    clock.advance(59)
    [held] = ledger.claim("w", start=True)
    assert (held.args, held.attempts_max) == ({"n": 2}, 2)
    assert ledger.check(first.id) == []


@pytest.mark.parametrize("how", [{"on_duplicate": "replace"}, {"on_duplicate": "postpone", "delay": "1s"}])
def test_a_changed_job_has_the_key_of_its_last_arguments(ledger: Ledger, clock: ManualClock, how: dict[str, Any]):
    ledger.set_limit("t", concurrent=1, by="args.tenant")
    delay: dict[str, Any] = {"delay": how["delay"]} if "delay" in how else {}
    first = ledger.enqueue("k", {"tenant": "a"}, limits=["t"], dedupe_key="x", **delay)
    changed = ledger.enqueue("k", {"tenant": "b"}, limits=["t"], dedupe_key="x", **how)
    assert (changed.id, changed.limits) == (first.id, {"t": 1})
    assert ledger.events(first.id)[-1].payload["flow"] == {"limits": [{"limit": "t", "key": "b"}]}
    ledger.enqueue("k", {"tenant": "b"}, limits=["t"])
    clock.advance(1)
    assert [job.args["tenant"] for job in ledger.claim("w", limit=5)] == ["b"]
    assert [(key.key, key.used) for key in ledger.limit_keys("t")] == [("a", 0), ("b", 1)]
    assert ledger.check(first.id) == []


_NONE: dict[str, Any] = {}
_ROUTED: dict[str, Any] = {"requires": ["gpu"], "for_worker": "w1", "partition": "p"}


@pytest.mark.parametrize(("before", "after"), [(_NONE, _ROUTED), (_ROUTED, _NONE), ({"requires": ["fpga"]}, _ROUTED)])
def test_a_replaced_job_goes_where_the_last_call_sends_it(
    ledger: Ledger, clock: ManualClock, before: dict[str, Any], after: dict[str, Any]
):
    change: dict[str, Any] = {"dedupe_key": "x", "on_duplicate": "replace"}
    first = ledger.enqueue("k", **before, **change)
    assert ledger.claim("w0", labels=["other"], kinds=["none"]) == []
    job = ledger.enqueue("k", **after, **change)
    assert (job.id, job.partition, list(job.requires), job.for_worker) == (
        first.id,
        after.get("partition"),
        after.get("requires", []),
        after.get("for_worker"),
    )
    assert ledger.enqueue("k", **after, **change).rev == job.rev
    if after:
        assert ledger.claim("w1", labels=["fpga"]) == ledger.claim("w2", labels=["gpu"]) == []
        ledger.move(first.id, for_worker=None)
    assert [one.id for one in ledger.claim("w2", labels=["gpu"])] == [first.id]
    assert ledger.check(first.id) == []
    moved = ["moved"] if after else []
    assert [event.type.value for event in ledger.events(first.id)] == ["enqueued", "replaced", *moved, "claimed"]


def test_a_replaced_job_that_failed_is_replayed_with_its_last_limits(ledger: Ledger):
    ledger.set_limit("t", concurrent=1, by="args.tenant")
    for tenant in "ab":
        ledger.enqueue("k", {"tenant": tenant}, limits=["t"], dedupe_key="x", on_duplicate="replace")
    [job] = ledger.claim("w", start=True)
    ledger.fail(job.fence, "no", retryable=False)
    again = ledger.replay(job.id, actor="operator:kim")
    assert again.args == {"tenant": "b"}
    assert ledger.events(again.id)[0].payload["flow"] == {"limits": [{"limit": "t", "key": "b"}]}


def test_the_same_call_again_changes_nothing(ledger: Ledger):
    first = ledger.enqueue("k", {"n": 1}, **REPLACE)
    assert ledger.enqueue("k", {"n": 1}, **REPLACE).rev == first.rev == 1


def test_a_repeated_request_replaces_once(ledger: Ledger):
    first = ledger.enqueue("k", {"n": 1}, **REPLACE)
    changed = ledger.enqueue("k", {"n": 2}, request_id="r", **REPLACE)
    ledger.enqueue("k", {"n": 3}, **REPLACE)
    repeated = ledger.enqueue("k", {"n": 2}, request_id="r", **REPLACE)
    assert (repeated.id, repeated.rev, repeated.args, repeated.is_new) == (first.id, changed.rev, {"n": 2}, False)
    assert ledger.get(first.id).args == {"n": 3}
    assert types(ledger, first.id) == ["enqueued", "replaced", "replaced"]
    with refused("idempotency_conflict"):
        ledger.enqueue("k", {"n": 4}, request_id="r", **REPLACE)


def test_items_of_one_call_replace_each_other(ledger: Ledger):
    item = {"kind": "k", **REPLACE}
    jobs = ledger.enqueue_many([{**item, "args": {"n": n}} for n in range(3)])
    assert [job.is_new for job in jobs] == [True, False, False]
    assert ledger.get(jobs[0].id).args == {"n": 2}
    assert types(ledger, jobs[0].id) == ["enqueued", "replaced", "replaced"]
    assert ledger.check(jobs[0].id) == []


@pytest.mark.parametrize("state", ["claimed", "running", "stalled", "retried"])
def test_a_job_that_was_claimed_keeps_its_arguments_and_the_call_makes_a_new_one(ledger: Ledger, clock: ManualClock, state: str):
    first = ledger.enqueue("k", {"n": 1}, **REPLACE)
    [held] = ledger.claim("w", start=state != "claimed")
    if state == "stalled":
        ledger.stall(held.fence)
    if state == "retried":
        ledger.fail(held.fence, "out of reach")
    second = ledger.enqueue("k", {"n": 2}, **REPLACE)
    assert (second.is_new, second.id != first.id, second.args) == (True, True, {"n": 2})
    assert ledger.enqueue("k", {"n": 3}, **REPLACE).id == second.id
    assert ledger.enqueue("k", {"n": 4}, dedupe_key="d").id == second.id
    assert (ledger.get(first.id).args, ledger.get(second.id).args) == ({"n": 1}, {"n": 3})
    ledger.cancel(first.id, hard=True)
    assert ledger.enqueue("k", dedupe_key="d").id == second.id
    assert ledger.check(first.id) == ledger.check(second.id) == []


def test_a_job_that_lost_its_key_goes_on_and_can_be_moved(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, **REPLACE)
    [held] = ledger.claim("w", start=True)
    second = ledger.enqueue("k", {"n": 2}, **REPLACE)
    there = ledger.enqueue("k", queue="there", dedupe_key="d")
    ledger.release(held.fence)
    assert ledger.move(first.id, "there").queue == "there"
    assert ledger.enqueue("k", queue="there", dedupe_key="d").id == there.id
    assert ledger.enqueue("k", dedupe_key="d").id == second.id
    run_one(ledger, "there")
    assert ledger.check(first.id) == []


@pytest.mark.parametrize("options", [{"dedupe_for": "10m"}, {"dedupe": "forever"}])
def test_a_key_that_outlasts_its_job_is_not_taken_over(ledger: Ledger, clock: ManualClock, options: dict[str, Any]):
    first = ledger.enqueue("k", {"n": 1}, **REPLACE, **options)
    assert ledger.enqueue("k", {"n": 2}, **REPLACE).args == {"n": 2}
    [held] = ledger.claim("w", start=True)
    during = ledger.enqueue("k", {"n": 3}, **REPLACE)
    assert (during.id, during.is_new, during.args) == (first.id, False, {"n": 2})
    ledger.complete(held.fence, None)
    assert ledger.enqueue("k", {"n": 4}, **REPLACE).id == first.id
    clock.advance(600)
    assert ledger.enqueue("k", {"n": 5}, **REPLACE).is_new is (options != {"dedupe": "forever"})
    assert ledger.check(first.id) == []


def test_a_job_of_another_kind_is_a_conflict(ledger: Ledger):
    first = ledger.enqueue("k", **REPLACE)
    with refused("conflict") as caught:
        ledger.enqueue_many([{"kind": "new"}, {"kind": "other", **REPLACE}])
    assert caught.value.context["holder_id"] == first.id
    assert ledger.get(first.id).rev == 1
    assert ledger.claim("w", kinds=["new"]) == []
    assert ledger.enqueue("other", dedupe_key="d").id == first.id


def test_a_waiting_job_goes_on_waiting_with_the_new_arguments(ledger: Ledger, clock: ManualClock):
    needed = ledger.enqueue("first", queue="else")
    waiting = ledger.enqueue("k", {"n": 1}, dedupe_key="d", depends_on=[needed.id], on_dependency_failure="cancel")
    assert ledger.enqueue("k", {"n": 2}, **REPLACE).waits_for == (needed.id,)
    postponed = ledger.enqueue("k", {"n": 3}, **POSTPONE)
    assert (postponed.id, postponed.waits_for) == (waiting.id, (needed.id,))
    assert ledger.check(waiting.id) == []
    run_one(ledger, "else")
    unblocked = ledger.get(waiting.id)
    assert (unblocked.args, unblocked.available_at) == ({"n": 3}, clock.now() + timedelta(seconds=10))
    assert ledger.enqueue("k", {"n": 4}, **POSTPONE).rev == unblocked.rev + 1
    assert ledger.check(waiting.id) == []


def test_a_changed_job_still_ends_with_its_dependency(ledger: Ledger):
    needed = ledger.enqueue("first", queue="else")
    waiting = ledger.enqueue("k", {"n": 1}, dedupe_key="d", depends_on=[needed.id], on_dependency_failure="cancel")
    ledger.enqueue("k", {"n": 2}, **REPLACE)
    ledger.cancel(needed.id)
    assert ledger.get(waiting.id).status == "cancelled"
    assert ledger.check(waiting.id) == []


def test_a_call_with_dependencies_can_replace_a_job_that_others_wait_for(ledger: Ledger):
    first = ledger.enqueue("k", {"n": 1}, **REPLACE)
    jobs = ledger.enqueue_many(
        [{"kind": "k", "args": {"n": 2}, "ref": "a", **REPLACE}, {"kind": "after", "depends_on": ["a"]}],
    )
    assert (jobs[0].id, jobs[0].args, jobs[1].waits_for) == (first.id, {"n": 2}, (first.id,))
    run_one(ledger)
    assert run_one(ledger).id == jobs[1].id
    assert types(ledger, first.id)[:2] == ["enqueued", "replaced"]
    assert ledger.check(first.id) == []


# Postponing


def test_each_call_begins_the_delay_anew(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 0}, **POSTPONE)
    for n in range(1, 4):
        clock.advance(9)
        again = ledger.enqueue("k", {"n": n}, **POSTPONE)
        assert (again.id, again.available_at, again.args) == (first.id, clock.now() + timedelta(seconds=10), {"n": n})
    clock.advance(9)
    assert ledger.claim("w") == []
    clock.advance(1)
    assert run_one(ledger).result == {"n": 3}
    assert types(ledger, first.id)[:4] == ["enqueued", "postponed", "postponed", "postponed"]
    assert ledger.check(first.id) == []


def test_postpone_max_ends_the_postponing(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, postpone_max="15s", **POSTPONE)
    clock.advance(9)
    assert ledger.enqueue("k", {"n": 2}, postpone_max="15s", **POSTPONE).available_at == first.created_at + timedelta(seconds=15)
    event = ledger.events(first.id, types=["postponed"])[0]
    at = {name: event.payload[name] - ledger.get(first.id).record.created_at for name in ("available_at", "from_at", "latest_at")}
    assert at == {"available_at": 15_000_000, "from_at": 10_000_000, "latest_at": 15_000_000}
    clock.advance(5)
    ledger.enqueue("k", {"n": 3}, postpone_max="15s", **POSTPONE)
    assert ledger.enqueue("k", {"n": 3}, postpone_max="15s", **POSTPONE).rev == 3  # neither the time nor the arguments change
    clock.advance(1)
    assert run_one(ledger).result == {"n": 3}
    assert ledger.check(first.id) == []


def test_without_a_maximum_ten_delays_are_the_limit(ledger: Ledger, clock: ManualClock):
    first = last = ledger.enqueue("k", **POSTPONE)
    for n in range(12):
        clock.advance(9)
        last = ledger.enqueue("k", {"n": n}, **POSTPONE)
    assert (last.id, last.available_at) == (first.id, first.created_at + timedelta(seconds=100))
    assert run_one(ledger).result == {"n": 11}


def test_a_call_during_the_run_is_not_lost(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, **POSTPONE)
    clock.advance(10)
    [held] = ledger.claim("w", start=True)
    second = ledger.enqueue("k", {"n": 2}, **POSTPONE)
    assert (second.is_new, second.available_at) == (True, clock.now() + timedelta(seconds=10))
    ledger.complete(held.fence, None)
    clock.advance(5)
    assert ledger.enqueue("k", {"n": 3}, **POSTPONE).id == second.id
    clock.advance(10)
    assert run_one(ledger).result == {"n": 3}
    assert ledger.check(first.id) == ledger.check(second.id) == []


def test_a_repeated_request_postpones_once(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, **POSTPONE)
    clock.advance(5)
    changed = ledger.enqueue("k", {"n": 2}, request_id="r", **POSTPONE)
    clock.advance(3)
    assert ledger.enqueue("k", {"n": 2}, request_id="r", **POSTPONE).record == changed.record
    assert ledger.get(first.id).available_at == changed.available_at


@pytest.mark.parametrize("role", [Role.CLIENT, Role.WORKER])
def test_every_role_may_make_such_calls(ledger: Ledger, role: Role):
    who = Actor(role, "x", "boot" if role is Role.WORKER else "")
    first = ledger.enqueue("k", {"n": 1}, actor=who, **REPLACE)
    assert ledger.enqueue("k", {"n": 2}, actor=who, **REPLACE).args == {"n": 2}
    assert ledger.events(first.id)[-1].actor == str(who)
    assert ledger.check(first.id) == []


def test_a_signed_job_is_changed_before_its_first_claim(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", {"n": 1}, policy={"signed": "all"}, **REPLACE)
    assert ledger.enqueue("k", {"n": 2}, policy={"signed": "all"}, **REPLACE).args == {"n": 2}
    assert ledger.check(first.id) == []


# Other faces


def test_explain_says_until_when_an_ended_job_has_its_key(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("k", dedupe_key="d", dedupe_for="10m")
    run_one(ledger)
    assert "dedupe key 'd'" in ledger.explain(first.id).text
    clock.advance(600)
    assert "dedupe key" not in ledger.explain(first.id).text


def test_a_schedule_may_replace_and_throttle_but_not_postpone(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("often", "k", every="1m", dedupe_key="d", dedupe_for="150s")
    for _ in range(4):
        clock.advance(60)
        ledger.sweep()
        for held in ledger.claim("w", limit=10, start=True):
            ledger.complete(held.fence, None)
    shown = ledger.schedule("often")
    assert (shown.fired, shown.skipped) == (2, 2)
    assert shown.options == {"dedupe_key": "d", "dedupe_for": 150.0}
    ledger.set_schedule("newest", "k", {"n": 1}, every="1m", queue="other", **REPLACE)
    assert ledger.schedule("newest").options == REPLACE
    with refused("validation_error"):
        ledger.set_schedule("never", "k", every="1m", **POSTPONE)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dedupe_for": "10m"}, "dedupe_for"),
        ({"on_duplicate": "keep"}, "on_duplicate"),
        ({"dedupe_key": "d", "on_duplicate": "ignore"}, "on_duplicate"),
        ({"dedupe_key": "d", "dedupe_for": "10m", "dedupe": "forever"}, "dedupe_for"),
        ({"dedupe_key": "d", "postpone_max": "10m"}, "postpone_max"),
        ({"dedupe_key": "d", "on_duplicate": "replace", "postpone_max": "10m"}, "postpone_max"),
        ({"dedupe_key": "d", "on_duplicate": "postpone"}, "delay"),
        ({**POSTPONE, "dedupe_for": "10m"}, "dedupe_for"),
        ({**POSTPONE, "dedupe": "forever"}, "dedupe"),
        ({**REPLACE, "depends_on": [1]}, "on_duplicate"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(ledger: Ledger, options: dict[str, Any], field: str):
    ledger.enqueue("before")
    with refused("validation_error") as caught:
        ledger.enqueue("k", **options)
    assert caught.value.context["field"] == field
    assert len(ledger.list()) == 1


def test_a_reference_counts_as_a_dependency(ledger: Ledger):
    with refused("validation_error"):
        ledger.enqueue_many([{"kind": "k", "ref": "a"}, {"kind": "k", "depends_on": ["a"], **REPLACE}])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dedupe_key": "d", "dedupe_for": 0}, "dedupe_for"),
        ({"dedupe_key": "d", "dedupe_for": "367d"}, "dedupe_for"),
        ({**POSTPONE, "postpone_max": "9s"}, "postpone_max"),
    ],
)
def test_windows_have_limits(ledger: Ledger, options: dict[str, Any], field: str):
    with refused("limit_exceeded") as caught:
        ledger.enqueue("k", **options)
    assert caught.value.context["field"] == field
