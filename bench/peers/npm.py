"""Contenders from npm, installed into a separate folder.

The versions are exact. There is no lock file: it would name the registry that
it was made with. Node comes along, because two of the contenders need a newer
one than the systems around still ship.
"""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.peers.base import Absent

PACKAGES = Path(__file__).with_name("package.json")
INSTALL = ("install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
INSTALL_SECONDS_MAX = 600
NODE_MAJOR_MIN = 23
"""From here on every Node loads an ES module by `require`, which the programs do."""


def install(home: Path) -> Path:
    """The folder `node_modules` below `home`, installed unless it is there already; raises Absent."""
    modules, wanted, stamp = home / "node_modules", PACKAGES.read_text(), home / "node_modules" / ".installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise Absent("no npm on the PATH")
    home.mkdir(parents=True, exist_ok=True)
    (home / PACKAGES.name).write_text(wanted)
    try:
        done = subprocess.run([npm, *INSTALL], cwd=home, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Absent(f"npm install took more than {INSTALL_SECONDS_MAX} s") from None
    if done.returncode:
        raise Absent(f"npm install failed: {done.stderr.strip()}")
    stamp.write_text(wanted)
    return modules


@cache
def node(modules: Path) -> Path:
    """The Node that was installed along, or else the one on the PATH; raises Absent."""
    found = shutil.which("node", path=modules / ".bin") or shutil.which("node")
    if found is None:
        raise Absent("no Node")
    said = subprocess.run([found, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    if int(said.lstrip("v").partition(".")[0]) < NODE_MAJOR_MIN:
        raise Absent(f"Node {said.strip()} is older than {NODE_MAJOR_MIN}")
    return Path(found)


def versions() -> list[str]:
    """Every package asked for, as `name@version`."""
    return [f"{name}@{version}" for name, version in json.loads(PACKAGES.read_text())["dependencies"].items()]
