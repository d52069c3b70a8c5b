"""Groups: how far they are, what follows them, and what a person does with them. The options of flow control of a job."""

from typing import Any

import pytest
from playwright.sync_api import expect

from holdfast import Ledger
from tests.browser.conftest import Open
from tests.browser.sample import claim
from tests.support.server import RunningServer


def begun(ledger: Ledger, jobs: int = 4) -> None:
    """Make a group: one job has succeeded, one has failed, the others wait."""
    ledger.group("import-42", then={"kind": "publish", "queue": "web"}, on_dead={"kind": "alert", "queue": "ops"})
    for _ in range(jobs):
        ledger.enqueue("load", queue="imports", group="import-42")
    ledger.complete(claim(ledger, "imports", "w-1"), {})
    ledger.fail(claim(ledger, "imports", "w-1"), {"type": "OSError", "message": "no file"}, retryable=False)


def test_an_empty_page_teaches_how_to_make_a_group(served: RunningServer, open_page: Open) -> None:
    page = open_page("/groups", role="reader")

    expect(page.locator(".empty")).to_contain_text("There are no groups that are not done.")
    expect(page.locator(".empty code").first).to_have_text(
        'holdfast group add import-42 --then \'{"kind": "publish", "queue": "web"}\''
    )


def test_a_group_shows_its_counts_as_a_bar_and_its_follow_up_jobs(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    begun(ledger)
    page = open_page("/groups")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("open")
    expect(row).to_contain_text("25%")
    expect(row.locator("svg.parts")).to_have_attribute("aria-label", "1 succeeded, 1 failed, 2 not ended")
    expect(row.locator("svg.parts rect.failed")).to_have_attribute("width", "25")
    expect(row).to_contain_text("publish, not made yet")
    alert = ledger.get_group("import-42").on_dead_job
    assert alert is not None
    expect(row.locator(f"a[href='/jobs/{alert}']")).to_have_text(f"alert #{alert}")
    row.locator("[data-label=Dead] a").click()

    expect(page.locator("h1")).to_have_text("Group import-42")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("OSError: no file")
    expect(page.locator("svg.parts")).to_have_attribute("aria-label", "2 queued, 1 succeeded, 1 failed")
    page.click("text=All jobs of the group")
    expect(page.locator("tbody tr")).to_have_count(4)


def test_a_group_is_closed_and_cancelled_and_replayed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    begun(ledger)
    page = open_page("/groups/import-42")
    page.click("[data-verb=close_group]")
    expect(page.locator("dialog code")).to_have_text("holdfast group close import-42")
    page.click("[data-confirm]")
    expect(page.locator("[data-verb=close_group]")).to_have_count(0)
    assert ledger.get_group("import-42").closed_by == "kim"
    page.click("[data-verb=cancel_group]")
    expect(page.locator("dialog")).to_contain_text("2 jobs that have not ended are cancelled")
    expect(page.locator("dialog code")).to_have_text("holdfast group cancel import-42")
    page.click("[data-confirm]")
    expect(page.locator(".toast").last).to_contain_text("2 jobs were told to end.")
    expect(page.locator("[data-verb=cancel_group]")).to_have_count(0)
    assert ledger.get_group("import-42").cancelled == 2
    page.click("[data-verb=replay_group]")
    expect(page.locator("dialog")).to_contain_text("1 failed, 2 cancelled")
    page.click("[data-confirm]")

    expect(page.locator(".toast").last).to_contain_text("3 jobs are replayed.")
    assert ledger.get_group("import-42").live == 3


def test_the_number_of_many_jobs_is_typed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    begun(ledger, 14)
    page = open_page("/groups")
    ledger.enqueue("load", queue="imports", group="import-42")
    page.click("[data-verb=cancel_group]")
    expect(page.locator("[data-confirm]")).to_be_disabled()
    page.fill("#typed", "12")
    expect(page.locator("[data-confirm]")).to_be_disabled()
    page.fill("#typed", "13")
    page.click("[data-confirm]")

    expect(page.locator(".toast")).to_contain_text("13 jobs were told to end.")
    expect(page.locator(".empty")).to_be_visible()
    page.click("text=All groups")
    expect(page.locator("tbody tr")).to_contain_text("cancelled")


@pytest.mark.parametrize(
    ("role", "queues", "verbs"),
    [
        ("reader", ("*",), set[str]()),
        ("worker", ("*",), {"close_group"}),
        ("client", ("*",), {"close_group", "cancel_group"}),
        ("client", ("web", "ops", "imports"), {"close_group"}),
        ("operator", ("*",), {"close_group", "cancel_group", "replay_group"}),
    ],
)
def test_buttons_are_those_of_the_role(
    served: RunningServer, ledger: Ledger, open_page: Open, role: str, queues: tuple[str, ...], verbs: set[str]
) -> None:
    begun(ledger)
    page = open_page("/groups/import-42", role=role, queues=queues)
    expect(page.locator("tbody tr")).to_have_count(4)

    assert {one.get_attribute("data-verb") for one in page.locator("main [data-verb]").all()} == verbs


def test_many_groups_are_shown_page_by_page(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    for number in range(101):
        ledger.group(f"import-{number:03}")
    page = open_page("/groups")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.click("[data-page=next]")

    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("import-100")
    expect(page.locator("tbody [data-label=Progress]")).to_have_text("0%")


def test_a_job_shows_its_options_of_flow_control(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_limit("openai", concurrent=20)
    ledger.group("import-42")
    options: dict[str, Any] = {"partition": "tenant-7", "limits": {"openai": 3}, "requires": ["gripper", "gpu:2"]}
    ledger.enqueue("ask", queue="chat", for_worker="robot-7", group="import-42", **options)
    page = open_page("/jobs/1")
    under = page.locator(".verbs + p")

    expect(under).to_contain_text("partition tenant-7")
    expect(under).to_contain_text("limit openai (3 units)")
    expect(under).to_contain_text("requires gpu:2, gripper")
    expect(under).to_contain_text("for worker robot-7")
    expect(under).to_contain_text("group import-42")
    expect(under.get_by_text("openai", exact=True)).to_have_attribute("href", "/limits/openai")
    under.get_by_text("import-42", exact=True).click()
    expect(page.locator("h1")).to_have_text("Group import-42")


def test_a_plain_job_says_nothing_of_flow_control(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue("ask", queue="chat")
    page = open_page("/jobs/1")

    expect(page.locator(".verbs + p")).to_have_text("queue chat · priority 0 · attempt 0")
