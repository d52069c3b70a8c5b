"""A real browser on a real server. Every test fails on a console error, a foreign request, a CSP report or a 5xx."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Response, expect, sync_playwright

import holdfast
from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.browser.chromium import HOW, find_chromium
from tests.browser.sample import fill, fill_everything
from tests.support.server import RunningServer, running

WATCH = """
document.addEventListener("securitypolicyviolation", (event) => {
    window.reportViolation(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.fail(HOW)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as opened:
        yield opened


@pytest.fixture
def served(ledger: Ledger) -> Iterator[RunningServer]:
    with running(ledger) as server:
        yield server


@pytest.fixture
def filled(served: RunningServer, ledger: Ledger, clock: ManualClock) -> RunningServer:
    fill(ledger, clock)
    return served


class Watcher:
    """Collects what must not happen on a page."""

    def __init__(self) -> None:
        self.origins: set[str] = set()
        self.problems: list[str] = []
        self.allowed: tuple[str, ...] = ()
        """Texts of problems that a test expects."""

    def watch(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.note(f"page error: {error}"))
        page.on("request", lambda request: self._check_host(request.url))
        page.on("response", self._on_response)
        page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.note(message.text)

    def _on_response(self, response: Response) -> None:
        if response.status >= 500:
            self.note(f"{response.status} {response.url}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check_host(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("blob", "data") and f"{parts.scheme}://{parts.netloc}" not in self.origins:
            self.note(f"foreign request: {url}")

    def note(self, text: str) -> None:
        self.problems.append(text)

    def check(self) -> None:
        assert [one for one in self.problems if not any(text in one for text in self.allowed)] == []


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def open_page(browser: Browser, served: RunningServer, watcher: Watcher) -> Iterator[Open]:
    """Return a function that opens a page in a context of its own, signed in with a new token."""
    contexts: list[BrowserContext] = []

    def open_(
        path: str = "/",
        *,
        role: str | None = "operator",
        name: str = "kim",
        queues: tuple[str, ...] = ("*",),
        init: str = "",
        port: int | None = None,
        **options: object,
    ) -> Page:
        url = served.url if port is None else f"http://127.0.0.1:{port}"
        watcher.origins.add(url)
        settings = {"locale": "en-GB", "timezone_id": "Europe/Berlin", "viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(**settings)  # type: ignore[arg-type]
        contexts.append(context)
        context.expose_function("reportViolation", watcher.note)
        context.add_init_script(WATCH + init)
        if role is not None:
            secret = served.ledger.new_session(served.ledger.new_token(role, name, queues=queues).token.id)
            assert secret is not None
            context.add_cookies([{"name": "holdfast", "value": secret, "url": url}])
        page = context.new_page()
        watcher.watch(page)
        page.goto(url + path)
        if role is not None:
            page.wait_for_selector("main h1")
        return page

    yield open_
    watcher.check()
    for context in contexts:
        context.close()


class Whole:
    """A ledger with something for every page, its server, and one page of a browser. The tests of a file share it."""

    def __init__(self, ledger: Ledger, server: RunningServer, page: Page) -> None:
        self.ledger, self.server, self.page = ledger, server, page

    def open(self, path: str) -> None:
        self.page.goto(self.server.url + path)
        expect(self.page.locator("main h1")).to_be_visible()


@pytest.fixture(scope="module")
def whole(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    clock, watcher = ManualClock(), Watcher()
    url = f"sqlite:///{tmp_path_factory.mktemp('whole')}/ledger.db"
    with holdfast.open(url, clock=clock) as ledger, running(ledger) as server:
        fill_everything(ledger, clock)
        secret = ledger.new_session(ledger.new_token("admin", "kim").token.id)
        assert secret is not None
        context = browser.new_context(locale="en-GB", timezone_id="Europe/Berlin", viewport={"width": 1440, "height": 900})
        context.add_cookies([{"name": "holdfast", "value": secret, "url": server.url}])
        page = context.new_page()
        watcher.origins.add(server.url)
        watcher.watch(page)
        yield Whole(ledger, server, page)
        context.close()
        watcher.check()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser" in item.path.as_posix():
            item.add_marker("browser")
