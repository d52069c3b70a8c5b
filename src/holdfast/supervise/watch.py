"""What is known of one start of the command: since when it runs, and when it was last heard."""

import enum
import errno

from holdfast.supervise.ears import Heard


class Why(enum.Enum):
    """What the supervisor has decided about a child that still runs."""

    STALL = "stall"
    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    LOST = "lost"
    SUPERSEDED = "superseded"


class Watch:
    def __init__(self, tick: int, *, from_start: bool) -> None:
        self.started_tick = tick
        self._from_start = from_start
        self.beaten_tick: int | None = None
        self._excused_tick = 0
        self.beats = 0
        self.said = Heard()
        self.why: Why | None = None

    def hear(self, tick: int, heard: Heard) -> bool:
        """Whether that is news: another stage, or other progress."""
        self.beaten_tick = tick
        self.beats += 1
        before = self.said
        self.said = Heard(heard.stage or before.stage, before.progress if heard.progress is None else heard.progress)
        return self.said != before

    @property
    def silent_since(self) -> int | None:
        """From when its silence counts; None for a program that has not beaten and need not."""
        if self.beaten_tick is None and not self._from_start:
            return None
        return max(self.beaten_tick or self.started_tick, self._excused_tick)

    def excuse(self, tick: int) -> None:
        """Nobody has listened until now: there is a fresh interval."""
        self._excused_tick = tick

    def describe(self) -> str | None:
        """What it last said of itself."""
        told = [f"stage {self.said.stage}"] if self.said.stage is not None else []
        told += [f"progress {self.said.progress}"] if self.said.progress is not None else []
        return ", ".join(told) or None


_NOT_FOUND = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NOT_EXECUTABLE = {errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.EINVAL, errno.E2BIG}


def shell_code(number: int) -> int | None:
    """What a shell would exit with where a command cannot be started, and never will be; None where another try may do."""
    if number in _NOT_FOUND:
        return 127
    return 126 if number in _NOT_EXECUTABLE else None
