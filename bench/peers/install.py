"""Contenders from PyPI, installed from the lock file into a separate environment."""

import subprocess
import sys
from pathlib import Path

from bench.peers.base import Absent

LOCK = Path(__file__).with_name("requirements.lock")
INSTALL = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--require-hashes", "-r")
INSTALL_SECONDS_MAX = 900


def install(home: Path) -> Path:
    """The interpreter they are installed for, below `home`; made unless it is there already. Raises Absent."""
    venv, wanted = home / "venv", LOCK.read_text()
    stamp, python = venv / ".installed", venv / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    for command in ([sys.executable, "-m", "venv", "--clear", str(venv)], [str(python), *INSTALL, str(LOCK)]):
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Absent(f"installing took more than {INSTALL_SECONDS_MAX} s") from None
        if done.returncode:
            raise Absent(f"installing failed: {done.stderr.strip()[-500:]}")
    stamp.write_text(wanted)
    return python


def versions() -> list[str]:
    """Every package of the lock, as `name==version`."""
    return [line.split()[0] for line in LOCK.read_text().splitlines() if "==" in line and not line.startswith((" ", "#"))]
