"""Whose turn it is: jobs that wait for a limit stand in line, and nothing that may start is kept waiting by what may not."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from holdfast import HeldJob, Job, Ledger
from holdfast.testing import ManualClock


def claim(ledger: Ledger, worker: str = "w", *, limit: int = 100, **options: Any) -> list[HeldJob]:
    return ledger.claim(worker, limit=limit, start=True, **options)


def end(ledger: Ledger, job: HeldJob) -> None:
    ledger.complete(job.fence)


def drained(ledger: Ledger, clock: ManualClock, claims: int, *, limit: int, step: float = 0.01) -> list[str]:
    """Claim and complete at once. Return the partitions in the order of their starts."""
    order = []
    for _ in range(claims):
        for job in claim(ledger, limit=limit):
            order.append(job.partition or "")
            end(ledger, job)
        clock.advance(step)
    return order


def add(ledger: Ledger, partitions: Any, each: int = 1, **options: Any) -> list[Job]:
    return ledger.enqueue_many([{"kind": "k", "partition": name, **options} for name in partitions for _ in range(each)])


def evenly(order: list[str], count: int) -> bool:
    found = Counter(order)
    return len(found) == count and max(found.values()) - min(found.values()) <= 1


# A limit that all partitions share

SHARED = [{"rate": "60/1m"}, {"concurrent": 1}]


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize("limit", SHARED, ids=["rate", "concurrent"])
def test_partitions_take_turns_at_a_limit_that_has_room_for_one(
    ledger: Ledger, clock: ManualClock, limit: dict[str, Any], size: int
) -> None:
    ledger.set_limit("api", **limit)
    add(ledger, "abc", 10, limits=["api"])
    assert evenly(drained(ledger, clock, 12, limit=size, step=1), 3)


def test_claims_that_get_nothing_take_no_turn(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="60/1m")
    add(ledger, "abc", 10, limits=["api"])
    assert evenly(drained(ledger, clock, 90, limit=1, step=0.1), 3)


@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("limit", SHARED, ids=["rate", "concurrent"])
def test_of_many_partitions_at_one_limit_none_is_left_out(
    ledger: Ledger, clock: ManualClock, limit: dict[str, Any], size: int
) -> None:
    ledger.set_limit("api", **limit)
    add(ledger, [f"p{number}" for number in range(20)], 5, limits=["api"])
    assert evenly(drained(ledger, clock, 40, limit=size, step=1), 20)


def test_all_jobs_behind_a_limit_are_drained_without_a_pause(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", concurrent=1)
    add(ledger, [f"p{number}" for number in range(50)], 2, limits=["api"])
    assert len(drained(ledger, clock, 130, limit=10)) == 100


@pytest.mark.parametrize(
    ("partitions", "size", "step"), [("a", 5, 1), ("ab", 1, 1), ("ab", 1, 0.25), ("a", 4, 0.3), ("ab", 4, 0.3)]
)
@pytest.mark.parametrize("limit", SHARED, ids=["rate", "concurrent"])
def test_a_higher_priority_goes_first_at_a_limit(
    ledger: Ledger, clock: ManualClock, limit: dict[str, Any], partitions: str, size: int, step: float
) -> None:
    ledger.set_limit("api", **limit)
    for priority in (0, 100):
        add(ledger, partitions, 10 // len(partitions), limits=["api"], priority=priority)
    found: list[int] = []
    while len(found) < 20:
        for job in claim(ledger, limit=size):
            found.append(job.priority)
            end(ledger, job)
        clock.advance(step)
    assert found == [100] * 10 + [0] * 10


@pytest.mark.parametrize("limit", SHARED, ids=["rate", "concurrent"])
def test_weights_count_at_a_limit_that_has_room_for_one(ledger: Ledger, clock: ManualClock, limit: dict[str, Any]) -> None:
    ledger.set_limit("api", **limit)
    ledger.set_queue("default", weights={"a": 3})
    add(ledger, "ba", 40, limits=["api"])
    found = Counter(drained(ledger, clock, 40, limit=1, step=1))
    assert found == {"a": 30, "b": 10}


# Freed units


def test_a_small_job_starts_beside_larger_ones_that_have_no_room(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", concurrent=10)
    ledger.enqueue("k", limits={"api": 9}, priority=5)
    small = ledger.enqueue("k", limits={"api": 1}, priority=5)
    held = {job.id: job for job in claim(ledger)}
    add(ledger, [f"p{number}" for number in range(5)], limits={"api": 5})
    assert claim(ledger) == []
    clock.advance(1)
    [fits] = add(ledger, "z", limits={"api": 1})
    assert claim(ledger) == []
    clock.advance(1)
    end(ledger, held[small.id])
    assert [job.id for job in claim(ledger)] == [fits.id]


def test_jobs_that_wait_for_another_limit_keep_no_unit(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("a", concurrent=1)
    ledger.set_limit("b", concurrent=1)
    first = ledger.enqueue("k", limits=["a"])
    ledger.enqueue("k", limits=["b"])
    held = {job.id: job for job in claim(ledger)}
    add(ledger, [f"p{number}" for number in range(5)], limits=["a", "b"])
    assert claim(ledger) == []
    clock.advance(1)
    [fits] = add(ledger, "z", limits=["a"])
    assert claim(ledger) == []
    end(ledger, held[first.id])
    assert [job.id for job in claim(ledger)] == [fits.id]


def test_cancelled_jobs_in_line_keep_no_unit(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("a", concurrent=1)
    ledger.enqueue("k", limits=["a"])
    [held] = claim(ledger)
    waiting = add(ledger, [f"p{number}" for number in range(5)], limits=["a"])
    assert claim(ledger) == []
    clock.advance(1)
    [last] = add(ledger, "z", limits=["a"])
    assert claim(ledger) == []
    for job in waiting:
        ledger.cancel(job.id)
    end(ledger, held)
    assert [job.id for job in claim(ledger)] == [last.id]


@pytest.mark.parametrize(
    "options",
    [{"kind": "other"}, {"requires": ["gpu"]}, {"for_worker": "other"}],
    ids=["kind", "label", "worker"],
)
def test_jobs_for_a_worker_that_has_gone_keep_no_unit(ledger: Ledger, clock: ManualClock, options: dict[str, Any]) -> None:
    ledger.set_limit("a", concurrent=1)
    ledger.enqueue("k", limits=["a"])
    [held] = claim(ledger, kinds=["k"])
    ledger.enqueue_many([{"kind": "k", "partition": f"p{number}", "limits": ["a"], **options} for number in range(5)])
    assert claim(ledger, "other", labels=["gpu"]) == []
    clock.advance(1)
    [last] = add(ledger, "z", limits=["a"])
    assert claim(ledger, kinds=["k"]) == []
    end(ledger, held)
    assert [job.id for job in claim(ledger, kinds=["k"])] == [last.id]


def test_a_subqueue_without_jobs_takes_no_unit_from_the_next(ledger: Ledger) -> None:
    ledger.set_limit("a", concurrent=1)
    add(ledger, "x", limits=["a"])
    [job] = claim(ledger)
    end(ledger, job)
    add(ledger, "y", limits=["a"])
    assert [job.partition for job in claim(ledger)] == ["y"]


def test_a_unit_that_an_empty_subqueue_left_opens_the_next_for_another_claim(ledger: Ledger) -> None:
    ledger.set_limit("a", concurrent=1)
    ledger.enqueue("k", limits=["a"])
    [held] = claim(ledger)
    [first, second] = add(ledger, "xy", limits=["a"])
    assert claim(ledger) == []
    ledger.cancel(first.id)
    ledger.enqueue("k", partition="z")
    end(ledger, held)
    assert {job.partition for _ in range(2) for job in claim(ledger, limit=1)} == {"y", "z"}
    assert ledger.get(second.id).status == "running"


def test_a_free_job_is_found_behind_many_blocked_ones(ledger: Ledger) -> None:
    ledger.set_limit("a", concurrent=1)
    ledger.enqueue("k", limits=["a"], priority=9)
    assert len(claim(ledger)) == 1
    add(ledger, [f"p{number}" for number in range(1_000)], limits=["a"], priority=5)
    free = ledger.enqueue("k")
    assert [job.id for job in claim(ledger, limit=1)] == [free.id]


# Turns


def test_a_free_job_is_found_behind_blocked_ones_of_many_priorities(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=1)
    add(ledger, ["first"], limits=["api"])
    assert len(claim(ledger)) == 1
    ledger.enqueue_many([{"kind": "k", "limits": ["api"], "priority": number} for number in range(50)])
    [free] = add(ledger, ["free"], priority=-5)
    assert [job.id for job in claim(ledger)] == [free.id]


def test_jobs_without_a_partition_take_one_turn(ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k"}] * 40)
    add(ledger, "abc", 40)
    found = Counter(job.partition for _ in range(40) for job in claim(ledger, limit=1))
    assert sorted(found.values()) == [10] * 4


def test_new_plain_jobs_do_not_keep_a_partition_waiting(ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k"}] * 20)
    [job] = add(ledger, "b")
    for _ in range(3):
        ledger.enqueue("k")
        claim(ledger, limit=1)
    assert ledger.get(job.id).status == "running"


@pytest.mark.parametrize("options", [{"partition": "big"}, {}], ids=["a partition", "no partition"])
@pytest.mark.parametrize("size", [1, 10])
def test_a_partition_with_many_keys_takes_one_turn(ledger: Ledger, options: dict[str, Any], size: int) -> None:
    ledger.set_limit("t", concurrent=1_000, by="args.u")
    ledger.enqueue_many([{"kind": "k", "args": {"u": f"u{n}"}, "limits": ["t"], **options} for n in range(6)])
    [single] = add(ledger, ["small"])
    for _ in range(3):
        claim(ledger, limit=size)
    assert ledger.get(single.id).status == "running"


def test_the_keys_of_a_large_partition_take_turns_too(ledger: Ledger) -> None:
    ledger.set_limit("t", concurrent=1_000, by="args.u")
    many = [{"kind": "k", "args": {"u": f"u{n}"}, "limits": ["t"], "partition": "big"} for n in range(40) for _ in range(3)]
    ledger.enqueue_many(many)
    add(ledger, ["small"], 90)
    found = Counter(str(job.args.get("u")) for _ in range(80) for job in claim(ledger, limit=1))
    assert found.pop("None") == 40
    assert set(found.values()) == {1}


# Priorities


def test_delayed_partitions_do_not_stop_a_queue(ledger: Ledger) -> None:
    add(ledger, [f"p{number:03}" for number in range(128)], delay=3600)
    [ready] = add(ledger, ["zzz"])
    assert [job.id for job in claim(ledger)] == [ready.id]


@pytest.mark.parametrize("options", [{"delay": 86_400}, {"kind": "other"}], ids=["delayed", "of another kind"])
def test_many_priorities_without_a_job_do_not_stop_a_queue(ledger: Ledger, options: dict[str, Any]) -> None:
    ledger.enqueue_many([{"kind": "k", "priority": number, **options} for number in range(1, 130)])
    ready = ledger.enqueue("k", partition="q")
    assert [job.id for job in claim(ledger, kinds=["k"])] == [ready.id]


@pytest.mark.parametrize("size", [1, 8, 50])
def test_a_queue_with_priorities_is_drained_without_empty_claims(ledger: Ledger, size: int) -> None:
    random = Random(size)
    for _ in range(20):
        ledger.enqueue_many(
            [{"kind": "k", "partition": f"p{random.randrange(60)}", "priority": random.randrange(3)} for _ in range(10)]
        )
    left = 200
    while left:
        got = len(claim(ledger, limit=size))
        assert got > 0
        left -= got


# Subqueues without jobs


@pytest.mark.parametrize("options", [{}, {"limits": ["api"]}], ids=["partitions", "keys"])
def test_a_job_is_found_among_many_subqueues_that_were_drained(ledger: Ledger, options: dict[str, Any]) -> None:
    ledger.set_limit("api", concurrent=5, by="args.n")
    jobs = [{"kind": "k", "partition": f"p{number:03}", "args": {"n": number}, **options} for number in range(300)]
    ledger.enqueue_many(jobs)
    while held := claim(ledger, limit=5):
        for job in held:
            end(ledger, job)
    last = ledger.enqueue(**jobs[290])
    assert [job.id for job in claim(ledger, limit=1)] == [last.id]


@pytest.mark.parametrize("kinds", [1, 4])
def test_delayed_jobs_do_not_stand_in_the_line_of_a_rate(ledger: Ledger, clock: ManualClock, kinds: int) -> None:
    ledger.set_limit("api", rate="1/5s", burst=2)
    ledger.enqueue("a", limits={"api": 2})
    assert len(claim(ledger)) == 1
    for number in range(4):
        ledger.enqueue(f"x{number % kinds}", limits={"api": 2}, partition=f"p{number}", delay="1h")
    ready = ledger.enqueue("b", limits=["api"])
    assert claim(ledger) == []
    clock.advance(5)
    assert [job.id for job in claim(ledger)] == [ready.id]


def test_small_jobs_do_not_wait_for_the_tokens_of_larger_ones(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="1/5s", burst=4)
    ledger.enqueue("k", limits={"api": 4})
    assert len(claim(ledger)) == 1
    add(ledger, "abc", limits={"api": 4})
    small = add(ledger, "de", limits=["api"])
    assert claim(ledger) == []
    clock.advance(5)
    assert [job.id for job in claim(ledger)] == [small[0].id]
    clock.advance(5)
    assert [job.id for job in claim(ledger)] == [small[1].id]


def test_jobs_that_no_worker_serves_do_not_stand_before_others_in_the_line_of_a_rate(ledger: Ledger, clock: ManualClock) -> None:
    ledger.set_limit("api", rate="1/5s", burst=1)
    add(ledger, "abcd", limits=["api"])
    assert len(claim(ledger)) == 1
    assert claim(ledger) == []
    ready = ledger.enqueue("other", limits=["api"])
    assert claim(ledger, kinds=["other"]) == []
    clock.advance(5)
    assert [job.id for job in claim(ledger, kinds=["other"])] == [ready.id]


# Nothing that may start waits

LIMITS = {"one": 1, "two": 2, "five": 5}
WORKERS: dict[str, dict[str, Any]] = {"w-0": {"kinds": ["a"]}, "w-1": {"labels": ["gpu"]}, "w-2": {}}


def _may_start(ledger: Ledger, worker: str) -> list[int]:
    """Return the queued jobs that a worker could start now, by what the jobs themselves say."""
    jobs = ledger.list(limit=1_000)
    used = Counter(name for job in jobs if job.status == "running" for name, units in job.limits.items() for _ in range(units))
    served = WORKERS[worker]
    return [
        job.id
        for job in jobs
        if job.status == "queued"
        and job.available_at <= ledger.now()
        and job.kind in served.get("kinds", [job.kind])
        and set(job.requires) <= set(served.get("labels", []))
        and job.for_worker in (None, worker)
        and all(used[name] + units <= LIMITS[name] for name, units in job.limits.items())
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_claim_that_is_not_filled_leaves_no_job_that_may_start(ledger: Ledger, clock: ManualClock, seed: int) -> None:
    random = Random(seed)
    if seed % 2:
        ledger.set_queue("default", weights={"a": 3, "b": 2})
    for name, units in LIMITS.items():
        ledger.set_limit(name, concurrent=units)
    held: list[HeldJob] = []
    for _ in range(120):
        step = random.random()
        if step < 0.4:
            some = random.sample(sorted(LIMITS), random.randrange(3))
            options: dict[str, Any] = {
                "limits": {name: random.randint(1, LIMITS[name]) for name in some},
                "priority": random.choice([0, 0, 5]),
                "requires": random.choice([[], [], ["gpu"]]),
                "for_worker": random.choice([None, None, "w-2"]),
                "delay": random.choice([0, 0, 3]),
            }
            if random.random() < 0.7:
                options["partition"] = random.choice("abcdefgh")
            given = {name: value for name, value in options.items() if value}
            ledger.enqueue_many([{"kind": random.choice("ab"), **given}] * random.randint(1, 4))
        elif step < 0.75:
            worker, size = random.choice(sorted(WORKERS)), random.choice([1, 2, 20])
            got = claim(ledger, worker, limit=size, **WORKERS[worker])
            held += got
            if len(got) < size:
                assert _may_start(ledger, worker) == []
        elif step < 0.95 and held:
            end(ledger, held.pop(random.randrange(len(held))))
        elif waiting := ledger.list(status="queued", limit=100):
            ledger.cancel(random.choice(waiting).id)
        clock.advance(random.choice([0, 0.01, 1]))
        if held:
            ledger.heartbeat_many([job.fence for job in held])
