"""The first page: its numbers are the ledger's, and lead to what they count."""

import pytest
from playwright.sync_api import Page, expect

from holdfast import Ledger
from holdfast.services import HistoryService
from holdfast.testing import ManualClock
from tests.browser.conftest import Open, Watcher
from tests.browser.sample import claim
from tests.support.server import RunningServer


def tile(page: Page, name: str) -> str:
    return page.locator(f'[data-tile="{name}"] .value').inner_text()


def test_the_numbers_equal_the_ledger_and_lead_to_their_jobs(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    counts: dict[str, int] = {}
    for statuses in ledger.counts().values():
        for status, number in statuses.items():
            counts[status] = counts.get(status, 0) + number
    page = open_page("/")

    assert tile(page, "waiting") == str(counts["queued"])
    assert tile(page, "running") == str(counts["running"])
    expect(page.locator(".answer")).to_contain_text("The doctor warns of 3 things: ")
    expect(page.locator("#nav [aria-current]")).to_have_text("Overview")
    page.click('[data-tile="waiting"]')
    expect(page.locator("tbody tr")).to_have_count(counts["queued"])
    assert page.url.endswith("/jobs?status=queued")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Overview")


TILES = {"waiting": "queued", "running": "running", "stalled": "stalled", "failed": "failed", "dead letters": "dead_lettered"}


@pytest.mark.parametrize("name", TILES)
def test_each_number_leads_to_as_many_jobs(
    filled: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open, name: str
) -> None:
    ledger.set_policy(kind="k", attempts_max=1)
    for _ in range(3):
        ledger.enqueue("k", queue="q")
        ledger.fail(claim(ledger, "q", "w-1"), "no route")
    ledger.discard(max(job.id for job in ledger.list(status="dead_lettered")), actor="kim")
    ledger.enqueue("slow", queue="q")
    ledger.stall(claim(ledger, "q", "w-1"))
    HistoryService(ledger, "test").tick()
    page = open_page("/")
    number = int(tile(page, name))
    assert number > 0
    page.click(f'[data-tile="{name}"]')

    rows = page.locator("[aria-label='Dead letters'] tbody tr, [aria-label=Jobs] tbody tr")
    expect(rows).to_have_count(number)
    if name != "dead letters":
        assert number == len(ledger.list(status=TILES[name]))


def test_a_ledger_that_is_well_says_so(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.sign_in("w-1", incarnation="boot1", body={"queues": ["q"], "kinds": ["k"]})
    ledger.enqueue("k", queue="q")
    ledger.complete(claim(ledger, "q", "w-1"))
    HistoryService(ledger, "test").tick()
    page = open_page("/")

    expect(page.locator(".answer")).to_have_text("The doctor finds nothing wrong.")


def test_an_empty_ledger_teaches(open_page: Open) -> None:
    page = open_page("/")

    expect(page.locator(".empty")).to_contain_text("holdfast job enqueue")
    expect(page.locator(".tiles")).to_be_hidden()


def test_a_change_is_shown_without_a_reload(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?queue=crawl")
    expect(page.locator("#live")).to_contain_text("live")
    page.evaluate("window.mark = 1")
    rows = page.locator("tbody tr").count()

    ledger.enqueue("fetch", queue="crawl")

    expect(page.locator("tbody tr")).to_have_count(rows + 1)
    assert page.evaluate("window.mark") == 1


def test_numbers_and_times_have_the_format_of_the_locale(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue_many([{"kind": "k"} for _ in range(1204)])
    german = open_page("/queues", locale="de-DE")
    english = open_page("/queues", locale="en-US")

    expect(german.locator("tbody")).to_contain_text("1.204")
    expect(english.locator("tbody")).to_contain_text("1,204")


def test_signing_in_with_a_token_and_with_a_code(
    served: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("401",)
    page = open_page("/jobs", role=None)
    page.fill("#token", ledger.new_token("reader", "eye").text)
    page.click("dialog button[type=submit]")
    expect(page.locator("h1")).to_have_text("Jobs")
    expect(page.locator("#who")).to_have_text("eye (reader)")
    expect(page.locator("#nav a[href='/tokens']")).to_be_hidden()

    other = open_page(f"/#code={ledger.local_login_code()}", role=None)
    expect(other.locator("h1")).to_have_text("Overview")
    assert "code" not in other.url


def test_a_series_of_one_point_is_drawn(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    ledger.enqueue("k", queue="q")
    clock.advance(4)
    fence = claim(ledger, "q", "w-1")
    clock.advance(2)
    ledger.complete(fence)
    page = open_page("/")
    dots = page.locator(".chart .dots")
    expect(dots).to_have_count(4)
    for dot in dots.all():
        box = dot.bounding_box()
        assert box is not None
        assert (dot.get_attribute("d") or "").count("M") == 1
    expect(page.locator(".chart .column")).to_have_count(4)
    expect(page.locator(".chart-place svg[aria-label^='Run time.']")).to_have_attribute(
        "aria-label", "Run time. p50 2 s, p95 2 s."
    )
