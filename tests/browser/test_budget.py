"""How much pages cost: bytes over the wire, requests, elements, and what an update changes."""

from collections import Counter

import pytest
from playwright.sync_api import Page, expect

from holdfast import Ledger
from holdfast.server.pages import Pages
from holdfast.services import HistoryService
from holdfast.testing import ManualClock
from tests.browser.conftest import Open
from tests.browser.sample import busy_hour, fill
from tests.support.server import RunningServer

KIB = 1024
FIRST_PAGE_MAX = {"all": 100 * KIB, "js": 45 * KIB, "css": 12 * KIB, "data": 20 * KIB}
ALL_MODULES_BYTES_MAX = 120 * KIB
LIST_ELEMENTS_MAX = 2_500
MANY = 100_000


def transferred(page: Page, url: str, ready: str) -> Counter[str]:
    """Open a page without a cache. Return the bytes over the wire, by what they are."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    kinds: dict[str, str] = {}
    sizes: Counter[str] = Counter()

    def on_response(event: dict[str, dict[str, str]]) -> None:
        path = event["response"]["url"].split("?")[0]
        kinds[str(event["requestId"])] = "data" if "/v1/" in path else path.rpartition(".")[2] if "/assets/" in path else "html"

    def on_end(event: dict[str, object]) -> None:
        size = int(str(event["encodedDataLength"]).partition(".")[0])
        sizes[kinds[str(event["requestId"])]] += size
        sizes["all"] += size

    session.on("Network.responseReceived", on_response)
    session.on("Network.loadingFinished", on_end)
    page.goto(url)
    expect(page.locator(ready).first).to_be_visible()
    page.wait_for_load_state("load")
    expect(page.locator("#live")).to_contain_text("live")
    return sizes


def test_the_first_page_is_small(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    busy_hour(ledger, clock)
    fill(ledger, clock)
    page = open_page("/help")
    with page.expect_response("**/v1/history?metric=run*"), page.expect_response("**/v1/history?metric=throughput*"):
        sizes = transferred(page, f"{served.url}/", "svg.chart path.series")
    expect(page.locator("svg.chart")).to_have_count(3)

    assert sizes["data"] > 4 * KIB, "the data was not counted"
    assert sizes["js"] > 20 * KIB, "the modules were not counted"
    assert {kind: sizes[kind] for kind, most in FIRST_PAGE_MAX.items() if sizes[kind] > most} == {}


def test_all_modules_are_small() -> None:
    modules = {path: file for path, file in Pages()._assets.items() if path.endswith(b".js")}

    assert len(modules) > 50
    assert sum(len(file.zipped) for file in modules.values()) <= ALL_MODULES_BYTES_MAX


@pytest.fixture
def crowd(served: RunningServer, ledger: Ledger) -> RunningServer:
    """A ledger with 100,000 jobs, which events were counted."""
    for start in range(0, MANY, 1_000):
        ledger.enqueue_many([{"kind": "k", "queue": f"q-{start // 10_000}", "args": {"n": start + n}} for n in range(1_000)])
    service = HistoryService(ledger, "test")
    while service.tick() > 1:  # The last page is empty.
        pass
    return served


def test_a_hundred_thousand_jobs(crowd: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/")
    expect(page.locator('[data-tile="waiting"] .value')).to_have_text("100,000")
    page.click('[data-tile="waiting"]')
    expect(page.locator("tbody tr")).to_have_count(100)
    expect(page.locator(".chip[aria-current] .n")).to_have_text("100,000")
    assert page.evaluate("document.querySelectorAll('*').length") <= LIST_ELEMENTS_MAX
    first = page.locator("tbody tr a").first.inner_text()
    assert first == str(MANY)
    page.click("text=Next page")
    expect(page.locator("tbody tr a").first).to_have_text(str(MANY - 100))
    page.goto(f"{crowd.url}/queues")
    expect(page.locator(".answer")).to_contain_text("100,000 jobs wait in 10 queues.")
    expect(page.locator("tbody svg.spark")).to_have_count(10)
    page.fill("#find-text", "54321")
    page.keyboard.press("Enter")
    page.click(".offers >> text=Job 54321")
    expect(page.locator("h1")).to_contain_text("k #54321")
    expect(page.locator("details[data-part=args] pre")).to_contain_text('"n": 54320')


def test_an_update_changes_only_what_is_new(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?queue=mail")
    expect(page.locator("#live")).to_contain_text("live")
    job_id = min(job.id for job in ledger.list(queue="mail", status="queued"))
    page.evaluate(
        """(id) => {
            window.changed = new Set();
            new MutationObserver((records) => {
                for (const record of records) {
                    const row = record.target.parentElement?.closest("tr") ?? record.target.closest?.("tr");
                    const node = record.target.closest ? record.target : record.target.parentElement;
                    if (!node?.closest("time, td[data-label=Why]"))
                        window.changed.add(row ? row.querySelector("a").textContent : record.target.nodeName);
                }
            }).observe(document.querySelector("tbody"), {subtree: true, childList: true, characterData: true});
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.changed.add(`shift ${entry.value}`);
            }).observe({type: "layout-shift"});
            window.row = document.querySelector(`a[href="/jobs/${id}"]`).closest("tr");
        }""",
        job_id,
    )
    ledger.cancel(job_id, reason="not needed")

    row = page.locator("tbody tr", has=page.locator(f"a[href='/jobs/{job_id}']"))
    expect(row).to_contain_text("cancelled")
    assert page.evaluate("[...window.changed]") == [str(job_id)]
    assert row.evaluate("(row) => row === window.row")
