"""Everything works without a mouse, and the focus is where people expect it."""

import pytest
from playwright.sync_api import Page, expect

from holdfast import Ledger
from tests.browser.conftest import Open
from tests.support.server import RunningServer

GO_TO = {
    "o": "Overview",
    "j": "Jobs",
    "q": "Queues",
    "k": "Kinds",
    "w": "Workers",
    "a": "Attention",
    "d": "Dead letters",
    "e": "Events",
}


def tab_to(page: Page, wanted: str, most: int = 80) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"Tab does not reach {wanted}")


def test_g_and_a_letter_go_to_pages(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    for key, title in GO_TO.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("h1")).to_have_text(title)
        expect(page.locator("h1")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("h1")).to_have_text("Help")


def test_keys_are_off_while_typing_and_can_be_switched_off(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs")
    page.keyboard.press("/")
    expect(page.locator("#find-text")).to_be_focused()
    page.keyboard.type("gq?")
    expect(page.locator("#find-text")).to_have_value("gq?")
    expect(page.locator("h1")).to_have_text("Jobs")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_label("Use these keys").uncheck()
    page.locator("h1").focus()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.locator("h1")).to_have_text("Help")


def test_l_t_and_v(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs")
    page.keyboard.press("l")
    expect(page.locator("#live")).to_contain_text("paused")
    page.keyboard.press("l")
    expect(page.locator("#live")).to_contain_text("live")
    age = page.locator("tbody tr time").first
    relative = age.inner_text()
    page.keyboard.press("t")
    expect(age).to_contain_text("2026")
    page.keyboard.press("t")
    expect(age).to_contain_text("UTC")
    page.keyboard.press("t")
    expect(age).to_have_text(relative)
    page.goto(filled.url + "/")
    expect(page.locator("svg.chart")).to_have_count(3)
    page.keyboard.press("v")
    expect(page.locator("[aria-label^=Values] table")).to_have_count(1)


def test_pages_of_a_list_and_a_range_by_keys(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue_many([{"kind": "k"} for _ in range(130)])
    page = open_page("/jobs")
    page.keyboard.press("]")
    expect(page.locator("tbody tr")).to_have_count(30)
    page.keyboard.press("[")
    expect(page.locator("tbody tr")).to_have_count(100)
    for key in ("j", "x", "j", "j", "Shift+X"):
        page.keyboard.press(key)
    expect(page.locator(".sheet")).to_contain_text("3 jobs selected")


def test_a_job_is_cancelled_with_the_keyboard_alone(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs/2")
    tab_to(page, "[data-verb=cancel]")
    page.keyboard.press("Enter")
    keep = page.locator("dialog button", has_text="Keep")
    expect(keep).to_be_focused()
    inside = []
    for _ in range(12):
        page.keyboard.press("Tab")
        inside.append(
            page.evaluate("document.activeElement.closest('dialog') !== null || document.activeElement === document.body")
        )
    assert all(inside)
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("[data-verb=cancel]")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, "[data-confirm]")
    page.keyboard.press("Enter")

    expect(page.locator("h1")).to_contain_text("cancelled")
    assert ledger.get(2).status == "cancelled"


def test_the_first_tab_skips_to_the_content(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/queues")
    page.locator(".brand").focus()
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    tab_to(page, "main a, main button, main [tabindex='0']", most=3)


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/1", "/queues", "/policies"])
def test_zoom_to_400_percent_does_not_scroll_sideways(filled: RunningServer, open_page: Open, path: str) -> None:
    page = open_page(path, role="admin", viewport={"width": 320, "height": 256})

    expect(page.locator("main h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.click("#menu")
    expect(page.locator("#nav a", has_text="Queues")).to_be_visible()


def test_a_focus_can_be_seen(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs")
    tab_to(page, "tbody a")
    style = page.evaluate(
        "(({outlineWidth, outlineStyle}) => [outlineWidth, outlineStyle])(getComputedStyle(document.activeElement))"
    )
    assert style == ["2px", "solid"]
