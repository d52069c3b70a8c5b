"""Dead letters by cause, and queues and schedules that are paused and resumed."""

from playwright.sync_api import expect

from holdfast import Ledger
from tests.browser.conftest import Open
from tests.browser.sample import claim
from tests.support.server import RunningServer


def test_letters_of_one_cause_are_a_group_and_are_replayed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_policy(kind="k", attempts_max=1)
    for number in range(3):
        ledger.enqueue("k", queue="q")
        ledger.fail(claim(ledger, "q", "w-1"), {"type": "TimeoutError", "message": f"read timed out after {number} s"})
    ledger.dead_letter(ledger.enqueue("other", queue="q").id, reason_code="validation_failed")
    page = open_page("/dead-letters")

    groups = page.locator("[aria-label='Groups of dead letters'] table tbody tr")
    expect(groups).to_have_count(2)
    expect(groups.first).to_contain_text("TimeoutError")
    expect(page.locator(".answer")).to_contain_text("4 dead letters wait for a decision, of 2 causes.")
    letters = page.locator("div[aria-label='Dead letters'] tbody tr")
    expect(letters).to_have_count(4)
    letters.filter(has_text="TimeoutError").first.locator("input").check()
    page.click(".sheet [data-verb=replay]")
    page.click("[data-confirm]")
    expect(page.locator("dialog")).to_contain_text("1 done")
    page.click("dialog button")
    expect(letters.filter(has_text="queued")).to_have_count(1)
    assert len(ledger.list(kind="k")) == 4


def _fill_groups(ledger: Ledger) -> None:
    """Twelve letters of one cause, of which one was replayed, and one of another."""
    ledger.set_policy(kind="k", attempts_max=1)
    for number in range(12):
        ledger.enqueue("k", queue="q")
        ledger.fail(claim(ledger, "q", "w-1"), {"type": "TimeoutError", "message": f"read timed out after {number} s"})
    ledger.replay(1)
    ledger.dead_letter(ledger.enqueue("other", queue="q").id, reason_code="validation_failed")


def test_a_whole_group_is_replayed_after_its_number_is_typed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    _fill_groups(ledger)
    page = open_page("/dead-letters")
    group = page.locator("[aria-label='Groups of dead letters'] tbody tr").filter(has_text="TimeoutError")
    group.get_by_role("button", name="Replay the whole group").click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("Replay 11 jobs?")
    expect(dialog).not_to_contain_text("skipped")
    expect(page.locator("[data-confirm]")).to_be_disabled()
    page.fill("#typed", "11")
    page.click("[data-confirm]")
    expect(dialog).to_contain_text("11 done")
    assert len(ledger.list(kind="k", status=["queued"])) == 12
    assert not ledger.list(kind="other", status=["queued"])


def test_a_whole_group_is_discarded_with_a_reason(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    _fill_groups(ledger)
    page = open_page("/dead-letters?by=reason_code")
    groups = page.locator("[aria-label='Groups of dead letters'] tbody tr")
    expect(groups).to_have_count(2)
    groups.first.get_by_role("button", name="Discard the whole group").click()
    expect(page.locator("dialog")).to_contain_text("Discard 11 jobs?")
    page.fill("#reason", "known outage")
    page.fill("#typed", "11")
    page.click("[data-confirm]")
    expect(page.locator("dialog")).to_contain_text("11 done")
    page.click("dialog button")
    expect(groups).to_have_count(1)
    assert [event.reason for event in ledger.events(types=["discarded"])] == ["known outage"] * 11


def test_a_person_who_may_only_read_sees_no_action_on_groups(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    _fill_groups(ledger)
    page = open_page("/dead-letters?by=reason_code", role="reader")
    expect(page.locator("[aria-label='Groups of dead letters'] tbody tr")).to_have_count(2)
    expect(page.locator("[data-verb]")).to_have_count(0)


def test_each_queue_shows_how_many_jobs_come_and_are_done_a_minute(
    filled: RunningServer, ledger: Ledger, open_page: Open
) -> None:
    page = open_page("/queues")
    expect(page.locator(".answer")).to_contain_text("Rates are of the last 5 min.")
    for queue in ledger.queues():
        assert queue.rates is not None
        row = page.locator("tbody tr").filter(has=page.get_by_role("link", name=queue.name, exact=True))
        for label, rate in (("In/min", queue.rates.enqueued), ("Done/min", queue.rates.succeeded)):
            cell = row.locator(f"td[data-label='{label}']")
            expect(cell).not_to_be_empty()
            assert abs(float(cell.inner_text()) - rate) <= 0.0501, (queue, label)


def test_a_queue_is_paused_with_a_reason_and_resumed(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/queues/crawl")
    page.click("[data-verb=pause]")
    page.fill("#reason", "disk is full")
    page.click("[data-confirm]")
    expect(page.locator(".answer")).to_contain_text("paused by")
    expect(page.locator(".answer")).to_contain_text("disk is full")
    assert "crawl" in ledger.paused()
    page.click("[data-verb=unpause]")
    expect(page.locator(".answer")).to_contain_text("open")
    assert "crawl" not in ledger.paused()


def test_a_schedule_is_paused_resumed_run_and_removed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_schedule("nightly", "report", cron="0 3 * * *", tz="Europe/Berlin", queue="q")
    page = open_page("/schedules")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("0 3 * * * Europe/Berlin")
    row.locator("[data-verb=run_schedule]").click()
    page.click("[data-confirm]")
    expect(page.locator("body")).to_contain_text("The job is made.")
    assert [job.kind for job in ledger.list()] == ["report"]
    row.locator("[data-verb=pause_schedule]").click()
    page.click("[data-confirm]")
    expect(row).to_contain_text("paused by")
    row.locator("[data-verb=resume_schedule]").click()
    expect(row.locator("[data-verb=pause_schedule]")).to_be_visible()
    row.locator("[data-verb=remove_schedule]").click()
    page.click("[data-confirm]")
    expect(page.locator(".empty")).to_contain_text("There are no schedules.")
    expect(row).to_have_count(0)
    assert ledger.schedules() == []


def test_a_token_is_made_shown_once_and_revoked(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/tokens", role="admin")
    page.click("text=New token…")
    page.fill("#token-name", "eye")
    page.click("[data-confirm]")
    text = page.locator("dialog .command code").inner_text()
    assert ledger.find_token(text) is not None
    page.click("text=I have it")
    row = page.locator("tbody tr").filter(has_text="eye")
    row.locator("button").click()
    page.click("[data-confirm]")
    expect(row).to_contain_text("revoked")
    assert ledger.find_token(text) is None


def test_a_line_shows_the_depth_of_each_queue(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/queues")

    depths = {queue: ledger.history(metric="depth", queue=queue).points for queue in ledger.counts()}
    lines = page.locator("tbody td[data-label='1 h'] svg")
    expect(lines).to_have_count(len(depths))
    for queue, points in depths.items():
        most = max(point.values["depth"] or 0 for point in points if point.values is not None)
        row = page.locator("tbody tr", has=page.locator(f"a[href='/queues/{queue}']"))
        label = row.locator("svg.spark").get_attribute("aria-label")
        assert label == f"Waiting jobs of the last hour, at most {most}"
