"""`ledger.diagnose`: findings for what is stuck and for what is healthy."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.core.doctor import HealthFinding, Severity
from holdfast.ledger.sweep import SWEEP_DUTY
from holdfast.services import CallableSink, Relay
from holdfast.testing import ManualClock
from tests.contract import builders
from tests.contract.builders import trace
from tests.support.near import near

STORE = {"schema", "durability", "permissions", "disk", "connections", "oldest_transaction", "horizon", "locked_jobs", "clock"}


def wrong(ledger: Ledger) -> dict[str, HealthFinding]:
    """The warnings, except those about the machine that runs the tests."""
    found = ledger.diagnose().findings
    return {finding.code: finding for finding in found if finding.severity is Severity.WARNING and finding.code not in STORE}


def test_an_empty_ledger_has_no_problems(ledger: Ledger, store_url: str):
    found = ledger.diagnose()
    assert (found.ledger_id, found.now) == (ledger.id, ledger.now())
    assert found.store == store_url.partition(":")[0]
    assert wrong(ledger) == {}
    schema = {finding.code: finding for finding in found.findings}["schema"]
    assert schema.severity is Severity.WELL and str(found.schema_version) in schema.words


def test_silent_holders_without_a_sweeper_are_reported(ledger: Ledger, clock: ManualClock):
    builders.running(ledger)
    assert wrong(ledger) == {}
    clock.advance(31)
    before = trace(ledger)
    assert "1 job is due for a sweep" in wrong(ledger)["sweeping"].words
    assert trace(ledger) == before
    ledger.take_duty(SWEEP_DUTY, "w-2", ttl="10s")
    assert wrong(ledger) == {}


def test_undo_steps_without_a_sweeper_are_reported(ledger: Ledger):
    made = builders.running(ledger)
    ledger.heartbeat(made.fence, undo={"kind": "delete_page"})
    ledger.fail(made.fence, "no", retryable=False)
    assert "sweeping" in wrong(ledger)
    ledger.sweep()
    assert "sweeping" not in wrong(ledger)


def test_jobs_that_no_worker_serves_are_reported(ledger: Ledger, clock: ManualClock):
    builders.queued(ledger, queue="crawl")
    builders.queued(ledger, queue="crawl", delay=600)
    clock.advance(61)
    assert "1 job of kind index_page in queue crawl can be claimed, the first for 61 s" in wrong(ledger)["kind_unserved"].words
    ledger.sign_in("w-1", body={"queues": ["crawl"], "kinds": ["other"]})
    assert "kind_unserved" in wrong(ledger)
    ledger.sign_in("w-2", body={"queues": ["crawl"], "kinds": ["index_page"]})
    assert wrong(ledger) == {}


def test_a_paused_queue_is_reported(ledger: Ledger, clock: ManualClock):
    ledger.pause("crawl")
    assert wrong(ledger) == {}
    builders.queued(ledger, queue="crawl")
    clock.advance(61)
    assert list(wrong(ledger)) == ["queue_paused"]


def test_a_dead_sink_is_reported(ledger: Ledger):
    def broken(message: object) -> None:
        raise OSError("out of order")

    builders.queued(ledger)
    Relay(near(ledger), [CallableSink(broken, name="audit", start="beginning", attempts_max=1)]).tick()
    assert wrong(ledger)["sinks"].words == "1 sink is dead: audit (OSError: out of order)"
    ledger.drop_sink("audit")
    assert wrong(ledger) == {}


def test_a_schedule_that_is_late_or_refused_is_reported(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("first")
    ledger.cancel(first.id)
    ledger.set_schedule("hourly", "work", every="1h", depends_on=[first.id], on_dependency_failure="wait")
    clock.advance(3_600 + 90)
    words = wrong(ledger)["schedule_late"].words
    assert words.startswith("schedule hourly should have made a job ")
    ledger.prune(jobs_before=clock.now(), failed_before=clock.now())
    ledger.sweep()
    found = wrong(ledger)
    assert "schedule_late" not in found
    assert found["schedule_refused"].words.startswith("the last firing of schedule hourly had an error: ")
    ledger.set_schedule("hourly", "work", every="1h")
    clock.advance(3_600)
    ledger.sweep()
    assert "schedule_refused" not in wrong(ledger)


def test_a_group_that_cannot_finish_is_reported(ledger: Ledger, clock: ManualClock):
    ledger.group("import", then={"kind": "publish"})
    ledger.group("plain")
    for name in ("import", "plain"):
        ledger.discard(builders.failed(ledger, group=name).id)
        ledger.sweep()
    assert "group_open" not in wrong(ledger)
    clock.advance(86_401)
    assert wrong(ledger)["group_open"].words.startswith("group import is open and has no live job (1 ended)")
    for name in ("import", "plain"):
        ledger.close_group(name)
    assert (
        wrong(ledger)["group_dead"].words == "group import is done, but 1 of 1 job did not succeed: its follow-up job is not made"
    )
    ledger.group("all")
    ledger.group("next", then={"kind": "publish", "group": "all"})
    ledger.cancel_group("all")
    ledger.close_group("next")
    assert "the group 'all' is closed" in wrong(ledger)["group_refused"].words
    ledger.cancel_group("next")
    assert "group_refused" not in wrong(ledger)


def test_a_group_that_waits_for_other_groups_need_not_be_closed(ledger: Ledger, clock: ManualClock):
    ledger.group("year", then={"kind": "publish"})
    ledger.group("month", then={"kind": "load", "group": "year"})
    builders.succeeded(ledger, group="year")
    builders.failed(ledger, group="month")
    ledger.close_group("month")
    ledger.sweep()
    clock.advance(2 * 86_400)
    found = wrong(ledger)
    assert "group_open" not in found
    assert "holdfast group replay month" in found["group_dead"].action
    ledger.cancel_group("month")
    assert "holdfast group close year" in wrong(ledger)["group_open"].action


def test_dead_letters_are_reported_until_they_are_discarded(ledger: Ledger):
    made = builders.dead_lettered(ledger)
    assert wrong(ledger)["dead_letters"].words == "1 dead letter, neither replayed nor discarded"
    ledger.discard(made.id)
    assert wrong(ledger) == {}


@pytest.mark.parametrize("seen_to", ["discarded", "replayed"])
def test_failed_jobs_are_reported_until_they_are_discarded_or_replayed(ledger: Ledger, seen_to: str):
    made = builders.failed(ledger)
    assert wrong(ledger)["failed_jobs"].words == "1 failed job, neither replayed nor discarded"
    if seen_to == "discarded":
        ledger.discard(made.id)
    else:
        replay = ledger.replay(made.id)
        assert wrong(ledger) == {}
        ledger.cancel(replay.id)
        assert "failed_jobs" in wrong(ledger)
        ledger.replay(made.id)
    assert wrong(ledger) == {}


def test_jobs_with_a_failed_dependency_are_reported(ledger: Ledger):
    broken = builders.cancelled(ledger)
    waits = builders.queued(ledger, depends_on=[broken.id], on_dependency_failure="wait")
    builders.queued(ledger, depends_on=[builders.queued(ledger).id])
    assert wrong(ledger)["waits_in_vain"].words == "1 job waiting for a job that failed, was cancelled or dead-lettered"
    ledger.cancel(waits.id)
    assert wrong(ledger) == {}


def test_signed_policies_without_a_server_key_are_reported(ledger: Ledger):
    ledger.set_policy("weld", signed="all")
    assert wrong(ledger)["server_key"].words.startswith("signed: kind weld;")


@pytest.mark.parametrize("seconds", [0, 90, -90])
def test_the_clocks_are_compared(ledger: Ledger, clock: ManualClock, seconds: int):
    found = ledger.diagnose(clock=lambda: clock.now() - timedelta(seconds=seconds))
    [finding] = [finding for finding in found.findings if finding.code == "clock"]
    side = "behind" if seconds < 0 else "ahead of"
    assert f"is {abs(seconds)} s {side} this machine's" in finding.words
    assert (finding.severity is Severity.WARNING) == bool(seconds)


def test_clocks_are_not_compared_without_the_callers_clock(ledger: Ledger):
    assert "clock" not in {finding.code for finding in ledger.diagnose().findings}
    assert "clock" in {finding.code for finding in ledger.diagnose(clock=lambda: datetime.now(UTC)).findings}


def test_a_replay_counts_for_its_dead_letter(ledger: Ledger):
    def letters() -> tuple[str, str]:
        [found] = [finding for finding in ledger.diagnose().findings if finding.code == "dead_letters"]
        return found.severity, found.words

    first = builders.queued(ledger)
    ledger.dead_letter(first.id, reason_code="timeout")
    assert letters() == ("warning", "1 dead letter, neither replayed nor discarded")
    second = ledger.replay(first.id)
    assert letters() == ("note", "1 dead letter, replayed and not discarded")
    ledger.dead_letter(second.id, reason_code="timeout")
    assert letters() == ("warning", "1 dead letter, neither replayed nor discarded; 1 more is replayed")
    third = ledger.replay(second.id)
    assert letters() == ("note", "2 dead letters, replayed and not discarded")
    ledger.cancel(third.id)
    assert letters()[0] == "warning"
    assert ledger.newest_replays([first.id, second.id, third.id]).keys() == {first.id, second.id}


def test_jobs_are_served_if_agents_are_active(ledger: Ledger, clock: ManualClock):
    for _ in range(2):
        builders.queued(ledger, queue="crawl")
    clock.advance(61)
    assert list(wrong(ledger)) == ["kind_unserved"]
    Agent(ledger, "ada").resume(request_id="r")
    assert wrong(ledger) == {}


def history(ledger: Ledger) -> str:
    [found] = [finding for finding in ledger.diagnose().findings if finding.code == "history"]
    assert found.severity is Severity.WELL
    return found.words


def test_the_size_and_growth_of_the_history_are_reported(ledger: Ledger, clock: ManualClock):
    assert "history" not in {finding.code for finding in ledger.diagnose().findings}
    since = ledger.now()
    ledger.enqueue_many([{"kind": "k"}] * 100)
    clock.advance(3600)
    assert f"about 100 events since {since:%Y-%m-%d}, " in history(ledger)
    assert "about 100 came in the last 60 min, " in history(ledger)
    clock.advance(86_400)
    ledger.enqueue_many([{"kind": "k"}] * 7)
    assert 100 <= int(history(ledger).split()[1]) <= 107  # the server may have analyzed the table in between
    assert "about 7 came in the last 24 h, " in history(ledger)


def test_deleted_history_does_not_count(ledger: Ledger, clock: ManualClock):
    for _ in range(3):
        done = builders.running(ledger)
        ledger.complete(done.fence)
    clock.advance(100)
    ledger.prune(jobs_before=ledger.now())
    builders.queued(ledger)
    assert history(ledger).startswith("about 1 event since ")


# Flow control


def test_a_missing_label_is_reported(ledger: Ledger, clock: ManualClock):
    for number in range(3):
        ledger.enqueue("k", {"n": number}, requires=["gripper", "zone:berlin"])
    ledger.enqueue("k", requires=["zone:berlin"])
    ledger.enqueue("k", requires=["gripper"], delay="1d")
    clock.advance(61)
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"], "labels": ["zone:berlin"]})
    assert len(ledger.claim("w-1", limit=10, labels=["zone:berlin"])) == 1
    found = wrong(ledger)["label_missing"]
    words = "3 jobs of kind k in queue default wait, the first for 61 s: no running worker that serves them has the label gripper"
    assert found.words == words
    assert "--label=gripper --label=zone:berlin" in found.action
    ledger.sign_in("w-2", body={"queues": ["default"], "kinds": ["k"], "labels": ["zone:berlin", "gripper"]})
    assert "label_missing" not in wrong(ledger)


def test_jobs_for_a_worker_that_is_gone_are_reported(ledger: Ledger, clock: ManualClock):
    job = ledger.enqueue("k", for_worker="robot-7")
    clock.advance(61)
    ledger.sign_in("robot-8", body={"queues": ["default"], "kinds": ["k"]})
    assert ledger.claim("robot-8") == []
    found = wrong(ledger)["worker_missing"]
    assert "1 job of kind k in queue default" in found.words
    assert "only the worker robot-7 may have it, and it is not running" in found.words
    assert found.action.endswith("Or let any worker have it: holdfast job move ID --any-worker.")
    ledger.sign_in("robot-7", body={"queues": ["default"], "kinds": ["k"]})
    assert "worker_missing" not in wrong(ledger)
    clock.advance(46)
    assert "worker_missing" in wrong(ledger)
    ledger.move(job.id, for_worker=None)
    assert "worker_missing" not in wrong(ledger)


def test_jobs_that_no_worker_may_have_are_no_backlog(ledger: Ledger, clock: ManualClock):
    def backlogs() -> list[str]:
        findings = [*ledger.diagnose().findings, *ledger.overview().findings]
        return [one.words for one in findings if one.code == "backlog"]

    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    ledger.enqueue_many({"kind": "k", "requires": ["gripper"]} for _ in range(3))
    clock.advance(60)
    assert ledger.claim("w-1") == []
    ledger.enqueue("other", requires=["gripper"])
    clock.advance(61)
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    assert "label_missing" in wrong(ledger)
    assert backlogs() == []
    ledger.enqueue("k")
    ledger.enqueue("k", partition="p")
    clock.advance(61)
    ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
    assert backlogs()[0] == "2 jobs in queue default can be claimed, the first for 61 s"


def test_jobs_of_a_removed_limit_are_noted(ledger: Ledger):
    ledger.set_limit("api", concurrent=1, by="args.n")
    ledger.set_limit("other", concurrent=1)
    for number in range(3):
        ledger.enqueue("k", {"n": number}, limits=["api", "other"])
    assert "limit_removed" not in {one.code for one in ledger.diagnose().findings}
    ledger.remove_limit("api")
    [found] = [one for one in ledger.diagnose().findings if one.code == "limit_removed"]
    assert found.severity is Severity.NOTE
    assert "3 jobs draw on the limit api, which was removed: they go on without it" in found.words
    assert len(ledger.claim("w", limit=5)) == 1
    for job in ledger.list(status="queued"):
        ledger.cancel(job.id)
    assert "limit_removed" not in {one.code for one in ledger.diagnose().findings}


def test_jobs_that_draw_more_than_a_limit_has_are_reported(ledger: Ledger):
    ledger.set_limit("api", concurrent=5, by="args.n")
    for number in (1, 2, 2):
        ledger.enqueue("k", {"n": number}, limits={"api": 4})
    ledger.set_limit("api", key="2", concurrent=3)
    assert "2 jobs draw 4 units of the limit api for 2, which has fewer" in wrong(ledger)["limit_too_small"].words
    assert "holdfast limit get api" in wrong(ledger)["limit_too_small"].action
    ledger.set_limit("api", key="2")
    assert wrong(ledger) == {}
