"""Policies are edited with what changes shown before it is saved."""

import pytest
from playwright.sync_api import expect

from holdfast import Ledger
from tests.browser.conftest import Open, Watcher
from tests.support.server import RunningServer


def test_what_changes_is_shown_before_it_is_saved(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/policies", role="admin")
    page.locator("tbody tr", has_text="index_page").get_by_text("Edit…").click()
    changes = page.locator("[data-changes]")
    save = page.locator("[data-confirm]")
    expect(changes).to_contain_text("Nothing yet.")
    expect(save).to_be_disabled()
    expect(page.locator("#policy-lease_ttl_ms")).to_have_value("1m")
    page.fill("#policy-lease_ttl_ms", "90s")
    page.fill("#policy-attempts_max", "2")
    page.fill("#policy-backoff_base_ms", "")

    expect(changes.locator("li")).to_have_text(
        ["lease ttl: 1 min → 1 min 30 s", "attempts max: 3 → 2 (lower)", "backoff base: 1 s → the built-in value"]
    )
    expect(changes).to_contain_text("1 job of this kind is not over.")
    expect(changes.locator("code")).to_have_text(
        ["holdfast policy set index_page lease_ttl=90s attempts_max=2", "holdfast policy unset index_page backoff_base"]
    )
    assert ledger.policies()["kind"]["index_page"]["attempts_max"] == 3
    save.click()

    expect(page.locator(".toast")).to_contain_text("The policy of kind index_page is saved.")
    assert ledger.policies()["kind"]["index_page"] == {
        "heartbeat_interval_ms": 10_000,
        "lease_ttl_ms": 90_000,
        "attempts_max": 2,
    }
    expect(page.locator("tbody tr", has_text="index_page")).to_contain_text("attempts max: 2")


def test_a_policy_is_set_for_a_tier_with_choices(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/policies", role="admin")
    expect(page.locator(".empty")).to_contain_text("holdfast policy set")
    page.click("text=Set a policy…")
    page.select_option("#policy-scope", "tier")
    page.fill("#policy-name", "in_home")
    page.click("[data-next]")
    page.select_option("#policy-requires_operator_coverage", "true")
    page.select_option("#policy-on_exhausted", "fail")
    page.click("[data-confirm]")

    expect(page.locator("tbody tr")).to_have_count(1)
    assert ledger.policies()["tier"] == {"in_home": {"requires_operator_coverage": True, "on_exhausted": "fail"}}


def test_a_wrong_value_is_refused_where_it_is_typed(
    filled: RunningServer, ledger: Ledger, open_page: Open, watcher: Watcher
) -> None:
    watcher.allowed = ("413",)
    page = open_page("/policies", role="admin")
    page.locator("tbody").get_by_text("Edit…").first.click()
    page.fill("#policy-lease_ttl_ms", "soon")
    expect(page.locator("[data-changes]")).to_contain_text("“soon” is no value. Write a duration such as 30s, 5m or 1h.")
    expect(page.locator("#policy-lease_ttl_ms")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[data-confirm]")).to_be_disabled()
    page.fill("#policy-lease_ttl_ms", "900d")
    page.click("[data-confirm]")

    expect(page.locator("dialog .problem")).to_contain_text("lease_ttl must be from")
    page.keyboard.press("Escape")
    assert ledger.policies()["kind"]["index_page"]["lease_ttl_ms"] == 60_000


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_only_an_admin_edits(filled: RunningServer, open_page: Open, role: str) -> None:
    page = open_page("/policies", role=role)

    expect(page.locator("tbody")).to_contain_text("index_page")
    expect(page.locator("[data-verb=policies]")).to_have_count(0)
    page.get_by_text("Effective values").first.click()
    expect(page.locator("[aria-label='Effective policy of kind index_page']").first).to_contain_text("follows from others")
