"""The dashboard's files over HTTP."""

import gzip
import re
from pathlib import Path

import click
import pytest

from holdfast.cli import main
from holdfast.server.pages import FOLDER, is_page
from tests.support.server import RunningServer

PAGES = ["/", "/jobs", "/jobs/7", "/queues", "/queues/a%2Fb", "/kinds/mail", "/workers/w-1", "/dead-letters", "/seals", "/login"]
OTHERS = ["/jobs/", "/jobs/7/8", "/index.html", "/assets/", "/assets/../pages.py", "/assets/%2e%2e/pages.py", "/queues/%2e%2e"]
HOSTILE = [
    "/queues/..",
    "/queues/%00",
    "/queues/a%5Cb",
    "/queues/%ff",
    "/jobs/..%00",
    "/../../etc/passwd",
    "/%2e%2e/etc/passwd",
    "//",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_the_same_file_without_a_token(served: RunningServer, path: str) -> None:
    answer = served.anonymous().get(path)

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("path", OTHERS + HOSTILE)
def test_a_path_outside_of_the_files_is_not_found(served: RunningServer, path: str) -> None:
    assert served.anonymous().get(path).status == 404


def test_a_page_can_only_be_read(served: RunningServer) -> None:
    assert served.client().post("/jobs").status == 404
    assert served.anonymous().send("HEAD", "/jobs").body == b""


def test_assets_are_kept_for_ever_and_pages_are_asked_for_again(served: RunningServer) -> None:
    anonymous = served.anonymous()
    page = anonymous.get("/")
    assets = sorted(set(re.findall(r'"(/assets/[^"]+)"', page.body.decode())))

    assert len(assets) > 3
    for path in assets:
        answer = anonymous.get(path)
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert gzip.decompress(anonymous.get(path, Accept_Encoding="gzip").body) == answer.body
    again = anonymous.get("/jobs", If_None_Match=page.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    zipped = anonymous.get("/", Accept_Encoding="gzip", If_None_Match=page.headers["etag"])
    assert (zipped.status, zipped.headers["content-encoding"]) == (200, "gzip")


def test_a_foreign_host_gets_no_page(served: RunningServer) -> None:
    assert served.anonymous().get("/", Host="evil.example").status == 421


def test_a_route_goes_before_a_page(served: RunningServer) -> None:
    assert served.client("reader", "kim").get("/v1/jobs").headers["content-type"] == "application/json"
    assert not is_page(b"/v1/jobs")


SCRIPTS = sorted(FOLDER.rglob("*.js"))
MODULE_LINES_MAX = 250
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(['\"]style|https?://(?!www\.w3\.org)"
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_modules_are_short_and_write_text_only(script: Path) -> None:
    text = script.read_text()

    assert text.count("\n") <= MODULE_LINES_MAX
    assert not FORBIDDEN.search(text)


PAGE_EXPORTS = {"title", "load", "watch", "draw", "update", "leave", "onEvent"}


def test_every_export_is_used_by_another_module() -> None:
    texts = {script: script.read_text() for script in SCRIPTS}
    for script, text in texts.items():
        for name in re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", text, re.MULTILINE):
            is_page = script.parent.name == "pages" and name in PAGE_EXPORTS
            used = (re.search(rf"\b{name}\b", other) for path, other in texts.items() if path != script)
            assert is_page or any(used), f"{script.name} exports {name}, which no other module uses"


def test_the_shell_has_no_inline_script_or_style() -> None:
    page = (FOLDER / "index.html").read_text()

    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page)


COMMANDS = sorted(
    {found for script in SCRIPTS for found in re.findall(r"[`\"]holdfast ((?:[a-z]+(?:-[a-z]+)* ?){1,2})", script.read_text())},
    key=str.strip,
)


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_that_the_pages_show_exist(words: str) -> None:
    node: click.Command = main
    for word in words.split():
        if isinstance(node, click.Group):
            found = node.get_command(click.Context(node), word)
            assert found is not None, words
            node = found
    assert node is not main
