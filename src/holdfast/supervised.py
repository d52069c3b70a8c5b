"""For programs that `holdfast supervise` runs: say that you are alive. Nothing here needs the ledger, or ever raises."""

import contextlib
import json
import os
import socket

FD, SOCKET, EVERY = "HOLDFAST_BEAT_FD", "HOLDFAST_BEAT_SOCKET", "HOLDFAST_BEAT_EVERY"


def is_supervised() -> bool:
    """Whether there is somebody to tell."""
    return bool(os.environ.get(SOCKET) or os.environ.get(FD))


def every_s() -> float:
    """How often a beat is wanted, in seconds: three fit into what counts as silence."""
    try:
        return max(0.01, float(os.environ.get(EVERY, "")))
    except ValueError:
        return 20.0


def beat(*, stage: str | None = None, progress: int | None = None) -> bool:
    """One beat, and how far the program has come. Never waits; False where nobody was reached."""
    told = {name: value for name, value in (("stage", stage), ("progress", progress)) if value is not None}
    line = json.dumps(told).encode() if told else b""
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
