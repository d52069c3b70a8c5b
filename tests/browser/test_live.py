"""Pages stay up to date: a server that goes away and comes back, a pause, a session that is over."""

from playwright.sync_api import expect

from holdfast import Ledger
from tests.browser.conftest import Open, Watcher
from tests.support.server import RunningServer


def test_a_pause_freezes_the_page(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?queue=crawl")
    rows = page.locator("tbody tr").count()
    page.click("#live")
    expect(page.locator("#live")).to_contain_text("paused")
    ledger.enqueue("fetch", queue="crawl")
    page.click("#live")

    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("tbody tr")).to_have_count(rows + 1)


def test_a_heartbeat_is_seen_on_the_job(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs/2")
    expect(page.locator("#live")).to_contain_text("live")
    handle = page.locator("details[data-part=args]").element_handle()
    ledger.unpause("mail")
    ledger.claim("w-9", ["mail"], incarnation="boot1", start=True, limit=12)

    expect(page.locator("h1")).to_contain_text("running")
    expect(page.locator(".timeline g rect.run")).to_have_count(1)
    assert handle is not None
    assert handle.evaluate("(node) => node.isConnected && node.open")


def test_a_ledger_that_goes_away_and_comes_back(filled: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher) -> None:
    watcher.allowed = ("503",)
    page = open_page("/jobs?queue=crawl")
    expect(page.locator("#live")).to_contain_text("live")
    rows = page.locator("tbody tr").count()
    page.route(
        "**/v1/jobs?*", lambda route: route.fulfill(status=503, json={"code": "unavailable", "detail": "the store is away"})
    )
    ledger.enqueue("fetch", queue="crawl")

    expect(page.locator("#banner")).to_contain_text("shows what was known then. the store is away")
    expect(page.locator("tbody tr")).to_have_count(rows)
    page.unroute("**/v1/jobs?*")
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("tbody tr")).to_have_count(rows + 1)


def test_a_session_that_is_over_asks_again_and_keeps_the_page(
    filled: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("401",)
    page = open_page("/queues/mail", name="kim")
    token = next(token for token in ledger.tokens() if token.name == "kim")
    ledger.revoke_token(token.id)
    filled.server.access.forget_tokens()
    page.click("[data-verb=unpause]")

    expect(page.locator("dialog")).to_contain_text("Sign in to Holdfast")
    expect(page.locator("main h1")).to_have_text("Queue mail")
    page.fill("#token", ledger.new_token("operator", "ada").text)
    page.click("dialog button[type=submit]")
    expect(page.locator("#who")).to_have_text("ada (operator)")


def test_a_stream_of_events_is_shown_newest_first(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/events?types=enqueued")
    expect(page.locator("#live")).to_contain_text("live")
    ids = [ledger.enqueue("fetch", queue="crawl").id for _ in range(3)]

    expect(page.locator("tbody tr").first).to_contain_text(f"#{ids[-1]}")
    assert set(page.locator("tbody td:nth-child(2)").all_inner_texts()) == {"enqueued"}
