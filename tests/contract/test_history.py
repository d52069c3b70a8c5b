"""Totals and history: the same numbers as a plain count, after any history and any interruption."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Fence, HoldfastError, Ledger
from holdfast.core import limits
from holdfast.services import history as service
from holdfast.services.history import HistoryService
from holdfast.testing import ManualClock
from holdfast.watch import tally as rules
from holdfast.watch.prometheus import render
from tests.contract.builders import queued, refused, refused_without_trace, running, succeeded
from tests.support.histories import all_events
from tests.support.near import near

QUEUES = ("crawl", "mail", "robots")
KINDS = ("index", "send")
REFUSALS = ("invalid_transition", "fence_lost", "conflict", "not_stalled_yet", "cancelled", "not_found")


def counted(ledger: Ledger) -> None:
    """Count every event up to now."""
    while near(ledger).history_writer.advance(1_000):
        pass


def plain(ledger: Ledger) -> Counter[tuple[str, str, str]]:
    return Counter((job.queue, job.kind, job.status.value) for job in _all(ledger))


def read_page(store: Any) -> Any:
    """Read the next events as a service does."""
    until = store.stable_pos()
    return store.read(lambda session: session.tally(session.next_page(until, 1_000)))


def _all(ledger: Ledger) -> list[Any]:
    jobs: list[Any] = []
    after = 0
    while page := ledger.list(after=after, limit=1_000):
        jobs += page
        after = page[-1].id
    return jobs


def total(ledger: Ledger) -> Counter[tuple[str, str, str]]:
    return Counter({(row.queue, row.kind, row.status.value): row.n for row in ledger.job_totals().rows})


class Life:
    """Does random things to random jobs."""

    def __init__(self, ledger: Ledger, clock: ManualClock, seed: int, *, prunes: bool = True) -> None:
        self.ledger = ledger
        self.clock = clock
        self.chance = random.Random(seed)
        self.prunes = prunes
        self.fences: list[Fence] = []

    def step(self) -> None:
        try:
            self.chance.choice(
                [self.enqueue, self.claim, self.claim, self.end, self.end, self.outside, self.outside, self.pass_time]
            )()
        except HoldfastError as refusal:
            if refusal.code not in REFUSALS:
                raise

    def enqueue(self) -> None:
        one = {"queue": self.chance.choice(QUEUES), "kind": self.chance.choice(KINDS), "policy": {"resume_window": "60s"}}
        self.ledger.enqueue_many([one] * self.chance.choice([1, 1, 2, 7]))

    def claim(self) -> None:
        found = self.ledger.claim("w", QUEUES, limit=self.chance.choice([1, 3]), start=self.chance.random() < 0.7)
        self.fences += [job.fence for job in found]

    def end(self) -> None:
        if not self.fences:
            return
        fence = self.fences.pop(self.chance.randrange(len(self.fences)))
        match self.chance.randrange(7):
            case 0:
                self.ledger.fail(fence, "no", retryable=False)
            case 1:
                self.ledger.fail(fence, "again", retry_after=0)
            case 2:
                self.ledger.release(fence)
            case 3:
                self.ledger.stall(fence)
            case 4:
                self.ledger.heartbeat(fence)
                self.fences.append(fence)
            case _:
                self.ledger.complete(fence)

    def outside(self) -> None:
        jobs = self.ledger.list(order="newest", limit=30)
        if not jobs:
            return
        job = self.chance.choice(jobs)
        match self.chance.randrange(7):
            case 0:
                self.ledger.cancel(job.id, hard=True)
            case 1:
                self.ledger.dead_letter(job.id, reason_code="timeout")
            case 2:
                self.ledger.requeue(job.id)
            case 3:
                self.ledger.replay(job.id)
            case 4:
                self.ledger.discard(job.id)
            case _:
                self.ledger.move(job.id, self.chance.choice(QUEUES))

    def pass_time(self) -> None:
        self.clock.advance(self.chance.choice([0.5, 20, 100]))
        self.ledger.sweep()
        if self.prunes and self.chance.random() < 0.3:
            before = self.clock.now() - timedelta(seconds=self.chance.choice([0, 100]))
            self.ledger.prune(jobs_before=before, failed_before=before, batch=self.chance.choice([1, 5, 100]))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(2, 10))])
def test_totals_equal_a_plain_count(ledger: Ledger, clock: ManualClock, seed: int):
    life = Life(ledger, clock, seed)
    for _ in range(60):
        for _ in range(life.chance.randrange(8)):
            life.step()
        if life.chance.random() < 0.3:
            near(ledger).history_writer.advance(life.chance.choice([1, 5, 50]))
        if life.chance.random() < 0.2:
            counted(ledger)
            assert total(ledger) == plain(ledger)
    counted(ledger)
    assert total(ledger) == plain(ledger)
    assert ledger.job_totals().statuses == Counter(job.status.value for job in _all(ledger))


@pytest.mark.parametrize("seed", range(3))
def test_history_counts_every_event_once(ledger: Ledger, clock: ManualClock, seed: int):
    life = Life(ledger, clock, seed, prunes=False)
    start = clock.now()
    for number in range(150):
        life.step() if life.chance.random() < 0.9 else None
        if number % 10 == 0:
            near(ledger).history_writer.advance(7)
    counted(ledger)
    found: Counter[str] = Counter()
    for metric in ("throughput", "errors"):
        chart = ledger.history(metric=metric, since=start, until=clock.now() + timedelta(minutes=1), step="1m")
        sums: Counter[str] = Counter()
        for point in chart.points:
            sums.update(point.values or {})
        found |= sums
    events = Counter(event.type.value for event in all_events(ledger))
    assert {name: found[name] for name in rules.COUNTED} == {name: events[name] for name in rules.COUNTED}


def test_totals_and_history_include_what_no_service_has_counted(ledger: Ledger, clock: ManualClock):
    assert (ledger.job_totals().rows, ledger.job_totals().complete_from, ledger.counts()) == ([], None, {})
    assert ledger.history().points[0].values is None
    job = queued(ledger, queue="a")
    found = ledger.job_totals()
    assert (found.statuses, found.as_of.at, found.as_of.pos) == ({"queued": 1}, clock.now(), ledger.events(job.id)[-1].pos)
    assert ledger.counts() == {"a": {"queued": 1}}
    assert [(queue.name, queue.counts) for queue in ledger.queues()] == [("a", {"queued": 1})]
    assert ledger.overview().counts == {"queued": 1}
    assert [(kind.counts, kind.last_hour["enqueued"]) for kind in ledger.kinds()] == [({"queued": 1}, 1)]
    assert [ledger.history(queue="a", metric=metric).points[-1].values for metric in ("throughput", "depth")] == [
        {"enqueued": 1, "started": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "dead_lettered": 0},
        {"depth": 1},
    ]


def test_what_is_counted_in_memory_is_what_the_service_counts(ledger: Ledger, clock: ManualClock):
    life = Life(ledger, clock, seed=7)
    for number in range(120):
        life.step()
        if number % 30 == 0:
            near(ledger).history_writer.advance(9)
    asked: dict[str, Any] = {"since": clock.now() - timedelta(hours=2), "until": clock.now() + timedelta(minutes=1), "step": "1m"}

    def read() -> list[Any]:
        charts = [ledger.history(metric=metric, **asked).points for metric in ("throughput", "errors", "depth", "wait", "run")]
        # A finding says what is not counted. The service counts up to a position that may have no event.
        overview = msgspec.structs.replace(ledger.overview(), findings=[], as_of=None)
        totals = msgspec.structs.replace(ledger.job_totals(), as_of=None)
        return [ledger.counts(), ledger.queues(), ledger.kinds(), totals, overview, charts]

    before = read()
    assert total(ledger) == plain(ledger)
    counted(ledger)
    assert read() == before


def test_a_reader_that_is_far_behind_lets_events_be_counted_first(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.ledger.counted.BEHIND_MAX", 5)
    store = near(ledger)._store
    for _ in range(5):
        queued(ledger)
    assert ledger.job_totals().statuses == {"queued": 5}
    assert store.read(lambda session: session.history_progress()).pos == 0
    last = queued(ledger)
    assert ledger.job_totals().statuses == {"queued": 6}
    assert store.read(lambda session: session.history_progress()).pos >= ledger.events(last.id)[-1].pos


def test_a_deleted_job_that_was_not_counted_lowers_nothing(ledger: Ledger, clock: ManualClock):
    kept = queued(ledger)
    counted(ledger)
    succeeded(ledger)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 1}
    assert ledger.job_totals().statuses == {"queued": 1}
    counted(ledger)
    assert total(ledger) == plain(ledger)
    assert [job.id for job in ledger.list()] == [kept.id]
    assert ledger.job_totals().complete_from == clock.now() - timedelta(seconds=1)


def test_a_deleted_job_that_was_counted_in_part_lowers_what_was_counted(ledger: Ledger, clock: ManualClock):
    made = running(ledger, queue="a")
    ledger.release(made.fence)
    ledger.move(made.id, "b")
    counted(ledger)
    ledger.move(made.id, "c")
    ledger.cancel(made.id)
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 1}
    assert ledger.job_totals().rows == []
    counted(ledger)
    assert ledger.job_totals().rows == []


def test_jobs_that_ended_in_one_call_are_counted_one_by_one(ledger: Ledger, clock: ManualClock):
    """The events of one call have positions of their own. A page may end between them."""
    ledger.enqueue_many([{"kind": "index"}] * 2)
    fences = [job.fence for _ in range(2) for job in ledger.claim("w", limit=1, start=True)]
    counted(ledger)
    ledger.complete_many([(fence, None) for fence in fences])
    near(ledger).history_writer.advance(1)
    clock.advance(1)
    assert ledger.job_totals().statuses == {"succeeded": 2}
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 2}
    assert ledger.job_totals().statuses == {}
    counted(ledger)
    assert ledger.job_totals().statuses == {}


def test_a_page_is_not_saved_if_its_jobs_were_deleted_meanwhile(ledger: Ledger, clock: ManualClock):
    """The service reads a page without a lock. Between the reading and the writing, the jobs go."""
    succeeded(ledger)
    clock.advance(1)
    store = near(ledger)._store
    page = read_page(store)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 1}
    assert not store.transact("work", lambda session: session.save_tally(page, 0))
    counted(ledger)
    assert ledger.job_totals().rows == []


def test_two_services_count_a_page_once(ledger: Ledger):
    for _ in range(3):
        queued(ledger)
    store = near(ledger)._store
    page, same = read_page(store), read_page(store)
    assert store.transact("work", lambda session: session.save_tally(page, 0))
    assert not store.transact("work", lambda session: session.save_tally(same, 0))
    assert ledger.job_totals().statuses == {"queued": 3}
    counted(ledger)
    assert ledger.job_totals().statuses == {"queued": 3}


def test_a_service_that_dies_while_it_writes_leaves_nothing(ledger: Ledger):
    queued(ledger)
    store = near(ledger)._store
    page = read_page(store)

    def dies(session: Any) -> None:
        session.save_tally(page, 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.transact("work", dies)
    assert store.read(lambda session: session.history_progress()).pos == 0
    counted(ledger)
    assert ledger.job_totals().statuses == {"queued": 1}


# The service


def test_one_service_has_the_duty(ledger: Ledger, clock: ManualClock):
    queued(ledger)
    first, second = HistoryService(near(ledger), "a"), HistoryService(near(ledger), "b")
    assert (first.tick(), second.tick()) == (1, 0)
    assert ledger.job_totals().statuses == {"queued": 1}
    first.close()
    assert second.tick() == 1
    second.close()


def test_a_service_that_is_behind_ticks_again_soon(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "PAGE_EVENTS", 1)
    monkeypatch.setattr(service, "TICK_SECONDS", 0.0)
    for _ in range(3):
        queued(ledger)
    counting = HistoryService(near(ledger), "a")
    counting.tick()
    assert counting.every_s == service.BUSY_EVERY_SECONDS
    while counting.every_s == service.BUSY_EVERY_SECONDS:
        counting.tick()
    assert ledger.job_totals().statuses == {"queued": 3}


def test_old_counts_are_deleted(ledger: Ledger, clock: ManualClock):
    succeeded(ledger)
    counted(ledger)
    writer = near(ledger).history_writer
    store = near(ledger)._store
    assert writer.delete_old(100) == 0
    clock.advance(50 * 3_600)
    assert writer.delete_old(100) == 3
    hours = ledger.history(since=clock.now() - timedelta(hours=60), until=clock.now())
    assert hours.step_s == 3_600
    assert sum((point.values or {}).get("succeeded") or 0 for point in hours.points) == 1
    clock.advance(91 * 86_400)
    assert [row.name for row in store.read(lambda session: session.history_since("ever", "kind", 0))] == ["index_page"]
    assert writer.delete_old(100) == 3
    assert store.read(lambda session: session.history_since("ever", "kind", 0)) == []
    assert len(store.read(lambda session: session.history_since("ever", "all", 0))) == 1
    assert ledger.job_totals().statuses == {"succeeded": 1}


def test_events_from_before_the_kept_time_are_only_in_the_totals(ledger: Ledger, clock: ManualClock):
    succeeded(ledger)
    clock.advance(100 * 86_400)
    counted(ledger)
    assert ledger.job_totals().statuses == {"succeeded": 1}
    assert near(ledger).history_writer.delete_old(100) == 0


# Charts


def values(ledger: Ledger, **chosen: Any) -> list[Any]:
    return [point.values for point in ledger.history(**chosen).points]


def test_a_chart_by_minute(ledger: Ledger, clock: ManualClock):
    clock.jump(-(clock.now().timestamp() % 60) + 60)
    start = clock.now()
    made = running(ledger, queue="crawl")
    queued(ledger, queue="mail")
    clock.advance(90)
    ledger.fail(made.fence, "no", retryable=False)
    clock.advance(60)
    counted(ledger)
    chart = ledger.history(since=start - timedelta(minutes=1), until=clock.now())
    assert (chart.step_s, chart.since, len(chart.points)) == (60, start - timedelta(minutes=1), 4)
    assert chart.points[0].values is None
    assert [point.open for point in chart.points] == [False, False, False, True]
    counts = [point.values for point in chart.points[1:]]
    none = dict.fromkeys(("enqueued", "started", "succeeded", "failed", "cancelled", "dead_lettered"), 0)
    assert counts == [none | {"enqueued": 2, "started": 1}, none | {"failed": 1}, none]
    assert chart.as_of.at == clock.now()
    assert chart.complete_from == start
    since = {"since": start, "until": clock.now()}
    assert [point["enqueued"] for point in values(ledger, queue="mail", **since)] == [1, 0, 0]
    assert [point["enqueued"] for point in values(ledger, kind="index_page", **since)] == [2, 0, 0]
    assert [point["failed"] for point in values(ledger, metric="errors", **since)] == [0, 1, 0]
    assert [point["depth"] for point in values(ledger, metric="depth", **since)] == [1, 1, 1]


def test_depth_is_that_of_the_end_of_each_minute(ledger: Ledger, clock: ManualClock):
    start = clock.now()
    made = []
    for _ in range(3):
        made.append(queued(ledger, queue="a").id)
        clock.advance(60)
    ledger.move(made[0], "b")
    ledger.cancel(made[1])
    counted(ledger)
    since = {"since": start, "until": clock.now() + timedelta(seconds=1), "metric": "depth"}
    assert [point["depth"] for point in values(ledger, queue="a", **since)] == [1, 2, 3, 1]
    assert [point["depth"] for point in values(ledger, queue="b", **since)] == [0, 0, 0, 1]
    assert [point["depth"] for point in values(ledger, **since)] == [1, 2, 3, 2]


def test_waits_and_runs(ledger: Ledger, clock: ManualClock):
    start = clock.now()
    for wait, run in ((1, 10), (1, 10), (100, 1_000)):
        job = ledger.enqueue("index", queue="crawl")
        clock.advance(wait)
        [held] = ledger.claim("w", ["crawl"], start=True)
        assert held.id == job.id
        for _ in range(run // 10 - 1):
            clock.advance(10)
            ledger.heartbeat(held.fence)
        clock.advance(10)
        ledger.complete(held.fence)
    counted(ledger)
    for metric, low, high in (("wait", 1, 100), ("run", 10, 1_000)):
        [point] = values(ledger, metric=metric, since=start, until=clock.now(), step="1d")
        assert point["n"] == 3
        assert point["p50_ms"] / 1_000 == pytest.approx(low, rel=0.05)
        assert point["p95_ms"] / 1_000 == pytest.approx(high, rel=0.05)
    empty = values(ledger, metric="wait", queue="mail", since=start, until=clock.now(), step="1d")
    assert empty == [{"n": 0, "p50_ms": None, "p95_ms": None}]


def test_percentiles_of_a_kind_are_within_5_percent(ledger: Ledger, clock: ManualClock):
    """20 jobs that each wait for exactly 11 s and run for exactly 11 s."""
    ledger.enqueue_many([{"kind": "weld"}] * 20)
    clock.advance(11)
    held = ledger.claim("w", limit=20, start=True)
    clock.advance(11)
    ledger.complete_many([(job.fence, None) for job in held])
    for _ in range(2):
        [kind] = ledger.kinds()
        for times in (kind.wait, kind.run):
            assert times.n == 20
            assert times.p50_ms == pytest.approx(11_000, rel=0.05)
            assert times.p95_ms == pytest.approx(11_000, rel=0.05)
        counted(ledger)
    page = render(near(ledger)).decode()
    for name in ("holdfast_wait_seconds", "holdfast_ledger_wait_seconds", "holdfast_ledger_run_seconds"):
        for share in ("p50", "p95"):
            [found] = [line.split()[-1] for line in page.splitlines() if line.startswith(f'{name}_{share}{{kind="weld"}}')]
            assert float(found) == pytest.approx(11, rel=0.05)


def test_claims_by_id_are_waits_too(ledger: Ledger, clock: ManualClock):
    job = queued(ledger)
    clock.advance(3)
    ledger.claim_job(job.id, "w")
    [kind] = ledger.kinds()
    assert kind.wait.n == 1
    assert kind.wait.p50_ms == pytest.approx(3_000, rel=0.05)


def test_more_queues_than_have_a_history_share_one(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "HISTORY_NAMES_MAX", 2)
    for number in range(4):
        queued(ledger, queue=f"q{number}")
        counted(ledger)
    charts = [ledger.history(queue=f"q{number}", step="1m") for number in range(4)]
    assert [chart.is_other for chart in charts] == [False, False, True, True]
    assert [sum((point.values or {}).get("enqueued") or 0 for point in chart.points) for chart in charts] == [1, 1, 2, 2]
    depths = [ledger.history(queue=f"q{number}", metric="depth").points[-1].values for number in range(4)]
    assert depths == [{"depth": 1}, {"depth": 1}, {"depth": 2}, {"depth": 2}]
    assert ledger.job_totals().statuses == {"queued": 4}


@pytest.mark.parametrize(
    ("minutes", "step_s"),
    [(60, 60), (400, 60), (401, 120), (24 * 60, 300), (7 * 24 * 60, 3_600), (30 * 24 * 60, 7_200), (400 * 24 * 60, 86_400)],
)
def test_a_chart_has_at_most_400_points(ledger: Ledger, clock: ManualClock, minutes: int, step_s: int):
    clock.jump(-(clock.now().timestamp() % 86_400))
    chart = ledger.history(since=clock.now() - timedelta(minutes=minutes), until=clock.now())
    assert chart.step_s == step_s
    assert len(chart.points) <= rules.POINTS_MAX


@pytest.mark.parametrize(
    ("chosen", "code", "field"),
    [
        ({"metric": "speed"}, "validation_error", "metric"),
        ({"queue": "a", "kind": "b"}, "validation_error", "kind"),
        ({"queue": ""}, "validation_error", "queue"),
        ({"kind": 7}, "validation_error", "kind"),
        ({"step": "7s"}, "validation_error", "step"),
        ({"step": "1m", "since": 3}, "limit_exceeded", "step"),
        ({"since": -1}, "validation_error", "since"),
        ({"since": "yesterday"}, "validation_error", "since"),
    ],
    ids=repr,
)
def test_a_wrong_chart_is_refused(ledger: Ledger, clock: ManualClock, chosen: dict[str, Any], code: str, field: str):
    if isinstance(chosen.get("since"), int):
        chosen = chosen | {"since": clock.now() - timedelta(days=chosen["since"])}
    with refused(code) as caught:
        ledger.history(**chosen)
    assert caught.value.context["field"] == field


def test_a_second_process_continues_where_the_first_one_ended(store_url: str, ledger: Ledger, clock: ManualClock):
    queued(ledger)
    counted(ledger)
    with holdfast.open(store_url, clock=clock) as other:
        queued(other)
        counted(other)
        assert other.job_totals() == ledger.job_totals()
    assert ledger.job_totals().statuses == {"queued": 2}


def test_reading_changes_nothing(ledger: Ledger):
    queued(ledger)
    with refused_without_trace(ledger, "validation_error"):
        ledger.history(metric="")
