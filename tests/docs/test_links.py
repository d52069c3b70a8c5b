"""Links between pages, and to headings in them, lead somewhere. The site is not built for this."""

import re
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from docs.generate import ROOT, pages
from tests.docs.pages import name, problems
from tools.site import collect
from tools.site import pages as site_pages

PAGES = site_pages()


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    tokens = MarkdownIt("commonmark").parse(page.read_text())
    headings = [after for token, after in pairwise(tokens) if token.type == "heading_open"]
    found: dict[str, int] = {}
    for heading in headings:
        made = slug("".join(part.content for part in heading.children or []))
        found[made] = found.get(made, 0) + 1
    return frozenset(f"{made}-{number}" if number else made for made, count in found.items() for number in range(count))


@cache
def links(page: Path) -> tuple[str, ...]:
    """The targets of the page's links and pictures, without code."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text())
    parts = [part for token in tokens for part in token.children or []]
    return tuple(str(part.attrs.get("href") or part.attrs.get("src")) for part in parts if part.type in ("link_open", "image"))


def problem(page: Path, link: str) -> str | None:
    target, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", target):
        return None
    aim = (page.parent / target).resolve() if target else page
    if not aim.exists():
        return f"{link}: there is no such file"
    if not aim.is_relative_to(ROOT):
        return f"{link}: outside of the repository"
    if anchor and (aim.suffix != ".md" or anchor not in anchors(aim)):
        return f"{link}: there is no such heading"
    return None


def test_links_lead_somewhere() -> None:
    assert problems(lambda page: filter(None, (problem(page, link) for link in links(page))), PAGES) == []


def test_no_link_needs_a_definition_that_is_missing() -> None:
    """Markdown shows such a link as plain text in brackets."""

    def wrong(page: Path) -> list[str]:
        tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text())
        texts = [part.content for token in tokens for part in token.children or [] if part.type == "text"]
        return [text for text in texts if re.search(r"\]\[|\]\(", text)]

    assert problems(wrong, PAGES) == []


def test_broken_links_are_noticed() -> None:
    page = ROOT / "docs/glossary.md"
    assert problem(page, "architecture.md#the-packages") is None
    assert problem(page, "https://example.com/nothing") is None
    assert problem(page, "architecture.md#no-such-heading") is not None
    assert problem(page, "no-such-page.md") is not None
    assert problem(page, "../../elsewhere.md") is not None


def test_every_page_of_the_docs_is_linked() -> None:
    """From README, CONTRIBUTING or another page."""
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in links(page) if ":" not in link}
    assert [name(page) for page in pages() if page not in linked and page.parent != ROOT] == []


def test_the_navigation_has_every_page_once(tmp_path: Path) -> None:
    """Of the decisions, it has the page that lists them."""
    collect(tmp_path)
    config = tomllib.loads((tmp_path / "zensical.toml").read_text())["project"]
    listed = [page for section in config["nav"] for pages in section.values() for page in pages]
    decisions = [str(page.relative_to(ROOT)) for page in (ROOT / "docs/decisions").glob("0*.md")]
    assert sorted([*listed, *decisions]) == sorted(name(page) for page in PAGES)
    assert all((tmp_path / config["docs_dir"] / page).is_file() for page in listed)
