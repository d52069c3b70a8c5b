"""Every example in README and docs is run, and says what it prints."""

import contextlib
import io
import multiprocessing
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import holdfast
from docs.generate import ROOT
from holdfast.testing import ManualClock, NoJitter
from tests.docs.pages import Block, blocks, name, with_blocks
from tests.support.served_process import serving

MODULE = re.compile(r"# (\w+)\.py\n")
LATER = re.compile(r"^( *)# (\d+) s later\b.*$", re.MULTILINE)
"""A comment at which time passes. A reader waits that long."""
SCRIPT = re.compile(r"# \w+\.sh\n")
"""A block that is a file: run by test_commands, which types its name."""


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new empty database."""
    server: str = request.getfixturevalue("postgres_url")
    database = f"docs_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        yield server.rpartition("/")[0] + "/" + database
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))


@pytest.fixture
def mcp_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The url of a server of the page's ledger. The environment has a worker's token for it."""
    with holdfast.open(f"sqlite:///{tmp_path}/jobs.db") as ledger:
        monkeypatch.setenv("MCP_TOKEN", ledger.new_token("worker", "reviewer").text)
    with serving(tmp_path, db="sqlite:///jobs.db") as server:
        yield f"{server.url}/mcp"


@pytest.mark.parametrize("page", with_blocks("python"), ids=name)
def test_python_blocks_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    found = blocks(page, "python")
    monkeypatch.chdir(tmp_path)
    if any("DATABASE_URL" in block.text for block in found):
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("database_url"))
    if any("MCP_URL" in block.text for block in found):
        monkeypatch.setenv("MCP_URL", request.getfixturevalue("mcp_url"))
    if any("settings.configure" in block.text for block in found):
        run_elsewhere(page)
    else:
        run_page(page)


def run_page(page: Path) -> None:
    """Run the blocks in the current folder.

    A block that begins with the name of a module is also saved: later blocks may import it. On a page with a comment such as
    `# 60 s later`, time passes at these comments only.
    """
    names: dict[str, Any] = {"__name__": "example"}
    with contextlib.ExitStack() as stack:
        if any(LATER.search(block.text) for block in blocks(page, "python")):
            names["_clock"] = stack.enter_context(time_by_hand())
        run_blocks(page, names)


@contextlib.contextmanager
def time_by_hand() -> Iterator[ManualClock]:
    """Let the ledgers that a page opens have a manual clock, and backoffs without jitter, as if the page had given them."""
    clock = ManualClock()
    takers = [holdfast.open, holdfast.App.__init__]
    before = [taker.__kwdefaults__ for taker in takers]
    for taker in takers:
        taker.__kwdefaults__ = {**(taker.__kwdefaults__ or {}), "clock": clock, "entropy": NoJitter()}
    try:
        yield clock
    finally:
        for taker, defaults in zip(takers, before, strict=True):
            taker.__kwdefaults__ = defaults


def run_blocks(page: Path, names: dict[str, Any]) -> None:
    modules = {found[1]: block for block in blocks(page, "python") if (found := MODULE.match(block.text))}
    for module, block in modules.items():
        Path(f"{module}.py").write_text(block.text)
    sys.path.insert(0, str(Path.cwd()))
    try:
        for block in blocks(page, "python"):
            run(block, names)
    finally:
        sys.path.remove(str(Path.cwd()))
        for module in modules:
            sys.modules.pop(module, None)


def run_elsewhere(page: Path) -> None:
    """Run the page in another process: Django can be configured only once in a process."""
    process = multiprocessing.get_context("spawn").Process(target=run_page, args=(page,))
    process.start()
    process.join(120)
    assert process.exitcode == 0


@pytest.mark.parametrize("store", ["postgres"])
def test_the_verbs_answer_the_same_on_postgresql(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(ROOT / "docs/reference/api.md", "python"):
        run(block._replace(text=block.text.replace("sqlite:///jobs.db", database_url)), names)


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block under its page's name and lines, so that a failure points at the page."""
    source = "\n" * (block.line - 1) + LATER.sub(r"\1_clock.advance(\2)", block.text)
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(source, str(block.page), "exec"), names)  # noqa: S102 - the examples are this project's own
    if block.printed:
        assert said.getvalue().splitlines() == block.printed


@pytest.mark.parametrize("page", with_blocks("sh", "console"), ids=name)
def test_shell_blocks_name_commands_that_work(page: Path) -> None:
    for block in blocks(page, "sh", "console"):
        if block.language == "sh" and SCRIPT.match(block.text):
            continue
        for line in block.text.splitlines():
            if block.language == "console" and not line.startswith("$ "):
                continue
            command = shlex.split(line.removeprefix("$ "), comments=True)
            if command:
                check_command(command, page)


def check_command(command: list[str], page: Path) -> None:
    match command:
        case ["make", *targets]:
            known = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(targets) <= set(known)
        case ["pip", "install", *what]:
            dry = ["--dry-run", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-qq"]
            subprocess.run([sys.executable, "-m", "pip", "install", *dry, *what], cwd=ROOT, check=True)
        case ["holdfast" | "python" | "kill" | "sh", *_]:
            """Run by test_commands, with what they print."""
        case [".venv/bin/holdfast", *words]:
            subprocess.run([sys.executable, "-m", "holdfast", *words, "--help"], check=True, stdout=subprocess.DEVNULL)
        case ["python3", "-m", "venv", folder] | [".", folder]:
            assert folder.removesuffix("/bin/activate") == "env"
        case ["sudo" | "docker" | "cd", *_]:
            """Checked by tests/deploy/test_guide.py: they are in the guide to deployment only."""
            assert page.name == "deploy.md"
        case _:
            pytest.fail(f"a page shows a command that no test checks: {shlex.join(command)}")


def test_a_wrong_claim_about_output_is_noticed() -> None:
    block = Block(ROOT / "README.md", 1, "python", "print(1 + 1)  # → 3\n")
    with pytest.raises(AssertionError):
        run(block, {})


def test_guides_begin_with_what_a_program_ships() -> None:
    """A clock for tests is in no first example: who copies it gets a worker whose time stands still."""
    guides = [page for page in with_blocks("python") if page.parent.name == "guides" and page.name != "testing.md"]
    assert len(guides) > 20
    assert [name(page) for page in guides if "ManualClock" in blocks(page, "python")[0].text] == []


def test_time_passes_at_a_comment_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        """```python
import holdfast
ledger = holdfast.open("sqlite:///jobs.db")
before = ledger.now()
# 90 s later: nothing has happened
print((ledger.now() - before).total_seconds())  # → 90.0
ledger.close()
```
"""
    )
    run_page(page)
    assert (holdfast.open.__kwdefaults__ or {})["clock"] is None
