"""The lock files name every package and every extra that their packages require, by the metadata of the installed packages.

pip with hashes refuses `coverage[toml]` if the lock file names only `coverage` and a newer version has been released.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.processes import ROOT

OF_HOLDFAST: dict[str, tuple[bool, str, bool]] = {
    "requirements.lock": (True, "all", True),
    "requirements-demo.lock": (True, "server", True),
    "deploy/requirements.lock": (True, "all", False),
    "deploy/requirements-build.lock": (False, "", True),
}
"""The lock files whose packages are installed for the tests. Each locks the dependencies of Holdfast or not, the packages of an
extra, and those of a requirements file or not."""


def requirements(lines: str) -> Iterator[Requirement]:
    """Yield what a lock file or a requirements file names for this interpreter and system."""
    for line in lines.splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            found = Requirement(line.partition(" #")[0].rstrip("\\ "))
            if found.marker is None or found.marker.evaluate():
                yield found


def of_holdfast(lock: str) -> Iterator[Requirement]:
    """Yield what pyproject.toml and the requirements file of a lock file ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies, extra, more = OF_HOLDFAST[lock]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "all"}
    if dependencies:
        yield from map(Requirement, project["dependencies"])
    for name in extras if extra == "all" else filter(None, [extra]):
        yield from map(Requirement, extras[name])
    if more:
        yield from requirements((ROOT / lock).with_suffix(".in").read_text())


def of_package(package: Requirement) -> Iterator[Requirement]:
    """Yield what an installed package requires, with its extras that are locked."""
    for line in distribution(package.name).requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ["", *package.extras]):
            yield wanted


@pytest.mark.parametrize("lock", OF_HOLDFAST)
def test_a_lock_file_names_the_extras_that_its_packages_require(lock: str) -> None:
    packages = {canonicalize_name(found.name): found for found in requirements((ROOT / lock).read_text())}
    asked = [("holdfast", wanted) for wanted in of_holdfast(lock)]
    for name, package in packages.items():
        assert str(package.specifier) == f"=={distribution(name).version}", name
        asked += [(name, wanted) for wanted in of_package(package)]
    assert len(asked) >= len(packages) > 0
    missing = [
        f"{by} requires {wanted}"
        for by, wanted in asked
        if (found := packages.get(canonicalize_name(wanted.name))) is None or not wanted.extras <= found.extras
    ]
    assert missing == []
