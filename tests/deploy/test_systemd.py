"""The systemd unit: systemd accepts it, it is hardened, and its command runs with its environment."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.commands import DEPLOY, HOLDFAST, bare_environment, started
from tests.support.server import Client

UNIT = DEPLOY / "holdfast.service"


def directives(section: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif current == section and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def installed_unit(tmp_path: Path) -> Path:
    """The unit with the Holdfast of this environment."""
    found = tmp_path / UNIT.name
    found.write_text(UNIT.read_text().replace("/opt/holdfast/bin/holdfast", str(HOLDFAST)))
    return found


def test_systemd_accepts_the_unit(installed_unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    command = ["systemd-analyze", "verify", str(installed_unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_hardened(installed_unit: Path) -> None:
    service = directives("Service")
    assert service["NoNewPrivileges"] == ["yes"] and service["ProtectSystem"] == ["strict"]
    assert service["CapabilityBoundingSet"] == [""] and service["User"] == ["holdfast"]
    if shutil.which("systemd-analyze") is None:
        return
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", str(installed_unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_the_command_of_the_unit_serves_with_its_environment_and_stops_in_order(tmp_path: Path) -> None:
    service = directives("Service")
    state, etc = tmp_path / "state", tmp_path / "etc"
    state.mkdir()
    etc.mkdir()
    (etc / "holdfast.toml").write_text("[server]\nport = 0\n")
    variables = dict(line.split("=", 1) for line in service["Environment"])
    assert service["WorkingDirectory"] == ["/etc/holdfast"] and service["StateDirectory"] == ["holdfast"]
    assert service["EnvironmentFile"] == ["-/etc/holdfast/environment"]
    moved = {name: value.replace("/var/lib/holdfast", str(state)) for name, value in variables.items()}
    command = shlex.split(service["ExecStart"][0])
    assert command[0] == "/opt/holdfast/bin/holdfast"
    with started([str(HOLDFAST), *command[1:]], etc, bare_environment(**moved), tmp_path / "log") as server:
        port = int(server.line().rpartition(":")[2])
        assert Client(port).get("/readyz").status == 200
        assert service["KillSignal"] == ["SIGTERM"] and server.stop() == 0
    assert (state / "holdfast.db").exists() and sorted(path.name for path in etc.iterdir()) == ["holdfast.toml"]
    assert service["RestartPreventExitStatus"] == ["2"], "the exit code of wrong options"
