"""Events in batches: the same history as in rows, no event is lost between pages, and every change is found."""

import io
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import holdfast
from holdfast import Event, Fence, Ledger
from holdfast.cli.key import public_keys
from holdfast.proof.verify import VerificationReport, VerifyOptions, parse_trusted, verify_file
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.contract.builders import running
from tests.support.histories import all_events
from tests.support.sealing import drawn, enrol, tamper
from tests.support.versions import run_sql

SERVER = drawn()
UNPACK = "UPDATE {events} SET pos = pos"
"""A statement that changes nothing, but makes each event of a batch a row."""


@pytest.fixture
def ledger(store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    """A ledger with an enrolled server key."""
    with holdfast.open(store_url, clock=clock, keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        yield ledger


def claim(ledger: Ledger, limit: int, *, start: bool = True, queue: str = "default") -> list[Fence]:
    return [job.fence for job in ledger.claim("w", [queue], limit=limit, start=start)]


def mixed(ledger: Ledger, clock: ManualClock) -> None:
    """Jobs whose events are in batches of every type, of one job and of many, and in rows between them."""
    ledger.enqueue_many([{"kind": "index", "args": {"n": n}, "correlation_id": f"order-{n % 3}"} for n in range(15)])
    ledger.set_policy(kind="index", attempts_max=7)
    ledger.enqueue("index", {"n": 15}, priority=5, actor="ann", request_id="r-1")
    clock.advance(1)
    held = claim(ledger, 6)
    ledger.heartbeat_many(held)
    ledger.heartbeat(held[0], stage="FETCH", progress=1, checkpoint={"page": 7})
    clock.advance(1)
    ledger.complete_many([(fence, {"ok": fence.job_id}) for fence in held[:2]])
    ledger.fail(held[2], "no luck", retryable=True)
    ledger.release(held[3])
    # One claim of jobs with different revisions, attempts, policies and, as the clock was set back, times.
    clock.advance(3_600)
    ledger.enqueue("other", priority=3, available_at=clock.now() - timedelta(seconds=2_000))
    clock.jump(-1_800)
    again = claim(ledger, 10, start=False)
    for fence in again:
        ledger.start(fence)
    ledger.settle_many([(fence, None) for fence in again[:3]], request_id="r-2")
    clock.jump(-30)
    again = claim(ledger, 4)
    ledger.heartbeat_many(again)
    ledger.cancel(again[0].job_id)
    ledger.complete_many([(fence, 1) for fence in again[1:]])
    clock.advance(7_200)
    ledger.sweep()


def exported(ledger: Ledger) -> bytes:
    out = io.BytesIO()
    ledger.export(out.write)
    return out.getvalue()


def verified(url: str, vkey: str) -> VerificationReport:
    with holdfast.open(url) as ledger:
        return verify_file(io.BytesIO(exported(ledger)), VerifyOptions(trusted=parse_trusted(vkey)))


def seal(ledger: Ledger) -> str:
    """Seal the ledger and return the key to verify it with."""
    with Sealer(ledger) as sealer:
        sealer.seal_all()
    return str(public_keys(ledger)["vkey"])


def view(ledger: Ledger, clock: ManualClock) -> tuple[Any, ...]:
    """Everything that a ledger returns about its jobs and their events."""
    jobs = ledger.list()
    histories = {job.id: ledger.events(job.id) for job in jobs}
    trails = [ledger.events(correlation_id=f"order-{n}") for n in range(3)]
    checks = {job.id: ledger.check(job.id) for job in jobs}
    explained = {job.id: ledger.explain(job.id) for job in jobs}
    return jobs, list(all_events(ledger)), histories, trails, checks, explained, exported(ledger)


def test_a_history_is_the_same_in_batches_and_in_rows(store_url: str, ledger: Ledger, clock: ManualClock):
    mixed(ledger, clock)
    vkey = seal(ledger)
    batches = run_sql(store_url, "SELECT DISTINCT type FROM holdfast.event_batches")
    assert {kind for (kind,) in batches} == {"enqueued", "claimed", "started", "heartbeat", "succeeded"}
    differ = "SELECT count(revs), count(attempts), count(policy_ids), count(times) FROM holdfast.event_batches"
    assert min(run_sql(store_url, differ)[0]) > 0
    [(rows,)] = run_sql(store_url, "SELECT count(*) FROM holdfast.event_rows")
    assert rows > 3
    before = view(ledger, clock)
    assert set(map(tuple, before[4].values())) == {()}
    assert verified(store_url, vkey).intact

    tamper(store_url, UNPACK)
    assert run_sql(store_url, "SELECT count(*) FROM holdfast.event_batches") == [(0,)]
    assert view(ledger, clock) == before
    assert verified(store_url, vkey).intact


def test_the_view_has_every_event_that_the_ledger_shows(store_url: str, ledger: Ledger, clock: ManualClock):
    mixed(ledger, clock)
    rows = run_sql(store_url, "SELECT pos, job_id, rev, type, actor, attempt, to_status FROM holdfast.events ORDER BY pos")
    shown = [
        (event.pos, event.job_id, event.rev, event.type, event.actor, event.attempt, event.to_status.value)
        for event in all_events(ledger)
    ]
    assert rows == shown
    active = run_sql(store_url, "SELECT id FROM holdfast.active_jobs ORDER BY id")
    assert [id_ for (id_,) in active] == [job.id for job in ledger.list(status=["claimed", "running", "stalled"])]


# Tampering


def literal(url: str, values: list[int]) -> str:
    """A list of numbers in the SQL of each store."""
    inside = ",".join(map(str, values))
    return f"'[{inside}]'" if url.startswith("sqlite") else f"'{{{inside}}}'"


def changes(url: str, jobs: list[int], rev: int) -> dict[str, str]:
    later = "received_at + 1000000" if url.startswith("sqlite") else "received_at + interval '1 s'"
    return {
        "a job is removed": f"jobs = {literal(url, jobs[1:])}",
        "the last job is removed": f"jobs = {literal(url, jobs[:-1])}, size = size - 1",
        "two jobs are swapped": f"jobs = {literal(url, [jobs[1], jobs[0], *jobs[2:]])}",
        "a job is there twice": f"jobs = {literal(url, [jobs[0], jobs[0], *jobs[2:]])}",
        "the actor": "actor = 'client:mallory'",
        "the time": f"received_at = {later}",
        "a revision": f"revs = {literal(url, [rev + 1] + [rev] * (len(jobs) - 1))}",
        "an attempt": f"attempts = {literal(url, [7] * len(jobs))}",
        "the request": "request_id = 'r-forged'",
        "the reason": "reason = 'because'",
        "the position": "pos = pos + 1000",
    }


WHAT = list(changes("sqlite", [1, 2], 1))


@pytest.mark.parametrize("kind", ["enqueued", "claimed", "heartbeat", "succeeded"])
@pytest.mark.parametrize("what", WHAT)
def test_a_batch_that_was_tampered_with_is_found(store_url: str, ledger: Ledger, kind: str, what: str):
    ledger.enqueue_many([{"kind": "index", "args": {"n": n}} for n in range(4)])
    held = claim(ledger, 4)
    ledger.heartbeat_many(held)
    ledger.settle_many([(fence, fence.job_id) for fence in held], request_id="r-1")
    vkey = seal(ledger)
    assert verified(store_url, vkey).intact
    [(pos, rev)] = run_sql(store_url, f"SELECT pos, rev FROM holdfast.event_batches WHERE type = '{kind}'")
    jobs = [event.job_id for event in all_events(ledger) if event.type == kind]
    run_sql(store_url, f"UPDATE holdfast.event_batches SET {changes(store_url, jobs, rev)[what]} WHERE pos = {pos}")
    with holdfast.open(store_url) as again:
        found = [again.check(job) for job in jobs]
    assert any(found) or not verified(store_url, vkey).intact


@pytest.mark.parametrize("what", ["the start is removed", "the batch is removed", "the claim of the batch"])
def test_a_batch_of_claims_that_was_tampered_with_is_found(store_url: str, ledger: Ledger, what: str):
    ledger.enqueue_many([{"kind": "index"}] * 4)
    held = claim(ledger, 4)
    ledger.settle_many([(fence, None) for fence in held], request_id="r-1")
    vkey = seal(ledger)
    off = "0" if store_url.startswith("sqlite") else "false"
    run_sql(
        store_url,
        {
            "the start is removed": f"UPDATE holdfast.event_batches SET starts = {off} WHERE type = 'claimed'",
            "the batch is removed": "DELETE FROM holdfast.event_batches WHERE type = 'claimed'",
            "the claim of the batch": "UPDATE holdfast.event_batches SET claim_pos = 1 WHERE type = 'succeeded'",
        }[what],
    )
    with holdfast.open(store_url) as again:
        found = [again.check(fence.job_id) for fence in held]
    assert all(found) or not verified(store_url, vkey).intact


# Pages


def pages(ledger: Ledger, limit: int, **chosen: Any) -> Iterator[list[Event]]:
    after = 0
    while page := ledger.events(after=after, limit=limit, **chosen):
        yield page
        after = page[-1].pos


def check_pages(ledger: Ledger) -> None:
    """Pages of any size have every event once, in order, and are full but for the last one."""
    whole = sorted(event.pos for job in ledger.list() for event in ledger.events(job.id))
    events = ledger.events(limit=1_000)
    assert [event.pos for event in events] == whole
    assert all(one.pos < other.pos for one, other in pairwise(events))
    times = sorted({event.received_at for event in events})
    middle, last = times[len(times) // 2], times[-1]
    choices: list[dict[str, Any]] = [
        {},
        {"types": ["enqueued"]},
        {"types": ["started"]},
        {"types": ["claimed", "heartbeat", "failed"]},
        {"types": ["succeeded", "cancelled"], "since": middle},
        {"since": middle},
        {"until": middle},
        {"since": times[1], "until": last},
        {"since": middle, "until": middle + timedelta(microseconds=1)},
    ]
    for chosen in choices:
        wanted = [
            event
            for event in events
            if event.type in chosen.get("types", [event.type])
            and chosen.get("since", event.received_at) <= event.received_at
            and ("until" not in chosen or event.received_at < chosen["until"])
        ]
        for limit in (1, 2, 7):
            found = list(pages(ledger, limit, **chosen))
            assert [event for page in found for event in page] == wanted
            assert {len(page) for page in found[:-1]} <= {limit}


def test_pages_have_every_event_once(ledger: Ledger, clock: ManualClock):
    mixed(ledger, clock)
    check_pages(ledger)


def test_pages_have_every_remaining_event_after_retention(ledger: Ledger, clock: ManualClock):
    mixed(ledger, clock)
    before = len(ledger.list())
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now())["jobs"] > 2
    assert len(ledger.list()) < before
    check_pages(ledger)


def test_following_from_inside_a_batch_continues_with_its_next_event(ledger: Ledger, clock: ManualClock):
    mixed(ledger, clock)
    events = list(all_events(ledger))
    for number in range(0, len(events), 5):
        assert list(ledger.follow(events[number].pos, timeout=0)) == events[number + 1 :]


# Retention and claims


def counts(url: str) -> tuple[int, int, int]:
    """Batches, rows of events, and open claims."""
    tables = ("event_batches", "event_rows", "open_claims")
    found = [run_sql(url, f"SELECT count(*) FROM holdfast.{table}") for table in tables]
    return tuple(count for [(count,)] in found)


def test_retention_deletes_batches_without_jobs(store_url: str, ledger: Ledger, clock: ManualClock):
    ledger.enqueue_many([{"kind": "index"}] * 4)
    held = claim(ledger, 4)
    ledger.heartbeat_many(held)
    ledger.complete_many([(fence, None) for fence in held[:2]])
    clock.advance(1)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 2}
    # The batch of their completion is deleted. The other batches still have jobs.
    assert counts(store_url) == (3, 0, 1)
    assert {event.job_id for event in all_events(ledger)} == {held[2].job_id, held[3].job_id}
    ledger.heartbeat(held[2], stage="LAST")
    ledger.complete_many([(fence, None) for fence in held[2:]])
    ledger.sweep()
    clock.advance(10)
    ledger.sweep()
    assert counts(store_url) == (4, 1, 0)
    assert ledger.prune(jobs_before=clock.now()) == {"jobs": 2}
    assert counts(store_url) == (0, 0, 0)
    assert list(all_events(ledger)) == []


def test_a_claim_is_open_as_long_as_one_of_its_jobs_is_held_or_stalled(store_url: str, ledger: Ledger, clock: ManualClock):
    ledger.set_policy(kind="index", resume_window="1h", lease_ttl="30s")
    ledger.enqueue_many([{"kind": "index"}] * 3)
    done, failed, stalled = claim(ledger, 3)
    assert counts(store_url)[2] == 1
    ledger.complete(done)
    ledger.fail(failed, "no", retryable=False)
    clock.advance(10)
    ledger.sweep()
    assert counts(store_url)[2] == 1
    clock.advance(120)
    ledger.sweep()
    assert ledger.get(stalled.job_id).status == "stalled"
    clock.advance(10)
    ledger.sweep()
    assert counts(store_url)[2] == 1
    ledger.cancel(stalled.job_id)
    clock.advance(10)
    ledger.sweep()
    assert counts(store_url)[2] == 0
    assert ledger.get(stalled.job_id).status == "cancelled"


def test_a_claim_that_ends_at_once_is_closed_at_once(store_url: str, ledger: Ledger):
    ledger.enqueue_many([{"kind": "index"}] * 3)
    held = claim(ledger, 3)
    single = running(ledger)
    assert counts(store_url)[2] == 2
    ledger.settle_many([(fence, None) for fence in held], request_id="r-1")
    ledger.complete(single.fence)
    assert counts(store_url)[2] == 0


# Sizes


def test_thousands_of_jobs_are_enqueued_and_completed_in_one_call(store_url: str, ledger: Ledger):
    made = ledger.enqueue_many([{"kind": "index", "args": {"n": n}} for n in range(5_000)])
    assert len({job.id for job in made}) == 5_000
    held = [fence for _ in range(3) for fence in claim(ledger, 1_000)]
    assert ledger.settle_many([(fence, fence.job_id) for fence in held], request_id="r-1") == [None] * 3_000
    ranges = run_sql(store_url, "SELECT pos, size FROM holdfast.event_batches ORDER BY pos")
    assert all(pos + size <= after for (pos, size), (after, _) in pairwise(ranges))
    assert max(size for _, size in ranges) <= 2_048
    found = list(all_events(ledger))
    assert len(found) == sum(size for _, size in ranges) == 5_000 + 3 * 3_000
    assert all(one.pos < other.pos for one, other in pairwise(found))
    assert [event.job_id for event in found[:5_000]] == [job.id for job in made]
    for fence in (held[0], held[999], held[1_000], held[-1]):
        assert ledger.check(fence.job_id) == []
        assert ledger.get(fence.job_id).result == fence.job_id
    assert ledger.counts() == {"default": {"queued": 2_000, "succeeded": 3_000}}
    assert counts(store_url)[2] == 0
