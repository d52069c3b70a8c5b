"""The commands of the guide to deployment: their files, units, services and arguments exist."""

import shlex
import tomllib

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.commands import DEPLOY, check_arguments
from tests.docs.pages import blocks
from tests.support.processes import ROOT

GUIDE = ROOT / "docs" / "guides" / "deploy.md"
LINES = [line for block in blocks(GUIDE, "sh") for line in block.text.splitlines() if line]


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_the_guide_names_what_exists(line: str) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    words = shlex.split(line)
    match words:
        case ["docker", "build", "-f", file, "-t", "holdfast", "."]:
            assert (ROOT / file).exists()
        case ["docker", "run", *rest]:
            check_arguments(rest[rest.index("holdfast") + 1 :])
        case ["docker", "compose", "run", "--rm", service, *arguments]:
            assert service in services
            check_arguments(arguments)
        case ["docker", "compose", "up", "-d", "--scale", scaled]:
            assert scaled.partition("=")[0] in services
        case ["docker", "compose", "build"] | ["docker", "compose", "up", "-d"]:
            assert "build" in services["migrate"]
        case ["cd", folder]:
            assert (ROOT / folder).is_dir()
        case ["sudo", *rest]:
            _check_sudo(rest)
        case _:
            pytest.fail(f"no test checks this command: {line}")


def _check_sudo(words: list[str]) -> None:
    unit = (DEPLOY / "holdfast.service").read_text()
    match words:
        case ["python3", "-m", "venv", folder]:
            assert f"ExecStart={folder}/bin/holdfast " in unit
        case [pip, "install", wanted]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert pip == "/opt/holdfast/bin/pip" and wanted.removeprefix("holdfast-ledger[").removesuffix("]") in extras
        case ["useradd", *_, name]:
            assert f"User={name}\n" in unit
        case ["install", "-m", "644", file, "/etc/systemd/system/"]:
            assert (ROOT / file).exists()
        case ["systemctl", "enable", "--now", name]:
            assert (DEPLOY / f"{name}.service").exists()
        case ["-u", user, variable, program, *arguments]:
            assert f"User={user}\n" in unit and f"Environment={variable}\n" in unit and f"ExecStart={program} " in unit
            check_arguments(arguments)
        case _:
            pytest.fail(f"no test checks this command: {shlex.join(words)}")
