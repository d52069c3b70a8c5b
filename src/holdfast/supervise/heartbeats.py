"""Heartbeats of a supervised program: how they are received, and its state according to them."""

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
from holdfast.core.progress import read_progress
from holdfast.errors import HoldfastError
from holdfast.ledger import validate
from holdfast.supervise.event_loop import READS_MAX, InputPipe
from holdfast.supervise.keeper import BEAT_FD

LINE_BYTES_MAX = limits.CHECKPOINT_BYTES_MAX + 4_096
"""The content of a longer line is ignored, but it still counts as a heartbeat."""
_PATH_BYTES_MAX = 100
"""The length that a socket's path may have on every system."""
_FALLBACK_FOLDER = "/tmp"  # noqa: S108 - used only with a private folder in it
"""Paths in this folder are always short enough."""


class ReceivedHeartbeat(msgspec.Struct, frozen=True):
    """One heartbeat and its fields. The checkpoint is undecoded JSON."""

    stage: str | None = None
    progress: int | None = None
    checkpoint: Any = UNSET
    refused: str | None = None
    """Why a part of the heartbeat is ignored."""

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments for the ledger's heartbeat."""
        given = {"stage": self.stage, "progress": self.progress, "checkpoint": self.checkpoint}
        return {name: value for name, value in given.items() if value is not None and value is not UNSET}


_PLAIN_HEARTBEAT = ReceivedHeartbeat()
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse_heartbeat(line: bytes) -> ReceivedHeartbeat:
    """Parse a JSON object with any of stage, progress and checkpoint. Any other line is a plain heartbeat."""
    if not line.startswith(b"{"):
        return _PLAIN_HEARTBEAT
    if len(line) > LINE_BYTES_MAX:
        return ReceivedHeartbeat(refused=f"the line is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        given = _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ReceivedHeartbeat(refused="the line is not JSON")
    accepted: dict[str, Any] = {}
    refused = None
    for name, raw in given.items():
        if name in ("stage", "progress", "checkpoint"):
            try:
                value = raw if name == "checkpoint" else msgspec.json.decode(raw)
                if name == "progress":
                    value = value if (number := read_progress(value)) is None else number
                validate.beat(**{"stage": None, "progress": None, "assist_requested": None, name: value})
                accepted[name] = value
            except HoldfastError as error:
                refused = error.message
            except (msgspec.MsgspecError, ValueError, RecursionError):
                refused = f"{name} is not JSON"
        else:
            refused = f"{name[:50]} is none of stage, progress and checkpoint"
    return ReceivedHeartbeat(**accepted, refused=refused)


class HeartbeatListener:
    """Receives heartbeats on a pipe and a socket. `on_heartbeat` is called with each one, in the selector's thread."""

    def __init__(self, run: str, on_heartbeat: Callable[[ReceivedHeartbeat], None]) -> None:
        self._on_heartbeat = on_heartbeat
        self._pipe = InputPipe(self._on_lines)
        self.write_fd = self._pipe.write_fd
        self._line = b""
        path = _socket_path(run)
        self._is_temporary = path is None
        """The folder belongs to this supervisor alone and is removed with it."""
        self.path = path or Path(tempfile.mkdtemp(prefix="holdfast-", dir=_FALLBACK_FOLDER)) / "beats"
        self.path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))

    def register(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._pipe.read_fd, selectors.EVENT_READ, self._pipe.read)
        selector.register(self._socket, selectors.EVENT_READ, self._read_datagram)

    def environment(self) -> dict[str, str]:
        return {"HOLDFAST_BEAT_FD": str(BEAT_FD), "HOLDFAST_BEAT_SOCKET": str(self.path)}

    def _on_lines(self, chunk: bytes) -> None:
        *lines, rest = (self._line + chunk).split(b"\n")
        self._line = rest[: LINE_BYTES_MAX + 1]
        for line in lines:
            self._on_heartbeat(parse_heartbeat(line.strip()))

    def _read_datagram(self) -> bool:
        try:
            line = self._socket.recv(LINE_BYTES_MAX + 1)
        except BlockingIOError:
            return False
        self._on_heartbeat(parse_heartbeat(line.strip()))
        return True

    def read_remaining(self) -> None:
        """Read everything after the child has ended. Its last line needs no newline."""
        self._pipe.read_remaining()
        for _ in range(READS_MAX):
            if not self._read_datagram():
                break
        if self._line:
            line, self._line = self._line, b""
            self._on_heartbeat(parse_heartbeat(line.strip()))

    def discard(self) -> None:
        """Drop unread heartbeats, so that those of the last child do not count for the next one."""
        on_heartbeat, self._on_heartbeat = self._on_heartbeat, lambda _: None
        self.read_remaining()
        self._on_heartbeat = on_heartbeat

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)
        if self._is_temporary:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _socket_path(run: str) -> Path | None:
    """Return the socket's path. It is the same for every supervisor of a run, so that each one removes what a killed one left.

    Return None if every possible folder belongs to another user or is too long.
    """
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    for above in (os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), _FALLBACK_FOLDER):
        path = Path(above) / f"holdfast-{os.getuid()}" / name
        if len(os.fsencode(path)) <= _PATH_BYTES_MAX and _is_private(path.parent):
            return path
    return None


def _is_private(folder: Path) -> bool:
    """Create the folder if it is missing. Return whether only this user can write to it."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        return status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o077
    return False


class StopReason(enum.Enum):
    """Why the supervisor stops a child."""

    STALL = "stall"
    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"
    SUPERSEDED = "superseded"


class HeartbeatMonitor:
    """The heartbeats of one start of the command. With `from_start`, its silence counts before its first heartbeat too."""

    def __init__(self, tick: int, *, from_start: bool) -> None:
        self.started_tick = tick
        self._from_start = from_start
        self.last_beat_tick: int | None = None
        self._silence_reset_tick = 0
        self.beats = 0
        self.reported = ReceivedHeartbeat()
        self.stop_reason: StopReason | None = None

    def record(self, tick: int, heartbeat: ReceivedHeartbeat) -> bool:
        """Record a heartbeat. Return whether stage or progress has changed."""
        self.last_beat_tick = tick
        self.beats += 1
        before = self.reported
        self.reported = ReceivedHeartbeat(
            heartbeat.stage or before.stage, before.progress if heartbeat.progress is None else heartbeat.progress
        )
        return self.reported != before

    @property
    def silent_since(self) -> int | None:
        """The start of the time without heartbeats; None for a program that has sent none and need not."""
        if self.last_beat_tick is None and not self._from_start:
            return None
        return max(self.last_beat_tick or self.started_tick, self._silence_reset_tick)

    def reset_silence(self, tick: int) -> None:
        """Start a new interval, after a time in which the supervisor could not read heartbeats."""
        self._silence_reset_tick = tick

    def describe(self) -> str | None:
        """Return the last reported stage and progress as text."""
        parts = [f"stage {self.reported.stage}"] if self.reported.stage is not None else []
        parts += [f"progress {self.reported.progress}"] if self.reported.progress is not None else []
        return ", ".join(parts) or None


_NOT_FOUND = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NOT_EXECUTABLE = {errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.EINVAL, errno.E2BIG}


def shell_exit_code(number: int) -> int | None:
    """Return a shell's exit code for a command that can never be started; None if a retry may succeed."""
    if number in _NOT_FOUND:
        return 127
    return 126 if number in _NOT_EXECUTABLE else None
