"""Flow control: limits, partitions, labels and workers of jobs. The same on both stores."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import HeldJob, Job, Ledger
from holdfast.errors import NotClaimable
from holdfast.testing import ManualClock
from tests.contract.builders import refused


def claimed(ledger: Ledger, worker: str = "w", limit: int = 100, **options: Any) -> list[HeldJob]:
    return ledger.claim(worker, limit=limit, start=True, **options)


def complete(ledger: Ledger, job: HeldJob) -> None:
    ledger.complete(job.fence, None)


def ids(jobs: Sequence[Job]) -> list[int]:
    return [job.id for job in jobs]


def tenants(jobs: Sequence[Job]) -> Counter[str]:
    return Counter(job.args["tenant"] for job in jobs)


# Concurrency


def test_no_more_units_are_held_than_a_limit_has(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=2)
    for _ in range(5):
        ledger.enqueue("k", limits=["api"])
    first = claimed(ledger)
    assert len(first) == 2
    assert claimed(ledger) == []
    complete(ledger, first[0])
    assert len(claimed(ledger)) == 1
    assert claimed(ledger) == []


def test_a_job_draws_several_units(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=5)
    for _ in range(3):
        ledger.enqueue("k", limits={"api": 2})
    assert len(claimed(ledger)) == 2


def test_each_key_has_the_limit_for_itself(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    for tenant in ("a", "a", "b", "b", "b"):
        ledger.enqueue("k", {"tenant": tenant}, limits=["api"])
    assert tenants(claimed(ledger)) == {"a": 1, "b": 1}
    assert claimed(ledger) == []


def test_one_key_may_have_other_numbers(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    ledger.set_limit("api", key="a", concurrent=3)
    for tenant in ("a", "b") * 5:
        ledger.enqueue("k", {"tenant": tenant}, limits=["api"])
    assert tenants(claimed(ledger)) == {"a": 3, "b": 1}
    ledger.set_limit("api", key="a")
    assert [(key.key, key.concurrent, key.is_own, key.used) for key in ledger.limit_keys("api")] == [
        ("a", 1, False, 3),
        ("b", 1, False, 1),
    ]


def test_what_is_in_use_of_a_limit_without_keys_is_shown(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=5)
    assert ledger.limit_keys("api") == []
    ledger.enqueue("k", limits={"api": 2})
    claimed(ledger)
    [found] = ledger.limit_keys("api")
    assert (found.key, found.used, found.concurrent, found.tokens) == ("", 2, 5, None)


def test_keys_of_a_limit_are_read_page_by_page(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    for tenant in "abc":
        ledger.enqueue("k", {"tenant": tenant}, limits=["api"])
    assert [key.key for key in ledger.limit_keys("api", limit=2)] == ["a", "b"]
    assert [key.key for key in ledger.limit_keys("api", after="b")] == ["c"]


def test_a_job_draws_on_several_limits(ledger: Ledger) -> None:
    ledger.set_limit("all", concurrent=3)
    ledger.set_limit("tenant", concurrent=2, by="args.tenant")
    for tenant in ("a", "a", "a", "b", "b"):
        ledger.enqueue("k", {"tenant": tenant}, limits=["all", "tenant"])
    first = claimed(ledger)
    assert len(first) == 3
    assert max(tenants(first).values()) <= 2
    for job in first:
        complete(ledger, job)
    assert len(claimed(ledger)) == 2


def test_a_used_up_limit_blocks_no_other_job(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    held = ledger.enqueue("k", limits=["api"], priority=10)
    waiting = [ledger.enqueue("k", limits=["api"], priority=10) for _ in range(3)]
    free = [ledger.enqueue("k", priority=priority) for priority in (0, 10)]
    assert ids(claimed(ledger, limit=1)) in ([held.id], [free[1].id])
    got = claimed(ledger)
    assert free[0].id in ids(got)
    assert sum(job.id in ids(waiting) for job in got) == 0


def test_every_end_of_a_job_frees_its_units(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", concurrent=1)
    ledger.set_policy("k", backoff_base=0)
    job = ledger.enqueue("k", limits=["api"])
    for end in ("complete", "fail", "retry", "release", "cancel", "hard", "dead", "lost"):
        [held] = claimed(ledger)
        other = ledger.enqueue("k", {"after": end}, limits=["api"])
        assert claimed(ledger) == []
        match end:
            case "complete":
                complete(ledger, held)
            case "fail":
                ledger.fail(held.fence, "no", retryable=False)
            case "retry":
                ledger.fail(held.fence, "again")
                ledger.cancel(held.id)
            case "release":
                ledger.release(held.fence)
                ledger.cancel(held.id)
            case "cancel":
                ledger.cancel(held.id)
                ledger.acknowledge_cancel(held.fence)
            case "hard":
                ledger.cancel(held.id, hard=True)
            case "dead":
                ledger.dead_letter(held.id, reason_code="timeout")
            case "lost":
                clock.advance(61)
                ledger.sweep()
                ledger.cancel(held.id)
        job = other
    assert ids(claimed(ledger)) == [job.id]


def test_a_stalled_job_keeps_its_units_until_it_is_requeued(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", concurrent=1)
    ledger.set_policy("k", resume_window="60s", backoff_base=0)
    first, second = (ledger.enqueue("k", limits=["api"]) for _ in range(2))
    [held] = claimed(ledger)
    clock.advance(31)
    assert ledger.sweep()["stalled"] == 1
    assert claimed(ledger) == []
    ledger.resume(held.fence)
    assert claimed(ledger) == []
    clock.advance(31)
    ledger.sweep()
    clock.advance(61)
    ledger.sweep()
    assert ids(claimed(ledger)) in ([first.id], [second.id])


def test_a_claim_by_id_counts_and_is_refused(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    first, second = (ledger.enqueue("k", limits=["api"]) for _ in range(2))
    held = ledger.claim_job(first.id, "w")
    with refused("not_claimable") as refusal:
        ledger.claim_job(second.id, "w")
    assert refusal.value.context["why"] == "limit"
    assert claimed(ledger) == []
    ledger.release(held.fence)
    assert ledger.claim_job(second.id, "w").attempt == 1


def _stalled(ledger: Ledger, clock: ManualClock, **options: Any) -> Job:
    """Return a job that any worker may claim by its id: it has stalled, and its resume window is over."""
    job = ledger.enqueue("k", {}, policy={"attempts_max": 100, "resume_window": "1s"}, **options)
    [held] = claimed(ledger, "w1", labels=options.get("requires", ()))
    assert held.id == job.id
    clock.advance(70)
    ledger.stall(job.id)
    clock.advance(2)
    return job


def _why_not(ledger: Ledger, job: Job, worker: str, **options: Any) -> str:
    with refused("not_claimable") as refusal:
        ledger.claim_job(job.id, worker, **options)
    return str(refusal.value.context["why"])


def test_a_claim_of_a_stalled_job_follows_its_labels(ledger: Ledger, clock: ManualClock) -> None:
    job = _stalled(ledger, clock, requires=["gpu"])
    assert _why_not(ledger, job, "w2") == "label"
    assert ledger.claim_job(job.id, "w2", labels=["gpu"]).attempt == 2
    assert not ledger.check(job.id)


def test_a_claim_of_a_stalled_job_follows_its_worker(ledger: Ledger, clock: ManualClock) -> None:
    job = _stalled(ledger, clock, for_worker="w1")
    assert _why_not(ledger, job, "w2") == "label"
    assert ledger.claim_job(job.id, "w1").attempt == 2


def test_a_claim_of_a_stalled_job_follows_its_rate(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="1/1h", burst=1)
    job = _stalled(ledger, clock, limits=["api"])
    assert _why_not(ledger, job, "w2") == "limit"
    assert _why_not(ledger, job, "w1") == "limit"
    clock.advance(3600)
    assert ledger.claim_job(job.id, "w2").attempt == 2
    clock.advance(1)
    assert ledger.limit_keys("api")[0].used == 1


@pytest.mark.parametrize("worker", ["w1", "w2"])
def test_a_claim_of_an_expired_lease_follows_its_rate(ledger: Ledger, clock: ManualClock, worker: str) -> None:
    ledger.set_limit("api", rate="1/1h", burst=1)
    job = ledger.enqueue("k", {}, limits=["api"], policy={"attempts_max": 100, "resume_window": 0})
    claimed(ledger, "w1")
    assert ledger.claim_job(job.id, "w1").attempt == 1, "a renewal is no start"
    for _ in range(5):
        clock.advance(70)
        assert _why_not(ledger, job, worker) == "limit"
    clock.advance(3600)
    assert ledger.claim_job(job.id, worker).attempt == 2


def test_a_stalled_job_uses_its_own_units_again(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", concurrent=3)
    job = _stalled(ledger, clock, limits={"api": 2})
    other, third = (ledger.enqueue("k", limits=["api"]) for _ in range(2))
    assert ledger.claim_job(other.id, "w3").attempt == 1
    again = ledger.claim_job(job.id, "w2")
    assert again.attempt == 2
    assert [key.used for key in ledger.limit_keys("api")] == [3]
    assert _why_not(ledger, third, "w3") == "limit"
    assert claimed(ledger) == []
    ledger.release(again.fence)
    assert [key.used for key in ledger.limit_keys("api")] == [1]
    assert ledger.claim_job(third.id, "w3").attempt == 1


def test_a_stalled_job_waits_if_others_use_what_a_lowered_limit_has(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", concurrent=2)
    job = _stalled(ledger, clock, limits=["api"])
    ledger.enqueue("k", limits=["api"])
    [held] = claimed(ledger, "w3")
    ledger.set_limit("api", concurrent=1)
    assert _why_not(ledger, job, "w2") == "limit"
    assert _why_not(ledger, job, "w2") == "limit"
    complete(ledger, held)
    assert ledger.claim_job(job.id, "w2").attempt == 2


def test_a_limit_changes_at_run_time(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    for _ in range(5):
        ledger.enqueue("k", limits=["api"])
    assert len(claimed(ledger)) == 1
    assert claimed(ledger) == []
    ledger.set_limit("api", concurrent=3)
    more = claimed(ledger)
    assert len(more) == 2
    ledger.set_limit("api", concurrent=1)
    complete(ledger, more[0])
    assert claimed(ledger) == []


def test_a_limit_or_a_key_is_stopped(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=2, by="args.tenant")
    ledger.set_limit("api", key="acme", concurrent=0)
    [stopped, free] = [ledger.enqueue("k", {"tenant": tenant}, limits=["api"]) for tenant in ("acme", "other")]
    assert [job.id for job in ledger.claim("w", limit=9)] == [free.id]
    assert "he limit api for acme is stopped: it has concurrent 0." in ledger.explain(stopped.id).text
    assert not any(found.code.startswith("limit") for found in ledger.diagnose().findings)
    ledger.set_limit("api", key="acme")
    assert [job.id for job in ledger.claim("w", limit=9)] == [stopped.id]
    ledger.set_limit("api", concurrent=0, by="args.tenant")
    ledger.enqueue("k", {"tenant": "third"}, limits={"api": 2})
    assert ledger.claim("w", limit=9) == []


def test_jobs_of_a_removed_limit_go_on_without_it(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    for _ in range(3):
        ledger.enqueue("k", limits=["api"])
    assert len(claimed(ledger)) == 1
    assert claimed(ledger) == []
    ledger.remove_limit("api")
    assert len(claimed(ledger)) == 2
    with refused("not_found"):
        ledger.enqueue("k", limits=["api"])


# Rates


def test_a_rate_spreads_starts(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="60/1m", burst=2)
    for _ in range(10):
        ledger.enqueue("k", limits=["api"])
    assert len(claimed(ledger)) == 2
    assert claimed(ledger) == []
    assert ledger.until_ready() == 1.0
    clock.advance(0.5)
    assert claimed(ledger) == []
    clock.advance(0.5)
    assert len(claimed(ledger)) == 1
    clock.advance(60)
    assert len(claimed(ledger)) == 2


def test_in_any_time_no_more_start_than_the_rate_allows(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="7/1s", burst=3)
    for _ in range(100):
        ledger.enqueue("k", limits=["api"])
    starts: list[float] = []
    at = 0.0
    while len(starts) < 40:
        starts += [at] * len(claimed(ledger, limit=5))
        clock.advance(0.05)
        at += 0.05
    for begin in range(len(starts)):
        for end in range(begin, len(starts)):
            assert end - begin + 1 <= 3 + 7 * (starts[end] - starts[begin]) + 1e-6
    assert at < 40 / 7 + 0.5


def test_a_clock_that_is_set_back_adds_no_tokens(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="1/1s")
    for _ in range(5):
        ledger.enqueue("k", limits=["api"])
    assert len(claimed(ledger)) == 1
    ledger.sweep()
    clock.jump(-30)
    ledger.sweep()
    assert claimed(ledger) == []
    clock.advance(30)
    assert len(claimed(ledger)) == 1
    assert claimed(ledger) == []


@pytest.mark.parametrize("by_id", [True, False])
def test_a_rate_goes_on_after_a_clock_that_went_forward_was_put_right(ledger: Ledger, clock: ManualClock, by_id: bool) -> None:
    ledger.set_limit("api", rate="1/1s")
    waiting = {ledger.enqueue("k", limits=["api"]).id for _ in range(5)}

    def start() -> int:
        if not by_id:
            found = set(ids(claimed(ledger)))
        else:
            found = set()
            with contextlib.suppress(NotClaimable):
                found = {ledger.claim_job(min(waiting), "w").id}
        waiting.difference_update(found)
        return len(found)

    clock.jump(7_200)
    assert [start(), start()] == [1, 0]
    ledger.sweep()
    clock.jump(-7_200)
    ledger.sweep()
    assert start() == 0
    clock.advance(1)
    assert [start(), start()] == [1, 0]
    clock.advance(1)
    assert [start(), start()] == [1, 0]


# Fairness


def test_partitions_take_turns(ledger: Ledger) -> None:
    for number in range(50):
        ledger.enqueue("k", {"tenant": "a", "n": number}, partition="a")
    lone = ledger.enqueue("k", {"tenant": "b"}, partition="b")
    got = claimed(ledger, limit=2)
    assert lone.id in ids(got)
    assert len(claimed(ledger, limit=10)) == 10


def test_partitions_have_weights(ledger: Ledger) -> None:
    ledger.set_queue("default", weights={"a": 3})
    for number in range(40):
        for tenant in ("a", "b"):
            ledger.enqueue("k", {"tenant": tenant, "n": number}, partition=tenant)
    assert tenants(claimed(ledger, limit=20)) == {"a": 15, "b": 5}
    got = tenants([job for _ in range(8) for job in claimed(ledger, limit=1)])
    assert got["b"] >= 2


def test_a_partition_is_served_by_age(ledger: Ledger) -> None:
    jobs = [ledger.enqueue("k", {"n": number}, partition="a") for number in range(10)]
    assert ids(claimed(ledger, limit=4)) == ids(jobs[:4])
    assert ids(claimed(ledger)) == ids(jobs[4:])


def test_priority_goes_before_turns(ledger: Ledger) -> None:
    low = [ledger.enqueue("k", partition=tenant) for tenant in "abc"]
    plain = ledger.enqueue("k", priority=1)
    high = ledger.enqueue("k", partition="a", priority=2)
    assert ids(claimed(ledger, limit=2)) == [high.id, plain.id]
    assert sorted(ids(claimed(ledger))) == ids(low)


# Routing


def test_a_job_needs_a_worker_with_its_labels(ledger: Ledger) -> None:
    both = ledger.enqueue("k", requires=["gripper", "zone:berlin"])
    one = ledger.enqueue("k", requires=["gripper"])
    assert claimed(ledger) == []
    assert claimed(ledger, labels=["zone:berlin"]) == []
    assert ids(claimed(ledger, labels=["gripper"])) == [one.id]
    assert ids(claimed(ledger, labels=["zone:berlin", "gpu:2", "gripper"])) == [both.id]


def test_a_job_for_one_worker(ledger: Ledger) -> None:
    job = ledger.enqueue("k", for_worker="robot-7")
    assert claimed(ledger, "robot-8") == []
    with refused("not_claimable") as refusal:
        ledger.claim_job(job.id, "robot-8")
    assert refusal.value.context["why"] == "label"
    assert "it is for the worker robot-7" in str(refusal.value)
    assert ids(claimed(ledger, "robot-7")) == [job.id]


def test_a_worker_cannot_take_the_job_of_another_by_a_label(ledger: Ledger) -> None:
    job = ledger.enqueue("k", for_worker="robot-7", requires=["gpu"])
    for call in (
        lambda: ledger.claim("robot-8", labels=["gpu", "worker:robot-7"]),
        lambda: ledger.claim_job(job.id, "robot-8", labels=["gpu", "worker:robot-7"]),
        lambda: ledger.until_ready(worker="robot-8", labels=["gpu", "worker:robot-7"]),
        lambda: ledger.declare_policy("k", requires=["worker:robot-7"]),
    ):
        with refused("validation_error") as refusal:
            call()
        assert "no other label may start with worker:" in str(refusal.value)
        assert refusal.value.action == "Name the only worker of a job with for_worker."
    assert claimed(ledger, "robot-8", labels=["gpu"]) == claimed(ledger, "robot-7") == []
    assert ids(claimed(ledger, "robot-7", labels=["gpu"])) == [job.id]


def test_the_own_label_of_a_worker_counts_for_no_limit(ledger: Ledger) -> None:
    name, many = "r" * 200, [f"l{number}" for number in range(64)]
    job = ledger.enqueue("k", for_worker=name, requires=many[:16])
    assert (job.for_worker, len(job.requires)) == (name, 16)
    assert ids(claimed(ledger, name, labels=many)) == [job.id]


def test_an_option_that_is_gone_says_what_to_use_instead(ledger: Ledger) -> None:
    with refused("validation_error") as refusal:
        ledger.enqueue("k", for_worker="w", for_worker_for="1m")  # type: ignore[call-arg]
    assert refusal.value.action == "Give the job to any worker later: ledger.move(id, for_worker=None)."
    with refused("validation_error") as refusal:
        ledger.enqueue("k", lease="1m")  # type: ignore[call-arg]
    assert refusal.value.action == "Use lease_ttl, an option of handlers and a field of policies."
    assert ledger.enqueue("k", policy={"lease_ttl": "1m"}).is_new


def test_a_worker_takes_only_its_kinds(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.enqueue("other", partition="a")
    mine = ledger.enqueue("mine", partition="a")
    assert ids(claimed(ledger, kinds=["mine"])) == [mine.id]
    assert claimed(ledger, kinds=["mine"]) == []
    assert len(claimed(ledger, kinds=["other"])) == 3


# With the other verbs


def test_delayed_jobs_and_retries_wait_for_their_time(ledger: Ledger, clock: ManualClock) -> None:
    job = ledger.enqueue("k", partition="a", delay="10s")
    assert claimed(ledger) == []
    assert ledger.until_ready() == 10.0
    clock.advance(10)
    [held] = claimed(ledger)
    assert held.id == job.id
    ledger.fail(held.fence, "again", retry_after="30s")
    assert claimed(ledger) == []
    clock.advance(30)
    assert ids(claimed(ledger)) == [job.id]


def test_jobs_move_between_queues_and_priorities(ledger: Ledger) -> None:
    first, second = (ledger.enqueue("k", partition="a") for _ in range(2))
    ledger.reprioritise(second.id, 5)
    assert ids(claimed(ledger, limit=1)) == [second.id]
    ledger.move(first.id, "other")
    assert claimed(ledger) == []
    assert ids(claimed(ledger, queues=["other"])) == [first.id]


def test_jobs_with_dependencies_start_when_those_have_succeeded(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    first = ledger.enqueue("k", limits=["api"])
    second = ledger.enqueue("k", limits=["api"], depends_on=[first.id])
    [held] = claimed(ledger)
    assert held.id == first.id
    complete(ledger, held)
    assert ids(claimed(ledger)) == [second.id]


def test_a_replay_draws_on_the_same_limits(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    ledger.enqueue("k", {"tenant": "a"}, limits=["api"], partition="p", requires=["x"], for_worker="w")
    [held] = claimed(ledger, labels=["x"])
    ledger.fail(held.fence, "no", retryable=False)
    replay = ledger.replay(held.id)
    assert (replay.limits, replay.partition, replay.requires, replay.for_worker) == ({"api": 1}, "p", ("x",), "w")
    assert ids(claimed(ledger, labels=["x"])) == [replay.id]


def test_a_follow_up_job_of_a_group_draws_on_the_key_of_its_arguments(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    with refused("not_found"):
        ledger.group("bad", then={"kind": "k", "limits": ["missing"]})
    ledger.group("g", then={"kind": "k", "args": {"tenant": "b"}, "limits": ["api"]})
    ledger.enqueue("k", {"tenant": "a"}, limits=["api"], group="g")
    ledger.close_group("g")
    [first] = claimed(ledger)
    complete(ledger, first)
    assert tenants(claimed(ledger)) == {"b": 1}
    assert [(key.key, key.used) for key in ledger.limit_keys("api")] == [("a", 0), ("b", 1)]


def test_a_paused_queue_gives_no_jobs(ledger: Ledger) -> None:
    ledger.enqueue("k", partition="a")
    ledger.pause("default")
    assert claimed(ledger) == []
    ledger.unpause("default")
    assert len(claimed(ledger)) == 1


def test_queues_with_and_without_subqueues_are_read_in_order(ledger: Ledger) -> None:
    expected = []
    for queue in ("first", "flow", "last"):
        for _ in range(2):
            partition = "p" if queue == "flow" else None
            expected.append(ledger.enqueue("k", queue=queue, partition=partition).id)
    assert ids(claimed(ledger, queues=["first", "flow", "last"])) == expected


def test_a_claim_with_a_request_id_is_repeated(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=2)
    for _ in range(3):
        ledger.enqueue("k", limits=["api"])
    first = ledger.claim("w", limit=2, request_id="r")
    assert ids(ledger.claim("w", limit=2, request_id="r")) == ids(first)


def test_an_unkept_claim_takes_jobs_of_subqueues(ledger: Ledger) -> None:
    plain = ledger.enqueue("k", queue="plain")
    flow = ledger.enqueue("k", queue="flow", partition="a")
    for _ in range(2):
        got = ledger.claim("w", ["plain", "flow"], limit=5, keep=False, start=True)
        if got:
            assert ids(got) == [plain.id, flow.id]
            assert all(job.policy is not None for job in got)
            for job in got:
                complete(ledger, job)


def test_history_folds_to_the_row(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    job = ledger.enqueue("k", {"tenant": "a"}, limits={"api": 1}, partition="p", requires=["gpu"], for_worker="w")
    payload = ledger.events(job.id)[0].payload
    assert payload["flow"] == {
        "partition": "p",
        "limits": [{"limit": "api", "key": "a"}],
        "requires": ["worker:w", "gpu"],
    }
    assert (job.for_worker, job.requires) == ("w", ("gpu",))


# Bad input


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"limits": ["missing"]}, "not_found"),
    ({"limits": {"api": 0}}, "limit_exceeded"),
    ({"limits": {"api": 1_000_001}}, "limit_exceeded"),
    ({"limits": {"api": "1"}}, "validation_error"),
    ({"limits": "api"}, "validation_error"),
    ({"limits": 3}, "validation_error"),
    ({"limits": [["api"]]}, "validation_error"),
    ({"limits": ["api", "api"]}, "validation_error"),
    ({"limits": [{"api": 1}]}, "validation_error"),
    ({"limits": {f"l{n}": 1 for n in range(9)}}, "limit_exceeded"),
    ({"limits": {"tenant": 1}}, "validation_error"),
    ({"limits": {"small": 3}}, "limit_exceeded"),
    ({"limits": {"slow": 3}}, "limit_exceeded"),
    ({"partition": ""}, "validation_error"),
    ({"partition": 7}, "validation_error"),
    ({"partition": "x" * 201}, "limit_exceeded"),
    ({"requires": "gpu"}, "validation_error"),
    ({"requires": {"gpu": 1}}, "validation_error"),
    ({"requires": [f"l{n}" for n in range(17)]}, "limit_exceeded"),
    ({"requires": [""]}, "validation_error"),
    ({"for_worker": "w", "for_worker_for": "1m"}, "validation_error"),
    ({"requires": ["gpu", "worker:w"]}, "validation_error"),
    ({"requires": ["worker:"]}, "validation_error"),
    ({"for_worker": ""}, "validation_error"),
]


def test_bad_options_are_refused_and_change_nothing(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    ledger.set_limit("tenant", concurrent=1, by="args.tenant")
    ledger.set_limit("small", concurrent=2)
    ledger.set_limit("slow", rate="1/1m", burst=2)
    for options, code in BAD_OPTIONS:
        with refused(code):
            ledger.enqueue("k", {"x": 1}, **options)
    assert ledger.list() == []


BAD_LIMITS: list[tuple[dict[str, Any], str]] = [
    ({}, "validation_error"),
    ({"concurrent": -1}, "limit_exceeded"),
    ({"concurrent": True}, "validation_error"),
    ({"rate": "600"}, "validation_error"),
    ({"rate": "x/1m"}, "validation_error"),
    ({"rate": "0/1m"}, "limit_exceeded"),
    ({"rate": "1/0s"}, "limit_exceeded"),
    ({"rate": 600}, "validation_error"),
    ({"concurrent": 1, "burst": 5}, "validation_error"),
    ({"rate": "1/1s", "burst": 0}, "limit_exceeded"),
    ({"concurrent": 1, "by": "tenant"}, "validation_error"),
    ({"concurrent": 1, "by": "args."}, "validation_error"),
    ({"concurrent": 1, "key": "a"}, "not_found"),
    ({"concurrent": 1, "by": "args.a", "key": "a"}, "validation_error"),
]


def test_bad_limits_are_refused(ledger: Ledger) -> None:
    for options, code in BAD_LIMITS:
        with refused(code):
            ledger.set_limit("api", **options)
    assert ledger.limits() == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"weights": {"a": 0}}, "limit_exceeded"),
        ({"weights": {"a": 1_001}}, "limit_exceeded"),
        ({"weights": ["a"]}, "validation_error"),
    ],
)
def test_bad_settings_of_queues_are_refused(ledger: Ledger, options: dict[str, Any], code: str) -> None:
    with refused(code):
        ledger.set_queue("default", **options)
    assert ledger.queue_settings() == []


def test_a_worker_has_at_most_64_labels(ledger: Ledger) -> None:
    with refused("limit_exceeded"):
        ledger.claim("w", labels=[f"l{n}" for n in range(65)])
    for labels in ("gpu", {"gpu": 1}, 7, [7]):
        with refused("validation_error"):
            ledger.claim("w", labels=labels)  # type: ignore[arg-type]


def test_requires_may_be_a_set(ledger: Ledger) -> None:
    labels: Any = {"gpu", "big"}
    job = ledger.enqueue("k", requires=labels)
    assert ids(claimed(ledger, labels=labels)) == [job.id]


def test_the_burst_of_the_largest_rate_may_be_set(ledger: Ledger) -> None:
    made = ledger.set_limit("api", rate="1000000000/1ms")
    assert made.burst == 1_000_000_000
    assert ledger.set_limit("api", rate=made.rate, burst=made.burst).burst == made.burst


def test_a_refusal_of_a_number_names_its_range(ledger: Ledger) -> None:
    for call, message, field, limit in (
        (lambda: ledger.set_queue("q", weights={"a": 0}), "the weight of a must be from 1 to 1000", "weights", [1, 1_000]),
        (
            lambda: ledger.enqueue("k", limits={"api": 0}),
            "the units of limit api must be from 1 to 1000000",
            "limits",
            [1, 1_000_000],
        ),
        (
            lambda: ledger.set_schedule("s", "k", every="0.5s"),
            "every must be from 1 s to 366 d",
            "every",
            [1_000, 31_622_400_000],
        ),
    ):
        with refused("limit_exceeded") as refusal:
            call()
        assert refusal.value.message == message
        assert refusal.value.action == f"Give a value {message[message.index('from') :]}."
        assert (refusal.value.context["field"], refusal.value.context["limit"]) == (field, limit)


@pytest.mark.parametrize("rate", ["1/sec", "1/nan", "1/1s/1s", "1/", "/1s", "1/10"])
def test_a_refusal_says_how_a_rate_is_written(ledger: Ledger, rate: str) -> None:
    with refused("validation_error") as refusal:
        ledger.set_limit("api", rate=rate)
    assert 'rate must be a number, a slash and a duration, such as "600/1m"' in str(refusal.value)


def test_a_refusal_says_what_a_key_may_be(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    for tenant in (1.5, None, ["a"]):
        with refused("validation_error") as refusal:
            ledger.enqueue("k", {"tenant": tenant}, limits=["api"])
        assert "no text or whole number" in str(refusal.value)


def test_settings_are_listed(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=20, rate="600/1m", by="args.tenant")
    ledger.set_limit("other", rate="5/1h", burst=5)
    assert [(one.name, one.concurrent, one.rate, one.burst, one.by) for one in ledger.limits()] == [
        ("api", 20, "600/1m", 10, "args.tenant"),
        ("other", None, "5/1h", 5, None),
    ]
    made = ledger.set_queue("crawl", weights={"a": 2})
    assert ledger.queue_settings() == [made]
    assert made.weights == {"a": 2}
    with refused("not_found"):
        ledger.limit("missing")


def test_a_limit_that_does_not_exist_says_how_to_make_it(ledger: Ledger) -> None:
    for call in (
        lambda: ledger.limit("a b"),
        lambda: ledger.limit_keys("a b"),
        lambda: ledger.remove_limit("a b"),
        lambda: ledger.set_limit("a b", key="acme", concurrent=1),
        lambda: ledger.enqueue("k", limits=["a b"]),
        lambda: ledger.group("g", then={"kind": "k", "limits": ["a b"]}),
    ):
        with refused("not_found") as caught:
            call()
        assert caught.value.message == "there is no limit a b"
        assert caught.value.action == "Make it: holdfast limit set 'a b' --concurrent 10 (or --rate 600/1m)."
