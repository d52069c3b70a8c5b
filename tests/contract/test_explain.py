"""`ledger.explain`: every situation of a job is recognised, with what comes next and what would change it."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Ledger, draw_key
from holdfast.core.explain import Explanation, Situation
from holdfast.core.model import Status
from holdfast.ledger.sweep import SWEEP_DUTY
from holdfast.testing import ManualClock
from tests.contract import builders
from tests.contract.builders import WINDOW, refused, trace

SITUATIONS: dict[Situation, Callable[[Ledger, ManualClock], int]] = {}
"""How to get a job into each situation. There is no sweeper and no worker unless the builder adds one."""
SAYS: dict[Situation, tuple[str, str]] = {}
"""What the text of each situation contains, and how the first command begins."""
_numbers = itertools.count(1)


def situation(name: Situation, words: str, command: str = "job cancel") -> Callable[..., Any]:
    def keep(build: Callable[[Ledger, ManualClock], int]) -> Callable[[Ledger, ManualClock], int]:
        SITUATIONS[name], SAYS[name] = build, (words, command)
        return build

    return keep


def served(ledger: Ledger, **options: Any) -> int:
    """A queued job that a worker serves."""
    queue = f"served-{next(_numbers)}"
    ledger.sign_in("w-1", body={"queues": [queue], "kinds": ["index_page"]})
    return builders.queued(ledger, queue=queue, **options).id


def swept(ledger: Ledger) -> None:
    assert ledger.take_duty(SWEEP_DUTY, "w-2", ttl="10m")


@situation(Situation.NO_WORKER, "No worker serves index_page in q-", "job move")
def _no_worker(ledger: Ledger, clock: ManualClock) -> int:
    ledger.sign_in("w-1", body={"queues": ["elsewhere"], "kinds": ["index_page"]})
    return builders.queued(ledger).id


@situation(Situation.READY, "It may be claimed, and is the next of its queue; it has been ready for 0 s.")
def _ready(ledger: Ledger, clock: ManualClock) -> int:
    return served(ledger)


@situation(Situation.QUEUED_BEHIND, "It may be claimed, but jobs of a higher priority wait in this queue.", "worker run")
def _behind(ledger: Ledger, clock: ManualClock) -> int:
    made = served(ledger)
    queue = ledger.get(made).queue
    ledger.enqueue("index_page", queue=queue, priority=1)
    ledger.enqueue("index_page", queue=queue, priority=-1)
    ledger.enqueue("index_page", queue=queue, priority=1, delay=60)
    return made


@situation(Situation.POSTPONED, "Such calls can postpone it further: in 10 min (00:10:00Z) at the latest.")
def _postponed(ledger: Ledger, clock: ManualClock) -> int:
    made = served(ledger, dedupe_key="d", delay=60)
    clock.advance(1)
    ledger.enqueue("index_page", queue=ledger.get(made).queue, dedupe_key="d", delay=60, on_duplicate="postpone")
    return made


@situation(Situation.SCHEDULED, "It was enqueued for later, and may be claimed in 60 min (01:00:00Z).")
def _scheduled(ledger: Ledger, clock: ManualClock) -> int:
    return served(ledger, delay=3600)


@situation(Situation.BACKOFF, "It waits before it is tried again, and may be claimed in 0.", "worker run")
def _backoff(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger)
    ledger.fail(made.fence, ValueError("no answer"))
    return made.id


@situation(Situation.QUEUE_PAUSED, "which was paused 0 s ago (00:00:00Z) by client.", "queue unpause")
def _paused(ledger: Ledger, clock: ManualClock) -> int:
    made = served(ledger)
    ledger.pause(ledger.get(made).queue)
    return made


@situation(Situation.LIMIT_USED_UP, "for 1 is used up: 2 of 2 are in use. It draws 2 units. It takes turns", "limit get")
def _limit_used_up(ledger: Ledger, clock: ManualClock) -> int:
    name = f"api-{next(_numbers)}"
    ledger.set_limit(name, concurrent=2, by="args.n")
    made = [served(ledger, limits={name: 2}) for _ in range(2)]
    ledger.claim("w-1", [ledger.get(made[0]).queue])
    return made[1]


@situation(Situation.LIMIT_TOO_SMALL, "It can never start: it draws 4 units of the limit api-", "limit get")
def _limit_too_small(ledger: Ledger, clock: ManualClock) -> int:
    name = f"api-{next(_numbers)}"
    ledger.set_limit(name, concurrent=5)
    made = served(ledger, limits={name: 4})
    ledger.set_limit(name, concurrent=3)
    return made


@situation(Situation.NO_WORKER_WITH_LABELS, "It requires the label gripper, which no running worker", "worker run")
def _no_label(ledger: Ledger, clock: ManualClock) -> int:
    queue = ledger.get(made := served(ledger, requires=["gripper", "zone:berlin"])).queue
    ledger.sign_in("w-1", body={"queues": [queue], "kinds": ["index_page"], "labels": ["zone:berlin"]})
    return made


@situation(Situation.CLAIMED, "w-1 has claimed it and has not started it yet. Its last heartbeat came 0 s ago (00:00:00Z).")
def _claimed(ledger: Ledger, clock: ManualClock) -> int:
    return builders.claimed(ledger).id


@situation(Situation.RUNNING, "w-1 runs it. Its last heartbeat came 2 s ago (00:00:05Z).")
def _running(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger)
    clock.advance(5)
    ledger.heartbeat(made.fence, stage="TASK", progress=3)
    clock.advance(2)
    return made.id


@situation(
    Situation.BEATS_LATE,
    "w-1 is late: a beat is due every 10 s. Its last heartbeat came 11 s ago (00:00:00Z). Without another beat",
)
def _late(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger)
    clock.advance(11)
    return made.id


@situation(Situation.NO_PROGRESS, "have not changed for 45 s. Without progress it stalls in 15 s (00:01:00Z).")
def _no_progress(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger, policy={"progress_timeout": "60s"})
    for _ in range(5):
        clock.advance(9)
        ledger.heartbeat(made.fence)
    return made.id


@situation(Situation.ASSISTED, "w-1 runs it, and an operator helps.")
def _assisted(ledger: Ledger, clock: ManualClock) -> int:
    return builders.assisted(ledger).id


@situation(
    Situation.ABORTING,
    "cancelled (not needed): w-1 is asked to stop, and may continue for another 30 s (until 00:00:30Z).",
    "job cancel 1 --hard",
)
def _aborting(ledger: Ledger, clock: ManualClock) -> int:
    return builders.aborting(ledger).id


@situation(Situation.STALL_DUE, "A sweep was due 1 s ago (00:00:30Z): w-2 does it with its next tick.", "sweep")
def _stall_due(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger)
    swept(ledger)
    clock.advance(31)
    return made.id


@situation(Situation.NO_SWEEPER, "A sweep was due 1 s ago (00:01:00Z), but no worker sweeps.", "sweep")
def _unswept(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running_stalled(ledger)
    clock.advance(61)
    return made.id


@situation(Situation.RESUME_WINDOW, "w-1 may still return and continue, for another 60 s (until 00:01:00Z).")
def _window(ledger: Ledger, clock: ManualClock) -> int:
    return builders.running_stalled(ledger).id


@situation(Situation.RESUME_DUE, "w-1 sent a heartbeat again 0 s ago (00:00:05Z), and gets it back.")
def _revived(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running_stalled(ledger)
    swept(ledger)
    clock.advance(5)
    ledger.heartbeat(made.fence)
    return made.id


@situation(Situation.REQUEUE_DUE, "Its holder did not return in time: it is due to be requeued. A sweep was due", "sweep")
def _requeue_due(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running_stalled(ledger)
    swept(ledger)
    clock.advance(61)
    return made.id


@situation(Situation.CANCEL_DUE, "It was being cancelled (not needed), and will not run again.")
def _cancel_due(ledger: Ledger, clock: ManualClock) -> int:
    return builders.aborting_stalled(ledger).id


@situation(Situation.REQUEUED, "Attempt 1, by w-1, ended: its holder fell silent (NO_HEARTBEAT).")
def _requeued(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger)
    clock.advance(31)
    ledger.sweep()
    clock.advance(1)
    ledger.sign_in("w-1", body={"queues": [ledger.get(made.id).queue]})
    return made.id


@situation(Situation.SUCCEEDED, "It succeeded 0 s ago (00:00:00Z), in attempt 1, by w-1.", "")
def _succeeded(ledger: Ledger, clock: ManualClock) -> int:
    return builders.succeeded(ledger).id


@situation(Situation.FAILED, "It failed 0 s ago (00:00:00Z) (permanent, in exec), in attempt 1: no such page.", "job replay")
def _failed(ledger: Ledger, clock: ManualClock) -> int:
    return builders.failed(ledger).id


@situation(Situation.CANCELLED, "It was cancelled 0 s ago (00:00:00Z): requested.", "job replay")
def _cancelled(ledger: Ledger, clock: ManualClock) -> int:
    return builders.cancelled(ledger).id


@situation(Situation.DEAD_LETTERED, "(policy_violation, in exec), after 1 attempt.", "dlq replay")
def _dead_lettered(ledger: Ledger, clock: ManualClock) -> int:
    return builders.dead_lettered(ledger).id


@situation(Situation.EXHAUSTED, "(exhausted_retries, in exec), after 1 of 1 attempts: no answer.", "dlq replay")
def _exhausted(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger, policy={"attempts_max": 1})
    ledger.fail(made.fence, "no answer")
    return made.id


@situation(Situation.REPLAYED, "It was replayed as job 2, which is queued.", "explain 2")
def _replayed(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.dead_lettered(ledger)
    ledger.replay(made.id)
    return made.id


@situation(Situation.COMPENSATION_OWED, "It has 1 undo step left to run, and there is no undo job yet.", "sweep")
def _owed(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.running(ledger)
    ledger.heartbeat(made.fence, undo={"kind": "delete_page", "args": {"n": 1}})
    ledger.fail(made.fence, "no such page", retryable=False)
    return made.id


@situation(Situation.COMPENSATION_FAILED, "Its undo steps failed: an operator has to look at it.", "explain 2")
def _compensation_failed(ledger: Ledger, clock: ManualClock) -> int:
    made = _owed(ledger, clock)
    ledger.sweep()
    [undo] = [job for job in ledger.list(kind="holdfast.undo") if job.dedupe_key == f"holdfast.undo/{made}"]
    ledger.cancel(undo.id)
    ledger.sweep()
    return made


@situation(Situation.NO_SERVER_KEY, "and no server key is valid: every sweep skips it.", "key new")
def _no_key(ledger: Ledger, clock: ManualClock) -> int:
    made = builders.claimed(ledger, policy={"signed": "liveness"})
    swept(ledger)
    clock.advance(31)
    return made.id


@situation(Situation.WAITS_FOR_DEPENDENCY, "It waits for job 1 (queued).", "explain 1")
def _waiting(ledger: Ledger, clock: ManualClock) -> int:
    return served(ledger, depends_on=[builders.queued(ledger).id])


@situation(Situation.DEPENDENCY_FAILED, "It waits for 2 jobs: 1 (queued), 2 (failed), and 2 will not succeed.", "job replay 2")
def _dependency_failed(ledger: Ledger, clock: ManualClock) -> int:
    return served(ledger, depends_on=[builders.queued(ledger).id, builders.failed(ledger).id], on_dependency_failure="wait")


def test_a_job_that_ended_with_its_dependency_names_it(ledger: Ledger):
    broken = builders.failed(ledger)
    made = builders.queued(ledger, depends_on=[broken.id])
    found = ledger.explain(made.id)
    assert f"dependency {broken.id} failed" in found.text
    assert f"It depends on job {broken.id} (failed)." in found.text
    commands = [one.command for one in found.commands]
    assert commands[:2] == [f"holdfast job replay {broken.id}", f"holdfast dlq replay {made.id}"]

    ledger.replay(broken.id)
    assert "It depends on" not in ledger.explain(made.id).text


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_situation_is_recognised(ledger: Ledger, clock: ManualClock, name: Situation):
    job_id = SITUATIONS[name](ledger, clock)
    before = trace(ledger)
    found = ledger.explain(job_id)
    job = ledger.get(job_id)
    assert found.situation is name
    assert (found.status, found.phase, found.holder, found.attempt) == (job.status, job.phase, job.owner, job.attempt)
    assert found.now == clock.now()
    assert (found.why_not_running is None) == (job.status is Status.RUNNING)
    assert found.text.startswith(f"Job {job_id} (index_page, in queue {job.queue}) is ")
    words, command = SAYS[name]
    assert words in found.text
    assert commands(found)[0].startswith(f"holdfast {command}") if command else commands(found) == []
    assert all(step.at is None or step.by for step in found.next)
    assert trace(ledger) == before


def test_every_situation_has_a_test_case():
    assert {*SITUATIONS} == {*Situation}


def test_the_announced_time_of_a_waiting_job_is_kept_when_it_is_unblocked(ledger: Ledger, clock: ManualClock):
    parent = builders.running(ledger)
    made = served(ledger, depends_on=[parent.id], delay=3_600)
    announced = ledger.explain(made).next[0]
    assert announced.at == clock.now() + timedelta(hours=1)
    assert "Besides: it was enqueued for later, and may not be claimed before its time" in ledger.explain(made).text
    ledger.complete(parent.fence)
    found = ledger.explain(made)
    assert (found.situation, found.next[0].at) == (Situation.SCHEDULED, announced.at)


def test_a_used_up_limit_is_named_with_its_key(ledger: Ledger, clock: ManualClock):
    found = ledger.explain(made := _limit_used_up(ledger, clock))
    [name] = ledger.get(made).limits
    assert f"The limit {name} for 1 is used up: 2 of 2 are in use. It draws 2 units." in found.text
    assert commands(found)[0] == f"holdfast limit get {name}"
    assert ledger.explain(made, to_claim=True).situation is Situation.LIMIT_USED_UP


def test_the_next_start_of_a_rate_is_announced(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", rate="60/1m", burst=1)
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    jobs = [ledger.enqueue("k", limits=["api"]) for _ in range(4)]
    assert len(ledger.claim("w-1", limit=10)) == 1
    clock.advance(0.25)
    found = [ledger.explain(job.id) for job in jobs[1:]]
    assert {one.situation for one in found} == {Situation.LIMIT_USED_UP}
    assert [one.next[0].at for one in found] == [clock.now() + timedelta(seconds=seconds) for seconds in (0.75, 1.75, 2.75)]
    assert "The rate of the limit api is used up: it may start in 0.8 s" in found[0].text
    clock.advance(0.75)
    assert ledger.explain(jobs[1].id).situation is Situation.READY
    ledger.remove_limit("api")
    assert [ledger.explain(job.id).situation for job in jobs[1:3]] == [Situation.READY, Situation.QUEUED_BEHIND]


def test_the_missing_label_is_named(ledger: Ledger, clock: ManualClock):
    made = _no_label(ledger, clock)
    found = ledger.explain(made)
    queue = ledger.get(made).queue
    assert f"It requires the label gripper, which no running worker that serves index_page in {queue} has." in found.text
    assert commands(found)[0] == f"holdfast worker run MODULE:APP --queues {queue} --label=gripper --label=zone:berlin"
    ledger.sign_in("w-2", body={"queues": [queue], "kinds": ["index_page"], "labels": ["gripper"]})
    assert "no running worker that serves index_page" in ledger.explain(made).text
    assert "has all of them" in ledger.explain(made).text
    ledger.sign_in("w-3", body={"queues": [queue], "kinds": ["index_page"], "labels": ["gripper", "zone:berlin", "gpu:2"]})
    assert ledger.explain(made).situation is Situation.READY


def test_the_worker_of_a_job_is_named_and_how_to_free_the_job_if_it_is_gone(ledger: Ledger, clock: ManualClock):
    made = served(ledger, for_worker="robot-7")
    queue = ledger.get(made).queue
    found = ledger.explain(made)
    assert found.situation is Situation.NO_WORKER_WITH_LABELS
    assert "It is for the worker robot-7 only. robot-7 is not signed in to this ledger." in found.text
    assert commands(found)[0] == f"holdfast job move {made} --any-worker"
    ledger.sign_in("robot-7", body={"queues": [queue], "kinds": ["index_page"]})
    assert "It may be claimed by the worker robot-7 only, and is the next of its kind" in ledger.explain(made).text
    clock.advance(60)
    assert "robot-7 fell silent 60 s ago" in ledger.explain(made).text
    ledger.sign_in("w-1", body={"queues": [queue], "kinds": ["index_page"]})
    ledger.move(made, for_worker=None)
    assert ledger.explain(made).situation is Situation.READY


def test_the_turn_of_a_partition_is_explained(ledger: Ledger, clock: ManualClock):
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    jobs = [ledger.enqueue("k", partition="acme") for _ in range(3)]
    for _ in range(5):
        ledger.enqueue("k", partition="other")
    found = [ledger.explain(job.id) for job in jobs]
    assert [one.situation for one in found] == [Situation.READY, Situation.QUEUED_BEHIND, Situation.QUEUED_BEHIND]
    assert "is the next of its partition acme" in found[0].text
    assert "2 jobs of its partition acme come first. The partitions of a queue take turns." in found[2].text


@pytest.mark.parametrize("options", [{}, {"partition": "low"}, {"partition": "big"}, {"requires": ["gpu"]}])
def test_a_job_says_that_jobs_of_a_higher_priority_wait(ledger: Ledger, clock: ManualClock, options: dict[str, Any]):
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"], "labels": ["gpu"]})
    ledger.enqueue_many({"kind": "k", "partition": "big", "priority": 5} for _ in range(30))
    ledger.enqueue_many({"kind": "k", "priority": 3} for _ in range(2))
    low = [ledger.enqueue("k", priority=-5, **options) for _ in range(3)]
    first, _, last = [ledger.explain(job.id) for job in low]
    assert (first.situation, last.situation) == (Situation.QUEUED_BEHIND, Situation.QUEUED_BEHIND)
    like = f"of its partition {options['partition']}" if "partition" in options else "like it" if options else "of its queue"
    assert "It may be claimed, but jobs of a higher priority wait in this queue." in first.text
    assert first.next[0].what == "it is claimed after the jobs of a higher priority that may start"
    assert f"It may be claimed, but jobs of a higher priority wait in this queue, and 2 jobs {like} come first." in last.text
    assert last.next[0].what == "it is claimed after the jobs of a higher priority that may start and 2 jobs"
    assert "is the next" not in first.text
    assert len(ledger.claim("w-1", labels=["gpu"], limit=32)) == 32
    assert ledger.explain(low[0].id).situation is Situation.READY


@pytest.mark.parametrize("options", [{}, {"partition": "big"}])
def test_jobs_of_a_higher_priority_that_are_not_available_yet_do_not_wait(
    ledger: Ledger, clock: ManualClock, options: dict[str, Any]
):
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    for partition in (None, "big"):
        ledger.enqueue("k", priority=9, delay=60, partition=partition)
    ledger.enqueue("k", queue="other", priority=9, partition="big")
    made = ledger.enqueue("k", **options)
    assert ledger.explain(made.id).situation is Situation.READY
    clock.advance(60)
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    assert "jobs of a higher priority wait in this queue" in ledger.explain(made.id).text


def test_a_plain_job_takes_turns_with_partitions_of_its_priority(ledger: Ledger, clock: ManualClock):
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    made = ledger.enqueue("k")
    assert "is the next of its queue" in ledger.explain(made.id).text
    other = ledger.enqueue("k", requires=[], partition="p")
    found = ledger.explain(made.id)
    assert found.situation is Situation.READY
    assert "is the next of the jobs without a partition, limits and labels" in found.text
    assert "It takes turns with other jobs of its priority." in found.text
    assert "The partitions of a queue take turns." in ledger.explain(other.id).text


def test_a_rate_is_shared_with_the_jobs_ahead_in_the_subqueue(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", rate="60/1m", burst=1)
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    ledger.enqueue_many({"kind": "k", "limits": {"api": 1}} for _ in range(100))
    last = ledger.enqueue("k", limits=["api"])
    found = ledger.explain(last.id)
    assert found.next[0].at == clock.now() + timedelta(seconds=100)
    assert "The rate of the limit api lets it start in 100 s" in found.text
    assert len(ledger.claim("w-1", limit=1_000)) == 1
    found = ledger.explain(last.id)
    assert found.situation is Situation.LIMIT_USED_UP
    assert found.next[0].at == clock.now() + timedelta(seconds=100)
    assert "it may start in 100 s" in found.text
    assert "at the earliest" in found.text
    assert "Besides: 99 jobs like it come first." in found.text


def test_a_running_job_shows_its_last_heartbeat_and_its_limit(ledger: Ledger, clock: ManualClock):
    found = ledger.explain(_running(ledger, clock))
    assert found.last_proof_of_life is not None
    assert (found.last_proof_of_life.at, found.last_proof_of_life.age_ms) == (clock.now() - timedelta(seconds=2), 2_000)
    assert (found.stage, found.progress, found.since) == ("TASK", 3, clock.now() - timedelta(seconds=7))
    assert [step.at for step in found.next] == [clock.now() + timedelta(seconds=8), clock.now() + timedelta(seconds=28)]
    assert found.policy.stall_after_ms == 30_000


def commands(found: Explanation) -> list[str]:
    return [remedy.command for remedy in found.commands]


def test_suggested_commands_can_be_typed_as_they_are(ledger: Ledger, clock: ManualClock):
    dead = _dead_lettered(ledger, clock)
    assert commands(ledger.explain(dead))[0] == f"holdfast dlq replay {dead}"
    odd = builders.queued(ledger, queue="it's odd")
    ledger.pause("it's odd")
    assert commands(ledger.explain(odd.id))[0] == "holdfast queue unpause 'it'\"'\"'s odd'"


def test_a_live_replay_is_suggested_instead_of_a_new_one(ledger: Ledger, clock: ManualClock):
    made = builders.failed(ledger)
    replay = ledger.replay(made.id)
    assert commands(ledger.explain(made.id)) == [f"holdfast explain {replay.id}"]
    ledger.cancel(replay.id)
    assert commands(ledger.explain(made.id)) == [f"holdfast explain {replay.id}", f"holdfast job replay {made.id}"]


def test_signed_jobs_are_sweepable_with_a_server_key(store_url: str, clock: ManualClock):
    with holdfast.open(store_url, clock=clock, keys=[server := draw_key("server", "main")]) as ledger:
        ledger.enrol_key(server.public, role="server", name="main")
        assert ledger.explain(_no_key(ledger, clock)).situation is Situation.STALL_DUE


def test_an_expired_duty_has_no_holder(ledger: Ledger, clock: ManualClock):
    made = builders.running(ledger)
    ledger.take_duty(SWEEP_DUTY, "w-2", ttl="10s")
    assert ledger.explain(made.id).next[-1].by == "the sweeper, w-2"
    clock.advance(11)
    assert ledger.explain(made.id).next[-1].by == "the next sweeper"


def test_workers_may_sign_in_with_any_details(ledger: Ledger):
    made = builders.queued(ledger)
    ledger.sign_in("w-1", body={"queues": "all", "kinds": {"index_page": 1}})
    assert ledger.explain(made.id).situation is Situation.READY


def test_the_policy_is_that_of_the_lease_or_of_the_next_claim(ledger: Ledger):
    ledger.set_policy("index_page", attempts_max=7)
    made = builders.queued(ledger)
    assert ledger.explain(made.id).attempts_max == 7
    builders.claim(ledger, made.id)
    ledger.set_policy("index_page", attempts_max=9)
    assert ledger.explain(made.id).attempts_max == 7


def test_an_unknown_job_is_not_found(ledger: Ledger):
    with refused("not_found"):
        ledger.explain(7)
    with refused("validation_error"):
        ledger.explain("7")  # type: ignore[arg-type]


def test_a_resume_window_ends_with_a_requeue(ledger: Ledger, clock: ManualClock):
    made = builders.running_stalled(ledger, policy=WINDOW)
    [step] = ledger.explain(made.id).next
    assert (step.what, step.at) == ("it is requeued", clock.now() + timedelta(seconds=60))
    clock.advance(60)
    ledger.sweep()
    assert ledger.get(made.id).status is Status.QUEUED
