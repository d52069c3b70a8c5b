"""A person signs in by a provider of another site, as a browser does it: with a strict cookie and a strict policy."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from holdfast import Ledger
from holdfast.core.access import AccessRole
from holdfast.server.oidc import OidcClient
from holdfast.server.sign_in import SignIn
from holdfast.server.start import OidcOptions
from tests.browser.conftest import WATCH, Open, Watcher
from tests.support.provider import running_provider
from tests.support.server import RunningServer, running

AT_PROVIDER = re.compile(r"http://localhost:")


@pytest.fixture
def with_provider(ledger: Ledger) -> Iterator[RunningServer]:
    """The provider is at localhost and the server at 127.0.0.1, which are two sites for a browser."""

    def sign_in(url: str) -> SignIn:
        options = OidcOptions(issuer=issuer, client_id="holdfast", roles={"ops": AccessRole.OPERATOR})
        return SignIn(OidcClient(options, url, "a-secret-of-the-client"), "Example", url, secure=False)

    with running_provider("localhost") as issuer, running(ledger, make_sign_in=sign_in) as server:
        yield server


def test_a_person_signs_in_and_out(with_provider: RunningServer, browser: Browser) -> None:
    context = browser.new_context()
    watcher = Watcher()
    context.expose_function("reportViolation", watcher.note)
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto(f"{with_provider.url}/login")
    page.get_by_role("link", name="Sign in with Example").click()
    expect(page).to_have_url(AT_PROVIDER)
    page.locator("input[name=sub]").fill("kim")
    page.locator("button", has_text="Authorize").first.click()
    expect(page).to_have_url(f"{with_provider.url}/")
    expect(page.locator("#who")).to_have_text("kim@example.org (operator)")
    watcher.check()
    cookies = {cookie["name"]: (cookie["sameSite"], cookie["httpOnly"]) for cookie in context.cookies(with_provider.url)}
    assert cookies == {"holdfast": ("Strict", True)}
    page.go_back()
    assert "/auth/callback" not in page.url, "the address with the code is not in the history"
    page.goto(with_provider.url)
    page.locator("#who").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(AT_PROVIDER)
    assert context.cookies(with_provider.url) == []
    context.close()


def test_a_server_without_a_provider_offers_none(served: RunningServer, open_page: Open, watcher: Watcher) -> None:
    watcher.allowed = ("401",)
    page = open_page("/", role=None)
    expect(page.locator("#token")).to_be_visible()
    expect(page.locator("#provider")).to_have_count(0)
