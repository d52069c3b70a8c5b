"""Where a supervised program is heard: lines on a pipe, and datagrams at a socket. Anything that comes is a beat."""

import contextlib
import hashlib
import os
import selectors
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from holdfast.core import limits
from holdfast.core.payloads import UNSET
from holdfast.errors import HoldfastError
from holdfast.ledger import admit
from holdfast.supervise.keeper import BEAT_FD

LINE_BYTES_MAX = limits.CHECKPOINT_BYTES_MAX + 4_096
"""Of a longer line nothing is read: it is a beat all the same."""
_READS_MAX = 64
"""How often a pipe or socket is read to empty it: more than either holds."""
_PIPE_BYTES = 1 << 16
_PATH_BYTES_MAX = 100
"""What a socket's path may have on every system."""
_SHORT = "/tmp"  # noqa: S108 - only a folder in it that is nobody else's is used
"""Where there is always a path that is short enough."""


class Heard(msgspec.Struct, frozen=True):
    """One beat, and what it said. A checkpoint is JSON, unread."""

    stage: str | None = None
    progress: int | None = None
    checkpoint: Any = UNSET
    refused: str | None = None
    """Why a part of it is left out."""

    @property
    def told(self) -> dict[str, Any]:
        """The arguments of a heartbeat."""
        given = {"stage": self.stage, "progress": self.progress, "checkpoint": self.checkpoint}
        return {name: value for name, value in given.items() if value is not None and value is not UNSET}


_PLAIN = Heard()
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(line: bytes) -> Heard:
    """Any of stage, progress and checkpoint, as a JSON object. Any other line is a plain beat."""
    if not line.startswith(b"{"):
        return _PLAIN
    if len(line) > LINE_BYTES_MAX:
        return Heard(refused=f"the line is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        found = _objects.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Heard(refused="the line is not JSON")
    told: dict[str, Any] = {}
    refused = None
    for name, given in found.items():
        if name in ("stage", "progress", "checkpoint"):
            try:
                value = given if name == "checkpoint" else msgspec.json.decode(given)
                admit.beat(**{"stage": None, "progress": None, "assist_requested": None, name: value})
                told[name] = value
            except HoldfastError as error:
                refused = error.message
            except (msgspec.MsgspecError, ValueError, RecursionError):
                refused = f"{name} is not JSON"
        else:
            refused = f"{name[:50]} is none of stage, progress and checkpoint"
    return Heard(**told, refused=refused)


class Ears:
    """`hear` is called with each beat, in the thread that selects."""

    def __init__(self, run: str, hear: Callable[[Heard], None]) -> None:
        self._hear = hear
        self._pipe, self.told = os.pipe()
        os.set_blocking(self._pipe, False)
        self._line = b""
        place = _place(run)
        self._passing = place is None
        """Its folder is for this supervisor alone, and goes with it."""
        self.path = place or Path(tempfile.mkdtemp(prefix="holdfast-", dir=_SHORT)) / "beats"
        self.path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))

    def join(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._pipe, selectors.EVENT_READ, self._read_lines)
        selector.register(self._socket, selectors.EVENT_READ, self._read_datagram)

    def environment(self) -> dict[str, str]:
        return {"HOLDFAST_BEAT_FD": str(BEAT_FD), "HOLDFAST_BEAT_SOCKET": str(self.path)}

    def _read_lines(self) -> bool:
        """Once: whoever beats without end must not keep everything else waiting. False where there was nothing."""
        try:
            chunk = os.read(self._pipe, _PIPE_BYTES)
        except BlockingIOError:
            return False
        *lines, rest = (self._line + chunk).split(b"\n")
        self._line = rest[: LINE_BYTES_MAX + 1]
        for line in lines:
            self._hear(read(line.strip()))
        return True

    def _read_datagram(self) -> bool:
        try:
            line = self._socket.recv(LINE_BYTES_MAX + 1)
        except BlockingIOError:
            return False
        self._hear(read(line.strip()))
        return True

    def catch_up(self) -> None:
        """Hear all that has come, once the child has ended. What it wrote last is a line, with or without its end."""
        for read_once in (self._read_lines, self._read_datagram):
            for _ in range(_READS_MAX):
                if not read_once():
                    break
        if self._line:
            line, self._line = self._line, b""
            self._hear(read(line.strip()))

    def drain(self) -> None:
        """What the last child has said is no beat of the next one."""
        hear, self._hear = self._hear, lambda _: None
        self.catch_up()
        self._hear = hear

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)
        if self._passing:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()
        os.close(self._pipe)
        os.close(self.told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place(run: str) -> Path | None:
    """The same for every supervisor of a run, so that one that was killed leaves nothing that its successor does not mend.

    None where somebody else has every folder that could be it.
    """
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    for above in (os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), _SHORT):
        path = Path(above) / f"holdfast-{os.getuid()}" / name
        if len(os.fsencode(path)) <= _PATH_BYTES_MAX and _is_ours(path.parent):
            return path
    return None


def _is_ours(folder: Path) -> bool:
    """Whether it is there, made here if need be, and nobody else can put anything into it."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    return False
