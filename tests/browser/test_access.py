"""What each role sees. No page fails for those who may see only some queues, or who may change nothing."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, Watcher
from tests.support.server import RunningServer

PAGES = [
    "/",
    "/jobs",
    "/jobs/2",
    "/queues",
    "/queues/mail",
    "/kinds",
    "/workers",
    "/agents",
    "/attention",
    "/dead-letters",
    "/events",
]
PAGES += ["/schedules", "/limits", "/limits/smtp", "/groups", "/sinks", "/runs", "/seals", "/policies", "/help"]


@pytest.mark.parametrize(("role", "queues"), [("reader", ("mail",)), ("client", ("*",)), ("worker", ("mail",))])
def test_every_page_can_be_read(
    filled: RunningServer, open_page: Open, watcher: Watcher, role: str, queues: tuple[str, ...]
) -> None:
    watcher.allowed = ("403",)  # A token of some queues has no history of all.
    page = open_page("/", role=role, queues=queues)
    for path in PAGES:
        page.goto(filled.url + path)
        expect(page.locator("main h1")).to_have_count(1)
        expect(page.locator("main .problem")).to_have_count(0)
    page.goto(filled.url + "/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    if queues != ("*",):
        assert set(page.locator("tbody td[data-label=Queue]").all_inner_texts()) == {"mail"}


def test_buttons_are_those_of_the_role(filled: RunningServer, open_page: Open) -> None:
    def verbs(role: str) -> set[str | None]:
        page = open_page("/jobs/2", role=role, name=f"a-{role}")
        expect(page.locator("h1")).to_contain_text("send_mail")
        return {button.get_attribute("data-verb") for button in page.locator("main [data-verb]").all()}

    assert verbs("reader") == set()
    assert verbs("client") == {"cancel"}
    assert verbs("operator") == {"cancel", "dead-letter"}


def test_a_job_of_another_queue_is_not_found(filled: RunningServer, open_page: Open, watcher: Watcher) -> None:
    watcher.allowed = ("404",)
    page = open_page("/jobs/1", role="reader", queues=("mail",))

    expect(page.locator("h1")).to_have_text("Not found")


def test_a_violation_of_the_policy_is_noticed(served: RunningServer, open_page: Open, watcher: Watcher) -> None:
    page = open_page("/help")
    page.evaluate("""new Promise((done) => {
        document.addEventListener("securitypolicyviolation", done);
        document.body.append(Object.assign(document.createElement("img"), {src: "data:image/png;base64,AA=="}));
    })""")
    page.goto(served.url + "/jobs")
    expect(page.locator("h1")).to_have_text("Jobs")

    assert "img-src data" in watcher.problems
    watcher.problems.clear()
