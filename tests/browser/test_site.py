"""The site that `make site` has built, page by page in a real Chromium that reaches no other host."""

import os
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import Watcher
from tools import site
from tools.built_site import problems

BUILT = site.ROOT / "build/site"
CARD = site.THEME / "card.svg"
REPOSITORY, PUBLIC = "https://github.com/holdfast/holdfast", "https://docs.example/holdfast/"
LOOKS: list[tuple[Literal["light", "dark"], int]] = [("light", 1366), ("dark", 1366), ("dark", 390), ("light", 390)]
TABLE = ".md-typeset__scrollwrap > .md-typeset__table > table"
"""A table after the theme has put it into a box that scrolls."""
READ = f"""async (scheme) => {{
    const isReady = () => document.body.dataset.mdColorScheme === scheme
        && document.querySelectorAll("article table").length === document.querySelectorAll("{TABLE}").length;
    for (let frame = 0; frame < 500 && !isReady(); frame += 1) await new Promise(requestAnimationFrame);
    const images = [...document.images];
    await Promise.all(images.map((image) => image.decode().catch(() => null)));
    const boxes = [...document.querySelectorAll("article table, .md-typeset__scrollwrap")];
    return {{
        ready: isReady(),
        hidden: images.filter((image) => !image.naturalWidth || !image.width).length,
        cut: boxes.filter((box) => box.scrollWidth > box.clientWidth).length,
        wide: Math.max(0, document.scrollingElement.scrollWidth - innerWidth),
    }};
}}"""
WHOLE = {"ready": True, "hidden": 0, "cut": 0, "wide": 0}
SCHEMES = {"light": "default", "dark": "slate"}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Log nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not (BUILT / "index.html").is_file():
        pytest.fail("There is no site: run `make site` first.")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(BUILT))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def context(browser: Browser, url: str) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1366, "height": 900})
    made.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, url: str, watcher: Watcher) -> Iterator[Page]:
    watcher.origins |= {url, "file://"}
    made = context.new_page()
    watcher.watch(made)
    made.on("requestfailed", lambda request: watcher.note(f"failed: {request.url}"))
    made.on("response", lambda response: watcher.note(f"{response.status}: {response.url}") if response.status >= 400 else None)
    yield made
    watcher.check()


def read(page: Page, theme: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(READ, SCHEMES[theme])
    return found


def test_every_page_is_whole_in_both_themes_wide_and_narrow(page: Page, url: str) -> None:
    """A narrow page may have tables that scroll."""
    wrong: list[str] = []
    paths = sorted(path.relative_to(BUILT).as_posix() for path in BUILT.rglob("*.html"))
    assert len(paths) > 70
    for path in paths:
        page.goto(f"{url}/{path}")
        for theme, width in LOOKS:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            found = read(page, theme)
            if found != {**WHOLE, "cut": 0 if width > 1000 else found["cut"]}:
                wrong.append(f"{path}, {theme}, {width} px: {found}")
    assert wrong == []


def test_what_is_wrong_with_a_page_is_noticed(page: Page, url: str, watcher: Watcher) -> None:
    page.goto(f"{url}/docs/reference/errors.html")
    table = page.locator(TABLE).first
    expect(table).to_be_visible()
    page.evaluate("document.querySelector('article').append(new Image())")
    table.locator("td").first.evaluate("cell => { cell.textContent = 'x'.repeat(300) }")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<div style=\"width: 2000px\">x</div>')")
    found = read(page, "light")
    assert (found["hidden"], found["cut"]) == (1, 1)
    assert found["wide"] > 0
    for code, noticed in (
        (
            "document.head.append(Object.assign(document.createElement('script'), {src: 'https://elsewhere.example/a.js'}))",
            "Policy",
        ),
        ("void fetch('missing.js')", "404"),
    ):
        with page.expect_console_message(lambda message, noticed=noticed: noticed in message.text):  # type: ignore[misc]
            page.evaluate(code)
        assert any(noticed in problem for problem in watcher.problems)
    watcher.problems.clear()


def test_the_switch_goes_round_light_dark_and_system(page: Page, url: str) -> None:
    body = page.locator("body")

    def switch(name: str) -> None:
        page.locator("label.md-header__button[title^='Theme: ']:visible").click()
        expect(page.locator(f"label.md-header__button[title^='Theme: {name}']")).to_be_visible()

    page.emulate_media(color_scheme="dark")
    page.goto(f"{url}/index.html")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    switch("light")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    page.goto(f"{url}/docs/glossary.html")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    switch("dark")
    page.emulate_media(color_scheme="light")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    switch("as the system")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    page.emulate_media(color_scheme="dark")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")


def test_a_copy_of_a_session_is_its_commands(page: Page, url: str) -> None:
    """In every session of the guide, which has several with and without output."""
    page.goto(f"{url}/docs/guides/agents.html")
    source = (site.ROOT / "docs/guides/agents.md").read_text()
    sessions = re.findall(r"^```console\n(.*?)^```$", source, re.MULTILINE | re.DOTALL)
    blocks = page.locator(".language-console")
    expect(blocks).to_have_count(len(sessions))
    for number, session in enumerate(sessions):
        commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
        page.evaluate("navigator.clipboard.writeText('')")
        block = blocks.nth(number)
        block.hover()
        block.locator("button[data-md-type=copy]").click()
        page.wait_for_function("async () => await navigator.clipboard.readText() !== ''")
        assert page.evaluate("navigator.clipboard.readText()") == "\n".join(commands)
        expect(block.locator(".gp").first).to_be_visible()


def test_a_copy_of_a_program_is_the_whole_program(page: Page, url: str) -> None:
    page.goto(f"{url}/docs/guides/quickstart.html")
    source = (site.ROOT / "docs/guides/quickstart.md").read_text()
    [first, *_] = re.findall(r"^```python\n(.*?)^```$", source, re.MULTILINE | re.DOTALL)
    block = page.locator(".language-python").first
    block.hover()
    block.locator("button[data-md-type=copy]").click()
    page.wait_for_function("async () => await navigator.clipboard.readText() !== ''")
    assert page.evaluate("navigator.clipboard.readText()") == first.rstrip()


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_the_search_finds_pages(page: Page, url: str, scheme: str) -> None:
    page.goto(f"{url}/index.html" if scheme == "http" else (BUILT / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("dead letter", delay=10)
    expect(page.get_by_role("option").filter(has_text="dead letter").first).to_be_visible()


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site with public addresses."""
    folder = tmp_path_factory.mktemp("site")
    made = folder / "pyproject.toml"
    addresses = f'[project.urls]\nRepository = "{REPOSITORY}"\nDocumentation = "{PUBLIC}"\n'
    made.write_text(site.PROJECT.read_text().replace("[project.urls]\n", addresses, 1))
    program = Path(os.environ.get("SITE_VENV") or site.ROOT / ".site") / "bin/zensical"
    assert site.build(folder, program, made) == 0
    return folder / "site"


def test_a_public_site_names_its_addresses(public: Path, page: Page, url: str) -> None:
    page.goto((public / "docs/guides/agents.html").as_uri())
    found = page.evaluate("""() => Object.fromEntries([...document.querySelectorAll("meta[property], link[rel=canonical]")].map(
        (one) => [one.getAttribute("property") ?? one.rel, one.content ?? one.href]))""")
    assert found["canonical"] == found["og:url"] == f"{PUBLIC}docs/guides/agents.html"
    assert found["og:image"] == f"{PUBLIC}card.png"
    assert (found["og:title"], found["og:description"][:12]) == ("Agents", "An AI agent ")
    expect(page).to_have_title("Agents - Holdfast")
    expect(page.locator("a[rel=edit]")).to_have_attribute("href", f"{REPOSITORY}/edit/main/docs/guides/agents.md")
    expect(page.locator(".md-header a.md-source")).to_have_attribute("href", REPOSITORY)
    expect(page.locator(".md-header a.md-source")).to_contain_text("holdfast/holdfast")
    assert f"<loc>{PUBLIC}docs/guides/agents.html</loc>" in (public / "sitemap.xml").read_text()
    assert problems(public) != [], "its own address counts as another host's"
    page.goto((public / "index.html").as_uri())
    expect(page).to_have_title(f"Holdfast: {site.settings()['site_description']}")
    expect(page.locator("a[rel=edit]")).to_have_attribute("href", f"{REPOSITORY}/edit/main/README.md")


def test_the_picture_of_shared_links_is_drawn(browser: Browser, tmp_path: Path) -> None:
    """`HOLDFAST_PICTURES=1` writes it beside its source."""
    page = browser.new_page(viewport={"width": 1200, "height": 630})
    page.goto(CARD.as_uri())
    picture = (CARD if os.environ.get("HOLDFAST_PICTURES") else tmp_path / "card").with_suffix(".png")
    page.screenshot(path=picture)
    assert picture.read_bytes()[16:24] == CARD.with_suffix(".png").read_bytes()[16:24], "its size"
    page.close()
