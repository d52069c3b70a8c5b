"""Limits hold for many claimers at once, in every way in which their jobs end."""

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import HeldJob, HoldfastError, Ledger
from holdfast.errors import NotClaimable
from holdfast.store.flow import SqlFlow
from holdfast.testing import ManualClock
from tests.support.waiting import wait_until

CLAIMERS = 32
DEADLINE_SECONDS = 120.0


def run_claimers(url: str, act: Callable[[Ledger, HeldJob, random.Random], None], until: Callable[[Ledger], bool]) -> None:
    """Let many claimers, each with a ledger of its own, claim and act until a condition holds."""
    done = threading.Event()
    errors: list[BaseException] = []

    def claim(number: int) -> None:
        draw = random.Random(number)
        try:
            with holdfast.open(url) as ledger:
                while not done.is_set():
                    jobs = ledger.claim(f"w-{number}", limit=draw.choice((1, 3, 7)), start=True, keep=draw.random() < 0.5)
                    for job in jobs:
                        act(ledger, job, draw)
                    # Claimers that get nothing come again after different times, so that some of them always meet.
                    if not jobs and not done.wait(draw.random() / 4) and draw.random() < 0.2 and until(ledger):
                        done.set()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            errors.append(error)
            done.set()

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(CLAIMERS)]
    for thread in threads:
        thread.start()
    assert done.wait(DEADLINE_SECONDS)
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def end_somehow(ledger: Ledger, job: HeldJob, draw: random.Random) -> None:
    fence = job.fence
    chance = draw.random()
    if chance < 0.6:
        ledger.complete(fence, None)
    elif chance < 0.7:
        ledger.fail(fence, "no", retryable=False)
    elif chance < 0.8:
        ledger.release(fence)
    elif chance < 0.9:
        ledger.cancel(job.id, hard=True)
    else:
        ledger.settle_many([(fence, None)], request_id=f"{job.id}-{job.attempt}")


ENDS = {"requeued", "succeeded", "failed", "cancelled", "dead_lettered"}


def most_held(ledger: Ledger, units: dict[int, dict[tuple[str, str], int]]) -> Counter[tuple[str, str]]:
    """The most units of each key that were held at once, in the order of the events."""
    held: Counter[tuple[str, str]] = Counter()
    most: Counter[tuple[str, str]] = Counter()
    after = 0
    while events := ledger.events(after=after, limit=1_000):
        for event in events:
            step = (event.type == "claimed") - (event.type in ENDS and event.from_status != "queued")
            for key, number in units[event.job_id].items():
                held[key] += step * number
                most[key] = max(most[key], held[key])
        after = events[-1].pos
    assert not +held
    return most


def test_concurrent_claims_never_exceed_a_limit(store_url: str) -> None:
    with holdfast.open(store_url) as ledger:
        ledger.set_limit("all", concurrent=9)
        ledger.set_limit("tenant", concurrent=3, by="args.tenant")
        units: dict[int, dict[tuple[str, str], int]] = {}
        for number in range(120):
            tenant, drawn = f"t{number % 5}", 1 + number % 2
            job = ledger.enqueue("k", {"tenant": tenant}, limits={"all": drawn, "tenant": 1}, priority=number % 3)
            units[job.id] = {("all", ""): drawn, ("tenant", tenant): 1}
        run_claimers(store_url, end_somehow, lambda opened: not opened.list(status=["queued", "running", "stalled"], limit=1))
        most = most_held(ledger, units)
        assert most["all", ""] in (8, 9), most
        assert max(most["tenant", f"t{number}"] for number in range(5)) == 3, most
        assert {key.used for name in ("all", "tenant") for key in ledger.limit_keys(name)} == {0}


def test_concurrent_claims_never_exceed_a_rate(store_url: str) -> None:
    with holdfast.open(store_url) as ledger:
        ledger.set_limit("api", rate="100/1s", burst=10)
        for _ in range(80):
            ledger.enqueue("k", limits=["api"])

        def complete(opened: Ledger, job: HeldJob, _: random.Random) -> None:
            opened.complete(job.fence, None)

        run_claimers(store_url, complete, lambda opened: not opened.list(status="queued", limit=1))
        starts = sorted(job.claimed_at for job in ledger.list(limit=1_000) if job.claimed_at is not None)
        assert len(starts) == 80
        for begin, first in enumerate(starts):
            for end in range(begin, len(starts)):
                seconds = (starts[end] - first).total_seconds()
                assert end - begin + 1 <= 10 + 100 * seconds + 1e-3, (end - begin + 1, seconds)


class TickingClock(ManualClock):
    """A clock on which a millisecond passes whenever it is read."""

    def now(self) -> datetime:
        self.advance(0.001)
        return super().now()


def test_a_start_is_not_earlier_than_its_tokens(store_url: str) -> None:
    with holdfast.open(store_url, clock=TickingClock()) as ledger:
        ledger.set_limit("api", rate="1/100ms", burst=1)
        waiting = {ledger.enqueue("k", limits=["api"]).id for _ in range(8)}
        while waiting:
            if len(waiting) % 2:
                waiting -= {job.id for job in ledger.claim("w")}
            else:
                with contextlib.suppress(NotClaimable):
                    waiting.remove(ledger.claim_job(min(waiting), "w").id)
        starts = sorted(job.claimed_at for job in ledger.list(limit=10) if job.claimed_at is not None)
        assert min(later - earlier for earlier, later in pairwise(starts)) >= timedelta(milliseconds=100)


@pytest.mark.parametrize("options", [{}, {"partition": "p"}, {"limits": ["api"]}])
def test_a_start_is_not_earlier_than_the_time_of_its_job(store_url: str, options: dict[str, Any]) -> None:
    """A claim with a rate has one time. Jobs that become available while it runs are left for the next one."""
    with holdfast.open(store_url, clock=TickingClock()) as ledger:
        ledger.set_limit("api", rate="1000/1s")
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        ledger.enqueue("k", limits=["api"])
        # One becomes available in each millisecond of the claims below.
        ledger.enqueue_many(
            {"kind": "k", "available_at": begin + timedelta(milliseconds=number), **options} for number in range(300)
        )
        waiting = 301
        while waiting:
            waiting -= len(ledger.claim("w", limit=100))
            ledger.enqueue("k", limits=["api"])
            waiting += 1 - len(ledger.claim("w", limit=1))
        for job in ledger.list(limit=1_000):
            assert job.claimed_at is not None
            assert job.claimed_at >= job.available_at


def test_claims_of_a_lost_worker_count_until_they_are_reclaimed(store_url: str) -> None:
    """A worker that vanishes frees its units when its jobs are stalled, and not before."""
    with holdfast.open(store_url) as ledger:
        ledger.set_policy("k", lease_ttl="3s", heartbeat_interval="1s", backoff_base=0)
        ledger.set_limit("api", concurrent=2)
        for _ in range(4):
            ledger.enqueue("k", limits=["api"])
        lost = ledger.claim("lost", limit=4, start=True)
        assert len(lost) == 2
        seen: list[Any] = []
        deadline = threading.Event()
        while not seen and not deadline.wait(0.05):
            ledger.sweep()
            seen = ledger.claim("other", limit=4, start=True)
            held = ledger.list(status=["claimed", "running", "stalled"])
            assert len(held) <= 2
        for job in lost:
            with pytest.raises(HoldfastError, match="no longer yours"):
                ledger.complete(job.fence, None)


def test_processes_that_claim_only_once_serve_every_partition(store_url: str) -> None:
    """The turns are kept in each process. A new process begins at any of the partitions."""
    served: Counter[str | None] = Counter()
    with holdfast.open(store_url) as ledger:
        for partition in "abcd":
            ledger.enqueue_many([{"kind": "k", "partition": partition}] * 60)
    for number in range(50):
        with holdfast.open(store_url) as ledger:
            served.update(job.partition for job in ledger.claim(f"w-{number}"))
    assert served.total() == 50
    assert served.keys() == set("abcd")


def test_names_are_made_by_many_transactions_or_forgotten_by_one(pg_url: str, postgres_url: str) -> None:
    clock, schema = ManualClock(), pg_url.partition("schema=")[2]
    names = f"(hashtextextended('{schema}.subqueue_names', 0))"
    with (
        holdfast.open(pg_url, clock=clock) as ledger,
        psycopg.connect(postgres_url) as rival,
        psycopg.connect(postgres_url, autocommit=True) as watcher,
    ):
        ledger.set_limit("api", concurrent=1)
        ledger.enqueue("k", limits=["api"])
        [job] = ledger.claim("w", start=True)
        ledger.complete(job.fence)
        assert ledger.claim("w") == []
        clock.advance(2 * 86_400)
        rival.execute(f"SELECT pg_advisory_xact_lock_shared{names}")
        assert ledger.prune(subqueues_before=clock.now()) == {"subqueues": 1, "slots": 0}
        assert len(ledger.limit_keys("api")) == 1
        rival.commit()
        assert ledger.prune(subqueues_before=clock.now()) == {"subqueues": 0, "slots": 0}
        assert ledger.limit_keys("api") == []

        rival.execute(f"SELECT pg_advisory_xact_lock{names}")
        enqueue = threading.Thread(target=lambda: ledger.enqueue("k", limits=["api"]))
        enqueue.start()
        wait_until(lambda: watcher.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone())
        rival.commit()
        enqueue.join()
        assert len(ledger.claim("w")) == 1


@pytest.mark.parametrize("change", [{"concurrent": 10}, None], ids=["raised", "removed"])
def test_a_limit_that_changes_during_a_claim_keeps_no_job_waiting(
    store_url: str, change: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim has read the old numbers, and closes the subqueues that wait for the limit."""
    begun, may_close = threading.Event(), threading.Event()
    close = SqlFlow._close

    def wait_and_close(self: SqlFlow, claim: Any) -> None:
        begun.set()
        assert may_close.wait(30)
        close(self, claim)

    with holdfast.open(store_url) as ledger, holdfast.open(store_url) as other:
        ledger.set_limit("api", concurrent=1)
        ledger.enqueue("k", limits=["api"])
        assert len(ledger.claim("w", start=True)) == 1
        ledger.enqueue_many([{"kind": "other", "limits": ["api"]}] * 5)
        monkeypatch.setattr(SqlFlow, "_close", wait_and_close)
        claim = threading.Thread(target=lambda: ledger.claim("w"))
        claim.start()
        assert begun.wait(30)
        alter = threading.Thread(target=lambda: other.set_limit("api", **change) if change else other.remove_limit("api"))
        alter.start()
        alter.join(0.2)
        may_close.set()
        claim.join()
        alter.join()
        assert len(other.claim("w", limit=10)) == 5
