"""Heartbeats of a supervised program: how they are received, and what they say about it."""

import contextlib
import enum
import errno
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
from holdfast.ledger import validate
from holdfast.supervise.keeper import BEAT_FD

LINE_BYTES_MAX = limits.CHECKPOINT_BYTES_MAX + 4_096
"""Of a longer line nothing is read: it is a beat all the same."""
_READS_MAX = 64
"""How often a pipe or socket is read to empty it: more than either holds."""
_PIPE_BYTES = 1 << 16
_PATH_BYTES_MAX = 100
"""What a socket's path may have on every system."""
_FALLBACK_FOLDER = "/tmp"  # noqa: S108 - only a folder in it that is nobody else's is used
"""Where there is always a path that is short enough."""


class ReceivedHeartbeat(msgspec.Struct, frozen=True):
    """One beat, and what it said. A checkpoint is JSON, unread."""

    stage: str | None = None
    progress: int | None = None
    checkpoint: Any = UNSET
    refused: str | None = None
    """Why a part of it is left out."""

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of a heartbeat."""
        given = {"stage": self.stage, "progress": self.progress, "checkpoint": self.checkpoint}
        return {name: value for name, value in given.items() if value is not None and value is not UNSET}


_PLAIN_HEARTBEAT = ReceivedHeartbeat()
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse_heartbeat(line: bytes) -> ReceivedHeartbeat:
    """Any of stage, progress and checkpoint, as a JSON object. Any other line is a plain beat."""
    if not line.startswith(b"{"):
        return _PLAIN_HEARTBEAT
    if len(line) > LINE_BYTES_MAX:
        return ReceivedHeartbeat(refused=f"the line is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ReceivedHeartbeat(refused="the line is not JSON")
    told: dict[str, Any] = {}
    refused = None
    for name, given in found.items():
        if name in ("stage", "progress", "checkpoint"):
            try:
                value = given if name == "checkpoint" else msgspec.json.decode(given)
                validate.beat(**{"stage": None, "progress": None, "assist_requested": None, name: value})
                told[name] = value
            except HoldfastError as error:
                refused = error.message
            except (msgspec.MsgspecError, ValueError, RecursionError):
                refused = f"{name} is not JSON"
        else:
            refused = f"{name[:50]} is none of stage, progress and checkpoint"
    return ReceivedHeartbeat(**told, refused=refused)


class HeartbeatListener:
    """`on_heartbeat` is called with each beat, in the thread that selects."""

    def __init__(self, run: str, on_heartbeat: Callable[[ReceivedHeartbeat], None]) -> None:
        self._on_heartbeat = on_heartbeat
        self._pipe, self.write_fd = os.pipe()
        os.set_blocking(self._pipe, False)
        self._line = b""
        path = _socket_path(run)
        self._is_temporary = path is None
        """Its folder is for this supervisor alone, and goes with it."""
        self.path = path or Path(tempfile.mkdtemp(prefix="holdfast-", dir=_FALLBACK_FOLDER)) / "beats"
        self.path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))

    def register(self, selector: selectors.BaseSelector) -> None:
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
            self._on_heartbeat(parse_heartbeat(line.strip()))
        return True

    def _read_datagram(self) -> bool:
        try:
            line = self._socket.recv(LINE_BYTES_MAX + 1)
        except BlockingIOError:
            return False
        self._on_heartbeat(parse_heartbeat(line.strip()))
        return True

    def read_remaining(self) -> None:
        """Hear all that has come, once the child has ended. What it wrote last is a line, with or without its end."""
        for read_once in (self._read_lines, self._read_datagram):
            for _ in range(_READS_MAX):
                if not read_once():
                    break
        if self._line:
            line, self._line = self._line, b""
            self._on_heartbeat(parse_heartbeat(line.strip()))

    def discard(self) -> None:
        """What the last child has said is no beat of the next one."""
        on_heartbeat, self._on_heartbeat = self._on_heartbeat, lambda _: None
        self.read_remaining()
        self._on_heartbeat = on_heartbeat

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)
        if self._is_temporary:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()
        os.close(self._pipe)
        os.close(self.write_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _socket_path(run: str) -> Path | None:
    """The same for every supervisor of a run, so that one that was killed leaves nothing that its successor does not mend.

    None where somebody else has every folder that could be it.
    """
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    for above in (os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), _FALLBACK_FOLDER):
        path = Path(above) / f"holdfast-{os.getuid()}" / name
        if len(os.fsencode(path)) <= _PATH_BYTES_MAX and _is_private(path.parent):
            return path
    return None


def _is_private(folder: Path) -> bool:
    """Whether it is there, made here if need be, and nobody else can put anything into it."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    return False


class StopReason(enum.Enum):
    """What the supervisor has decided about a child that still runs."""

    STALL = "stall"
    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"
    SUPERSEDED = "superseded"


class HeartbeatMonitor:
    def __init__(self, tick: int, *, from_start: bool) -> None:
        self.started_tick = tick
        self._from_start = from_start
        self.last_beat_tick: int | None = None
        self._silence_reset_tick = 0
        self.beats = 0
        self.reported = ReceivedHeartbeat()
        self.stop_reason: StopReason | None = None

    def record(self, tick: int, heard: ReceivedHeartbeat) -> bool:
        """Whether that is news: another stage, or other progress."""
        self.last_beat_tick = tick
        self.beats += 1
        before = self.reported
        self.reported = ReceivedHeartbeat(
            heard.stage or before.stage, before.progress if heard.progress is None else heard.progress
        )
        return self.reported != before

    @property
    def silent_since(self) -> int | None:
        """From when its silence counts; None for a program that has not beaten and need not."""
        if self.last_beat_tick is None and not self._from_start:
            return None
        return max(self.last_beat_tick or self.started_tick, self._silence_reset_tick)

    def reset_silence(self, tick: int) -> None:
        """Nobody has listened until now: there is a fresh interval."""
        self._silence_reset_tick = tick

    def describe(self) -> str | None:
        """What it last said of itself."""
        told = [f"stage {self.reported.stage}"] if self.reported.stage is not None else []
        told += [f"progress {self.reported.progress}"] if self.reported.progress is not None else []
        return ", ".join(told) or None


_NOT_FOUND = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NOT_EXECUTABLE = {errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.EINVAL, errno.E2BIG}


def shell_exit_code(number: int) -> int | None:
    """What a shell would exit with where a command cannot be started, and never will be; None where another try may do."""
    if number in _NOT_FOUND:
        return 127
    return 126 if number in _NOT_EXECUTABLE else None
