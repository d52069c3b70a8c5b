"""Numbers and times in the format of the browser's locale and zone."""

import pytest
from playwright.sync_api import expect

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.browser.conftest import Open
from tests.support.server import RunningServer

LOCALES = {
    "de-DE": ("1.204", "12,3 %", "3,5 s", "1. Jan. 2026, 01:00:00 MEZ"),
    "en-US": ("1,204", "12.3%", "3.5 s", "Jan 1, 2026, 01:00:00 AM GMT+1"),
    "en-GB": ("1,204", "12.3%", "3.5 s", "1 Jan 2026, 01:00:00 CET"),
}


@pytest.mark.parametrize("locale", LOCALES)
def test_formats_are_those_of_the_locale(served: RunningServer, ledger: Ledger, open_page: Open, locale: str) -> None:
    ledger.enqueue_many([{"kind": "k"} for _ in range(1204)])
    page = open_page("/queues", locale=locale)
    expect(page.locator("tbody")).to_contain_text(LOCALES[locale][0])

    found = page.evaluate(
        """async () => {
            const base = document.querySelector("meta[name=holdfast-assets]").content;
            const { number, percent, duration, fullTime } = await import(`/assets/${base}/js/format.js`);
            const start = Date.parse("2026-01-01T00:00:00Z");
            return [number(1204), percent(0.1234), duration(3500), fullTime(start)].map((text) => text.replace(/\\s/g, " "));
        }"""
    )
    assert tuple(found) == LOCALES[locale]


def test_a_group_that_is_not_done_is_never_at_100_percent(served: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    found = page.evaluate(
        """async () => {
            const base = document.querySelector("meta[name=holdfast-assets]").content;
            const { percentDone } = await import(`/assets/${base}/js/format.js`);
            return [0, 0.9999, 1].map((part) => percentDone(part));
        }"""
    )
    assert found == ["0%", "99.9%", "100%"]


DURATIONS = {
    0: "0 s",
    0.4: "1 ms",
    999: "999 ms",
    1_000: "1 s",
    9_940: "9.9 s",
    59_999: "59 s",
    252_000: "4 min 12 s",
    3_600_000: "1 h",
    90_000_000: "1 d 1 h",
}


def test_durations(served: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    found = page.evaluate(
        """async (values) => {
            const base = document.querySelector("meta[name=holdfast-assets]").content;
            const { duration } = await import(`/assets/${base}/js/format.js`);
            return [...values.map(duration), duration(null)];
        }""",
        list(DURATIONS),
    )
    assert found == [*DURATIONS.values(), "–"]


def test_a_day_that_ends_with_summer_time(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    page = open_page("/help")
    # In Berlin, 2026-10-25 has 25 hours: 02:30 comes twice.
    found = page.evaluate(
        """async () => {
            const base = document.querySelector("meta[name=holdfast-assets]").content;
            const { fullTime, dayNumber } = await import(`/assets/${base}/js/format.js`);
            const at = ["00:30", "01:30", "22:30", "23:30"].map((time) => Date.parse(`2026-10-25T${time}:00Z`));
            return [at.map((one) => fullTime(one)), at.map((one) => dayNumber(one) - dayNumber(at[0]))];
        }"""
    )
    assert found[0] == [
        "25 Oct 2026, 02:30:00 CEST",
        "25 Oct 2026, 02:30:00 CET",
        "25 Oct 2026, 23:30:00 CET",
        "26 Oct 2026, 00:30:00 CET",
    ]
    assert found[1] == [0, 0, 0, 1]


def test_names_from_right_to_left_stay_in_their_place(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue("שלום", queue="מהיר")
    page = open_page("/jobs")

    row = page.locator("tbody tr").first
    expect(row).to_contain_text("שלום")
    boxes = [cell.bounding_box() for cell in row.locator("td").all()]
    lefts = [box["x"] for box in boxes if box is not None]
    assert lefts == sorted(lefts)
