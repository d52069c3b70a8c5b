"""A ledger with something of everything, made with the clock of a test."""

from random import Random
from typing import Any

import msgspec

from holdfast import Fence, Ledger
from holdfast.agent import Agent
from holdfast.ledger.verbs.services import RunBody
from holdfast.services import CallableSink, HistoryService, Relay
from holdfast.testing import ManualClock

POLICY: dict[str, Any] = {"heartbeat_interval": "10s", "lease_ttl": "60s", "attempts_max": 3, "backoff_base": "1s"}


def claim(ledger: Ledger, queue: str, worker: str) -> Fence:
    """Claim and start the next job of a queue."""
    [job] = ledger.claim(worker, [queue], incarnation="boot1", start=True)
    return job.fence


def fill(ledger: Ledger, clock: ManualClock) -> None:
    """Add jobs, workers and a paused queue. The first job has two attempts, a stall, assistance and a checkpoint."""
    ledger.set_policy(kind="index_page", **POLICY)
    args = msgspec.Raw(b'{"url": "https://example.org/a", "rate": 1.10, "size": 1234567890123}')
    page = ledger.enqueue_many([{"kind": "index_page", "args": args, "queue": "crawl"}])[0].id
    _two_attempts(ledger, clock, page)
    for number in range(12):
        ledger.enqueue("send_mail", {"to": f"user{number}@example.org"}, queue="mail", priority=number % 3)
    for number in range(6):
        fence = claim(ledger, "mail", f"w-{number % 2 + 1}")
        clock.advance(20 + number)
        if number < 4:
            ledger.complete(fence, {"sent": True})
        else:
            error = {
                "type": "TimeoutError",
                "message": f"read timed out after {number} s",
                "traceback": "Traceback:\n  line 1\n  line 2",
            }
            ledger.fail(fence, error, retryable=False)
    first = ledger.enqueue("fetch", {"n": 1}, queue="crawl").id
    second = ledger.enqueue("parse", {"n": 2}, queue="crawl", depends_on=[first]).id
    _flow(ledger)
    ledger.enqueue("store", {"n": 3}, queue="crawl", depends_on=[second], group="import-42")
    ledger.cancel(ledger.enqueue("fetch", queue="crawl", delay="1h", group="import-42").id, reason="not needed")
    ledger.pause("mail", reason="reindexing", actor="kim")
    for worker, queue in (("w-1", "mail"), ("w-2", "mail"), ("w-3", "crawl")):
        details = {"host": "north", "pid": 7, "version": "1", "queues": [queue], "kinds": ["send_mail"], "room": {"default": 16}}
        ledger.sign_in(worker, incarnation="boot1", body=details)
    HistoryService(ledger, "test").tick()


def _flow(ledger: Ledger) -> None:
    """Add a limit with a key of its own numbers, a queue with weights, and a group."""
    ledger.set_limit("smtp", concurrent=20, rate="600/1m", by="args.tenant")
    ledger.set_limit("smtp", key="acme", concurrent=50)
    ledger.set_queue("mail", weights={"acme": 3})
    ledger.group("import-42", then={"kind": "publish", "queue": "web"})


def _two_attempts(ledger: Ledger, clock: ManualClock, job_id: int) -> None:
    clock.advance(4)
    fence = claim(ledger, "crawl", "w-1")
    for number in range(6):
        clock.advance(10)
        ledger.heartbeat(fence, stage="FETCH" if number < 3 else "PARSE", progress=number)
    clock.advance(120)
    ledger.sweep()
    clock.advance(600)
    ledger.sweep()
    fence = claim(ledger, "crawl", "w-3")
    ledger.heartbeat(fence, stage="TASK", progress=37, checkpoint={"page": 3}, undo={"kind": "delete_page", "args": {"page": 3}})
    clock.advance(5)
    ledger.assist(job_id, actor="kim")
    clock.advance(8)
    ledger.heartbeat(fence)


def busy_hour(ledger: Ledger, clock: ManualClock) -> None:
    """Add an hour in which jobs come and go, for pictures."""
    random = Random(7)
    for minute in range(60):
        for _ in range(random.randint(2, 5 + minute // 8)):
            ledger.enqueue("thumbnail", {"image": minute}, queue="images")
        for _ in range(random.randint(2, 5 + minute // 10)):
            claimed = ledger.claim(f"w-{random.randint(4, 6)}", ["images"], incarnation="boot1", start=True)
            clock.advance(random.uniform(1, 8))
            for job in claimed:
                if random.random() < 0.08:
                    ledger.fail(job.fence, {"type": "OSError", "message": "no space left on device"}, retryable=False)
                else:
                    ledger.complete(job.fence, {"width": 200})
        clock.advance(max(0.0, 60 - clock.now().second))


def fill_everything(ledger: Ledger, clock: ManualClock) -> None:
    """Add jobs of every status and phase, dead letters of two causes, and something for every page."""
    fill(ledger, clock)
    ledger.set_policy(kind="weld", requires_operator_coverage=True, heartbeat_interval="10s", lease_ttl="60s", attempts_max=2)
    held = {name: _held_job(ledger, name) for name in ("running", "asking", "assisted", "aborting", "stalled", "undone")}
    ledger.enqueue("weld", {"n": "claimed"}, queue="floor")
    ledger.claim("arm-7", ["floor"], incarnation="boot1")
    ledger.heartbeat(held["asking"], assist_requested=True)
    ledger.heartbeat(held["assisted"], assist_requested=True)
    ledger.assist(held["assisted"].job_id, actor="kim")
    ledger.cancel(held["aborting"].job_id, reason="wrong part")
    ledger.stall(held["stalled"])
    ledger.fail(held["undone"], "cannot hold the part", retryable=False)
    ledger.annotate(held["undone"].job_id, "compensation_failed", reason="nothing to undo with", actor="kim")
    _letters(ledger)
    _others(ledger, clock)
    for number in range(9):
        ledger.enqueue("thumbnail", {"n": number}, queue="images")
        if number % 2:
            ledger.complete(claim(ledger, "images", "w-3"), {"n": number})
        clock.advance(20)
    HistoryService(ledger, "test").tick()


def _held_job(ledger: Ledger, name: str) -> Fence:
    ledger.enqueue("weld", {"n": name}, queue="floor")
    return claim(ledger, "floor", "arm-7")


def _letters(ledger: Ledger) -> None:
    """Add five dead letters of one cause, of which one is replayed and one discarded, and one of another."""
    reasons = ("timeout", "timeout", "infrastructure_failure", "dependency_unavailable", "timeout")
    letters = []
    for number, reason in enumerate(reasons):
        letters.append(ledger.enqueue("fetch", {"n": number}, queue="web").id)
        message = f"no answer from node-{number}.example.org:8080 after {number + 0.5} s"
        ledger.fail(
            claim(ledger, "web", "w-3"), {"type": "ConnectionError", "message": message}, retryable=False, reason_code=reason
        )
    ledger.replay(letters[0])
    ledger.discard(letters[1], reason="known outage")
    ledger.dead_letter(ledger.enqueue("fetch", queue="web").id, reason_code="policy_violation")


def _others(ledger: Ledger, clock: ManualClock) -> None:
    """Add delayed jobs, a schedule, an agent, a run, a token and a sink that was given up."""
    ledger.enqueue("fetch", queue="web", delay="1h", dedupe_key="later")
    ledger.set_schedule("nightly", "report", cron="0 3 * * *", tz="Europe/Berlin", queue="web")
    ledger.set_schedule("hourly", "report", every="1h", queue="web")
    ledger.pause_schedule("hourly", actor="kim")
    review = ledger.enqueue("review").id
    Agent(ledger, "ada", session="s1").start(review)
    assert ledger.supervision.take("crawler", "north", 15)
    run = RunBody(holder="north", run=2, incarnation="boot1", program="crawl --all", controller=msgspec.Raw(b"{}"))
    ledger.supervision.keep("crawler", run, 15)
    ledger.new_token("reader", "eye", queues=["mail"])
    _dead_sink(ledger, clock)


def _dead_sink(ledger: Ledger, clock: ManualClock) -> None:
    def refuse(_: Any) -> None:
        raise OSError("connection refused")

    with Relay(ledger, [CallableSink(refuse, name="audit", start="beginning")]) as relay:
        relay.tick()
        while ledger.sinks()[0].dead_at is None:
            clock.advance(30)
            relay.tick()
