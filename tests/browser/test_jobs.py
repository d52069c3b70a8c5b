"""The list of jobs: filters in the address, selection, bulk actions and export."""

import json

import pytest
from playwright.sync_api import expect

from holdfast import Ledger
from holdfast.core import limits
from tests.browser.conftest import Open
from tests.support.server import RunningServer

SLOW_SEARCH = """
const now = performance.now.bind(performance), send = window.fetch;
let late = 0;
performance.now = () => now() + late;
window.fetch = (path, ...rest) => {
    if (path.startsWith("/v1/jobs?") && path.includes("text=")) late += 4_000;
    return send(path, ...rest);
};
window.said = [];
new MutationObserver(() => window.said.push(document.body?.innerText ?? "")).observe(document, {childList: true, subtree: true});
"""
"""Each request of a search takes four seconds. What the page says is kept."""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status=failed", {"status": "failed"}),
        ("queue=crawl", {"queue": "crawl"}),
        ("kind=send_mail&status=queued", {"kind": "send_mail", "status": "queued"}),
        ("owner=w-3", {"owner": "w-3"}),
        ("text=timed", {"text": "timed"}),
    ],
)
def test_each_filter_is_in_the_address(
    filled: RunningServer, ledger: Ledger, open_page: Open, query: str, expected: dict[str, str]
) -> None:
    ids = {str(job.id) for job in ledger.list(**expected)}  # type: ignore[arg-type]
    page = open_page(f"/jobs?{query}")

    expect(page.locator("tbody tr")).to_have_count(len(ids))
    assert set(page.locator("tbody tr a[href^='/jobs/']").all_inner_texts()) == ids
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(len(ids))


def test_a_filter_is_chosen_and_dropped(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs")
    page.fill("input[name=queue]", "crawl")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{filled.url}/jobs?queue=crawl")
    page.fill("input[name=kind]", "no_such_kind")
    page.keyboard.press("Enter")

    expect(page.locator(".empty")).to_contain_text("No job matches queue = crawl and kind = no_such_kind.")
    page.click("text=without kind = no_such_kind")
    expect(page.locator(".empty")).to_have_count(0)
    page.go_back()
    page.go_back()
    expect(page).to_have_url(f"{filled.url}/jobs?queue=crawl")


def test_pages_follow_each_other(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue_many([{"kind": "k"} for _ in range(130)])
    page = open_page("/jobs")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.click("text=Next page")
    expect(page.locator("tbody tr")).to_have_count(30)
    page.click("text=First page")
    expect(page.locator("tbody tr")).to_have_count(100)
    assert page.evaluate("document.querySelectorAll('*').length") < 2_600


def test_chosen_jobs_are_cancelled_and_those_that_moved_are_skipped(
    filled: RunningServer, ledger: Ledger, open_page: Open
) -> None:
    page = open_page("/jobs?kind=send_mail&status=queued")
    boxes = page.locator("tbody input[type=checkbox]")
    for number in range(3):
        boxes.nth(number).check()
    chosen = [int(box.get_attribute("data-id") or 0) for box in boxes.all()[:3]]
    page.click("[data-verb=cancel]")
    expect(page.locator("dialog")).to_contain_text("3 queued")
    ledger.reprioritise(chosen[0], 9)

    page.click("[data-confirm]")

    expect(page.locator("dialog")).to_contain_text("2 done, 1 had moved on")
    page.click("dialog button", timeout=5_000)
    assert [ledger.get(id_).status for id_ in chosen] == ["queued", "cancelled", "cancelled"]
    assert {event.actor for event in ledger.events(chosen[1]) if event.type == "cancelled"} == {"operator:kim"}


def test_many_jobs_want_their_number_typed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue_many([{"kind": "k"} for _ in range(25)])
    page = open_page("/jobs")
    page.locator("tbody input[type=checkbox]").first.check()
    page.click("text=Select all that match")
    expect(page.locator(".sheet")).to_contain_text("25 jobs selected")
    page.click("[data-verb=cancel]")
    confirm = page.locator("[data-confirm]")
    expect(confirm).to_be_disabled()
    page.fill("#typed", "24")
    expect(confirm).to_be_disabled()
    page.fill("#typed", "25")
    confirm.click()

    expect(page.locator("dialog")).to_contain_text("25 done")
    assert ledger.counts() == {"default": {"cancelled": 25}}


def test_a_selection_survives_a_live_update(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?queue=mail")
    expect(page.locator("#live")).to_contain_text("live")
    rows = page.locator("tbody tr").count()
    page.locator("tbody input[type=checkbox]").nth(1).check()
    new = ledger.enqueue("send_mail", queue="mail").id

    expect(page.locator(".new-rows")).to_have_text("1 new job matches – show")
    expect(page.locator("tbody tr")).to_have_count(rows)
    expect(page.locator("tbody input:checked")).to_have_count(1)
    page.click(".new-rows")
    expect(page.locator(f"a[href='/jobs/{new}']")).to_be_visible()
    expect(page.locator("tbody input:checked")).to_have_count(1)


def test_the_filter_is_exported(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?status=failed")
    with page.expect_download() as waiting:
        page.click("text=Export NDJSON")

    lines = waiting.value.path().read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["failed"] * 2


def test_the_keyboard_goes_through_the_list(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.locator("h1")).to_have_text("Jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("tbody input:checked")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("#")
    page.keyboard.press("/")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    page.click(".offers >> text=Job 1")
    expect(page.locator("h1")).to_contain_text("index_page #1")


def test_columns_are_chosen_and_kept_in_the_browser(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    def heads() -> list[str]:
        return page.locator("thead th").all_inner_texts()[1:]

    page = open_page("/jobs?queue=mail")
    assert heads() == ["Id", "Kind", "Queue", "Status", "Attempt", "Worker", "Age", "Changed", "Why"]
    page.locator("tbody input[type=checkbox]").nth(1).check()
    page.click("text=Columns")
    page.get_by_label("Queue", exact=True).and_(page.locator("input[type=checkbox]")).uncheck()
    page.get_by_label("Priority").check()

    chosen = ["Id", "Kind", "Status", "Attempt", "Worker", "Age", "Changed", "Priority", "Why"]
    assert heads() == chosen
    expect(page.locator("tbody input:checked")).to_have_count(1)
    expect(page.locator(".sheet")).to_contain_text("1 job selected")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Priority")).to_be_hidden()
    page.reload()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert heads() == chosen
    priorities = [str(job.priority) for job in reversed(ledger.list(queue="mail"))]
    assert page.locator("tbody td[data-label=Priority]").all_inner_texts() == priorities
    page.evaluate("localStorage.setItem('holdfast.columns', '{broken')")
    page.reload()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert len(heads()) == 9


def test_a_number_offers_the_job_and_what_else_has_it(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    keyed = ledger.enqueue("send_mail", {"order": 7}, queue="mail", dedupe_key="3").id
    joined = [ledger.enqueue("send_mail", queue="mail", correlation_id="3").id for _ in range(2)]
    named = ledger.enqueue("send_mail", {"note": "order 30"}, queue="3").id
    page = open_page("/")
    page.fill("#find-text", "#3")
    page.keyboard.press("Enter")

    offers = page.locator(".offers li")
    expect(offers).to_have_text(
        [
            "Job 3: send_mail in queue mail, failed",
            "Queue 3",
            f"1 job with the dedupe key 3: #{keyed} ",
            f"2 jobs with the correlation id 3: #{joined[1]} #{joined[0]} ",
        ]
    )
    shown = page.locator("tbody tr a[href^='/jobs/']")
    expect(shown).to_have_count(len(ledger.list(text="3")))
    assert {str(keyed), str(named), *map(str, joined)} <= set(shown.all_inner_texts())
    page.click("text=2 jobs with the correlation id 3")
    expect(shown).to_have_text([str(joined[1]), str(joined[0])])
    expect(page.locator("main > div > .command code")).to_have_text("holdfast job list --correlation-id=3")


def test_a_search_goes_on_until_all_jobs_are_read(
    served: RunningServer, ledger: Ledger, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEARCHED_TEXT_MAX", 100)
    oldest = ledger.enqueue("needle", dedupe_key="needle-1").id
    ledger.enqueue_many([{"kind": "hay"} for _ in range(950)])
    page = open_page("/jobs?text=needle")
    shown = page.locator("tbody tr a[href^='/jobs/']")
    expect(shown).to_have_text([str(oldest)])
    expect(page.locator(".search")).to_contain_text("951 jobs read")
    expect(page.locator(".empty")).to_have_count(0)
    newer = ledger.enqueue("needle").id
    page.click("text=Search again")
    expect(shown).to_have_text([str(newer), str(oldest)])
    page.goto(f"{served.url}/jobs?text=nothing")
    expect(page.locator(".empty")).to_contain_text("No job matches text = nothing.")
    expect(page.locator(".search")).to_contain_text("952 jobs read")


def test_a_search_that_is_not_over_offers_to_go_on_and_never_says_none(
    served: RunningServer, ledger: Ledger, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEARCHED_TEXT_MAX", 10)
    ledger.enqueue("needle")
    ledger.enqueue_many([{"kind": "hay"} for _ in range(55)])
    page = open_page("/jobs?text=needle&queue=default", init=SLOW_SEARCH)
    expect(page.locator(".search")).to_contain_text("No match yet among the 40 jobs that were read.")
    page.click("text=Go on searching")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.evaluate("window.said.length") > 0
    assert not page.evaluate("window.said.some((text) => text.includes('No job matches'))")
