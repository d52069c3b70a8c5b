"""Pages stay up to date: a server that goes away and comes back, a pause, a session that is over."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from holdfast import Ledger
from tests.browser.conftest import Open, Watcher
from tests.support.proxy import HttpReader, Proxy
from tests.support.server import RunningServer

STREAM = "**/v1/events/stream*"
SHORT_LIMITS = """
const original = AbortSignal.timeout;
window.limits = new Set();
AbortSignal.timeout = (ms) => {
    window.limits.add(ms);
    return original.call(AbortSignal, window.isShort ? 50 : ms);
};
"""
HIDING = """
window.streams = [];
window.EventSource = class extends EventSource {
    constructor(...given) { super(...given); window.streams.push(this); }
};
let isHidden = false;
Object.defineProperty(document, "hidden", {get: () => isHidden});
window.hide = (given) => {
    isHidden = given;
    document.dispatchEvent(new Event("visibilitychange"));
};
"""


@pytest.fixture
def proxy(served: RunningServer) -> Iterator[Proxy]:
    with Proxy(served.port, HttpReader) as made:
        yield made


def hold(route: Route) -> None:
    """Never answer, as a proxy that buffers."""


def test_a_pause_freezes_the_page(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?queue=crawl")
    rows = page.locator("tbody tr").count()
    other = open_page("/jobs?queue=crawl", name="ada")
    expect(other.locator("#live")).to_contain_text("live")
    page.click("#live")
    expect(page.locator("#live")).to_contain_text("paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v1/jobs" in request.url else None)
    ledger.enqueue("fetch", queue="crawl")
    expect(other.locator("tbody tr")).to_have_count(rows + 1)
    assert asked == []
    expect(page.locator("tbody tr")).to_have_count(rows)
    page.reload()
    expect(page.locator("#live")).to_contain_text("paused")
    expect(page.locator("tbody tr")).to_have_count(rows + 1)
    ledger.enqueue("fetch", queue="crawl")
    page.click("#live")

    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("tbody tr")).to_have_count(rows + 2)


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


def test_a_request_without_an_answer_is_given_up(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs?queue=crawl", init=SHORT_LIMITS)
    expect(page.locator("#live")).to_contain_text("live")
    page.route("**/v1/jobs?*", hold)
    page.evaluate("window.isShort = true")
    ledger.enqueue("fetch", queue="crawl")

    expect(page.locator("#banner")).to_contain_text("did not answer within 45 s")
    assert page.evaluate("[...window.limits]") == [45_000]
    page.unroute("**/v1/jobs?*")
    expect(page.locator("#banner")).to_be_hidden()


def test_a_stream_that_is_buffered_becomes_polling(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/help")
    page.clock.install()
    page.route(STREAM, hold)
    page.goto(f"{filled.url}/jobs?queue=crawl")
    expect(page.locator("tbody tr").first).to_be_visible()
    rows = page.locator("tbody tr").count()
    page.clock.run_for(6_000)
    expect(page.locator("#live")).to_contain_text("every 10 s")
    ledger.enqueue("fetch", queue="crawl")
    page.clock.run_for(11_000)

    expect(page.locator("tbody tr")).to_have_count(rows + 1)
    page.unroute(STREAM)
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if "/stream" in request.url else None)
    for _ in range(40):
        if streams:
            break
        page.clock.run_for(4_000)
    expect(page.locator("#live")).to_contain_text("live")


def test_a_stream_that_comes_back_buffered_becomes_polling(
    filled: RunningServer, proxy: Proxy, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("net::ERR_",)
    page = open_page("/help", port=proxy.port)
    page.clock.install()
    page.goto(f"http://127.0.0.1:{proxy.port}/jobs?queue=crawl")
    expect(page.locator("#live")).to_contain_text("live")
    proxy.go_away()
    expect(page.locator("#live")).to_contain_text("reconnecting")
    page.route(STREAM, hold)
    proxy.come_back()
    with page.expect_request(STREAM):
        pass
    page.clock.run_for(6_000)

    expect(page.locator("#live")).to_contain_text("every 10 s")


def test_a_server_that_is_gone_for_a_while(
    filled: RunningServer, ledger: Ledger, proxy: Proxy, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("net::ERR_",)
    page = open_page("/jobs?queue=crawl", port=proxy.port)
    expect(page.locator("#live")).to_contain_text("live")
    rows = page.locator("tbody tr").count()
    page.evaluate("window.mark = 1")
    proxy.go_away()
    expect(page.locator("#live")).to_contain_text("reconnecting")
    ledger.enqueue("fetch", queue="crawl")
    proxy.come_back()

    expect(page.locator("#live")).to_contain_text("live", timeout=20_000)
    expect(page.locator("tbody tr")).to_have_count(rows + 1)
    assert page.evaluate("window.mark") == 1


def test_a_hidden_tab_has_no_stream_and_asks_for_nothing(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/help", init=HIDING)
    page.clock.install()
    page.goto(f"{filled.url}/jobs?queue=crawl")
    expect(page.locator("#live")).to_contain_text("live")
    rows = page.locator("tbody tr").count()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("window.hide(true)")
    page.clock.run_for(31_000)
    assert page.evaluate("window.streams.map((one) => one.readyState)") == [2]
    ledger.enqueue("fetch", queue="crawl")
    page.clock.run_for(120_000)
    assert asked == []
    page.evaluate("window.hide(false)")

    expect(page.locator("tbody tr")).to_have_count(rows + 1)
    expect(page.locator("#live")).to_contain_text("live")


def test_seven_tabs_of_one_browser_stay_up_to_date(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    first = open_page("/jobs?queue=crawl")
    tabs = [first, *(first.context.new_page() for _ in range(6))]
    for tab in tabs[1:]:
        tab.goto(f"{filled.url}/jobs?queue=crawl")
    rows = first.locator("tbody tr").count()
    states = [tab.locator("#live") for tab in tabs]
    for state in states:
        expect(state).to_have_text(re.compile("live|every 10 s"))
    assert [state.inner_text().strip() for state in states].count("live") == 4
    ledger.enqueue("fetch", queue="crawl")

    for tab in tabs:
        expect(tab.locator("tbody tr")).to_have_count(rows + 1, timeout=20_000)
