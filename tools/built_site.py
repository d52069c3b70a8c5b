"""Check a built site: nothing is missing, no link is dead, and no page loads anything from another host.

Links that a reader clicks may lead to other hosts. They are not followed.
"""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

NOT_LOADED = {"alternate", "author", "canonical", "edit", "license", "next", "prev"}
"""Values of `rel` with which `<link>` only names a page. With any other value, a browser loads it or connects to its host."""
LOADED = ("src", "poster", "data", "background")
"""Attributes that a browser loads, of any tag."""

_CSS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


class Reference(NamedTuple):
    address: str
    is_loaded: bool
    """By the browser, without a click."""


class Page(HTMLParser):
    """What an HTML page refers to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.anchors: set[str] = set()
        self._in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in (("id", "name") if tag == "a" else ("id",)) if name in given}
        self._in_style = tag == "style"
        for name, value in given.items():
            if name in LOADED:
                self._load(value)
            elif name == "srcset":
                self._load(*(part.split()[0] for part in value.split(",") if part.strip()))
            elif name == "style":
                self._load(*addresses_in_css(value))
            elif name == "content" and given.get("property") == "og:image":
                self.references.append(Reference(value, False))
            elif name in ("href", "xlink:href"):
                is_link = tag in ("a", "area") or (tag == "link" and given.get("rel") in NOT_LOADED)
                self.references.append(Reference(value.strip(), not is_link))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._load(*addresses_in_css(data))

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def _load(self, *addresses: str) -> None:
        self.references += [Reference(address.strip(), True) for address in addresses]


def addresses_in_css(text: str) -> list[str]:
    return [one or other for one, other in _CSS.findall(text)]


def problems(site: Path, public: str = "") -> list[str]:
    """Check every page and style sheet of the site. `public` is its address, if it has one: what begins with it is its own."""
    site = site.resolve()
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    sheets = {
        path: [Reference(address, True) for address in addresses_in_css(path.read_text())] for path in sorted(site.rglob("*.css"))
    }
    references = {**{path: page.references for path, page in pages.items()}, **sheets}
    found = [
        f"{path.relative_to(site)}: {problem}"
        for path, those in references.items()
        for reference in dict.fromkeys(those)
        if (problem := _problem(reference, path, site, public, pages)) is not None
    ]
    return found if pages else [f"{site}: there is no page"]


def _problem(reference: Reference, path: Path, site: Path, public: str, pages: dict[Path, Page]) -> str | None:
    address, is_loaded = reference
    parts = urlsplit(address)
    home = public.rstrip("/") + "/"
    root = urlsplit(home).path
    if public and address.startswith(home):
        parts = parts._replace(scheme="", netloc="")
    if parts.scheme or parts.netloc:
        foreign = is_loaded and parts.scheme not in ("data", "blob")
        return f"loads {address} from another host" if foreign else None
    if parts.path.startswith(root):
        aim = site / unquote(parts.path.removeprefix(root))
    else:
        aim = path.parent / unquote(parts.path) if parts.path else path
    aim = aim.resolve()
    aim = aim / "index.html" if aim.is_dir() else aim
    if not aim.is_file() or not aim.is_relative_to(site):
        return f"{address} is missing"
    if parts.fragment and aim in pages and unquote(parts.fragment) not in pages[aim].anchors:
        return f"{address}: the page has no such anchor"
    return None
