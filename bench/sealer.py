"""A sealer during the measurement: `holdfast seal` in another process."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from holdfast.files.keys import write_key

CATCH_UP_SECONDS = 120.0


def enrolled_key(url: str, home: Path) -> Path:
    """The file of a server's key that a ledger knows."""
    key = holdfast.draw_key("server", "bench")
    with holdfast.open(url, keys=[key]) as ledger:
        ledger.enrol_key(key.public, role="server", name="bench")
    write_key(home / "bench.key", key)
    return home / "bench.key"


@contextmanager
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-seal-") as name:
        yield Path(name)


@contextmanager
def sealing(url: str, key: Path) -> Iterator[None]:
    """Run a sealer in the background. It has sealed all earlier events when the block starts."""
    environment = {**os.environ, "HOLDFAST_KEYS": str(key)}
    command = [sys.executable, "-m", "holdfast", "seal", "--db", url]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        with holdfast.open(url) as ledger:
            caught_up(ledger)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def behind(ledger: holdfast.Ledger) -> int:
    """Events that are not sealed yet, counted up to a limit."""
    head = ledger.head()
    return ledger.sealed_log.events_after(0 if head is None else head.pos)


def caught_up(ledger: holdfast.Ledger) -> float:
    """Seconds until everything has been sealed."""
    began = time.monotonic()
    while behind(ledger):
        assert time.monotonic() < began + CATCH_UP_SECONDS, "the sealer does not keep up"
        time.sleep(0.01)
    return time.monotonic() - began
