"""Schedules: what they store, when they make jobs, and what they do about missed firings and overlaps."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Job, Ledger
from holdfast.core import limits
from holdfast.testing import ManualClock
from tests.contract.builders import WORKER, held, refused, refused_without_trace


def jobs(ledger: Ledger) -> list[Job]:
    return list(ledger.list(order="oldest", limit=1_000))


def tick(ledger: Ledger, clock: ManualClock, seconds: float) -> list[int]:
    """Let time pass, sweep, and return the ids of new jobs."""
    before = {job.id for job in jobs(ledger)}
    clock.advance(seconds)
    ledger.sweep()
    return [job.id for job in jobs(ledger) if job.id not in before]


def test_jobs_of_a_schedule_go_to_the_queue_that_their_handler_declares(ledger: Ledger):
    assert ledger.set_schedule("nightly", "report", every="15m").queue == "default"
    ledger.declare_policy("report", queue="reports")
    assert ledger.set_schedule("nightly", "report", every="15m").queue == "reports"
    assert ledger.set_schedule("nightly", "report", every="15m", queue="default").queue == "default"
    assert ledger.declare_schedules("report", {"weekly": {"every": "7d"}}) == []
    assert ledger.schedule("weekly").queue == "reports"


def test_jobs_of_a_schedule_have_the_limits_and_labels_that_their_handler_declares(ledger: Ledger):
    ledger.set_limit("api", concurrent=2)
    ledger.declare_policy("report", queue="reports", limits=["api"], requires=["gpu"])
    assert ledger.set_schedule("nightly", "report", every="15m").options == {"limits": {"api": 1}, "requires": ["gpu"]}
    assert ledger.set_schedule("nightly", "report", every="15m", requires=["tpu"]).options["requires"] == ["tpu"]
    assert ledger.set_schedule("nightly", "report", every="15m", queue="reports").options == {}


def test_a_schedule_makes_a_job_at_each_of_its_times(ledger: Ledger, clock: ManualClock):
    made = ledger.set_schedule("quarterly", "report", {"page": 1}, every="15m", queue="reports", priority=3, tier="interactive")
    assert (made.name, made.kind, made.queue, made.args) == ("quarterly", "report", "reports", {"page": 1})
    assert made.options == {"priority": 3, "tier": "interactive"}
    assert (made.every_s, made.cron, made.missed, made.overlap, made.fired, made.declared) == (
        900,
        None,
        "one",
        "allow",
        0,
        False,
    )
    assert made.next_at is not None
    first = made.next_at
    assert tick(ledger, clock, (first - clock.now()).total_seconds() - 0.001) == []
    [job_id] = tick(ledger, clock, 0.001)
    job = ledger.get(job_id)
    assert (job.kind, job.queue, job.priority, job.tier, job.args, job.available_at) == (
        "report",
        "reports",
        3,
        "interactive",
        {"page": 1},
        first,
    )
    [event] = ledger.events(job_id)
    assert str(event.actor) == "client:schedule:quarterly"
    assert event.request_id == f"quarterly@{first.isoformat().replace('+00:00', 'Z')}"
    assert tick(ledger, clock, 1) == []
    found = ledger.schedule("quarterly")
    assert (found.last_at, found.last_job, found.fired, found.skipped) == (first, job_id, 1, 0)
    assert found.next_at == first + timedelta(minutes=15)
    assert len(tick(ledger, clock, 900)) == 1
    assert ledger.check(job_id) == []


def test_a_cron_schedule_follows_its_time_zone(ledger: Ledger, clock: ManualClock):
    made = ledger.set_schedule("nightly", "report", cron="0 3 * * *", tz="Europe/Berlin")
    times = ledger.next_firings("nightly", count=400)
    assert times[0] == made.next_at
    assert {at.astimezone(UTC).hour for at in times} == {1, 2}  # summer and winter
    assert len(times) == 400
    assert ledger.next_firings(cron="0 3 * * *", tz="Europe/Berlin", count=400) == times


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "name"),
        ({"cron": "0 3 * * *", "every": "1h"}, "cron"),
        ({"name": "s", "every": "1h"}, "name"),
        ({"name": "s", "tz": "Europe/Berlin"}, "name"),
        ({"name": ""}, "name"),
    ],
)
def test_firings_are_those_of_a_name_or_of_times(ledger: Ledger, given: dict[str, Any], field: str):
    with refused_without_trace(ledger, "validation_error") as caught:
        ledger.next_firings(**given)
    assert caught.value.context["field"] == field


@pytest.mark.parametrize(("missed", "made", "skipped"), [("skip", 0, 5), ("one", 1, 4), ("all", 5, 0)])
def test_missed_firings(ledger: Ledger, clock: ManualClock, missed: str, made: int, skipped: int):
    clock.advance((60 - clock.now().minute) * 60)
    ledger.set_schedule("hourly", "report", every="1h", missed=missed)
    first = ledger.schedule("hourly").next_at
    assert first is not None
    found = tick(ledger, clock, (first - clock.now()).total_seconds() + 4 * 3_600 + 120)
    assert len(found) == made
    after = ledger.schedule("hourly")
    assert (after.fired, after.skipped, after.next_at) == (made, skipped, first + timedelta(hours=5))
    if missed == "all":
        assert [ledger.get(id_).available_at for id_ in found] == [first + timedelta(hours=n) for n in range(5)]
    if missed == "one":
        assert ledger.get(found[0]).available_at == first + timedelta(hours=4)


def test_many_missed_firings_are_made_in_bounded_steps(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("often", "report", every="1s", missed="all")
    assert len(tick(ledger, clock, 250)) == limits.FIRINGS_MAX
    assert len(tick(ledger, clock, 0)) == limits.FIRINGS_MAX
    assert len(tick(ledger, clock, 0)) == 50
    assert tick(ledger, clock, 0) == []


@pytest.mark.parametrize(("overlap", "made"), [("allow", 3), ("skip", 1), ("cancel", 3)])
def test_a_firing_while_the_job_before_has_not_ended(ledger: Ledger, clock: ManualClock, overlap: str, made: int):
    ledger.set_schedule("s", "report", every="10s", overlap=overlap)
    for _ in range(3):
        tick(ledger, clock, 10)
    found = jobs(ledger)
    assert len(found) == made
    if overlap == "cancel":
        assert [job.status.value for job in found] == ["cancelled", "cancelled", "queued"]
        assert found[0].cancel_reason == "the next firing of its schedule"
        assert str(ledger.events(found[0].id)[-1].actor) == "client:schedule:s"
    if overlap == "skip":
        assert ledger.schedule("s").skipped == 2
        [job] = ledger.claim(WORKER, start=True)
        ledger.complete(held(job))
        assert len(tick(ledger, clock, 10)) == 1


def test_a_running_job_is_asked_to_stop_by_the_next_firing(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="10s", overlap="cancel")
    [first] = tick(ledger, clock, 10)
    ledger.claim(WORKER, start=True)
    [second] = tick(ledger, clock, 10)
    assert ledger.get(first).cancel_requested_at is not None
    assert ledger.get(second).status.value == "queued"


def test_a_firing_whose_dedupe_key_is_taken_is_skipped(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="10s", dedupe_key="report")
    assert len(tick(ledger, clock, 10)) == 1
    assert tick(ledger, clock, 10) == []
    assert (ledger.schedule("s").fired, ledger.schedule("s").skipped) == (1, 1)


def test_a_schedule_ends(ledger: Ledger, clock: ManualClock):
    start = clock.now() + timedelta(minutes=5)
    ledger.set_schedule("s", "report", every="1m", start=start, end=start + timedelta(minutes=2), missed="all")
    assert ledger.next_firings("s") == [start + timedelta(minutes=n) for n in range(3)]
    assert tick(ledger, clock, 299) == []
    assert len(tick(ledger, clock, 3_600)) == 3
    found = ledger.schedule("s")
    assert (found.next_at, found.fired) == (None, 3)
    assert tick(ledger, clock, 3_600) == []


def test_a_paused_schedule_makes_no_jobs_and_misses_none(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="1m", missed="all")
    paused = ledger.pause_schedule("s", actor="kim")
    assert (paused.paused_by, paused.next_at) == ("kim", None)
    assert ledger.pause_schedule("s", actor="lee").paused_by == "kim"
    assert tick(ledger, clock, 600) == []
    resumed = ledger.resume_schedule("s")
    assert resumed.paused_at is None and resumed.next_at is not None
    left = (resumed.next_at - clock.now()).total_seconds()
    assert 0 < left <= 60
    assert tick(ledger, clock, left - 0.001) == []
    assert len(tick(ledger, clock, 0.001)) == 1
    assert (ledger.schedule("s").fired, ledger.schedule("s").skipped) == (1, 0)


def test_a_job_is_made_at_once(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", {"n": 1}, every="1h", delay="5s")
    before = ledger.schedule("s")
    job = ledger.run_schedule("s", actor="kim", request_id="now-1")
    assert (job.kind, job.args, job.available_at) == ("report", {"n": 1}, clock.now() + timedelta(seconds=5))
    assert str(ledger.events(job.id)[0].actor) == "operator:kim"
    assert ledger.run_schedule("s", actor="kim", request_id="now-1").id == job.id
    assert len(jobs(ledger)) == 1
    assert ledger.schedule("s") == before


def test_a_schedule_that_is_set_again_keeps_its_next_time_unless_its_times_change(ledger: Ledger, clock: ManualClock):
    first = ledger.set_schedule("s", "report", {"n": 1}, every="1h")
    clock.advance(60)
    again = ledger.set_schedule("s", "report", {"n": 2}, every="1h", overlap="skip")
    assert (again.next_at, again.args, again.overlap, again.created_at) == (first.next_at, {"n": 2}, "skip", first.created_at)
    other = ledger.set_schedule("s", "report", {"n": 2}, every="1m")
    assert other.next_at is not None and first.next_at is not None and other.next_at < first.next_at


def test_a_repeated_request_sets_a_schedule_once(ledger: Ledger):
    ledger.set_schedule("s", "report", every="1h", request_id="r-1")
    ledger.remove_schedule("s")
    with refused("not_found"):
        ledger.set_schedule("s", "report", every="1h", request_id="r-1")
    with refused("idempotency_conflict"):
        ledger.set_schedule("s", "report", every="2h", request_id="r-1")


def test_schedules_are_listed_by_name(ledger: Ledger):
    for name in ("b", "c", "a"):
        ledger.set_schedule(name, "report", every="1h")
    assert [one.name for one in ledger.schedules()] == ["a", "b", "c"]
    assert [one.name for one in ledger.schedules(after="a", limit=1)] == ["b"]
    ledger.remove_schedule("b")
    assert [one.name for one in ledger.schedules()] == ["a", "c"]


@pytest.mark.parametrize(
    "verb", ["schedule", "next_firings", "pause_schedule", "resume_schedule", "remove_schedule", "run_schedule"]
)
def test_a_schedule_that_does_not_exist(ledger: Ledger, verb: str):
    with refused_without_trace(ledger, "not_found"):
        getattr(ledger, verb)("none")


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({}, "validation_error", "cron"),
    ({"cron": "* * * * *", "every": "1m"}, "validation_error", "cron"),
    ({"cron": "61 * * * *"}, "validation_error", "cron"),
    ({"cron": "* * * *"}, "validation_error", "cron"),
    ({"cron": "0 3 * * *", "tz": "Europe/Nowhere"}, "validation_error", "tz"),
    ({"every": "1h", "tz": "Europe/Berlin"}, "validation_error", "tz"),
    ({"every": "500ms"}, "limit_exceeded", "every"),
    ({"every": 0}, "limit_exceeded", "every"),
    ({"every": -1}, "limit_exceeded", "every"),
    ({"every": 400 * 86_400}, "limit_exceeded", "every"),
    ({"every": "soon"}, "validation_error", "every"),
    ({"every": "1m", "jitter": "2m"}, "validation_error", "jitter"),
    ({"every": "1m", "missed": "some"}, "validation_error", "missed"),
    ({"every": "1m", "overlap": "maybe"}, "validation_error", "overlap"),
    ({"every": "1m", "start": "tomorrow"}, "validation_error", "start"),
    (
        {"every": "1m", "start": datetime(2026, 1, 2, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)},
        "validation_error",
        "end",
    ),
    ({"every": "1m", "available_at": datetime(2026, 1, 2, tzinfo=UTC)}, "validation_error", "available_at"),
    ({"every": "1m", "priority": 10_000}, "limit_exceeded", "priority"),
    ({"every": "1m", "colour": "red"}, "validation_error", "enqueue"),
    ({"every": "1m", "end": datetime(2020, 1, 1, tzinfo=UTC)}, "validation_error", "end"),
    ({"cron": "0 3 * * *", "end": datetime(2026, 1, 1, 2, tzinfo=UTC)}, "validation_error", "end"),
]


def test_a_wrong_schedule_is_refused(ledger: Ledger):
    for fields, code, field in WRONG:
        with refused_without_trace(ledger, code) as caught:
            ledger.set_schedule("s", "report", **fields)
        assert caught.value.context["field"] == field
    assert ledger.schedules() == []


def test_a_handler_declares_its_schedules_as_a_whole(ledger: Ledger, clock: ManualClock):
    assert ledger.declare_schedules("report", {"a": {"every": "1h"}, "b": {"cron": "0 3 * * *", "args": {"n": 1}}}) == []
    assert [(one.name, one.declared) for one in ledger.schedules()] == [("a", True), ("b", True)]
    ledger.pause_schedule("a")
    ledger.set_schedule("mine", "report", every="1h")
    ledger.set_schedule("other", "mail", every="1h")
    assert ledger.declare_schedules("report", {"a": {"every": "1h"}, "mine": {"every": "2h"}, "other": {"every": "1h"}}) == [
        "mine",
        "other",
    ]
    found = {one.name: one for one in ledger.schedules()}
    assert sorted(found) == ["a", "mine", "other"]
    assert found["a"].paused_at is not None
    assert (found["mine"].every_s, found["mine"].declared) == (3_600, False)
    assert ledger.declare_schedules("report", {}) == []
    assert [one.name for one in ledger.schedules()] == ["mine", "other"]


def test_a_firing_that_is_refused_is_noted_and_the_others_go_on(ledger: Ledger, clock: ManualClock):
    first = ledger.enqueue("first")
    ledger.set_schedule("bad", "report", every="10s", depends_on=[first.id])
    ledger.set_schedule("good", "report", every="10s")
    assert len(tick(ledger, clock, 10)) == 2
    ledger.cancel(first.id)
    clock.advance(86_400)
    ledger.prune(jobs_before=clock.now(), failed_before=clock.now())
    with refused("not_found"):
        ledger.get(first.id)
    made = tick(ledger, clock, 10)
    assert [str(ledger.events(id_)[0].actor) for id_ in made] == ["client:schedule:good"]
    found = ledger.schedule("bad")
    assert found.last_error is not None and str(first.id) in found.last_error
    assert found.next_at is not None and found.next_at > clock.now()


def test_the_number_of_schedules_is_limited(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SCHEDULES_MAX", 2)
    for name in ("a", "b", "b"):
        ledger.set_schedule(name, "report", every="1h")
    with refused_without_trace(ledger, "limit_exceeded"):
        ledger.set_schedule("c", "report", every="1h")


def keys_of(ledger: Ledger, limit: str) -> list[str]:
    return [one.key for one in ledger.limit_keys(limit)]


def test_a_firing_takes_the_key_of_its_limit_from_the_limit_as_it_is_then(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=1)
    ledger.set_schedule("a", "report", {"tenant": "acme"}, every="10s", limits=["api"])
    tick(ledger, clock, 10)
    assert keys_of(ledger, "api") == [""]
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    tick(ledger, clock, 10)
    assert keys_of(ledger, "api") == ["", "acme"]
    assert len(ledger.claim(WORKER, limit=10)) == 2
    ledger.run_schedule("a")
    assert ledger.claim(WORKER, limit=10) == []
    ledger.set_limit("api", concurrent=1)
    [job] = tick(ledger, clock, 10)
    assert ledger.get(job).limits == {"api": 1}
    assert ledger.schedule("a").options == {"limits": {"api": 1}}


def test_a_schedule_goes_on_without_a_limit_that_was_removed(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    ledger.set_schedule("a", "report", {"tenant": "acme"}, every="10s", limits=["api"])
    ledger.remove_limit("api")
    assert len(tick(ledger, clock, 10)) == 1
    assert len(tick(ledger, clock, 10)) == 1
    ledger.run_schedule("a")
    assert len(ledger.claim(WORKER, limit=10)) == 3
    found = ledger.schedule("a")
    assert found.fired == 2
    assert found.last_error == (
        "its job was made without api: there is no such limit. Make it: holdfast limit set api --concurrent 10 (or --rate 600/1m)"
    )
    ledger.set_limit("api", concurrent=1, by="args.tenant")
    tick(ledger, clock, 10)
    assert ledger.schedule("a").last_error is None
    assert keys_of(ledger, "api") == ["", "acme"]


def test_a_firing_that_a_limit_refuses_is_noted(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=5)
    ledger.set_schedule("a", "report", {"tenant": "acme"}, every="10s", limits={"api": 3})
    ledger.set_limit("api", concurrent=2)
    assert tick(ledger, clock, 10) == []
    assert ledger.schedule("a").last_error == "the job draws 3 units of the limit api, which never has so many"
    ledger.set_limit("api", concurrent=5, by="args.user")
    assert tick(ledger, clock, 10) == []
    assert "args.user" in str(ledger.schedule("a").last_error)
    ledger.set_limit("api", concurrent=5, by="args.tenant")
    assert len(tick(ledger, clock, 10)) == 1
    assert ledger.schedule("a").last_error is None


def test_a_declared_schedule_may_draw_on_a_limit_that_does_not_exist(ledger: Ledger, clock: ManualClock):
    assert ledger.declare_schedules("report", {"a": {"every": "10s", "limits": ["api"]}}) == []
    assert len(tick(ledger, clock, 10)) == 1
    assert "holdfast limit set api" in str(ledger.schedule("a").last_error)
    assert ledger.declare_schedules("report", {"a": {"every": "10s", "limits": ["api"]}}) == []
    assert ledger.schedule("a").fired == 1
    with refused_without_trace(ledger, "not_found") as caught:
        ledger.set_schedule("b", "report", every="10s", limits=["api"])
    assert (caught.value.message, caught.value.context["name"]) == ("there is no limit api", "api")
    assert caught.value.action == "Make it: holdfast limit set api --concurrent 10 (or --rate 600/1m)."


def planned(ledger: Ledger) -> list[datetime]:
    """The planned times of all firings that made a job."""
    requests = [str(ledger.events(job.id)[0].request_id) for job in jobs(ledger)]
    return [datetime.fromisoformat(request.rpartition("@")[2]) for request in requests]


def every_minute(ledger: Ledger, clock: ManualClock, minutes: int) -> list[datetime]:
    """Let time pass minute by minute. Return the planned times of the firings that made jobs."""
    before = len(jobs(ledger))
    for _ in range(minutes):
        tick(ledger, clock, 60)
    return planned(ledger)[before:]


DAY = 86_400
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("missed", ["one", "skip"])
def test_schedules_go_on_after_the_clock_was_ahead_for_a_while(ledger: Ledger, clock: ManualClock, missed: str):
    ledger.set_schedule("s", "report", every="1m", missed=missed)
    assert len(every_minute(ledger, clock, 3)) == 3
    clock.jump(DAY)
    ahead = every_minute(ledger, clock, 3)
    assert ahead == [clock.now() - n * MINUTE for n in (2, 1, 0)]
    clock.jump(-DAY)
    ledger.sweep()
    start = clock.now()
    assert ledger.schedule("s").next_at == start + MINUTE
    assert every_minute(ledger, clock, 3) == [start + n * MINUTE for n in (1, 2, 3)]
    # A day later the clock comes to the times that were made already, and goes on after them.
    clock.advance((ahead[0] - clock.now()).total_seconds() - 120)
    ledger.sweep()
    before = clock.now()
    assert every_minute(ledger, clock, 6) == [before + n * MINUTE for n in (1, 5, 6)]
    times = planned(ledger)
    assert len(times) == len(set(times))


def test_times_that_were_made_are_not_made_again_after_a_small_step_back(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="1m")
    made = every_minute(ledger, clock, 10)
    clock.jump(-300)
    assert every_minute(ledger, clock, 7) == [made[-1] + n * MINUTE for n in (1, 2)]


def test_all_missed_firings_are_made_once_also_if_the_clock_was_ahead(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="1m", missed="all")
    clock.jump(3_600)
    assert len(tick(ledger, clock, 0)) == 60
    clock.jump(-3_600)
    assert every_minute(ledger, clock, 61) == [clock.now()]


def test_a_clock_that_is_ahead_again_and_again_makes_no_firing_twice(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="1m")
    for ahead in (DAY, 2 * DAY, DAY, 600):
        every_minute(ledger, clock, 2)
        clock.jump(ahead)
        every_minute(ledger, clock, 2)
        clock.jump(-ahead)
        ledger.sweep()
    assert len(every_minute(ledger, clock, 5)) == 5
    times = planned(ledger)
    assert len(times) == len(set(times))


def test_a_refused_or_late_firing_while_the_clock_is_ahead_does_not_stop_a_schedule(ledger: Ledger, clock: ManualClock):
    ledger.set_limit("api", concurrent=5)
    ledger.set_schedule("refused", "report", every="1m", limits={"api": 3})
    ledger.set_schedule("late", "report", every="1h", missed="skip")
    ledger.set_limit("api", concurrent=1)
    clock.jump(DAY + 1_800)
    assert tick(ledger, clock, 0) == []
    clock.jump(-DAY - 1_800)
    ledger.set_limit("api", concurrent=5)
    ledger.sweep()
    assert ledger.schedule("refused").next_at == clock.now() + MINUTE
    assert ledger.schedule("late").next_at == clock.now() + timedelta(hours=1)


def test_a_schedule_that_was_set_or_has_ended_while_the_clock_was_ahead_goes_on(ledger: Ledger, clock: ManualClock):
    ledger.sweep()
    ledger.set_schedule("ended", "report", every="1m", end=clock.now() + timedelta(minutes=30))
    clock.jump(DAY)
    ledger.set_schedule("set", "report", every="1m")
    assert len(tick(ledger, clock, 0)) == 1
    assert ledger.schedule("ended").next_at is None
    clock.jump(-DAY)
    ledger.sweep()
    assert [one.next_at for one in ledger.schedules()] == [clock.now() + MINUTE] * 2
    # The last of its times is made already.
    assert len(every_minute(ledger, clock, 40)) == 29 + 40


def test_another_process_finds_that_the_clock_was_ahead(ledger: Ledger, clock: ManualClock, store_url: str):
    ledger.set_schedule("s", "report", every="1m")
    clock.jump(DAY)
    assert len(tick(ledger, clock, 0)) == 1
    clock.jump(-DAY)
    with holdfast.open(store_url, clock=clock) as other:
        other.sweep()
        assert other.schedule("s").next_at == clock.now() + MINUTE


def test_a_paused_schedule_makes_no_firing_twice_after_a_step_back(ledger: Ledger, clock: ManualClock):
    ledger.set_schedule("s", "report", every="1m")
    clock.jump(600)
    [made] = [ledger.get(id_).available_at for id_ in tick(ledger, clock, 0)]
    ledger.pause_schedule("s")
    clock.jump(-120)
    ledger.resume_schedule("s")
    assert every_minute(ledger, clock, 3) == [made - MINUTE, made + MINUTE]


def test_a_schedule_needs_a_group_that_jobs_can_join(ledger: Ledger, clock: ManualClock):
    with refused_without_trace(ledger, "not_found") as caught:
        ledger.set_schedule("s", "report", every="10s", group="none")
    assert "holdfast group add" in caught.value.action
    ledger.group("all")
    ledger.set_schedule("s", "report", every="10s", group="all")
    ledger.close_group("all")
    with refused_without_trace(ledger, "conflict"):
        ledger.set_schedule("s", "report", every="20s", group="all")
    assert ledger.schedule("s").every_s == 10
    # A worker that declares such a schedule starts all the same.
    assert ledger.declare_schedules("report", {"t": {"every": "10s", "group": "none"}}) == []
    assert tick(ledger, clock, 10) == []
    assert ledger.schedule("s").last_error == "the group 'all' is closed: no job can join it"
    assert ledger.schedule("t").last_error == "there is no group 'none'"
    ended = {"every": "10s", "end": datetime(2020, 1, 1, tzinfo=UTC)}
    assert ledger.declare_schedules("report", {"t": ended}) == []
    assert ledger.schedule("t").next_at is None
