"""The wheel and the sdist: built, installed into an empty environment, and used there."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import holdfast
from _holdfast_program import DISTRIBUTION
from tests.packaging.building import build
from tests.support.processes import ROOT

SMOKE = """
import holdfast
with holdfast.open("sqlite:///smoke.db") as ledger:
    job = ledger.enqueue("greet", {"name": "Ada"})
    [held] = ledger.claim("worker", start=True)
    ledger.complete(held.fence, "Hello, Ada!")
    assert ledger.wait(job.id, timeout=0).result == "Hello, Ada!"
    assert not ledger.check(job.id)
print(holdfast.__version__, holdfast.__file__)
"""


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, what it says that it needs, and nothing else."""
    home = tmp_path_factory.mktemp("empty") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120)
    [site] = home.glob("lib/python3*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--no-compile", str(wheel)], check=True, timeout=120)
    for needed in set(needs(DISTRIBUTION)):
        copy(distribution(needed), site)
    return home / "bin"


def needs(name: str) -> Iterator[str]:
    """What a distribution needs without extras, and what that needs in turn."""
    for line in distribution(name).requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            yield wanted.name
            yield from needs(wanted.name)


def copy(found: Distribution, site: Path) -> None:
    for file in found.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(found.locate_file(file)), site / file)


def run(program: Path, *arguments: str, cwd: Path) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "TMPDIR": str(cwd)}
    done = subprocess.run(
        [str(program), *arguments], cwd=cwd, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_in_an_empty_environment_works(programs: Path, tmp_path: Path) -> None:
    version, file = run(programs / "python", "-c", SMOKE, cwd=tmp_path).split()
    assert (version, Path(file).is_relative_to(programs.parent)) == (holdfast.__version__, True)


def test_the_demo_runs_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    """As `pipx run` and `uvx` do it: an environment of its own, and the program in it."""
    answer = json.loads(run(programs / "holdfast", "demo", "--jobs", "3", "--workers", "2", "--json", cwd=tmp_path))
    assert (answer["success"], answer["data"]["jobs"]) == (True, 3)


def test_the_files_of_another_project_are_found_and_replaced(programs: Path, tmp_path: Path) -> None:
    """The commands that the program prints are run. They install the wheel again from where it came."""
    shutil.copytree(programs.parent, tmp_path / "env", symlinks=True)
    python, [site] = tmp_path / "env/bin/python", (tmp_path / "env").glob("lib/python3*/site-packages")
    (site / "pip").symlink_to(str(distribution("pip").locate_file("pip")))
    install_other_project(site)

    def holdfast_program(*arguments: str) -> "subprocess.CompletedProcess[str]":
        program = [str(python), str(programs / "holdfast"), *arguments]
        return subprocess.run(program, cwd=tmp_path, env={}, check=False, capture_output=True, text=True, timeout=60)

    refused = [holdfast_program(*words.split()) for words in ("", "--version", "doctor", "task heartbeat --id 1 --agent ada")]
    assert {(done.returncode, done.stdout) for done in refused} == {(1, "")}
    [said] = {done.stderr for done in refused}
    assert f"{site}/holdfast-0.5.1.dist-info" in said
    answer = json.loads(holdfast_program("doctor", "--json").stdout)
    assert (answer["success"], answer["error_code"]) == (False, "wrong_package")
    action = answer["suggested_action"]
    assert said.endswith(f"Try: {action}\n")
    mend = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    remove, install = action.split(" && ")
    subprocess.run(remove, shell=True, check=True, env=mend, capture_output=True, timeout=120)  # noqa: S602 - as it is printed
    assert "files of Holdfast are missing" in holdfast_program("--version").stderr
    subprocess.run(install, shell=True, check=True, env=mend, capture_output=True, timeout=120)  # noqa: S602
    # This distribution under its old name.
    [ours] = site.glob("holdfast_ledger-*.dist-info")
    (site / "holdfast-0.1.0.dist-info").mkdir()
    (site / "holdfast-0.1.0.dist-info/METADATA").write_text(
        (ours / "METADATA").read_text().replace("holdfast-ledger", "holdfast")
    )
    assert holdfast_program("--version").stdout == f"holdfast, version {holdfast.__version__}\n"


def install_other_project(site: Path) -> None:
    """Write files as pip installs them. Two have names of ours."""
    info = "holdfast-0.5.1.dist-info"
    texts = dict.fromkeys(("holdfast/__init__.py", "holdfast/version.py"), "raise ImportError\n")
    texts[f"{info}/METADATA"] = "Metadata-Version: 2.4\nName: holdfast\nVersion: 0.5.1\nSummary: Another project\n"
    texts[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*texts, f"{info}/RECORD"])
    (site / info).mkdir()
    for name, text in texts.items():
        (site / name).write_text(text)


def test_two_builds_are_equal(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """The second is built in another folder, of the sdist: its files have other times and permissions."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - made by this test; 3.11.2 knows no filter
    [source] = tmp_path.iterdir()
    for file in source.rglob("*.md"):
        file.chmod(0o600)
        os.utime(file, (0, 0))
    again = tmp_path / "again"
    build(source, again, "wheel", "sdist")
    assert {file.name: file.read_bytes() == (again / file.name).read_bytes() for file in (wheel, sdist)} == {
        wheel.name: True, sdist.name: True
    }  # fmt: skip
    for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "Makefile", "requirements.lock", "docs/guides/quickstart.md"):
        assert (source / name).is_file()


def test_a_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as found:
        names = {name for name in found.namelist() if ".dist-info/" not in name}
    package = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert names == {name for name in package if "__pycache__" not in name}


def test_the_metadata_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as found:
        [name] = [name for name in found.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(found.read(name), validate=True)
        assert metadata.license_files and name.replace("METADATA", "licenses/LICENSE") in found.namelist()
    assert (metadata.name, str(metadata.version)) == (DISTRIBUTION, holdfast.__version__)
    assert (metadata.author, metadata.license_expression) == ("The Holdfast developers", "Apache-2.0")
    assert metadata.description == (ROOT / "README.md").read_text()
    assert metadata.description_content_type == "text/markdown"
    extras = project()["optional-dependencies"]
    [everything] = [Requirement(line) for line in extras.pop("all")]
    assert (everything.name, everything.extras) == (DISTRIBUTION, set(extras))
    readme = (ROOT / "README.md").read_text()
    assert [extra for extra in [*extras, "all"] if f"`{extra}`" not in readme] == []


def test_the_wheel_has_a_bill_of_materials(wheel: Path) -> None:
    """It names what the wheel contains, and what the wheel's metadata says that it needs."""
    with zipfile.ZipFile(wheel) as found:
        [name] = [name for name in found.namelist() if ".dist-info/sboms/" in name]
        [record] = [name for name in found.namelist() if name.endswith(".dist-info/RECORD")]
        assert name in found.read(record).decode()
        bill = json.loads(found.read(name))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    ours = bill["metadata"]["component"]
    assert (ours["purl"], ours["licenses"]) == (f"pkg:pypi/{DISTRIBUTION}@{holdfast.__version__}", [{"expression": "Apache-2.0"}])
    always = {Requirement(line).name for line in project()["dependencies"]}
    extras = {Requirement(line).name for lines in project()["optional-dependencies"].values() for line in lines}
    scopes = {**dict.fromkeys(extras - {DISTRIBUTION}, "optional"), **dict.fromkeys(always, "required")}
    assert {part["name"]: part["scope"] for part in bill["components"]} == scopes
    assert bill["dependencies"] == [{"ref": ours["bom-ref"], "dependsOn": [part["bom-ref"] for part in bill["components"]]}]


def test_every_supported_python_is_checked_by_the_forge() -> None:
    """`make check` and `make test`, on each version that the metadata names; `make site` once."""
    classifiers = supported_pythons()
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    [matrix] = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"3\.\d+", matrix) == classifiers
    assert f">={classifiers[0]}" == project()["requires-python"]
    assert re.findall(r"run: make (\w+)", workflow) == ["setup", "check", "test", "site"]


def supported_pythons() -> list[str]:
    return re.findall(r"Python :: (3\.\d+)$", "\n".join(project()["classifiers"]), re.MULTILINE)


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found
