"""Standard error of this process: written to only while that does not block."""

import contextlib
import select
import sys


class Outlet:
    """Keeps what a reader that has stopped reading leaves no room for."""

    def __init__(self) -> None:
        self._left = b""

    @property
    def is_full(self) -> bool:
        """Something is kept."""
        return bool(self._left)

    def write(self, chunk: bytes) -> None:
        self._left += chunk
        self.flush()

    def flush(self) -> None:
        """Write what there is room for. A reader that is gone reads nothing, and keeps nothing waiting."""
        while self._left and is_ready():
            piece, self._left = self._left[: select.PIPE_BUF], self._left[select.PIPE_BUF :]
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(piece)
                sys.stderr.buffer.flush()

    def drop(self) -> None:
        self._left = b""


def is_ready() -> bool:
    """Whether standard error takes `PIPE_BUF` bytes at once, which is what a pipe that can be written to has room for."""
    found = select.poll()
    try:
        found.register(sys.stderr.fileno(), select.POLLOUT)
    except OSError:  # no file at all: a write does not block
        return True
    return bool(found.poll(0))
