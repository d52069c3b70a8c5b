"""Make the pictures of the README from a real run of the demo: `make pictures`.

`holdfast demo --serve` runs once. Chromium shows its dashboard, and the ledger has the events of the job whose worker was killed.
"""

import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from struct import pack, unpack
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

import holdfast
from tests.browser.chromium import HOW, find_chromium
from tools.kill_drawing import draw_kill

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "img"
PAGE = ROOT / "src" / "holdfast" / "server" / "dashboard" / "index.html"
THEMES = ("light", "dark")
SIZE = {"width": 1280, "height": 860}
TABS = "Tabs"
"""The keyword of the text in a picture that names the tabs it shows."""
WAIT_MS = 30_000
PNG_HEAD = 8


class _Tabs(HTMLParser):
    """Collects the addresses of the links in <nav>."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_nav = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "nav":
            self._in_nav = True
        elif tag == "a" and self._in_nav and "data-needs" not in given:
            self.found.append(given["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._in_nav = self._in_nav and tag != "nav"


def tabs_of_dashboard() -> list[str]:
    """Return the address of each tab that everybody sees."""
    parser = _Tabs()
    parser.feed(PAGE.read_text())
    return parser.found


def tabs_in_picture(picture: bytes) -> list[str]:
    """Return the addresses of the tabs that a picture shows, as its text says."""
    at = PNG_HEAD
    while at < len(picture):
        [size] = unpack(">I", picture[at : at + 4])
        keyword, _, text = picture[at + 8 : at + 8 + size].partition(b"\0")
        if picture[at + 4 : at + 8] == b"tEXt" and keyword == TABS.encode():
            return text.decode("latin-1").split()
        at += size + 12
    return []


def with_tabs(picture: bytes, tabs: list[str]) -> bytes:
    """Return a PNG with a text that names the tabs it shows. The text is before the end of the image, the last 12 bytes."""
    chunk = b"tEXt" + TABS.encode() + b"\0" + " ".join(tabs).encode("latin-1")
    return picture[:-12] + pack(">I", len(chunk) - 4) + chunk + pack(">I", zlib.crc32(chunk)) + picture[-12:]


class Demo(NamedTuple):
    """What a running demo has printed."""

    url: str
    job: int
    """The job whose worker was killed."""
    refusal: str
    """The code of the error that the killed worker's late write got."""
    link: str
    """The link that signs in to the dashboard."""


@contextmanager
def running_demo() -> Iterator[Demo]:
    """Run `holdfast demo --serve`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "holdfast", "demo", "--serve", "--jobs", "60"],
            env={"PATH": "/usr/bin:/bin", "TMPDIR": folder, "TZ": "UTC", "PYTHONUTF8": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = ""
            while not (link := re.search(r"http\S+#code=\S+", said)):
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"the demo has ended with {process.wait()}:\n{said}")
                said += line
            found = [
                re.findall(pattern, said)[0] for pattern in (r"sqlite:///\S+?demo\.db", r"started job (\d+)", r"refused: (\w+)")
            ]
            yield Demo(found[0], int(found[1]), found[2], link[0])
        finally:
            process.terminate()
            process.wait(60)


def make_pictures(folder: Path, browser: Browser) -> list[Path]:
    """Write the pictures into a folder. Return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawing = folder / "kill.svg"
    with running_demo() as demo:
        with holdfast.open(demo.url) as ledger:
            drawing.write_text(draw_kill(ledger.events(demo.job), demo.refusal))
        return [drawing, *_screenshots(browser, folder, demo.link, demo.job)]


def _screenshots(browser: Browser, folder: Path, link: str, job: int) -> Iterator[Path]:
    context = browser.new_context(locale="en-GB", timezone_id="UTC", viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(link)
    page.wait_for_selector("main h1")
    origin = link.partition("/#")[0].partition("#")[0].rstrip("/")
    for name, address, shown in (
        ("overview", "/", "svg.chart"),
        ("job", f"/jobs/{job}", ".timeline svg[role=img]"),
    ):
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            page.goto(origin + address)
            page.locator(shown).first.wait_for()
            page.wait_for_load_state("networkidle")
            tabs = page.locator("#nav a:visible:not([data-needs])").evaluate_all(
                "all => all.map((one) => one.getAttribute('href'))"
            )
            picture = folder / f"dashboard-{name}-{theme}.png"
            picture.write_bytes(with_tabs(page.screenshot(), tabs))
            yield picture


def main() -> None:
    path = find_chromium()
    if path is None:
        sys.exit(HOW)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as browser:
        for made in make_pictures(FOLDER, browser):
            sys.stdout.write(f"{made.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
