"""The page that is scraped, and the endpoint that serves it."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from docs.generate import PROCESS_FAMILIES
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.core import limits
from holdfast.errors import ValidationError
from holdfast.testing import ManualClock
from holdfast.watch import families
from holdfast.watch.process import NAMES_MAX, Metrics
from holdfast.watch.prometheus import CONTENT_TYPE, Collector, MetricsEndpoint, render, serve
from tests.contract.builders import held

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(page: bytes) -> Samples:
    found = text_string_to_metric_families(page.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in found for s in family.samples}


@pytest.fixture
def small(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as ledger:
        yield ledger


def test_counters_histograms_and_gauges_are_on_the_page(ledger: Ledger, clock: ManualClock) -> None:
    ledger.enqueue("a", queue="q")
    clock.advance(0.7)
    ledger.claim("w", ["q"])
    ledger.metrics.ran("a", "succeeded", 0.2)

    found = samples(render(ledger))
    a = ("kind", "a")
    assert found["holdfast_claims_total", (a,)] == 1
    assert found["holdfast_lease_renewals_total", ()] == 0
    assert found["holdfast_wait_seconds_bucket", (a, ("le", "0.5"))] == 0
    assert found["holdfast_wait_seconds_bucket", (a, ("le", "1.0"))] == 1
    assert found["holdfast_wait_seconds_bucket", (a, ("le", "+Inf"))] == 1
    assert found["holdfast_wait_seconds_sum", (a,)] == 0.7
    assert found["holdfast_wait_seconds_p50", (a,)] == pytest.approx(0.7, rel=0.05)
    assert found["holdfast_run_seconds_count", (a, ("outcome", "succeeded"))] == 1
    assert found["holdfast_run_seconds_p95", (a,)] == pytest.approx(0.2, rel=0.05)
    assert found["holdfast_jobs", (("queue", "q"), ("status", "claimed"))] == 1
    assert found["holdfast_ledger_up", ()] == 1


def test_limits_and_jobs_that_no_worker_may_have_are_on_the_page(ledger: Ledger) -> None:
    ledger.set_limit("api", concurrent=3, by="args.n")
    ledger.set_limit("rate", rate="600/1m")
    for number in range(3):
        ledger.enqueue("k", {"n": number}, limits={"api": 2, "rate": 1})
    ledger.sign_in("w", body={"queues": ["default"], "kinds": ["k"]})
    assert len(ledger.claim("w", limit=2)) == 2
    ledger.enqueue("k", requires=["gpu"])
    ledger.enqueue("k", for_worker="robot-7")
    ledger.claim("w", limit=1)
    found = samples(render(ledger))
    assert found["holdfast_limit_used", (("limit", "api"),)] == 6
    assert found["holdfast_limit_keys", (("limit", "api"),)] == 3
    assert found["holdfast_limit_concurrent", (("limit", "api"),)] == 3
    assert found["holdfast_limit_used", (("limit", "rate"),)] == 3
    assert ("holdfast_limit_concurrent", (("limit", "rate"),)) not in found
    assert found["holdfast_limit_waiting", (("limit", "rate"),)] == 0
    assert found["holdfast_jobs_unroutable", (("queue", "default"),)] == 2


def test_every_family_is_on_the_page_and_no_other(small: Ledger) -> None:
    small.enqueue("a")
    page = render(small).decode()
    names = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert names == {family.name for family in PROCESS_FAMILIES}


def test_metrics_without_a_ledger_have_no_gauges_of_it() -> None:
    found = samples(render(Metrics()))
    assert not [name for name, _ in found if name in (families.JOBS, families.UP)]


def test_label_values_cannot_break_a_line(small: Ledger) -> None:
    odd = 'a"} 1\\'
    small.enqueue(odd, queue=odd)
    small.metrics.ran("b\nholdfast_forged_total 7", "succeeded", 1)

    found = samples(render(small))
    assert found["holdfast_enqueued_total", (("kind", odd),)] == 1
    assert found["holdfast_jobs", (("queue", odd), ("status", "queued"))] == 1
    assert not [name for name, _ in found if "forged" in name]


def test_queues_are_bounded(small: Ledger) -> None:
    small.enqueue_many({"kind": "a", "queue": f"q-{number}"} for number in range(NAMES_MAX + 5))
    jobs = {labels: value for (name, labels), value in samples(render(small)).items() if name == families.JOBS}
    assert len(jobs) == NAMES_MAX + 1
    assert jobs[("queue", "other"), ("status", "queued")] == 5


def test_jobs_are_those_of_the_scrape(small: Ledger) -> None:
    key = (families.JOBS, (("queue", "default"), ("status", "queued")))
    for number in (1, 2):
        small.enqueue("a")
        assert samples(render(small))[key] == number


def test_a_ledger_out_of_reach_does_not_hide_counters(ledger: Ledger) -> None:
    ledger.enqueue("a")
    ledger.close()
    found = samples(render(ledger))
    assert found["holdfast_ledger_up", ()] == 0
    assert found["holdfast_enqueued_total", (("kind", "a"),)] == 1
    assert not [name for name, _ in found if name == families.JOBS]


def test_the_collector_joins_a_program_s_own_registry(small: Ledger) -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(small))
    assert b"holdfast_jobs" in generate_latest(registry)


def get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - this test's own server
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def test_the_endpoint_serves_metrics_and_health(small: Ledger) -> None:
    with serve(small, 0) as endpoint:
        status, content_type, page = get(f"{endpoint.url}/metrics")
        assert (status, content_type) == (200, CONTENT_TYPE)
        assert samples(page)["holdfast_ledger_up", ()] == 1
        assert get(f"{endpoint.url}/healthz")[::2] == (200, b"ok\n")
        assert get(f"{endpoint.url}/other")[0] == 404


def test_a_failing_page_is_an_error_and_the_endpoint_continues() -> None:
    def broken() -> bytes:
        raise RuntimeError("a secret")

    with MetricsEndpoint("127.0.0.1", 0, {"/broken": ("text/plain", broken)}) as endpoint:
        status, _, page = get(f"{endpoint.url}/broken")
        assert status == 500
        assert b"secret" not in page
        assert get(f"{endpoint.url}/healthz")[0] == 200


def test_a_port_in_use_is_refused(small: Ledger) -> None:
    with serve(small, 0) as endpoint, pytest.raises(ValidationError, match="cannot listen"):
        serve(small, endpoint.port)


def test_without_the_client_the_error_names_the_extra() -> None:
    program = """
import sys
sys.modules["prometheus_client"] = None
from holdfast.errors import ValidationError
from holdfast.watch.process import Metrics
from holdfast.watch.prometheus import render, serve
for call in (lambda: render(Metrics()), lambda: serve(None, 0)):
    try:
        call()
    except ValidationError as error:
        assert "holdfast-ledger[metrics]" in error.message
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_holder_s_work_is_counted_in_the_ledger(store_url: str, clock: ManualClock) -> None:
    """The endpoint of one process counts the work of others, by the library and by agents."""
    with holdfast.open(store_url, clock=clock) as watching, holdfast.open(store_url, clock=clock) as other:
        before = other.enqueue("before")
        other.cancel(before.id)
        jobs = [other.enqueue("mail") for _ in range(3)]
        clock.advance(2)
        [first] = other.claim("w", ["default"], limit=1, start=True)
        clock.advance(4)
        other.complete(first.fence)
        agent = Agent(other, "ada")
        agent.start(jobs[1].id)
        agent.complete(jobs[1].id)
        [third] = other.claim("w", ["default"], limit=1, start=True)
        other.fail(third.fence, "busy")
        other.cancel(jobs[2].id)
        clock.advance(5)

        found = samples(render(watching))
    assert found["holdfast_ledger_ended_total", (("kind", "mail"), ("outcome", "succeeded"))] == 2
    assert found["holdfast_ledger_ended_total", (("kind", "mail"), ("outcome", "cancelled"))] == 1
    assert found["holdfast_ledger_ended_total", (("kind", "before"), ("outcome", "cancelled"))] == 1
    assert {labels[0][1]: value for (name, labels), value in found.items() if name == "holdfast_ledger_events_total"} == {
        "enqueued": 4, "claimed": 3, "started": 3, "succeeded": 2, "retried": 1, "requeued": 1, "cancelled": 2,
    }  # fmt: skip
    assert found["holdfast_ledger_wait_seconds_sum", (("kind", "mail"),)] == 2 + 6
    assert found["holdfast_ledger_run_seconds_sum", (("kind", "mail"), ("outcome", "succeeded"))] == 4
    buckets = {
        labels[1][1]: value
        for (name, labels), value in found.items()
        if name == "holdfast_ledger_run_seconds_bucket" and ("outcome", "succeeded") in labels
    }
    assert (len(buckets), buckets["0.001"], buckets["2.5"], buckets["5.0"], buckets["+Inf"]) == (23, 1, 1, 2, 2)
    assert found["holdfast_ledger_run_seconds_p95", (("kind", "mail"),)] == pytest.approx(4, rel=0.05)


def test_counters_of_the_ledger_never_fall(small: Ledger, clock: ManualClock) -> None:
    """What was scraped stays counted, whether a service counts it or the jobs are deleted."""
    names = ("holdfast_ledger_events_total", "holdfast_ledger_ended_total", "holdfast_ledger_wait_seconds_count")
    last: Samples = {}
    for number in range(4):
        small.enqueue_many([{"kind": f"k{number}"}] * 2)
        clock.advance(3)
        done, again = small.claim("w", limit=2, start=True)
        small.complete(held(done))
        found = samples(render(small))
        small.fail(held(again), "busy")
        small.cancel(again.id)
        clock.advance(10)
        small.prune(jobs_before=clock.now())
        assert all(found[key] >= value for key, value in last.items() if key[0] in names)
        last = found
    assert last["holdfast_ledger_events_total", (("type", "succeeded"),)] == 4


def test_heartbeats_are_events_of_the_ledger(ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "a"}] * 2)
    jobs = ledger.claim("w", limit=2, start=True)
    ledger.heartbeat_many([held(job) for job in jobs])
    ledger.heartbeat(held(jobs[0]), stage="FETCH")
    assert samples(render(ledger))["holdfast_ledger_events_total", (("type", "heartbeat"),)] == 3


def test_quantiles_of_the_ledger_are_those_of_the_last_hour(small: Ledger, clock: ManualClock) -> None:
    for seconds in (100, 1):
        small.enqueue("a")
        clock.advance(seconds)
        small.claim("w")
        found = samples(render(small))
        assert found["holdfast_ledger_wait_seconds_p95", (("kind", "a"),)] == pytest.approx(seconds, rel=0.05)
        clock.advance(3_660)
    found = samples(render(small))
    assert ("holdfast_ledger_wait_seconds_p95", (("kind", "a"),)) not in found
    assert found["holdfast_ledger_wait_seconds_count", (("kind", "a"),)] == 2


def test_kinds_without_a_history_of_their_own_are_counted_as_other(small: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HISTORY_NAMES_MAX", 1)
    for kind in ("a", "b", "other"):
        small.cancel(small.enqueue(kind).id)
    ended = {labels[0][1]: n for (name, labels), n in samples(render(small)).items() if name == "holdfast_ledger_ended_total"}
    assert ended == {"a": 1, "other": 2}
