"""One job: its timeline, its parts, and what can be done with it."""

import re
from datetime import UTC, datetime

from playwright.sync_api import Page, expect

from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.browser.conftest import Open, Watcher
from tests.browser.sample import claim
from tests.support.server import RunningServer

BEATS = 10_000
ELEMENTS_MAX = 3_000


def bars(page: Page, kind: str) -> list[tuple[float, float]]:
    """Return the left edge and the width of each bar of a kind."""
    return [
        (float(bar.get_attribute("x") or 0), float(bar.get_attribute("width") or 0))
        for bar in page.locator(f".timeline g rect.{kind}").all()
    ]


def test_the_life_of_a_job_is_drawn(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")
    page.click("text=True scale")
    first, second = bars(page, "run")
    [stall] = bars(page, "stall")

    assert len(page.locator(".timeline path.beats").all()) == 2
    assert len(bars(page, "ready")) >= 2
    assert first[0] < second[0]
    # The first attempt ran for 90 s until it stalled; the second began when the requeued job was claimed.
    assert abs(first[0] + first[1] - stall[0]) <= 1
    expect(page.locator('.timeline [data-type="assist_started"]')).to_have_count(1)
    expect(page.locator('.timeline [data-type="stalled"]')).to_have_count(1)
    label = page.locator(".timeline svg[role=img]").get_attribute("aria-label") or ""
    assert "Attempt 1 ended as requeued" in label


def test_idle_stretches_are_folded_and_unfold(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")
    folds = page.locator(".timeline button.unfold")
    before = folds.count()
    assert before >= 1

    folds.first.click()

    expect(folds).to_have_count(before - 1)
    page.click("text=True scale")
    expect(folds).to_have_count(0)


def test_the_timeline_as_text_and_by_keyboard(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")
    page.locator(".timeline").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("0")
    page.click("text=As text")

    rows = page.locator("[aria-label='Timeline as text'] tbody tr")
    expect(rows.filter(has_text="#1 claimed by w-1")).to_have_count(1)
    expect(rows.filter(has_text="assist started")).to_have_count(1)


def test_many_heartbeats_are_few_elements(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    ledger.enqueue("k", queue="q")
    fence = claim(ledger, "q", "w-1")
    for _ in range(BEATS // 1000):
        for _ in range(100):
            clock.advance(1)
            ledger.heartbeat_many([fence] * 10)
    page = open_page("/jobs/1")

    expect(page.locator(".timeline path.beats")).to_have_count(1)
    assert page.evaluate("document.querySelectorAll('*').length") < ELEMENTS_MAX
    assert page.evaluate("document.querySelectorAll('.timeline *').length") < 1_500


def test_the_part_that_is_shown_is_in_the_address(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open
) -> None:
    ledger.enqueue("k", queue="q")
    fence = claim(ledger, "q", "w-1")
    for _ in range(250):
        clock.advance(10)
        ledger.heartbeat_many([fence] * 10)
    page = open_page("/jobs/1")
    with page.expect_response(lambda answer: "timeline?from=" in answer.url) as waiting:
        page.click("[aria-label='Zoom in']")
    assert waiting.value.ok
    assert "from=" in page.url
    whole = page.locator(".timeline path.beats").get_attribute("d") or ""
    page.reload()
    expect(page.locator(".timeline path.beats")).to_have_count(1)
    assert len(whole) > 1_000
    page.click("text=All")
    assert "from=" not in page.url


def test_numbers_of_arguments_are_shown_as_they_were_written(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")

    expect(page.locator("details[data-part=args] pre")).to_contain_text('"rate": 1.10')
    page.click("details[data-part=undo] summary")
    expect(page.locator("details[data-part=undo]")).to_contain_text("delete_page")
    page.click("details[data-part=events] summary")
    expect(page.locator("details[data-part=events] tbody tr").first).to_contain_text("enqueued")
    page.click("details[data-part=policy] summary")
    expect(page.locator("details[data-part=policy]")).to_contain_text("attempts max")


def test_dependencies_are_a_graph(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    parse = next(job.id for job in ledger.list(kind="parse"))
    page = open_page(f"/jobs/{parse}")
    page.click("details[data-part=dependencies] summary")

    expect(page.locator(".graph a")).to_have_count(3)
    page.locator(".graph a", has_text="fetch").click()
    expect(page.locator("h1")).to_contain_text("fetch")


def test_a_job_is_cancelled_with_a_question(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/jobs/2")
    page.click("[data-verb=cancel]")
    expect(page.locator("dialog")).to_contain_text("holdfast job cancel 2")
    expect(page.locator("dialog button", has_text="Keep")).to_be_focused()
    page.keyboard.press("Escape")
    assert ledger.get(2).status == "queued"

    page.click("[data-verb=cancel]")
    page.fill("#reason", "wrong address")
    page.click("[data-confirm]")

    expect(page.locator("h1")).to_contain_text("cancelled")
    assert (ledger.get(2).cancel_reason, ledger.events(2)[-1].actor) == ("wrong address", "operator:kim")
    page.click("[data-verb=replay]")
    expect(page.locator(".toast").last).to_contain_text("replayed as")


def test_a_job_that_has_changed_meanwhile_is_not_touched(
    filled: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("412",)
    page = open_page("/jobs/2")
    page.click("#live")  # Pause, so that the page does not see the change.
    page.click("[data-verb=cancel]")
    ledger.reprioritise(2, 9)
    page.click("[data-confirm]")

    expect(page.locator("dialog")).to_contain_text("has changed meanwhile")
    assert ledger.get(2).status == "queued"


def test_a_reader_has_no_buttons(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1", role="reader")

    expect(page.locator("h1")).to_contain_text("index_page")
    expect(page.locator("[data-verb]")).to_have_count(0)


def test_a_job_that_does_not_exist(served: RunningServer, open_page: Open, watcher: Watcher) -> None:
    watcher.allowed = ("404",)
    page = open_page("/jobs/99")

    expect(page.locator("h1")).to_have_text("Not found")
    expect(page.locator(".problem")).to_contain_text("there is no job 99")


def test_the_scale_is_exact(served: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    base = page.evaluate("document.querySelector('meta[name=holdfast-assets]').content")
    start = int(datetime(2026, 11, 17, tzinfo=UTC).timestamp() * 1000)

    found = page.evaluate(
        """async ([base, start]) => {
            const { makeScale, findFolds, extent, ticks } = await import(`/assets/${base}/js/parts/scale.js`);
            const marks = [0, 1, 2, 3, 1000, 1001].map((s) => start + s * 1000);
            const range = extent(marks[0], marks.at(-1));
            const folds = findFolds(marks, range);
            const scale = makeScale(range, 1000, folds);
            const back = marks.map((at) => Math.abs(scale.at(scale.x(at)) - at));
            const [x, end, { step }] = [marks.map(scale.x), scale.x(range.to), ticks(scale)];
            return {folds: folds.length, worst: Math.max(...back), x, end, step};
        }""",
        [base, start],
    )

    assert (found["folds"], round(found["end"])) == (1, 1000)
    assert found["worst"] < 1
    assert found["x"] == sorted(found["x"])
    assert re.fullmatch(r"\d+", str(found["step"]))
