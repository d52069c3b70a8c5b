"""Texts of callers are shown as texts, on every page."""

import shlex
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.browser import hostile as strange
from tests.browser.conftest import Open, Watcher
from tests.browser.hostile import GROUP, KEYED, KIND, QUEUE, WORKER, markup, shown
from tests.support.server import RunningServer

PAGES: dict[str, tuple[str, ...]] = {
    "/": ("queue", "pause", "pauser"),
    "/jobs": ("queue", "kind", "worker", "type", "cancelled"),
    "/jobs/1": ("queue", "kind", "worker", "args", "key", "result", "correlation", "dedupe"),
    "/jobs/2": ("type", "message", "traceback"),
    "/jobs/3": ("stage", "checkpoint", "undo", "assistant", "reason", "worker"),
    "/jobs/4": ("message", "kind"),
    "/jobs/5": ("agent",),
    "/jobs/6": ("cancelled", "canceller", "partition", "limit", "label", "group"),
    "/queues": ("queue", "pause", "pauser", "partition"),
    f"/queues/{quote(QUEUE, safe='')}": ("queue", "kind", "worker", "pause", "pauser", "partition"),
    "/kinds": ("kind", "type"),
    f"/kinds/{quote(KIND, safe='')}": ("kind", "queue", "type"),
    "/workers": ("worker", "host", "version", "queue"),
    f"/workers/{quote(WORKER, safe='')}": ("worker", "host", "kind"),
    "/agents": ("agent", "session"),
    "/attention": ("kind", "queue", "assistant", "sink", "sink-error"),
    "/dead-letters": ("kind", "queue", "type", "worker"),
    "/events": ("canceller", "reason", "cancelled"),
    "/schedules": ("schedule", "kind", "queue", "pauser"),
    "/limits": ("limit", "keyed", "by", "setter"),
    f"/limits/{quote(KEYED, safe='')}": ("keyed", "by", "setter", "limit-key"),
    "/groups": ("group", "then", "on_dead"),
    f"/groups/{quote(GROUP, safe='')}": ("group", "then", "on_dead", "maker", "kind", "queue"),
    "/sinks": ("sink", "sink-error"),
    "/runs": ("run", "program"),
    "/seals": (),
    "/policies": ("kind", "tier"),
    "/tokens": ("token", "token-queue"),
    "/help": (),
}


@pytest.fixture
def hostile(served: RunningServer, ledger: Ledger, clock: ManualClock) -> RunningServer:
    strange.fill(ledger, clock)
    return served


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.split("%")[0])
def test_markup_is_shown_as_text(hostile: RunningServer, open_page: Open, watcher: Watcher, path: str) -> None:
    watcher.allowed = ("404",)  # Nothing is sealed, so there is no proof.
    page = open_page(path, role="admin")

    page.evaluate("document.querySelectorAll('main details').forEach((one) => (one.open = true))")
    for field in PAGES[path]:
        expect(page.locator("main")).to_contain_text(shown(field))
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
    given = page.locator("dialog .command code").inner_text()
    assert shlex.split(given) == ["holdfast", "queue", "pause", QUEUE]


def test_commands_about_limits_and_groups_are_one_word_of_a_shell(hostile: RunningServer, open_page: Open) -> None:
    page = open_page(f"/limits/{quote(KEYED, safe='')}")
    page.get_by_text("Change…").last.click()
    given = page.locator("dialog .command code").inner_text()
    assert shlex.split(given) == ["holdfast", "limit", "set", KEYED, f"--for={markup('limit-key')}", "--concurrent", "1"]
    page.keyboard.press("Escape")
    page.goto(f"{hostile.url}/groups")
    page.click("[data-verb=cancel_group]")
    given = page.locator("dialog .command code").inner_text()
    assert shlex.split(given) == ["holdfast", "group", "cancel", GROUP]
    page.click("[data-confirm]")
    expect(page.locator(".toast")).to_contain_text("told to end.")
    assert page.evaluate("window.hacked") is None


def test_dialogs_and_messages_show_text(hostile: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs/3", role="admin")
    page.click("[data-verb=cancel]")
    expect(page.locator("dialog")).to_contain_text(shown("kind"))
    expect(page.locator("dialog")).to_contain_text(shown("worker"))
    page.fill("#reason", markup("typed"))
    page.click("[data-confirm]")

    expect(page.locator(".toast")).to_contain_text(shown("kind"))
    page.click("details[data-part=events] summary")
    expect(page.locator("details[data-part=events]")).to_contain_text(shown("typed"))
    assert page.evaluate("window.hacked") is None
    assert page.locator("body > :not(script) img").count() == 0


def test_a_filter_of_the_address_is_text(served: RunningServer, open_page: Open) -> None:
    page = open_page(f"/jobs?queue={quote(markup('filter'))}")

    expect(page.locator(".empty")).to_contain_text(shown("filter"))
    assert page.evaluate("window.hacked") is None
