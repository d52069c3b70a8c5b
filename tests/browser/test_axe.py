"""Accessibility, by axe-core: no serious or critical finding on any page, in both themes, wide and narrow."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.support.server import RunningServer

_PACKAGE = find_spec("axe_playwright_python")
assert _PACKAGE is not None and _PACKAGE.origin is not None
AXE = (Path(_PACKAGE.origin).parent / "axe.min.js").read_text()
PAGES = ["/", "/jobs", "/jobs/1", "/queues", "/queues/mail", "/kinds", "/kinds/send_mail", "/workers", "/workers/w-3", "/agents"]
PAGES += ["/attention", "/dead-letters", "/events", "/sinks", "/runs", "/seals", "/policies", "/tokens", "/help"]
GO = """(path) => {
    document.querySelector("main > div").dataset.old = "";
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
}"""
LOOKS = [("light", 1280), ("dark", 390)]


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
        answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [
            f"{path}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:150]}"
            for one in answer["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} scrolls sideways at {width} px"
    assert found == [], server.url
