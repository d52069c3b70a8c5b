"""All extras on each Python of this machine, and a `.venv` of the time before the distribution's name."""

import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.test_distributions import SMOKE, supported_pythons
from tests.support.processes import ROOT

pytestmark = pytest.mark.torture

EVERY_MODULE = """
import importlib, pkgutil, holdfast
for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    # The program, pytest's plugin, and an app that reads its settings when it is imported.
    if module.name not in ("holdfast.__main__", "holdfast.testing.plugin", "holdfast.demo.app"):
        importlib.import_module(module.name)
"""


def pythons() -> Iterator[str]:
    """An interpreter of each supported version: this one, one on the PATH, or one of pyenv, whose shims may not work."""
    for version in supported_pythons():
        name = f"python{version}"
        ours = [sys.executable] if version == f"{sys.version_info.major}.{sys.version_info.minor}" else []
        installed = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/{name}")
        yield from [place for place in map(str, [*ours, shutil.which(name) or "", *installed]) if works(place)][:1]


def works(python: str) -> bool:
    return bool(python) and subprocess.run([python, "-c", ""], capture_output=True, check=False, timeout=60).returncode == 0


def run(*words: object, **options: Any) -> str:
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True, timeout=900, **options)
    return done.stdout


def test_all_extras_install_on_each_python(wheel: Path, tmp_path: Path) -> None:
    """The locked packages come from the package index, with their hashes. They are all that the extras need."""
    for number, python in enumerate(pythons()):
        home = tmp_path / str(number)
        run(python, "-m", "venv", home)
        pip = (home / "bin/python", "-m", "pip", "--disable-pip-version-check", "-qq")
        run(*pip, "install", "--require-hashes", "-r", ROOT / "deploy/requirements.lock")
        run(*pip, "install", "--no-index", f"{wheel}[all]")
        run(*pip, "check")
        run(home / "bin/python", "-c", EVERY_MODULE)
        run(home / "bin/python", "-c", SMOKE, cwd=home)
        run(home / "bin/holdfast", "doctor", "--db", "sqlite:///smoke.db", cwd=home)


def test_make_removes_the_distribution_under_its_old_name(tmp_path: Path) -> None:
    home = tmp_path / "env"
    run(sys.executable, "-m", "venv", home)
    [packages] = home.glob("lib/python3*/site-packages")
    (packages / "locked.pth").write_text("\n".join(site.getsitepackages()))  # hatchling, and what Holdfast needs
    (home / ".locked").touch()
    old = packages / "holdfast-0.1.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.5\nName: holdfast\nVersion: 0.1.0\n")
    (old / "RECORD").write_text(f"../../../bin/holdfast,,\n{old.name}/METADATA,,\n{old.name}/RECORD,,\n")
    (home / "bin/holdfast").touch(mode=0o755)
    run("make", "setup", f"VENV={home}", "-o", home / ".locked", cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""})
    assert not old.exists()
    assert run(home / "bin/holdfast", "--version").startswith("holdfast, version ")
