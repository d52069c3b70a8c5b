"""The compose file: its parts fit together, and its commands run against a real PostgreSQL."""

import re
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

import holdfast
from tests.deploy.commands import DEPLOY, HOLDFAST, bare_environment, check_arguments, started
from tests.support.forked import run

VARIABLES = {"HOLDFAST_DB_PASSWORD": "drawn at random"}
KEYS = {
    "image", "build", "restart", "read_only", "cap_drop", "security_opt", "tmpfs", "environment", "networks", "volumes",
    "command", "healthcheck", "depends_on", "stop_grace_period", "working_dir", "ports",
}  # fmt: skip
"""Keys of a service in the compose specification that the file uses."""


def substituted(text: str) -> str:
    """Replace ${NAME}, ${NAME:-default} and ${NAME:?message} as compose does."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        assert name in VARIABLES or kind == ":-", f"{name} has no default"
        return VARIABLES.get(name, rest)

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", value, text)


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(substituted((DEPLOY / "compose.yaml").read_text()))
    return found


def test_the_parts_of_the_file_fit_together(composed: dict[str, Any]) -> None:
    assert set(composed) == {"name", "x-holdfast", "services", "volumes", "networks"}
    for name, service in composed["services"].items():
        assert set(service) <= KEYS, name
        assert set(service["networks"]) <= set(composed["networks"])
        for needed, how in service.get("depends_on", {}).items():
            condition = how["condition"]
            assert needed in composed["services"]
            if condition == "service_healthy" and composed["services"][needed]["image"] != "holdfast":
                assert "healthcheck" in composed["services"][needed]
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in composed["volumes"] or (DEPLOY / source).exists()
    build = composed["services"]["migrate"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"


def test_every_command_of_holdfast_is_one(composed: dict[str, Any]) -> None:
    found = {name: service["command"] for name, service in composed["services"].items() if service["image"] == "holdfast"}
    assert set(found) == {"migrate", "server", "worker"}
    options = {name: check_arguments(command) for name, command in found.items()}
    [network] = composed["networks"]["inside"]["ipam"]["config"]
    assert options["server"]["behind_proxy"] == (str(ip_network(network["subnet"])),)
    assert options["server"]["public_url"] == f"https://{urlsplit(composed['services']['proxy']['command'][3]).hostname}"
    assert composed["services"]["proxy"]["command"][-1] == "server:8470"
    health = composed["services"]["worker"]["healthcheck"]["test"][-1]
    assert f":{options['worker']['metrics_port']}/healthz" in health


def test_the_commands_work_together(composed: dict[str, Any], new_schema: str, tmp_path: Path) -> None:
    services = composed["services"]
    environment = bare_environment(**{**services["server"]["environment"], "HOLDFAST_URL": new_schema})
    for command in (services["migrate"]["command"], ["token", "new", "--role", "admin", "--name", "kim", "--json"]):
        done = run([str(HOLDFAST), *command], tmp_path, environment, timeout_s=60)
        assert done.code == 0, done.err
    with ExitStack() as stack:
        server = stack.enter_context(
            started([str(HOLDFAST), *services["server"]["command"], "--port=0"], tmp_path, environment, tmp_path / "server.log")
        )
        worker = [word.replace("9090", "0") for word in services["worker"]["command"]]
        working = stack.enter_context(started([str(HOLDFAST), *worker], DEPLOY / "app", environment, tmp_path / "worker.log"))
        assert server.line() == f"Serving {check_arguments(services['server']['command'])['public_url']}"
        with holdfast.open(new_schema) as ledger:
            job = ledger.enqueue("greet", {"name": "Ada"})
            assert ledger.result(job, timeout=60) == "Hello, Ada!"
        assert (working.stop(), server.stop()) == (0, 0)


def test_the_server_refuses_to_start_without_a_token(composed: dict[str, Any], new_schema: str, tmp_path: Path) -> None:
    environment = bare_environment(**{**composed["services"]["server"]["environment"], "HOLDFAST_URL": new_schema})
    done = run([str(HOLDFAST), *composed["services"]["server"]["command"]], tmp_path, environment, timeout_s=60)
    assert (done.code, "holdfast token new" in done.err) == (2, True)
