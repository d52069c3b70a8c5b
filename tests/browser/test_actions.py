"""Each verb of an operator: from the button to the ledger, with a question where it can break something."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from holdfast import Fence, Ledger
from holdfast.testing import ManualClock
from tests.browser.conftest import Open, Watcher
from tests.browser.sample import claim
from tests.support.proxy import HttpReader, Proxy
from tests.support.server import RunningServer

POLICY: dict[str, Any] = {
    "heartbeat_interval": "10s",
    "lease_ttl": "60s",
    "attempts_max": 2,
    "backoff_base": "0s",
    "backoff_max": "0s",
}


def queued(ledger: Ledger, clock: ManualClock) -> int:
    ledger.set_policy(kind="k", **POLICY)
    return ledger.enqueue("k", {"n": 1}, queue="q").id


def held(ledger: Ledger, clock: ManualClock) -> Fence:
    queued(ledger, clock)
    return claim(ledger, "q", "w-1")


def running(ledger: Ledger, clock: ManualClock) -> int:
    return held(ledger, clock).job_id


def assisted(ledger: Ledger, clock: ManualClock) -> int:
    made = running(ledger, clock)
    ledger.assist(made, actor="ada")
    return made


def stalled(ledger: Ledger, clock: ManualClock) -> int:
    fence = held(ledger, clock)
    ledger.stall(fence)
    return fence.job_id


def failed(ledger: Ledger, clock: ManualClock) -> int:
    fence = held(ledger, clock)
    ledger.fail(fence, "no such host", retryable=False)
    return fence.job_id


def dead(ledger: Ledger, clock: ManualClock) -> int:
    made = queued(ledger, clock)
    for _ in range(2):
        ledger.fail(claim(ledger, "q", "w-1"), "no such host")
    return made


Prepare = Callable[[Ledger, ManualClock], int]
VERBS: list[tuple[Prepare, str, str, str]] = [
    (running, "assist", "", "assist_started"),
    (assisted, "unassist", "", "assist_ended"),
    (queued, "cancel", "holdfast job cancel 1", "cancelled"),
    (running, "cancel", "holdfast job cancel 1", "cancel_requested"),
    (running, "hard-cancel", "holdfast job cancel --hard 1", "cancelled"),
    (stalled, "requeue", "holdfast job requeue 1", "requeued"),
    (queued, "dead-letter", "holdfast job dead-letter --reason-code policy_violation 1", "dead_lettered"),
    (failed, "discard", "holdfast job discard 1", "discarded"),
    (dead, "discard", "holdfast job discard 1", "discarded"),
]


@pytest.mark.parametrize(("prepare", "verb", "command", "event"), VERBS, ids=lambda given: getattr(given, "__name__", given))
def test_each_verb_is_done_as_the_person(
    served: RunningServer,
    ledger: Ledger,
    clock: ManualClock,
    open_page: Open,
    prepare: Prepare,
    verb: str,
    command: str,
    event: str,
) -> None:
    job_id = prepare(ledger, clock)
    page = open_page(f"/jobs/{job_id}")
    page.click(f"[data-verb={verb}]")
    if command:
        expect(page.locator("dialog .command")).to_contain_text(command)
        expect(page.locator("dialog button", has_text="Keep")).to_be_focused()
        assert event not in [one.type for one in ledger.events(job_id)][-1:]
        page.click("[data-confirm]")

    expect(page.locator(".toast").last).to_contain_text(f"k #{job_id}:")
    found = ledger.events(job_id)[-1]
    assert (found.type, found.actor.partition(":")[2]) == (event, "kim")
    expect(page.locator(f"main [data-verb={verb}]:enabled")).to_have_count(1 if event == "cancel_requested" else 0)


@pytest.mark.parametrize("prepare", [failed, dead], ids=lambda made: made.__name__)
def test_a_replay_leads_to_the_new_job(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open, prepare: Prepare
) -> None:
    job_id = prepare(ledger, clock)
    page = open_page(f"/jobs/{job_id}")
    page.click("[data-verb=replay]")
    page.locator(".toast a").click()

    expect(page.locator("h1")).to_contain_text(f"k #{job_id + 1}")
    expect(page.locator("main")).to_contain_text(f"replay of #{job_id}")
    assert ledger.get(job_id + 1).replay_of == job_id


BULK: list[tuple[Prepare, str, str]] = [
    (queued, "cancel", "cancelled"),
    (queued, "dead-letter", "dead_lettered"),
    (failed, "replay", "failed"),
    (failed, "discard", "failed"),
    (stalled, "requeue", "queued"),
]


@pytest.mark.parametrize(("prepare", "verb", "status"), BULK, ids=lambda given: getattr(given, "__name__", given))
def test_each_verb_on_many_jobs(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open, prepare: Prepare, verb: str, status: str
) -> None:
    chosen = [prepare(ledger, clock) for _ in range(2)]
    other = ledger.enqueue("k", queue="z", delay="1h").id
    if verb in ("cancel", "dead-letter"):
        ledger.cancel(other)
    page = open_page("/jobs?kind=k")
    page.get_by_label("Select all jobs on this page").check()
    page.click(f".sheet [data-verb={verb}]")
    expect(page.locator("dialog")).to_contain_text("1 job of another status will be skipped.")
    page.click("[data-confirm]")

    expect(page.locator("dialog")).to_contain_text("2 done")
    assert {str(ledger.get(one).status) for one in chosen} == {status}
    if verb == "replay":
        assert sorted(job.replay_of or 0 for job in ledger.list(kind="k") if job.replay_of) == sorted(chosen)
    if verb == "discard":
        assert {ledger.get(one).note for one in chosen} == {"discarded"}


def test_a_double_click_is_one_effect(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    job_id = failed(ledger, clock)
    page = open_page(f"/jobs/{job_id}")
    page.dblclick("[data-verb=replay]")

    expect(page.locator(".toast")).to_have_count(1)
    assert [job.replay_of for job in ledger.list(kind="k")] == [None, job_id]


@pytest.fixture
def proxy(served: RunningServer) -> Iterator[Proxy]:
    with Proxy(served.port, HttpReader) as made:
        yield made


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_was_lost_is_asked_for_again(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open, watcher: Watcher, proxy: Proxy, when: str
) -> None:
    watcher.allowed = ("net::ERR_",)
    job_id = failed(ledger, clock)
    page = open_page(f"/jobs/{job_id}", port=proxy.port)
    proxy.cut(when, statement=b"POST /v1/jobs/1/replay")  # type: ignore[arg-type]
    page.click("[data-verb=replay]")

    expect(page.locator(".toast")).to_contain_text(f"replayed as #{job_id + 1}")
    assert proxy.was_cut.is_set()
    assert [job.replay_of for job in ledger.list(kind="k")] == [None, job_id]


def test_a_bulk_action_is_stopped_between_batches(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue_many([{"kind": "k"} for _ in range(450)])
    page = open_page("/jobs")
    page.locator("tbody input[type=checkbox]").first.check()
    page.click("text=Select all that match")
    expect(page.locator(".sheet")).to_contain_text("450 jobs selected")
    page.click(".sheet [data-verb=cancel]")
    page.fill("#typed", "450")
    sent: list[str] = []

    def stop_with_the_first(route: Route) -> None:
        sent.append(route.request.url)
        if len(sent) == 1:
            page.get_by_role("button", name="Stop").evaluate("(button) => button.click()")
        route.continue_()

    page.route("**/v1/batches", stop_with_the_first)
    page.click("[data-confirm]")

    expect(page.locator("dialog")).to_contain_text("200 done, 250 not sent")
    assert ledger.counts() == {"default": {"cancelled": 200, "queued": 250}}
    with page.expect_download() as waiting:
        page.click("text=Download the list")
    lines = waiting.value.path().read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["done"] * 200


def attention(page: Page, text: str) -> list[str]:
    return page.locator("main .panel", has_text=text).locator("button:enabled").all_inner_texts()


def test_attention_has_the_verbs_that_help(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    fence = held(ledger, clock)
    ledger.heartbeat(fence, assist_requested=True)
    page = open_page("/attention")
    expect(page.locator(".answer")).to_contain_text("1 thing waits for a person.")
    assert attention(page, "The holder asks for assistance") == ["Assist", "Cancel…"]
    page.click("main [data-verb=assist]")

    expect(page.locator("main .panel", has_text="An operator assists the job")).to_have_count(1)
    assert ledger.get(fence.job_id).phase == "assisted"
    page.click("main [data-verb=unassist]")
    expect(page.locator("main .panel", has_text="An operator assists the job")).to_have_count(0)
