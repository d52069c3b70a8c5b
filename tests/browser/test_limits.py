"""Limits: what is in use of them, and the forms that set, change and remove them. Queues with weights."""

import pytest
from playwright.sync_api import Browser, expect

from holdfast import Ledger
from holdfast.server.redact import Redaction
from tests.browser.conftest import Open, Watcher
from tests.support.server import RunningServer, running


def test_an_empty_page_teaches_how_to_set_a_limit(served: RunningServer, open_page: Open) -> None:
    page = open_page("/limits", role="reader")

    expect(page.locator(".empty")).to_contain_text("There are no limits.")
    expect(page.locator(".empty code").first).to_have_text(
        "holdfast limit set openai --concurrent 20 --rate 600/1m --by args.tenant"
    )


def test_a_limit_is_set_changed_and_removed(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/limits")
    page.click("text=Set a limit…")
    expect(page.locator("[data-confirm]")).to_be_disabled()
    page.fill("#limit-name", "openai")
    page.fill("#limit-concurrent", "20")
    page.fill("#limit-rate", "6000/1m")
    page.fill("#limit-by", "args.tenant")
    expect(page.locator("dialog code")).to_have_text("holdfast limit set openai --concurrent 20 --rate 6000/1m --by args.tenant")
    page.click("[data-confirm]")

    row = page.locator("tbody tr")
    expect(row).to_contain_text("6,000 in 1 min")
    [made] = ledger.limits()
    assert (made.concurrent, made.rate, made.burst, made.by, made.updated_by) == (20, "6000/1m", 100, "args.tenant", "kim")
    row.locator("[data-verb=set_limit]").click()
    expect(page.locator("#limit-burst")).to_have_value("")
    page.fill("#limit-concurrent", "5")
    page.click("[data-confirm]")
    expect(row.locator("[data-label='At once']")).to_have_text("5")
    assert (ledger.limit("openai").concurrent, ledger.limit("openai").rate) == (5, "6000/1m")
    row.locator("[data-verb=remove_limit]").click()
    expect(page.locator("dialog")).to_contain_text("Jobs that draw on it go on without it.")
    expect(page.locator("dialog code")).to_have_text("holdfast limit unset openai")
    page.click("[data-confirm]")
    expect(page.locator(".empty")).to_be_visible()
    assert ledger.limits() == []


def test_a_wrong_number_is_refused_where_it_is_typed(
    served: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("422", "400")
    page = open_page("/limits")
    page.click("text=Set a limit…")
    page.fill("#limit-name", "api")
    page.fill("#limit-concurrent", "many")
    expect(page.locator("#limit-concurrent")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[data-confirm]")).to_be_disabled()
    page.fill("#limit-concurrent", "")
    page.fill("#limit-rate", "often")
    page.click("[data-confirm]")

    expect(page.locator("dialog .problem")).to_contain_text("rate must be a number, a slash and a duration")
    assert ledger.limits() == []


def test_the_keys_of_a_limit_are_shown_with_what_is_in_use(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_limit("openai", concurrent=20, rate="600/1m", by="args.tenant")
    for tenant in ("acme", "acme", "beta"):
        ledger.enqueue("ask", {"tenant": tenant}, queue="chat", limits={"openai": 3})
    assert len(ledger.claim("w-1", ["chat"], limit=10, start=True)) == 3
    page = open_page("/limits")
    page.click("tbody a")

    expect(page.locator("h1")).to_have_text("Limit openai")
    expect(page.locator(".answer")).to_contain_text(
        "20 at once; 600 in 1 min, up to 10 at once after a pause, for each args.tenant"
    )
    acme, beta = page.locator("tbody tr", has_text="acme"), page.locator("tbody tr", has_text="beta")
    expect(acme.locator("[data-label='In use']")).to_have_text("6 of 20")
    expect(acme.locator("[data-label='May start now']")).to_have_text("4 of 10")
    expect(beta.locator("[data-label='In use']")).to_have_text("3 of 20")
    expect(beta).to_contain_text("those of the limit")
    expect(beta.locator("[data-label='Waiting']")).to_have_text("–")


def test_the_jobs_that_wait_for_a_key_are_shown(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_limit("openai", concurrent=1)
    for _ in range(4):
        ledger.enqueue("ask", queue="chat", limits=["openai"])
    assert len(ledger.claim("w-1", ["chat"], limit=10, start=True)) == 1
    page = open_page("/limits/openai")

    expect(page.locator("[data-label='Waiting']")).to_contain_text("3, since ")


def test_a_key_gets_numbers_of_its_own_and_loses_them(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_limit("openai", concurrent=20, by="args.tenant")
    page = open_page("/limits/openai")
    expect(page.locator(".empty")).to_contain_text("No job has drawn on it yet.")
    page.click("text=Numbers for a key…")
    page.fill("#limit-key", "acme")
    page.fill("#limit-concurrent", "50")
    expect(page.locator("dialog code")).to_have_text("holdfast limit set openai --for=acme --concurrent 50")
    page.click("[data-confirm]")

    row = page.locator("tbody tr")
    expect(row).to_contain_text("0 of 50")
    expect(row).to_contain_text("its own")
    row.get_by_text("Change…").click()
    expect(page.locator("#limit-concurrent")).to_have_value("50")
    page.fill("#limit-concurrent", "60")
    page.click("[data-confirm]")
    expect(row).to_contain_text("0 of 60")
    row.get_by_text("Remove…").click()
    expect(page.locator("dialog code")).to_have_text("holdfast limit unset --for=acme openai")
    page.click("[data-confirm]")
    expect(page.locator(".toast").last).to_contain_text("the numbers of the limit apply again")
    assert [one.is_own for one in ledger.limit_keys("openai")] in ([], [False])


def test_many_keys_are_shown_page_by_page(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_limit("openai", concurrent=20, by="args.tenant")
    for number in range(101):
        ledger.set_limit("openai", key=f"tenant-{number:03}", concurrent=number + 1)
    page = open_page("/limits/openai")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.click("[data-page=next]")

    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("tenant-100")
    page.click("[data-page=previous]")
    expect(page.locator("tbody tr")).to_have_count(100)


@pytest.mark.parametrize(("role", "queues"), [("reader", ("*",)), ("client", ("*",)), ("operator", ("mail",))])
def test_only_operators_of_all_queues_change_limits(
    served: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher, role: str, queues: tuple[str, ...]
) -> None:
    watcher.allowed = ("403",)
    ledger.set_limit("openai", concurrent=20, by="args.tenant")
    ledger.set_limit("openai", key="acme", concurrent=50)
    page = open_page("/limits", role=role, queues=queues)
    expect(page.locator("tbody")).to_contain_text("openai")
    expect(page.locator("main button:not(.quiet)")).to_have_count(0)
    page.click("tbody a")

    expect(page.locator("h1")).to_have_text("Limit openai")
    expect(page.locator("main [data-verb]")).to_have_count(0)
    if queues == ("*",):
        expect(page.locator("tbody")).to_contain_text("acme")
    else:
        expect(page.locator(".empty")).to_contain_text("Only a token that covers all queues sees what is in use.")


def test_keys_that_the_role_may_not_see_are_hidden(ledger: Ledger, browser: Browser) -> None:
    ledger.set_limit("openai", concurrent=20, by="args.tenant")
    for number in range(100):
        ledger.set_limit("openai", key=f"tenant-{number}", concurrent=number + 1)
    with running(ledger, redaction=Redaction(["args.tenant"])) as server:
        context = browser.new_context()
        secret = ledger.new_session(ledger.new_token("reader", "eye").token.id)
        assert secret is not None
        context.add_cookies([{"name": "holdfast", "value": secret, "url": server.url}])
        page = context.new_page()
        page.goto(f"{server.url}/limits/openai")
        expect(page.locator("tbody tr")).to_have_count(100)
        assert set(page.locator("[data-label=Key]").all_inner_texts()) == {"[redacted]"}
        expect(page.locator("[data-page=next]")).to_have_count(0)
        expect(page.locator("main")).to_contain_text("These are the first 100 keys.")
        context.close()


def test_numbers_follow_the_locale(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.set_limit("api", concurrent=1_234_567, rate="60000/1h")
    page = open_page("/limits", locale="de-DE")

    expect(page.locator("tbody")).to_contain_text("1.234.567")
    expect(page.locator("tbody")).to_contain_text("60.000 in 1 h")


def test_queues_show_their_weights(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    ledger.enqueue("a", queue="plain")
    ledger.enqueue("a", queue="shared")
    ledger.set_queue("shared", weights={"acme": 3, "beta": 2})
    page = open_page("/queues")
    state = "[data-label=State]"

    expect(page.locator("tbody tr", has_text="plain").locator(state)).to_have_text("open")
    shared = page.locator("tbody tr", has_text="shared").locator(state)
    expect(shared).to_have_text("openweights acme 3, beta 2")
    page.click("text=shared")
    expect(page.locator("main")).to_contain_text("weights acme 3, beta 2")
    page.goto(f"{served.url}/queues/plain")
    expect(page.locator("h1")).to_have_text("Queue plain")
    expect(page.locator("main")).not_to_contain_text("weights")
