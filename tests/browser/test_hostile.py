"""Texts of strangers are shown as texts, on every page."""

import shlex

import pytest
from playwright.sync_api import expect

from holdfast import Ledger
from holdfast.services import HistoryService
from holdfast.testing import ManualClock
from tests.browser.conftest import Open
from tests.browser.sample import claim
from tests.support.server import RunningServer

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
BIDI = "a\u202eb"
NAME = f"{MARKUP}'\"`${{}}"
PAGES = ["/", "/jobs", "/jobs/1", "/jobs/2", "/queues", "/kinds", "/workers", "/agents", "/attention", "/dead-letters", "/events"]
PAGES += ["/sinks", "/runs", "/seals", "/policies", "/tokens", "/help"]


@pytest.fixture
def hostile(served: RunningServer, ledger: Ledger, clock: ManualClock) -> RunningServer:
    """A ledger with markup in every field that a stranger can fill."""
    ledger.set_policy(kind=NAME, attempts_max=1)
    args = {MARKUP: MARKUP, "bidi": BIDI, "long": "x" * 10_000}
    for _ in range(2):
        ledger.enqueue(NAME, args, queue=NAME, correlation_id=NAME, dedupe_key=None)
    fence = claim(ledger, NAME, NAME)
    ledger.heartbeat(fence, stage=MARKUP[:60], checkpoint=args, assist_requested=True)
    ledger.fail(fence, {"type": MARKUP, "message": f"{MARKUP}{BIDI}", "traceback": MARKUP * 20}, retryable=True)
    fence = claim(ledger, NAME, NAME)
    ledger.heartbeat(fence, stage=MARKUP[:60], assist_requested=True)
    ledger.assist(2, actor=NAME, reason=MARKUP)
    ledger.pause(NAME, reason=MARKUP, actor=NAME)
    ledger.sign_in(NAME, incarnation=NAME.replace("#", ""), body={"host": MARKUP, "queues": [MARKUP], "version": MARKUP})
    ledger.new_token("reader", NAME)
    HistoryService(ledger, "test").tick()
    return served


@pytest.mark.parametrize("path", PAGES)
def test_markup_is_shown_as_text(hostile: RunningServer, open_page: Open, path: str) -> None:
    page = open_page(path, role="admin")

    for summary in page.locator("main details > summary").all():
        summary.click()
    if path in ("/jobs", "/queues", "/kinds", "/workers", "/dead-letters"):
        expect(page.locator("main")).to_contain_text("<img src=x onerror=")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_characters_that_reorder_a_line_are_made_visible(hostile: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")

    expect(page.locator("details[data-part=args] pre")).to_contain_text("a⟨U+202E⟩b")


def test_a_hostile_name_has_a_page_of_its_own(hostile: RunningServer, open_page: Open) -> None:
    page = open_page("/queues")
    page.click("tbody a >> nth=0")

    expect(page.locator("h1")).to_contain_text("<img src=x")
    page.click("[data-verb=unpause]")
    expect(page.locator(".toast")).to_contain_text("is open again")
    page.click("[data-verb=pause]")
    shown = page.locator("dialog .command code").inner_text()
    assert shlex.split(shown) == ["holdfast", "queue", "pause", NAME]
