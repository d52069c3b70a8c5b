"""The site's configuration, its drawings, and the check of built pages, on made-up ones. `make browser` tests the real site."""

import re
import tomllib
from pathlib import Path

import pytest

from docs import diagrams
from holdfast.core.model import Status
from tools import site
from tools.built_site import problems
from tools.state_diagram import ROUTES, WORDS, drawing

URLS = {"Repository": "https://forge.example/holdfast/holdfast", "Documentation": "https://docs.example/holdfast"}


@pytest.fixture
def with_urls(tmp_path: Path) -> Path:
    """A `pyproject.toml` of a project with public addresses."""
    made = tmp_path / "pyproject.toml"
    lines = "".join(f'{name} = "{url}"\n' for name, url in URLS.items())
    made.write_text(f'[project]\nversion = "1.2.3"\ndescription = "Jobs with a \\"record\\""\n[project.urls]\n{lines}')
    return made


def project(folder: Path, pyproject: Path) -> dict[str, object]:
    site.collect(folder, pyproject)
    made: dict[str, object] = tomllib.loads((folder / "zensical.toml").read_text())["project"]
    return made


def test_the_site_has_the_names_and_addresses_of_the_project(with_urls: Path, tmp_path: Path) -> None:
    made = project(tmp_path / "build", with_urls)
    assert site.project_urls(with_urls) == URLS
    assert {name: made[name] for name in site.settings(with_urls)} == {
        "site_name": "Holdfast 1.2.3",
        "site_description": "Jobs with a &quot;record&quot;",
        "site_url": "https://docs.example/holdfast/",
        "repo_url": "https://forge.example/holdfast/holdfast",
        "repo_name": "holdfast/holdfast",
        "edit_uri": "edit/main/",
    }


def test_a_project_without_public_addresses_has_none_on_the_site(with_urls: Path) -> None:
    with_urls.write_text(with_urls.read_text().partition("[project.urls]")[0])
    assert site.project_urls(with_urls) == {}
    assert site.settings(with_urls).keys() == {"site_name", "site_description"}


def test_what_pages_load_is_collected(with_urls: Path, tmp_path: Path) -> None:
    made = project(tmp_path, with_urls)
    pages = tmp_path / str(made["docs_dir"])
    assert {file.name for file in (pages / "docs/img").iterdir()} == {file.name for file in site.PICTURES.iterdir()}
    assert (pages / "mark.svg").read_bytes() == site.MARK.read_bytes()
    assert (tmp_path / "theme/main.html").is_file()
    assert "```mermaid" not in (pages / "docs/reference/lifecycle.md").read_text()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# A\n\n![B](a.png)\n\n```sh\nC\n```\n\nUse `d` for\n**all** [e](e.md). F.\n\nG.\n", "Use d for all e. F."),
        ("# A\n\n" + "word " * 40, "word " * 31 + "word …"),
        ("# A\n\n| a | b |\n", ""),
    ],
)  # fmt: skip
def test_the_description_of_a_page_is_its_first_paragraph(page: str, expected: str) -> None:
    assert site.description(page) == expected


def test_every_page_has_a_description() -> None:
    assert [page.name for page in site.pages() if not site.description(page.read_text())] == []


def test_descriptions_are_escaped() -> None:
    assert site.for_site('Say "a" & b.\n').startswith('---\ndescription: "Say &quot;a&quot; &amp; b."\n---\n')


def test_bars_in_the_code_of_a_table_are_shown_without_escapes() -> None:
    assert "| `{a|b}` | c \\| d |\n" in site.for_site("# A\n\n| `{a\\|b}` | c \\| d |\n")
    assert "`a\\|b`\n" in site.for_site("`a\\|b`\n")


# Drawings


def test_the_drawing_has_every_status_and_every_arrow() -> None:
    drawn = drawing(diagrams.diagram())
    assert set(re.findall(r">(\w+)</text>", drawn)) == {*Status, "enqueued", "started", "requeued", "resumed"}
    assert re.findall(r'polyline points="(.*?)"', drawn) == list(ROUTES.values())
    assert WORDS.keys() <= ROUTES.keys()
    assert "\n\n" not in drawn, "Markdown would end the block of HTML there"


@pytest.mark.parametrize(
    "mermaid",
    [
        "stateDiagram-v2\n    queued --> lost: lost\n",
        "stateDiagram-v2\n    succeeded --> queued: replayed\n",
        "stateDiagram-v2\n    queued --> claimed: taken\n",
        "stateDiagram-v2\n    note left of queued\n",
        "flowchart LR\n    queued --> claimed: claimed\n",
    ],
    ids=["status", "arrow", "word", "line", "kind"],
)
def test_a_diagram_that_has_no_drawing_is_refused(mermaid: str) -> None:
    with pytest.raises(ValueError, match="there is no drawing"):
        site.for_site(f"# A\n\n```mermaid\n{mermaid}```\n")


# The check of the built pages

GOOD = """
<link rel="stylesheet" href="../site.css"><link rel="canonical" href="https://elsewhere.example/">
<meta property="og:image" content="https://docs.example/holdfast/a.png">
<style>p { background: url("../a.png") }</style>
<h2 id="über">A</h2><a name="old"></a>
<img src="../a.png" srcset="../a.png 1x, /holdfast/a.png 2x" alt=""><p style="background: url(data:image/png;base64,AA)">
<a href="#über">A</a> <a href="#%C3%BCber">A</a> <a href="../index.html#there">A</a> <a href="..">A</a> <a href="">A</a>
<a href="https://elsewhere.example/#x">A</a> <a href="mailto:a@elsewhere.example">A</a>
<a href="/holdfast/deep/page.html#old">A</a> <a href="https://docs.example/holdfast/deep/page.html#old">A</a>
<a href="https://docs.example/other/">A</a> <svg><use href="../a.png"/></svg>
"""


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A site of two pages, a style sheet and a picture."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "index.html").write_text("<p id=there>A</p>")
    (tmp_path / "deep/page.html").write_text(GOOD)
    (tmp_path / "site.css").write_text(
        "p { background: url(a.png), url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\"/>') }"
    )
    (tmp_path / "a.png").write_bytes(b"")
    return tmp_path


def test_a_good_site_has_no_problem(made_up: Path) -> None:
    assert problems(made_up, URLS["Documentation"]) == []


@pytest.mark.parametrize(
    "html",
    [
        '<img src="../b.png">',
        '<img src="../a.png" srcset="../a.png 1x, ../b.png 2x">',
        '<video poster="../b.png"></video>',
        '<a href="other.html">A</a>',
        '<a href="../index.html#here">A</a>',
        '<a href="#here">A</a>',
        '<a href="/index.html">A</a>',
        '<a href="/holdfast/page.html">A</a>',
        '<a href="../../outside.html">A</a>',
        '<a href="https://docs.example/holdfast/other.html">A</a>',
        '<meta property="og:image" content="../b.png">',
        '<p style="background: url(../b.png)">A</p>',
        '<style>@import "../b.css";</style>',
    ],
)
def test_what_is_missing_is_a_problem(made_up: Path, html: str) -> None:
    (made_up.parent / "outside.html").write_text("")
    (made_up / "deep/page.html").write_text(html)
    [problem] = problems(made_up, URLS["Documentation"])
    assert re.fullmatch(r"deep/page.html: (\S+ is missing|\S+: the page has no such anchor)", problem)


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://elsewhere.example/a.js"></script>',
        '<script src="//elsewhere.example/a.js"></script>',
        '<link rel="stylesheet" href="https://elsewhere.example/a.css">',
        '<link rel="preconnect" href="https://elsewhere.example">',
        '<link rel="icon" href="http://elsewhere.example/a.png">',
        '<img src="../a.png" srcset="https://elsewhere.example/a.png 2x">',
        '<iframe src="https://elsewhere.example/"></iframe>',
        '<object data="https://elsewhere.example/a.svg"></object>',
        '<svg><image xlink:href="https://elsewhere.example/a.svg"/></svg>',
        '<style>@import "https://elsewhere.example/a.css";</style>',
        '<p style="background: url(&quot;https://elsewhere.example/a.png&quot;)">A</p>',
    ],
)
def test_what_is_loaded_from_another_host_is_a_problem(made_up: Path, html: str) -> None:
    (made_up / "deep/page.html").write_text(html)
    [problem] = problems(made_up)
    assert re.fullmatch(r"deep/page.html: loads \S*elsewhere.example\S* from another host", problem)


def test_style_sheets_are_checked(made_up: Path) -> None:
    (made_up / "site.css").write_text("@import url(https://elsewhere.example/a.css);\np { background: url(b.png) }")
    (made_up / "deep/page.html").write_text("")
    assert problems(made_up) == [
        "site.css: loads https://elsewhere.example/a.css from another host",
        "site.css: b.png is missing",
    ]


def test_a_site_without_pages_is_a_problem(tmp_path: Path) -> None:
    assert len(problems(tmp_path)) == 1
