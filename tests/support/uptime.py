"""Programs on a machine that seems to have started at another time.

`Machine` gives a program a monotonic clock with another start: in its own time namespace or, if the kernel refuses one,
by an offset that every Python process below it adds to `time.monotonic`.
"""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INJECTED = Path(__file__).parent / "injected"
OFFSET = "MONOTONIC_OFFSET"
"""Seconds; `injected/sitecustomize.py` reads it."""
WAYS = (["unshare", "--time", "--fork"], ["unshare", "--map-root-user", "--time", "--fork"])
"""Commands that create a time namespace: as root, and as another user if the kernel allows user namespaces."""


def namespace_command() -> tuple[list[str] | None, str]:
    """The command that creates a time namespace on this machine, or None and the error of the kernel."""
    said = ""
    for way in WAYS:
        try:
            tried = subprocess.run([*way, "true"], capture_output=True, text=True, check=False, timeout=60)
        except OSError as error:
            return None, str(error)
        if tried.returncode == 0:
            return way, ""
        said = tried.stderr.strip()
    return None, said


class Machine:
    """A machine whose monotonic clock shows `uptime_s` when a program starts. `way` is None if the clock is injected."""

    def __init__(self, uptime_s: int, way: list[str] | None) -> None:
        self._uptime_s = uptime_s
        self._way = way

    def run(self, *command: str, timeout: float = 120.0) -> Any:
        """Run a Python program and return its one line of JSON."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        paths, words = [str(ROOT / "src"), str(ROOT)], [sys.executable, *command]
        offset = math.ceil(self._uptime_s - time.monotonic())
        if self._way is None:
            paths.insert(0, str(INJECTED))
            kept[OFFSET] = str(offset)
        else:
            words = [*self._way, "--monotonic", str(offset), "--boottime", str(offset), *words]
        env = {**kept, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
