"""Retention: bounded steps, live jobs untouched, histories still whole."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.store.sealing import SqlSeals
from holdfast.testing import ManualClock
from tests.contract.builders import (
    BUILDERS,
    FINISHED,
    LIVE,
    claim,
    failed,
    queued,
    refused,
    refused_without_trace,
    running,
    succeeded,
)
from tests.support.near import near

OPEN = ("failed", "dead_lettered")

# Jobs


@pytest.mark.parametrize("status", FINISHED)
def test_a_finished_job_is_deleted_with_its_events(ledger: Ledger, clock: ManualClock, status: str):
    made = BUILDERS[status](ledger)
    clock.advance(1)
    went = ledger.prune(jobs_before=clock.now(), failed_before=clock.now())
    assert went == ({"jobs": 0, "failed": 1} if status in OPEN else {"jobs": 1, "failed": 0})
    assert ledger.events() == []
    with refused("not_found"):
        ledger.get(made.id)


@pytest.mark.parametrize("status", OPEN)
def test_a_failure_stays_until_it_is_handled(ledger: Ledger, clock: ManualClock, status: str):
    discarded, replayed, in_vain, failed_again, left = (BUILDERS[status](ledger).id for _ in range(5))
    ledger.discard(discarded)
    live, given_up, again = (ledger.replay(first).id for first in (replayed, in_vain, failed_again))
    ledger.cancel(given_up)
    held = claim(ledger, again)
    ledger.start(held.fence)
    ledger.fail(held.fence, "no", retryable=False)
    clock.advance(86_400)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 3}
    assert sorted(job.id for job in ledger.list()) == [in_vain, failed_again, left, live, again]
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 0}


@pytest.mark.parametrize("status", OPEN)
def test_failures_are_deleted_by_their_own_time(ledger: Ledger, clock: ManualClock, status: str):
    made, other, handled = BUILDERS[status](ledger), succeeded(ledger), BUILDERS[status](ledger)
    ledger.discard(handled.id)
    clock.advance(1)
    assert ledger.prune(failed_before=clock.now() - timedelta(seconds=1)) == {"failed": 0}
    assert ledger.prune(failed_before=clock.now()) == {"failed": 1}
    assert sorted(job.id for job in ledger.list()) == [other.id, handled.id]
    with refused("not_found"):
        ledger.get(made.id)


def test_failures_are_deleted_in_bounded_batches_beside_other_jobs(ledger: Ledger, clock: ManualClock):
    for build in (succeeded, failed) * 3:
        build(ledger)
    clock.advance(1)
    taken = [
        (ledger.prune(jobs_before=clock.now(), batch=2)["jobs"], ledger.prune(failed_before=clock.now(), batch=2)["failed"])
        for _ in range(6)
    ]
    assert max(max(step) for step in taken) <= 2
    assert [sum(counts) for counts in zip(*taken, strict=True)] == [3, 3]


def test_a_replay_stays_while_the_job_that_it_replays_is_there(ledger: Ledger, clock: ManualClock):
    """Otherwise the original would be counted as an open failure for ever."""
    made = running(ledger)
    ledger.heartbeat(made.fence, undo={"kind": "rename_back", "args": {}})
    ledger.fail(made.fence, "no", retryable=False)
    replay = claim(ledger, ledger.replay(made.id).id)
    ledger.start(replay.fence)
    ledger.complete(replay.fence)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 0}
    assert {job.id for job in ledger.list()} >= {made.id, replay.id}


@pytest.mark.parametrize("status", LIVE)
def test_a_live_job_survives(ledger: Ledger, clock: ManualClock, status: str):
    made = BUILDERS[status](ledger)
    clock.advance(86_400)
    assert ledger.prune(jobs_before=clock.now(), failed_before=clock.now()) == {"jobs": 0, "failed": 0}
    assert ledger.check(made.id) == []


def test_a_job_finished_exactly_at_the_time_stays(ledger: Ledger, clock: ManualClock):
    made = succeeded(ledger)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 0}
    assert ledger.get(made.id).status == "succeeded"


def test_jobs_are_deleted_in_bounded_batches(ledger: Ledger, clock: ManualClock):
    kept = queued(ledger)
    for _ in range(5):
        succeeded(ledger)
    clock.advance(1)
    taken = [ledger.prune(jobs_before=clock.now(), batch=2)["jobs"] for _ in range(6)]
    assert max(taken) <= 2
    assert sum(taken) == 5
    assert [job.id for job in ledger.list()] == [kept.id]


def test_jobs_that_finish_later_are_deleted_by_a_later_run(ledger: Ledger, clock: ManualClock):
    first, second = running(ledger), running(ledger)
    ledger.complete(second.fence)
    clock.advance(1)
    ledger.prune(jobs_before=clock.now(), batch=1)
    ledger.complete(first.fence)
    clock.advance(1)
    for _ in range(4):
        ledger.prune(jobs_before=clock.now(), batch=1)
    assert ledger.list() == []


def test_the_walk_starts_over_at_jobs_that_cannot_be_old_enough(
    ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise it would have to pass all newer jobs before it came back to the oldest ones."""
    monkeypatch.setattr("holdfast.store.retention.WALK_PAGES_MAX", 1)
    late = running(ledger)
    for _ in range(3):
        succeeded(ledger)
    clock.advance(1)
    before = clock.now()
    for _ in range(20):
        queued(ledger)
    assert [ledger.prune(jobs_before=before, batch=2)["jobs"] for _ in range(3)] == [1, 2, 0]
    ledger.complete(late.fence)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now(), batch=2)["jobs"] == 1


def test_a_step_passes_many_jobs_that_stay(ledger: Ledger, clock: ManualClock):
    for _ in range(15):
        failed(ledger)
    made = succeeded(ledger)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now(), batch=2) == {"jobs": 1}
    with refused("not_found"):
        ledger.get(made.id)


def test_ids_are_never_used_again(ledger: Ledger, clock: ManualClock):
    made = succeeded(ledger)
    clock.advance(1)
    ledger.prune(jobs_before=clock.now())
    assert queued(ledger).id > made.id


def test_a_replay_outlives_its_original(ledger: Ledger, clock: ManualClock):
    made = failed(ledger)
    fresh = ledger.replay(made.id)
    clock.advance(1)
    ledger.prune(jobs_before=clock.now())
    assert ledger.get(fresh.id).replay_of == made.id
    assert ledger.check(fresh.id) == []


# Beats


def _beaten(ledger: Ledger, clock: ManualClock, count: int = 4):
    made = running(ledger)
    for number in range(count):
        clock.advance(1)
        ledger.heartbeat(made.fence, stage=f"S{number}", progress=number)
    clock.advance(1)
    return made


def _beats(ledger: Ledger, job_id: int):
    return [event.payload for event in ledger.events(job_id, types=["heartbeat"])]


def test_a_pruned_beat_leaves_its_hash(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock, 2)
    assert ledger.prune(beats_before=clock.now()) == {"beats": 1}
    assert _beats(ledger, made.id)[0] == {"pruned": hashlib.sha256(b'{"stage":"S0","progress":0}').hexdigest()}


def test_the_last_beat_of_a_job_is_never_pruned(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock)
    ledger.complete(made.fence)
    clock.advance(1)
    ledger.prune(beats_before=clock.now())
    assert [("pruned" in payload) for payload in _beats(ledger, made.id)] == [True, True, True, False]
    assert _beats(ledger, made.id)[-1] == {"stage": "S3", "progress": 3}


def test_the_history_is_still_valid(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock)
    before = [(event.id, event.received_at, event.actor) for event in ledger.events(made.id)]
    ledger.prune(beats_before=clock.now())
    assert [(event.id, event.received_at, event.actor) for event in ledger.events(made.id)] == before
    assert ledger.get(made.id).stage == "S3"
    assert ledger.check(made.id) == []


def test_a_job_with_pruned_beats_can_be_completed(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock)
    ledger.prune(beats_before=clock.now())
    ledger.heartbeat(made.fence, progress=9)
    ledger.complete(made.fence, 1)
    assert ledger.check(made.id) == []


def test_beats_are_pruned_in_bounded_batches_and_once(ledger: Ledger, clock: ManualClock):
    _beaten(ledger, clock, 6)
    taken = [ledger.prune(beats_before=clock.now(), batch=3)["beats"] for _ in range(8)]
    assert max(taken) <= 3
    assert sum(taken) == 5


def test_beats_that_get_old_are_found_at_once(ledger: Ledger, clock: ManualClock):
    """Without examining again all events before them."""
    first, second = _beaten(ledger, clock, 9), _beaten(ledger, clock, 3)
    assert sum(ledger.prune(beats_before=clock.now(), batch=3)["beats"] for _ in range(6)) == 10
    for number in range(3, 5):
        clock.advance(1)
        ledger.heartbeat(second.fence, stage=f"S{number}", progress=number)
    clock.advance(1)
    assert ledger.prune(beats_before=clock.now(), batch=4) == {"beats": 1}
    assert [("pruned" in payload) for payload in _beats(ledger, first.id)] == [True] * 8 + [False]


def test_a_last_beat_that_stayed_goes_when_there_is_a_later_one(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock, 2)
    assert ledger.prune(beats_before=clock.now(), batch=3) == {"beats": 1}
    ledger.heartbeat(made.fence, stage="late")
    clock.advance(1)
    assert sum(ledger.prune(beats_before=clock.now(), batch=3)["beats"] for _ in range(4)) == 1
    assert [("pruned" in payload) for payload in _beats(ledger, made.id)] == [True, True, False]


def test_newer_beats_stay(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock)
    ledger.prune(beats_before=clock.now() - timedelta(seconds=3))
    assert [("pruned" in payload) for payload in _beats(ledger, made.id)] == [True, False, False, False]


def test_beats_after_a_clock_was_set_back_stay_until_those_before_them_are_old(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock, 2)
    clock.jump(-60)
    for number in range(2, 4):
        clock.advance(1)
        ledger.heartbeat(made.fence, stage=f"S{number}", progress=number)
    clock.advance(1)
    assert ledger.prune(beats_before=clock.now()) == {"beats": 0}
    clock.advance(60)
    assert ledger.prune(beats_before=clock.now()) == {"beats": 3}


def test_a_stall_long_after_pruned_beats_passes_the_check(ledger: Ledger, clock: ManualClock):
    made = _beaten(ledger, clock)
    ledger.prune(beats_before=clock.now())
    clock.advance(100)
    ledger.sweep()
    assert ledger.check(made.id) == []


# Workers


def test_a_worker_not_seen_since_the_time_is_deleted(ledger: Ledger, clock: ManualClock):
    ledger.sign_in("gone")
    clock.advance(1)
    ledger.sign_in("there")
    assert ledger.prune(workers_before=clock.now()) == {"workers": 1}
    assert [worker.name for worker in ledger.workers()] == ["there"]


def test_workers_are_deleted_in_bounded_batches(ledger: Ledger, clock: ManualClock):
    for number in range(5):
        ledger.sign_in("gone", incarnation=f"i-{number}")
    clock.advance(1)
    assert [ledger.prune(workers_before=clock.now(), batch=2)["workers"] for _ in range(4)] == [2, 2, 1, 0]


# All together


def test_prune_without_arguments_deletes_nothing(ledger: Ledger):
    succeeded(ledger)
    assert ledger.prune() == {}


@pytest.mark.parametrize(("batch", "code"), [(0, "limit_exceeded"), (10_001, "limit_exceeded"), (True, "validation_error")])
def test_the_batch_size_has_bounds(ledger: Ledger, clock: ManualClock, batch, code: str):
    succeeded(ledger)
    clock.advance(1)
    with refused_without_trace(ledger, code):
        ledger.prune(jobs_before=clock.now(), batch=batch)


@pytest.mark.parametrize("field", ["jobs_before", "beats_before", "requests_before", "workers_before"])
def test_a_time_without_zone_is_refused(ledger: Ledger, clock: ManualClock, field: str):
    with refused_without_trace(ledger, "validation_error"):
        ledger.prune(**{field: clock.now().replace(tzinfo=None)})  # type: ignore[arg-type]


# Agents


def _known(ledger: Ledger) -> list[tuple[str, str]]:
    """The agents whose focus the ledger has stored."""
    asked = [("ada", "agent"), ("ada", "other"), ("bob", "agent"), ("eve", "agent")]
    return near(ledger)._store.transact("work", lambda session: [one for one in asked if session.find_agent(*one).last])


def test_the_focus_of_an_agent_is_deleted_if_it_holds_nothing(ledger: Ledger, clock: ManualClock):
    for name, session in (("ada", "agent"), ("ada", "other"), ("bob", "agent"), ("eve", "agent")):
        Agent(ledger, name, session=session).start(queued(ledger).id)
    _, _, bobs, eves = ledger.list()
    Agent(ledger, "bob").complete(bobs.id)
    clock.advance(10)
    moved = clock.now()
    Agent(ledger, "eve").complete(eves.id)
    assert ledger.prune(agents_before=moved) == {"agents": 1}
    assert _known(ledger) == [("ada", "agent"), ("ada", "other"), ("eve", "agent")]
    clock.advance(10)
    assert ledger.prune(agents_before=clock.now(), batch=1) == {"agents": 1}
    assert ledger.prune(agents_before=clock.now()) == {"agents": 0}
    assert _known(ledger) == [("ada", "agent"), ("ada", "other")]


def test_an_agent_with_deleted_focus_starts_like_a_new_one(ledger: Ledger, clock: ManualClock):
    ada, made = Agent(ledger, "ada"), queued(ledger)
    ada.resume()
    ada.release(made.id)
    clock.advance(10)
    assert ledger.prune(agents_before=clock.now()) == {"agents": 1}
    brief = ada.resume()
    assert (brief.task and brief.task.id, brief.why, brief.history[0].rev) == (made.id, "next", 1)


# Subqueues


def _count_subqueues(ledger: Ledger) -> int:
    def work(session: Any) -> int:
        return len(session.rows("draws", ids=session._list(range(-99, 99))))

    return near(ledger)._store.transact("work", work)


def _count_slots(ledger: Ledger) -> int:
    def work(session: Any) -> int:
        return len(session.rows("walk_slots", after=0, limit=99))

    return near(ledger)._store.transact("work", work)


def test_subqueues_without_jobs_are_deleted_after_a_day(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=5)
    for number in range(3):
        ledger.enqueue("k", partition=f"p{number}", limits=["api"])
    kept = ledger.enqueue("k", partition="later", delay="7d")
    for job in ledger.claim("w", limit=10, start=True):
        ledger.complete(job.fence)
    assert ledger.claim("w", limit=10) == []
    assert ledger.prune(subqueues_before=clock.now()) == {"subqueues": 0, "slots": 1}
    clock.advance(86_401)
    assert ledger.prune(subqueues_before=clock.now(), batch=2) == {"subqueues": 2, "slots": 0}
    assert ledger.prune(subqueues_before=clock.now(), batch=2) == {"subqueues": 1, "slots": 0}
    assert (_count_subqueues(ledger), _count_slots(ledger)) == (1, 0)
    again = ledger.enqueue("k", partition="p0", limits=["api"])
    assert [job.id for job in ledger.claim("w", limit=10)] == [again.id]
    clock.advance(6 * 86_400)
    assert [job.id for job in ledger.claim("w", limit=10)] == [kept.id]


def _names(ledger: Ledger) -> tuple[list[str], int]:
    """Return the queues that are claimed by subqueues, and how many routes the kind k has in the default queue."""

    def read(session: Any) -> tuple[list[str], int]:
        route = session._table(queues=["default"], workers=[""], kinds=["k"], labels=["[]"])
        return session.flow_queues(9), len(session.rows("find_routes", **route))

    return near(ledger)._store.transact("work", read)


def _drain(ledger: Ledger) -> int:
    done = 0
    while held := ledger.claim("w", limit=10, start=True):
        done += len(held)
        for job in held:
            ledger.complete(job.fence)
    return done


def test_names_that_no_subqueue_has_are_forgotten(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("slow", rate="2/10d", burst=2, by="args.n")
    ledger.set_limit("wide", concurrent=5, by="args.n")
    ledger.set_limit("wide", key="3", concurrent=1)
    ledger.set_queue("weighted", weights={"p": 2})
    for number in range(3):
        ledger.enqueue("k", {"n": number}, limits=["wide", "slow"] if number == 1 else ["wide"])
    assert _drain(ledger) == 3
    assert _names(ledger) == (["default"], 1)
    ledger.prune(subqueues_before=clock.now())
    clock.advance(86_401)
    assert ledger.prune(subqueues_before=clock.now())["subqueues"] == 3
    # A key with numbers of its own stays, and one whose rate does not allow all yet.
    assert [key.key for key in ledger.limit_keys("wide")] == ["3"]
    assert [key.key for key in ledger.limit_keys("slow")] == ["1"]
    assert _names(ledger) == ([], 0)

    plain = ledger.enqueue("k")
    assert [job.id for job in ledger.claim("w", start=True)] == [plain.id]
    for _ in range(3):
        ledger.enqueue("k", {"n": 1}, limits=["wide", "slow"])
    assert _drain(ledger) == 1  # the other token was used two days ago
    assert _names(ledger) == (["default"], 1)
    clock.advance(20 * 86_400)
    assert _drain(ledger) == 2
    clock.advance(20 * 86_400)
    assert _drain(ledger) == 0  # it had waited for the limit
    for _ in range(2):
        ledger.prune(subqueues_before=clock.now())
        clock.advance(3_600)
    assert ledger.limit_keys("slow") == []
    assert _names(ledger) == ([], 0)


def test_subqueues_whose_jobs_were_cancelled_are_deleted_too(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=1)
    held = ledger.enqueue("k", limits=["api"])
    assert [job.id for job in ledger.claim("w")] == [held.id]
    gone = [ledger.enqueue("k", requires=[f"label-{number}"]) for number in range(5)]
    gone.append(ledger.enqueue("k", partition="p", limits=["api"]))
    assert ledger.claim("w") == []
    for job in gone:
        ledger.cancel(job.id)
    ledger.cancel(held.id, hard=True)
    clock.advance(86_401)
    assert sum(ledger.prune(subqueues_before=clock.now(), batch=4)["subqueues"] for _ in range(3)) == 7
    assert _count_subqueues(ledger) == 0
    assert _names(ledger) == ([], 0)


def test_a_process_forgets_the_numbers_of_subqueues_by_the_time_of_the_ledger(ledger: Ledger, store_url: str, clock: ManualClock):
    ledger.enqueue("k", partition="p")
    [job] = ledger.claim("w", start=True)
    ledger.complete(job.fence)
    assert ledger.claim("w") == []
    clock.jump(2 * 86_400)
    with holdfast.open(store_url, clock=clock) as other:
        assert other.prune(subqueues_before=clock.now())["subqueues"] == 1
        again = ledger.enqueue("k", partition="p")
        assert [job.id for job in other.claim("w")] == [again.id]


def test_slots_of_held_jobs_stay(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=2, by="args.n")
    for number in range(4):
        ledger.enqueue("k", {"n": number}, limits=["api"])
    held = sorted((ledger.claim("w", start=True)[0] for _ in range(4)), key=lambda job: job.id)
    for job in held[::2]:
        ledger.complete(job.fence)
    assert ledger.prune(subqueues_before=clock.now()) == {"subqueues": 0, "slots": 2}
    assert [key.used for key in ledger.limit_keys("api")] == [0, 1, 0, 1]
    assert ledger.prune(subqueues_before=clock.now()) == {"subqueues": 0, "slots": 0}


def test_a_walk_through_slots_goes_on_where_it_ended(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", rate="100/1s", by="args.n")
    jobs = [ledger.enqueue("k", {"n": number // 3}, limits=["api"]) for number in range(9)]
    held = {job.id: job for _ in range(9) for job in ledger.claim("w", start=True)}
    fences = [held[job.id].fence for job in jobs]
    for number in (0, 1, 5, 8):
        fence = fences[number]
        ledger.complete(fence)

    def walk(session: Any) -> int:
        return int(session.prune_slots(4))

    assert [near(ledger)._store.transact("work", walk) for _ in range(4)] == [2, 1, 1, 0]
    assert [key.used for key in ledger.limit_keys("api")] == [1, 2, 2]


def test_a_job_whose_last_event_is_not_sealed_is_kept(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    """One call may record several batches of events, and a seal may end between two of them."""
    first, second = (running(ledger) for _ in range(2))
    ledger.complete_many([(first.fence, 1), (second.fence, 2)])
    ends = sorted(event.pos for event in ledger.events(types=["succeeded"]))
    clock.advance(3_600)
    monkeypatch.setattr(SqlSeals, "sealed_pos", lambda _: ends[0])
    assert ledger.prune(jobs_before=ledger.now()) == {"jobs": 1}
    monkeypatch.setattr(SqlSeals, "sealed_pos", lambda _: ends[1])
    assert ledger.prune(jobs_before=ledger.now()) == {"jobs": 1}
