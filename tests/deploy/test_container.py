"""The container file: its packages are locked, it does not run as root, and its steps work as far as they can here.

No registry of images is needed: the steps run in folders of the test, and the locked packages are those of this environment.
"""

import json
import re
import shlex
import site
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.markers import Marker

from tests.deploy.commands import DEPLOY, bare_environment, check_arguments, started
from tests.support.processes import ROOT
from tests.support.server import Client


class Step(NamedTuple):
    stage: int
    name: str
    rest: str


def steps() -> list[Step]:
    found, stage = [], 0
    for line in (DEPLOY / "Containerfile").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if line.strip() and name != "#":
            stage += name == "FROM"
            found.append(Step(stage, name, rest))
    return found


def last(name: str) -> str:
    return [step.rest for step in steps() if step.name == name and step.stage == 2][-1]


def variables() -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(last("ENV")))


def pins(path: Path) -> dict[str, str]:
    """Return the pinned versions of a lock file that apply here. Fail if a package has no hash."""
    found = {}
    for block in re.split(r"\n(?=\S)", path.read_text()):
        match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?==(\S+)(?: ; ([^\\]+))? \\\n", block)
        assert match is not None, block
        assert "--hash=sha256:" in block, block
        if match[3] is None or Marker(match[3].strip()).evaluate():
            found[match[1].lower().replace("_", "-")] = match[2]
    return found


def test_packages_are_those_of_the_lock_file_that_tests_use() -> None:
    tested = pins(ROOT / "requirements.lock")
    for name in ("requirements.lock", "requirements-build.lock"):
        locked = pins(DEPLOY / name)
        assert locked and locked.items() <= tested.items(), "run make lock"
    assert {name: version(name) for name in pins(DEPLOY / "requirements.lock")} == pins(DEPLOY / "requirements.lock")
    installs = [step.rest for step in steps() if "pip install" in step.rest]
    assert len(installs) == 3
    assert all("--require-hashes" in rest or "--no-index" in rest for rest in installs), "nothing comes without a hash"


def test_the_image_does_not_run_as_root_and_has_a_health_check() -> None:
    assert last("USER") == "10001:10001"
    assert steps()[-2:] == [Step(2, "ENTRYPOINT", '["holdfast"]'), Step(2, "CMD", '["serve"]')]
    assert "/healthz" in last("HEALTHCHECK")


def test_files_that_are_copied_exist_and_are_not_ignored() -> None:
    allowed = [line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    for step in steps():
        if step.name != "COPY" or "--from" in step.rest:
            continue
        for source in step.rest.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(Path(source).match(pattern) for pattern in allowed), source


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the image: the steps of its first stage, with folders of the test."""
    folder = tmp_path_factory.mktemp("image")
    built = {"/opt/holdfast": str(folder / "opt"), "/dist": str(folder / "dist")}
    for step in steps():
        if step.stage != 1 or step.name != "RUN" or "--require-hashes" in step.rest:
            continue
        words = [re.sub("^python$", sys.executable, word) for word in shlex.split(step.rest)]
        command = [next((to + word[len(old) :] for old, to in built.items() if word.startswith(old)), word) for word in words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
    [packages] = (folder / "opt").glob("lib/python3*/site-packages")
    # The locked packages. The wheel, which is installed already, comes before the Holdfast of this checkout.
    (packages / "locked.pth").write_text("\n".join(site.getsitepackages()))
    return folder


def test_the_entry_point_serves_and_its_health_check_passes(image: Path, tmp_path: Path) -> None:
    entry, arguments = json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))
    assert check_arguments(arguments)["host"] is None
    assert variables()["PATH"].startswith("/opt/holdfast/bin:")
    url = variables()["HOLDFAST_URL"].replace("/var/lib/holdfast", str(tmp_path))
    environment = bare_environment(HOLDFAST_URL=url, PATH=f"{image}/opt/bin")
    program = image / "opt" / "bin" / entry[0]
    found = subprocess.run(
        [image / "opt/bin/python", "-c", "import holdfast; print(holdfast.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout.startswith(str(image)), "the wheel is installed, not this checkout"
    with started([str(program), *arguments, "--port", "0"], tmp_path, environment, tmp_path / "log") as server:
        port = int(server.line().rpartition(":")[2])
        assert Client(port).get("/healthz").status == 200
        checked = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        check = [str(image / "opt/bin/python"), *checked[1:-1], checked[-1].replace(":8470", f":{port}")]
        assert subprocess.run(check, env=environment, timeout=60, check=False).returncode == 0
        assert server.stop() == 0
    assert subprocess.run(check, env=environment, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode != 0
