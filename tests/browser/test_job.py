"""One job: its timeline, its parts, and what can be done with it."""

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

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


def test_bars_ticks_and_marks_stand_at_their_times(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open
) -> None:
    ledger.set_policy(kind="k", heartbeat_interval="15s", lease_ttl="60s")
    job_id = ledger.enqueue("k", queue="q").id
    clock.advance(10)
    fence = claim(ledger, "q", "w-1")
    for _ in range(3):
        clock.advance(10)
        ledger.heartbeat(fence)
    clock.advance(10)
    ledger.assist(job_id, actor="kim")
    clock.advance(10)
    ledger.unassist(job_id, actor="kim")
    clock.advance(40)
    ledger.complete(fence)
    page = open_page(f"/jobs/{job_id}")
    page.click("text=True scale")
    expect(page.locator("text=True scale")).to_have_attribute("aria-pressed", "true")
    width = page.locator(".timeline").evaluate("(node) => node.clientWidth") - 96

    def x(second: float) -> float:
        """Return where a time stands: the life is 100 s long, with 2 % of room on both sides."""
        return float((second + 2) / 104 * width)

    def close(found: tuple[float, float], start: float, end: float) -> bool:
        return abs(found[0] - x(start)) <= 1 and abs(found[0] + found[1] - x(end)) <= 1

    [ready], [run], [helped] = bars(page, "ready"), bars(page, "run"), bars(page, "assisted")
    assert close(ready, 0, 10)
    assert close(run, 10, 100)
    assert close(helped, 50, 60)
    ticks = re.findall(r"M([\d.]+) ", page.locator(".timeline path.beats").get_attribute("d") or "")
    assert [abs(float(found) - x(second)) <= 1 for found, second in zip(ticks, (20, 30, 40), strict=True)] == [True] * 3
    late = re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", page.locator(".timeline path.late").get_attribute("d") or "")
    assert [[abs(float(at) - x(second)) <= 1 for at, second in zip(pair, (40, 100), strict=True)] for pair in late] == [
        [True] * 2
    ]
    for kind, second in (("assist_started", 50), ("assist_ended", 60), ("succeeded", 100)):
        found = page.locator(f'.timeline [data-type="{kind}"]').get_attribute("transform") or ""
        assert abs(float(re.findall(r"[\d.]+", found)[0]) - x(second)) <= 1, kind


def test_many_attempts_are_few_lanes(served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open) -> None:
    ledger.set_policy(kind="k", attempts_max=400, backoff_base="0s", backoff_max="0s")
    ledger.enqueue("k", queue="q")
    for _ in range(300):
        clock.advance(1)
        ledger.fail(claim(ledger, "q", "w-1"), "no route")
    page = open_page("/jobs/1")

    names = page.locator(".timeline .lane-name").all_text_contents()
    assert (names[:4], names[-2:]) == (["waits", "#1 w-1", "#2 w-1", "#3 w-1"], ["#300 w-1", "signals"])
    assert len(names) <= 2 + 3 + 10 + 1
    expect(page.locator("main")).to_contain_text(f"{300 - (len(names) - 2)} more attempts are not drawn.")
    assert page.evaluate("document.querySelectorAll('.timeline *').length") < 1_500


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

    def range_of() -> list[int]:
        query = parse_qs(urlsplit(page.url).query)
        return [round(datetime.fromisoformat(query[name][0]).timestamp() * 1000) for name in ("from", "to")]

    page.locator(".timeline").focus()
    page.keyboard.press("+")
    start, end = range_of()
    page.keyboard.press("ArrowRight")
    moved, moved_end = range_of()
    assert abs((moved - start) - (end - start) / 10) <= 2
    assert abs((moved_end - moved) - (end - start)) <= 2
    page.keyboard.press("0")
    assert "from=" not in page.url
    page.keyboard.press("Tab")
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
    address = page.url
    ticks = page.locator(".timeline path.beats")
    zoomed = ticks.get_attribute("d") or ""
    page.click("text=All")
    assert "from=" not in page.url
    expect(ticks).not_to_have_attribute("d", zoomed)
    with page.expect_response(lambda answer: "timeline?from=" in answer.url):
        page.goto(address)
    expect(ticks).to_have_attribute("d", zoomed)
    assert page.url == address


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
    # About 64 s are shown on 952 px: 10 s is the smallest step with 80 px between labels.
    assert found["step"] == 10_000
