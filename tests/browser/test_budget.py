"""How much the first page costs: bytes over the wire, requests, elements."""

from playwright.sync_api import expect

from holdfast.server.pages import Pages
from tests.browser.conftest import Open
from tests.support.server import RunningServer

FIRST_BYTES_MAX = 100 * 1024
ALL_MODULES_BYTES_MAX = 120 * 1024


def test_the_first_page_is_small(filled: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(filled.url + "/")
    expect(page.locator(".tiles")).to_be_visible()
    expect(page.locator("svg.chart")).to_have_count(3)

    assert sum(sizes) <= FIRST_BYTES_MAX


def test_all_modules_are_small() -> None:
    pages = Pages()
    modules = {path: file for path, file in pages._assets.items() if path.endswith(b".js")}

    total = sum(len(file.zipped) for file in modules.values())
    assert total <= ALL_MODULES_BYTES_MAX
