"""Heartbeats of programs that `holdfast supervise` runs. Nothing here needs the ledger, and nothing raises an error."""

import contextlib
import json
import os
import socket

FD, SOCKET, EVERY = "HOLDFAST_BEAT_FD", "HOLDFAST_BEAT_SOCKET", "HOLDFAST_BEAT_EVERY"


def is_supervised() -> bool:
    """Return whether a supervisor runs this program."""
    return bool(os.environ.get(SOCKET) or os.environ.get(FD))


def every_s() -> float:
    """Return the interval of heartbeats in seconds: a third of the time after which the program counts as silent."""
    try:
        return max(0.01, float(os.environ.get(EVERY, "")))
    except ValueError:
        return 20.0


def beat(*, stage: str | None = None, progress: float | None = None) -> bool:
    """Send one heartbeat, with the stage and progress of the program. It never waits. Return False if it was not sent."""
    fields = {name: value for name, value in (("stage", stage), ("progress", progress)) if value is not None}
    line = json.dumps(fields, default=str).encode() if fields else b""
    return _send(line) or _write(line)


def _send(line: bytes) -> bool:
    path = os.environ.get(SOCKET)
    if not path:
        return False
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        channel.sendto(line or b"\n", path)
        return True
    return False


def _write(line: bytes) -> bool:
    with contextlib.suppress(OSError, ValueError):
        os.write(int(os.environ.get(FD, "")), line + b"\n")
        return True
    return False
