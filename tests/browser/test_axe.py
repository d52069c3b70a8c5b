"""Accessibility, by axe-core: no serious or critical finding on any page, in both themes, wide and narrow."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Watcher
from tests.support.server import RunningServer

_PACKAGE = find_spec("axe_playwright_python")
assert _PACKAGE is not None and _PACKAGE.origin is not None
AXE = (Path(_PACKAGE.origin).parent / "axe.min.js").read_text()
PAGES = ["/", "/jobs", "/jobs/1", "/queues", "/queues/mail", "/kinds", "/kinds/send_mail", "/workers", "/workers/w-3", "/agents"]
PAGES += ["/attention", "/dead-letters", "/events", "/schedules", "/sinks", "/runs", "/seals", "/policies", "/tokens", "/help"]
PAGES += ["/limits", "/limits/smtp", "/groups", "/groups/import-42"]
GO = """(path) => {
    document.querySelector("main > div").dataset.old = "";
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
}"""
LOOKS = [("light", 1280), ("dark", 390), ("dark", 1280), ("light", 390)]
RUN = "axe.run(document, {resultTypes: ['violations']})"


def findings(page: Page, where: str) -> list[str]:
    """Return what is serious or critical."""
    return [
        f"{where}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:150]}"
        for one in page.evaluate(RUN)["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("theme", "width"), LOOKS)
@pytest.mark.parametrize("data", ["filled", "empty"])
def test_no_page_has_a_serious_finding(
    data: str, theme: str, width: int, request: pytest.FixtureRequest, open_page: Open
) -> None:
    server: RunningServer = request.getfixturevalue("filled" if data == "filled" else "served")
    page = open_page("/", role="admin", color_scheme=theme, viewport={"width": width, "height": 900})
    page.evaluate(AXE)
    found: list[str] = []
    for path in PAGES if data == "filled" else [path for path in PAGES if path.count("/") == 1]:
        page.evaluate(GO, path)
        expect(page.locator("main > [data-old]")).to_have_count(0)
        expect(page.locator("main h1")).to_have_count(1)
        found += findings(page, path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} scrolls sideways at {width} px"
    assert found == [], server.url


@pytest.mark.parametrize(("theme", "width"), LOOKS[:2])
def test_no_dialog_or_open_part_has_a_serious_finding(filled: RunningServer, open_page: Open, theme: str, width: int) -> None:
    page = open_page("/jobs/1", role="admin", color_scheme=theme, viewport={"width": width, "height": 900})
    page.evaluate(AXE)
    for name in ("undo", "dependencies", "events", "policy", "times"):
        page.click(f"details[data-part={name}] summary")
        expect(page.locator(f"details[data-part={name}] .body")).not_to_be_empty()
    page.click("text=As text")
    found = findings(page, "the parts of a job")
    page.click("[data-verb=cancel]")
    found += findings(page, "the question of a verb")
    page.keyboard.press("Escape")
    page.evaluate(GO, "/policies")
    page.get_by_text("Edit…").first.click()
    page.fill("#policy-lease_ttl_ms", "soon")
    found += findings(page, "the form of a policy")
    page.keyboard.press("Escape")
    page.evaluate(GO, "/limits")
    page.get_by_text("Set a limit…").click()
    page.fill("#limit-concurrent", "many")
    found += findings(page, "the form of a limit")
    page.keyboard.press("Escape")
    page.evaluate(GO, "/groups")
    page.click("[data-verb=cancel_group]")
    expect(page.locator("dialog")).to_be_visible()
    found += findings(page, "the question of a group")
    page.keyboard.press("Escape")
    page.evaluate(GO, "/jobs")
    page.get_by_text("Columns").click()
    page.get_by_label("Select all jobs on this page").check() if width > 720 else page.locator("tbody input").first.check()
    found += findings(page, "a selection")
    page.click(".sheet [data-verb=cancel]")
    found += findings(page, "the question of many jobs")
    assert found == []


def test_signing_in_has_no_serious_finding(served: RunningServer, open_page: Open, watcher: Watcher) -> None:
    watcher.allowed = ("401",)
    page = open_page("/", role=None)
    expect(page.locator("dialog")).to_be_visible()
    page.evaluate(AXE)
    assert findings(page, "signing in") == []
