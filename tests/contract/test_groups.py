"""Groups: who joins, what is counted, and when the follow-up jobs are made."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import HeldJob, Job, Ledger
from holdfast.core import limits
from holdfast.testing import ManualClock
from tests.contract import builders as b
from tests.contract.builders import WORKER, held, refused, refused_without_trace

THEN = {"kind": "publish", "args": {"import": 42}, "queue": "after"}
ON_DEAD = {"kind": "alarm", "queue": "after"}


def join(ledger: Ledger, count: int = 1, group: str = "import-42", **options: Any) -> list[Job]:
    item = {"kind": "load", "queue": "load", "group": group, **options}
    return ledger.enqueue_many([{**item, "args": {"n": number}} for number in range(count)])


def finish(ledger: Ledger, *, worker: str = WORKER, limit: int = 100) -> list[HeldJob]:
    """Complete what is ready."""
    done = ledger.claim(worker, ["load"], limit=limit, start=True)
    for job in done:
        ledger.complete(held(job), None)
    return done


def made(ledger: Ledger) -> list[tuple[str, Any]]:
    """The follow-up jobs."""
    return [(job.kind, job.args) for job in ledger.list(queue="after", order="oldest")]


def test_the_follow_up_job_is_made_when_all_have_succeeded_and_the_group_is_closed(ledger: Ledger):
    group = ledger.group("import-42", then=THEN, on_dead=ON_DEAD)
    assert (group.name, group.total, group.done, group.progress, group.then) == ("import-42", 0, False, 0, THEN)
    jobs = join(ledger, 3)
    assert [job.group for job in jobs] == ["import-42"] * 3
    assert [job.group for job in ledger.list(queue="load")] == ["import-42"] * 3
    assert len(finish(ledger)) == 3
    assert made(ledger) == []
    assert not ledger.get_group("import-42").done
    closed = ledger.close_group("import-42")
    assert (closed.done, closed.total, closed.live, closed.succeeded, closed.progress) == (True, 3, 0, 3, 1)
    assert made(ledger) == [("publish", {"import": 42})]
    [follow_up] = ledger.list(queue="after")
    assert closed.then_job == follow_up.id
    assert closed.on_dead_job is None
    [event] = ledger.events(follow_up.id)
    assert str(event.actor) == "client:group:import-42"
    assert event.request_id == "import-42/then"


def test_follow_up_jobs_go_to_the_queue_that_their_handler_declares(ledger: Ledger):
    ledger.declare_policy("publish", queue="web")
    ledger.declare_policy("alarm", queue="pager")
    group = ledger.group("import-42", then={"kind": "publish"}, on_dead={"kind": "alarm", "queue": "default"})
    assert group.then is not None and group.on_dead is not None
    assert (group.then["queue"], group.on_dead["queue"]) == ("web", "default")
    ledger.close_group("import-42")
    assert [job.kind for job in ledger.list(queue="web")] == ["publish"]
    other = ledger.group("import-43", then={"kind": "unknown"}, on_dead={"kind": "alarm", "queue": None})
    assert other.then is not None and other.on_dead is not None
    assert (other.then["queue"], other.on_dead["queue"]) == ("default", "pager")


def test_follow_up_jobs_have_the_limits_and_labels_that_their_handler_declares(ledger: Ledger):
    ledger.set_limit("api", concurrent=2)
    ledger.declare_policy("publish", queue="web", limits={"api": 2}, requires=["gpu"])
    made = ledger.group("import-42", then={"kind": "publish"}, on_dead={"kind": "publish", "limits": ["api"], "requires": []})
    assert made.then == {"kind": "publish", "args": {}, "queue": "web", "limits": {"api": 2}, "requires": ["gpu"]}
    assert made.on_dead == {"kind": "publish", "args": {}, "queue": "web", "limits": {"api": 1}}
    plain = ledger.group("import-43", then={"kind": "publish", "queue": "web"})
    assert plain.then == {"kind": "publish", "args": {}, "queue": "web"}
    ledger.declare_policy("publish", queue="web")
    assert ledger.group("import-42", then={"kind": "publish"}, on_dead=made.on_dead) == made


def test_a_repeated_group_has_the_queues_that_it_had(ledger: Ledger):
    made = ledger.group("import-42", then={"kind": "publish"}, request_id="g-1")
    ledger.declare_policy("publish", queue="web")
    assert ledger.group("import-42", then={"kind": "publish"}, request_id="g-1") == made
    assert ledger.group("import-42", then={"kind": "publish"}) == made
    for other in ({"kind": "publish", "queue": "web"}, {"kind": "alarm"}):
        with refused("conflict"):
            ledger.group("import-42", then=other)


def test_the_last_end_of_a_closed_group_makes_the_follow_up_job(ledger: Ledger):
    ledger.group("import-42", then=THEN)
    join(ledger, 4)
    ledger.close_group("import-42")
    for left in (3, 2, 1, 0):
        assert made(ledger) == []
        assert len(finish(ledger, limit=1)) == 1
        assert ledger.get_group("import-42").live == left
    assert made(ledger) == [("publish", {"import": 42})]
    ledger.sweep()
    ledger.close_group("import-42")
    assert len(made(ledger)) == 1


Settle = Callable[[Ledger, list[HeldJob]], object]
WAYS: dict[str, Settle] = {
    "one by one": lambda ledger, jobs: [ledger.complete(held(job), None) for job in jobs],
    "many": lambda ledger, jobs: ledger.settle_many([(held(job), {"n": job.id}) for job in jobs], request_id="r-1"),
    "alike": lambda ledger, jobs: ledger.settle_many([(held(job), None) for job in jobs], request_id="r-1"),
    "a claim": lambda ledger, jobs: ledger.settle_alike(jobs, None, request_id="r-1"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_complete_a_job_counts(ledger: Ledger, way: str):
    ledger.group("import-42", then=THEN)
    ledger.group("other")
    join(ledger, 5)
    join(ledger, 2, "other")
    ledger.enqueue("load", queue="load")
    ledger.close_group("import-42")
    jobs = ledger.claim(WORKER, ["load"], limit=10, start=True)
    assert len(jobs) == 8
    WAYS[way](ledger, jobs)
    assert ledger.get_group("import-42").succeeded == 5
    assert ledger.get_group("other").succeeded == 2
    assert made(ledger) == [("publish", {"import": 42})]


def test_counts_by_status_are_exact(ledger: Ledger):
    ledger.group("all")
    for build in b.BUILDERS.values():
        build(ledger, group="all")
    group = ledger.get_group("all")
    assert group.total == len(b.BUILDERS)
    assert group.live_by_status == {"queued": 1, "claimed": 1, "running": 3, "stalled": 3}
    assert (group.live, group.succeeded, group.failed, group.cancelled, group.dead_lettered) == (8, 1, 1, 1, 1)
    assert group.progress == 1 / 12
    assert ledger.sweep() is not None
    assert ledger.get_group("all") == group
    [listed] = ledger.groups()
    assert (listed.total, listed.live, listed.live_by_status) == (12, 8, None)
    assert len(ledger.group_jobs("all", status="stalled")) == 3
    assert [job.id for job in ledger.group_jobs("all", after=1, limit=2)] == [2, 3]


@pytest.mark.parametrize("status", ["failed", "cancelled", "dead_lettered"])
def test_the_first_job_that_ends_without_success_makes_on_dead_once(ledger: Ledger, status: str):
    ledger.group("import-42", then=THEN, on_dead=ON_DEAD)
    b.succeeded(ledger, group="import-42")
    assert made(ledger) == []
    b.BUILDERS[status](ledger, group="import-42")
    assert made(ledger) == [("alarm", {})]
    b.BUILDERS[status](ledger, group="import-42")
    group = ledger.close_group("import-42")
    assert made(ledger) == [("alarm", {})]
    assert (group.done, group.then_job) == (True, None)
    assert group.on_dead_job is not None
    assert getattr(group, status) == 2


def test_a_replay_takes_the_place_of_a_dead_job(ledger: Ledger):
    ledger.group("import-42", then=THEN, on_dead=ON_DEAD)
    first = b.failed(ledger, group="import-42")
    ledger.close_group("import-42")
    second = ledger.replay(first.id)
    assert second.group == "import-42"
    group = ledger.get_group("import-42")
    assert (group.total, group.live, group.failed, group.done) == (1, 1, 0, False)
    [fence] = [held(job) for job in ledger.claim(WORKER, [second.queue], start=True)]
    ledger.fail(fence, "again", retryable=False)
    assert ledger.get_group("import-42").failed == 1
    # A replay of the first job takes the place of its dead replay.
    third = ledger.replay(first.id)
    assert ledger.get_group("import-42").failed == 0
    [fence] = [held(job) for job in ledger.claim(WORKER, [third.queue], start=True)]
    ledger.complete(fence, None)
    group = ledger.get_group("import-42")
    assert (group.total, group.succeeded, group.failed, group.done) == (1, 1, 0, True)
    assert made(ledger) == [("alarm", {}), ("publish", {"import": 42})]
    assert [job.id for job in ledger.group_jobs("import-42")] == [third.id]
    # The place is taken by a success.
    assert ledger.replay(first.id).group is None
    assert ledger.get_group("import-42").total == 1
    assert [ledger.check(id_) for id_ in (first.id, second.id, third.id)] == [[], [], []]


def test_cancel_and_replay_of_what_is_left(ledger: Ledger):
    ledger.group("import-42", then=THEN, on_dead=ON_DEAD)
    join(ledger, 5)
    finish(ledger, limit=2)
    [running] = ledger.claim(WORKER, ["load"], start=True)
    change = ledger.cancel_group("import-42", reason="wrong file")
    assert (change.changed, change.refused, change.refusals) == (3, 0, [])
    assert change.group.closed_at is not None
    assert change.group.cancelled_at is not None
    assert (change.group.cancelled, change.group.live) == (2, 1)
    ledger.acknowledge_cancel(held(running))
    assert ledger.get_group("import-42").done
    assert made(ledger) == [("alarm", {})]
    change = ledger.replay_group("import-42", reason="right file")
    assert (change.changed, change.refused, change.group.live, change.group.cancelled_at) == (3, 0, 3, None)
    assert len(finish(ledger)) == 3
    group = ledger.get_group("import-42")
    assert (group.total, group.succeeded, group.done) == (5, 5, True)
    assert made(ledger) == [("alarm", {}), ("publish", {"import": 42})]


def test_a_cancelled_group_makes_no_then(ledger: Ledger):
    ledger.group("import-42", then=THEN, on_dead=ON_DEAD)
    join(ledger, 2)
    finish(ledger)
    change = ledger.cancel_group("import-42")
    assert (change.changed, change.group.done, change.group.succeeded) == (0, True, 2)
    ledger.sweep()
    assert made(ledger) == []
    ledger.replay_group("import-42")
    assert made(ledger) == [("publish", {"import": 42})]


def test_discarded_jobs_are_not_replayed_with_their_group(ledger: Ledger):
    ledger.group("import-42")
    job = b.dead_lettered(ledger, group="import-42")
    ledger.discard(job.id)
    assert ledger.replay_group("import-42").changed == 0


def test_an_empty_group_is_done_when_it_is_closed(ledger: Ledger):
    ledger.group("empty", then=THEN)
    group = ledger.close_group("empty")
    assert (group.done, group.total, group.progress) == (True, 0, 1)
    assert made(ledger) == [("publish", {"import": 42})]


def test_jobs_that_end_with_a_cascade_count(ledger: Ledger):
    ledger.group("import-42", on_dead=ON_DEAD)
    first = b.running(ledger, group="import-42")
    waiting = ledger.enqueue("load", queue="load", depends_on=[first.id], group="import-42")
    ledger.enqueue("load", queue="load", depends_on=[waiting.id], on_dependency_failure="cancel", group="import-42")
    ledger.close_group("import-42")
    assert ledger.get_group("import-42").live_by_status == {"queued": 2, "claimed": 0, "running": 1, "stalled": 0}
    ledger.fail(first.fence, "no", retryable=False)
    group = ledger.get_group("import-42")
    assert (group.failed, group.dead_lettered, group.cancelled, group.done) == (1, 1, 1, True)
    assert made(ledger) == [("alarm", {})]


def test_a_job_with_dependencies_joins(ledger: Ledger):
    ledger.group("import-42", then=THEN)
    item = {"kind": "load", "queue": "load", "group": "import-42"}
    ledger.enqueue_many([{**item, "ref": "a"}, {**item, "depends_on": ["a"]}])
    ledger.close_group("import-42")
    assert len(finish(ledger)) == 1
    assert len(finish(ledger)) == 1
    assert made(ledger) == [("publish", {"import": 42})]


def test_a_job_that_is_found_by_its_key_does_not_join(ledger: Ledger):
    ledger.group("import-42")
    before = ledger.enqueue("load", dedupe_key="a")
    found = ledger.enqueue("load", dedupe_key="a", group="import-42")
    assert (found.id, found.is_new, found.group) == (before.id, False, None)
    assert ledger.get_group("import-42").total == 0
    assert ledger.enqueue("load", dedupe_key="b", group="import-42").is_new
    assert ledger.get_group("import-42").total == 1


def test_a_repeated_request_joins_once(ledger: Ledger):
    ledger.group("import-42", request_id="g-1")
    ledger.group("import-42", request_id="g-1")
    for _ in range(2):
        ledger.enqueue("load", group="import-42", request_id="r-1")
    assert ledger.get_group("import-42").total == 1


def test_the_same_group_is_returned_and_another_definition_refused(ledger: Ledger):
    group = ledger.group("import-42", then=THEN)
    assert ledger.group("import-42", then=dict(THEN)) == group
    with refused("conflict"):
        ledger.group("import-42", on_dead=ON_DEAD)
    assert ledger.get_group("import-42") == group


def test_an_unknown_or_closed_group_takes_no_job(ledger: Ledger):
    with refused_without_trace(ledger, "not_found") as caught:
        join(ledger, 3, "import-43")
    assert caught.value.context["group"] == "import-43"
    ledger.group("import-42")
    join(ledger)
    ledger.close_group("import-42")
    for options in ({}, {"dedupe_key": "a"}, {"depends_on": [1]}):
        with refused_without_trace(ledger, "conflict") as caught:
            join(ledger, **options)
        assert "closed" in caught.value.message
    assert ledger.get_group("import-42").total == 1
    for verb in (ledger.get_group, ledger.close_group, ledger.cancel_group, ledger.replay_group, ledger.wait_group):
        with refused("not_found"):
            verb("import-43")


@pytest.mark.parametrize("name", ["", "a\x00b", ["a"], 7, None])
def test_a_group_needs_a_name(ledger: Ledger, name: Any):
    with refused("validation_error"):
        ledger.group(name)
    if name is not None:
        with refused_without_trace(ledger, "validation_error"):
            ledger.enqueue("load", group=name)


@pytest.mark.parametrize(
    "then",
    [
        {},
        {"kind": ""},
        {"kind": "x", "ref": "a"},
        {"kind": "x", "args": []},
        "publish",
        {"kind": "x", "colour": "red"},
        {7: "x", "kind": "x"},
    ],
)
def test_a_wrong_follow_up_job_is_refused(ledger: Ledger, then: Any):
    with refused("validation_error"):
        ledger.group("import-42", then=then)
    assert ledger.groups() == []


def test_cycles_of_groups_are_refused(ledger: Ledger):
    with refused("validation_error") as caught:
        ledger.group("a", then={"kind": "x", "group": "a"})
    assert "a -> a" in caught.value.message
    with refused("validation_error"):
        ledger.group("a", on_dead={"kind": "x", "group": "a"})
    with refused("not_found"):
        ledger.group("a", then={"kind": "x", "group": "b"})
    assert ledger.groups() == []


def test_a_chain_that_leads_back_is_refused(ledger: Ledger, clock: ManualClock):
    ledger.group("a")
    ledger.group("b", then={"kind": "x", "group": "a"})
    ledger.group("c", on_dead={"kind": "x", "group": "b"})
    ledger.cancel_group("a")
    clock.advance(10)
    ledger.prune(jobs_before=clock.now())
    with refused("validation_error") as caught:
        ledger.group("a", then={"kind": "x", "group": "c"})
    assert "a -> c -> b -> a" in caught.value.message
    assert [group.name for group in ledger.groups()] == ["b", "c"]


def test_too_long_a_chain_is_refused(ledger: Ledger):
    ledger.group("g-0")
    for number in range(1, limits.GROUP_CHAIN_MAX):
        ledger.group(f"g-{number}", then={"kind": "x", "group": f"g-{number - 1}"})
    with refused("limit_exceeded"):
        ledger.group("last", then={"kind": "x", "group": f"g-{limits.GROUP_CHAIN_MAX - 1}"})


def test_a_follow_up_job_joins_the_next_group(ledger: Ledger):
    ledger.group("all", then=THEN)
    ledger.group("part", then={"kind": "load", "queue": "load", "group": "all"})
    join(ledger, 2, "part")
    ledger.close_group("part")
    finish(ledger)
    assert ledger.get_group("all").total == 1
    ledger.close_group("all")
    finish(ledger)
    assert made(ledger) == [("publish", {"import": 42})]


def family(ledger: Ledger, *children: str) -> None:
    """Make a group, and others whose follow-up jobs join it."""
    ledger.group("year", then=THEN, on_dead=ON_DEAD)
    for child in children:
        ledger.group(child, then={"kind": "load", "queue": "load", "group": "year"})
        join(ledger, 1, child)
        ledger.close_group(child)


def test_a_group_is_not_closed_before_follow_up_jobs_of_others_have_joined(ledger: Ledger):
    family(ledger, "feb", "jan")
    with refused_without_trace(ledger, "conflict") as caught:
        ledger.close_group("year")
    assert caught.value.message == "the group 'year' waits for follow-up jobs of 2 groups: 'feb', 'jan'"
    assert caught.value.context["waits_for"] == ["feb", "jan"]
    assert "holdfast group cancel feb" in caught.value.action
    assert ledger.get_group("year").closed_at is None
    finish(ledger)
    year = ledger.close_group("year")
    assert (year.total, year.live, year.then_job) == (2, 2, None)
    finish(ledger)
    assert made(ledger) == [("publish", {"import": 42})]
    assert ledger.close_group("year").done


def test_many_groups_that_a_group_waits_for_are_counted(ledger: Ledger):
    family(ledger, *(f"g-{number}" for number in range(8)))
    with refused("conflict") as caught:
        ledger.close_group("year")
    assert caught.value.message.endswith("8 groups: 'g-0', 'g-1', 'g-2', 'g-3', 'g-4' and 3 more")


def test_a_group_waits_for_a_failed_one_until_it_is_replayed_or_cancelled(ledger: Ledger, clock: ManualClock):
    family(ledger, "jan", "feb")
    for job in ledger.claim(WORKER, ["load"], limit=10, start=True):
        ledger.fail(held(job), "no", retryable=False)
    assert ledger.get_group("jan").done
    clock.advance(10)
    ledger.prune(jobs_before=clock.now(), failed_before=clock.now())
    with refused("conflict"):
        ledger.close_group("year")
    assert made(ledger) == []
    ledger.cancel_group("feb")
    with refused("conflict") as caught:
        ledger.close_group("year")
    assert caught.value.context["waits_for"] == ["jan"]
    ledger.cancel_group("jan")
    assert ledger.close_group("year").done


def test_a_replayed_group_joins_the_one_that_waits_for_it(ledger: Ledger):
    family(ledger, "jan")
    [job] = ledger.claim(WORKER, ["load"], start=True)
    ledger.fail(held(job), "no", retryable=False)
    ledger.replay_group("jan")
    finish(ledger)
    ledger.close_group("year")
    finish(ledger)
    assert made(ledger) == [("publish", {"import": 42})]


def test_a_group_waits_for_jobs_that_other_groups_make_when_one_fails(ledger: Ledger):
    ledger.group("year", then=THEN)
    for name in ("bad", "good"):
        ledger.group(name, on_dead={"kind": "mend", "queue": "load", "group": "year"})
    join(ledger, 1, "good")
    bad = b.running(ledger, group="bad")
    with refused("conflict"):
        ledger.close_group("year")
    finish(ledger)
    ledger.close_group("good")
    ledger.fail(bad.fence, "no", retryable=False)
    year = ledger.close_group("year")
    assert year.total == 1
    assert year.live == 1


def test_a_group_that_others_would_join_is_cancelled_and_not_replayed(ledger: Ledger):
    family(ledger, "jan")
    assert ledger.cancel_group("year").group.done
    with refused("conflict") as caught:
        ledger.replay_group("year")
    assert "holdfast group cancel jan" in caught.value.action
    assert made(ledger) == []
    ledger.cancel_group("jan")
    ledger.replay_group("year")
    assert made(ledger) == [("publish", {"import": 42})]


def test_a_group_is_closed_though_a_process_died_before_it_made_the_follow_up_job(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
):
    family(ledger, "jan")
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.ledger.groups.GroupCounter.update", lambda counter: None)
        finish(ledger)
    assert ledger.get_group("jan").then_job is None
    assert ledger.close_group("year").total == 1


def test_a_refused_follow_up_job_is_noted_and_tried_again(ledger: Ledger):
    ledger.group("all")
    ledger.group("part", then={"kind": "load", "queue": "after", "group": "all"})
    ledger.cancel_group("all")
    [job] = join(ledger, 1, "part")
    group = ledger.close_group("part")
    finish(ledger)
    group = ledger.get_group("part")
    assert (group.done, group.succeeded, group.then_job) == (True, 1, None)
    assert group.last_error == "the group 'all' is closed: no job can join it"
    assert made(ledger) == []
    assert ledger.close_group("part").last_error == group.last_error
    assert ledger.check(job.id) == []


def test_a_follow_up_job_takes_the_key_of_its_limit_when_it_is_made(ledger: Ledger):
    ledger.set_limit("api", concurrent=1)
    then = {**THEN, "limits": {"api": 1}}
    for name in ("a", "b"):
        ledger.group(name, then=then)
    ledger.set_limit("api", concurrent=1, by="args.import")
    assert ledger.group("a", then=then).then == then
    ledger.close_group("a")
    assert [one.key for one in ledger.limit_keys("api")] == ["42"]
    ledger.remove_limit("api")
    ledger.close_group("b")
    assert len(ledger.claim(WORKER, ["after"], limit=10)) == 2


def test_wait_group(ledger: Ledger):
    ledger.group("import-42")
    join(ledger, 2)
    assert not ledger.wait_group("import-42", timeout=0).done
    finish(ledger)
    assert not ledger.wait_group("import-42", timeout=0.01).done
    ledger.close_group("import-42")
    assert ledger.wait_group("import-42", timeout=5).done


@pytest.mark.parametrize("end", ["complete", "cancel"])
def test_wait_group_waits_for_the_follow_up_job(ledger: Ledger, end: str):
    with ThreadPoolExecutor(1) as pool:
        for number in range(10):
            name = f"import-{number}"
            ledger.group(name, then=THEN, on_dead=ON_DEAD)
            join(ledger, group=name)
            ledger.close_group(name)
            [job] = ledger.claim(WORKER, ["load"], start=True)
            waiting = pool.submit(ledger.wait_group, name, timeout=60)
            if end == "complete":
                ledger.complete(held(job), None)
            else:
                ledger.cancel(job.id, hard=True)
            found = waiting.result()
            made = found.then_job if end == "complete" else found.on_dead_job
            assert made is not None
            assert ledger.get(made).kind == ("publish" if end == "complete" else "alarm")


def test_wait_group_does_not_wait_for_a_follow_up_job_that_was_refused_or_is_not_due(ledger: Ledger):
    ledger.group("all")
    ledger.group("part", then={**THEN, "group": "all"})
    [job] = join(ledger, group="part")
    ledger.close_group("part")
    ledger.cancel_group("all")
    finish(ledger)
    refused_one = ledger.wait_group("part", timeout=5)
    assert (refused_one.done, refused_one.then_job) == (True, None)
    assert refused_one.last_error is not None
    ledger.group("dead", then=THEN)
    [job] = join(ledger, group="dead")
    ledger.close_group("dead")
    ledger.cancel(job.id)
    assert ledger.wait_group("dead", timeout=5).then_job is None


def test_lists_of_groups(ledger: Ledger):
    for name in ("c", "a", "b"):
        ledger.group(name)
    ledger.close_group("b")
    assert [group.name for group in ledger.groups()] == ["a", "b", "c"]
    assert [group.name for group in ledger.groups(unfinished=True)] == ["a", "c"]
    assert [group.name for group in ledger.groups(after="a", limit=1)] == ["b"]


def test_a_finished_group_is_pruned_after_its_jobs(ledger: Ledger, clock: ManualClock):
    ledger.group("import-42")
    ledger.group("open")
    join(ledger, 2)
    join(ledger, 1, "open")
    ledger.close_group("import-42")
    finish(ledger)
    clock.advance(3600)
    ledger.prune(jobs_before=clock.now(), batch=1)
    assert ledger.get_group("import-42").succeeded == 2
    ledger.prune(jobs_before=clock.now())
    assert [group.name for group in ledger.groups()] == ["open"]
    assert ledger.get_group("open").succeeded == 1


def test_many_changes_are_added_to_the_counts_in_between(ledger: Ledger):
    ledger.group("import-42", then=THEN)
    for _ in range(limits.GROUP_FOLD_ROWS + 5):
        ledger.enqueue("load", queue="load", group="import-42")
    assert ledger.get_group("import-42").total == limits.GROUP_FOLD_ROWS + 5
    for _ in range(limits.GROUP_FOLD_ROWS + 5):
        finish(ledger, limit=1)
    assert ledger.close_group("import-42").succeeded == limits.GROUP_FOLD_ROWS + 5
    assert len(made(ledger)) == 1


def test_too_many_jobs_are_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "GROUP_JOBS_MAX", 3)
    ledger.group("import-42")
    join(ledger, 2)
    with refused_without_trace(ledger, "limit_exceeded"):
        join(ledger, 2)
    join(ledger, 1)


def test_too_many_groups_are_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "UNFINISHED_GROUPS_MAX", 2)
    ledger.group("a")
    ledger.group("b")
    with refused("limit_exceeded"):
        ledger.group("c")
    ledger.close_group("a")
    ledger.group("c")


def test_a_schedule_makes_jobs_in_a_group(ledger: Ledger):
    ledger.group("import-42")
    made = ledger.set_schedule("hourly", "load", every="1h", group="import-42")
    assert made.options == {"group": "import-42"}
    assert ledger.run_schedule("hourly").group == "import-42"
    assert ledger.get_group("import-42").total == 1
