"""A real terminal for a program, and its screen for a test to read."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyte

from tests.support import forked

PATIENCE_SECONDS = 60.0


class Terminal:
    """Runs a command on a pty. The screen is pyte's."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str], *, lines: int = 40, columns: int = 120) -> None:
        self._ours, self._theirs = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        """All output, also what was overwritten."""
        self._set_size(lines, columns)
        self.settings = termios.tcgetattr(self._theirs)
        self._process = forked.popen(
            command, cwd=folder, env={**env, "TERM": "linux"}, stdin=self._theirs, stdout=self._theirs, stderr=self._theirs
        )

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        self.screen.resize(lines, columns)
        self._set_size(lines, columns)
        self._process.send_signal(signal.SIGWINCH)

    def _set_size(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, there: str | Callable[[str], Any]) -> None:
        """Wait until this text is on the screen, or this condition is true of it."""
        is_so = there if callable(there) else lambda text: there in text
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so(self.text):
            assert time.monotonic() < deadline, f"never seen: {there}\n{self.text}"
            self._read(0.2)

    def _read(self, timeout_s: float) -> None:
        if select.select([self._ours], [], [], timeout_s)[0]:
            piece = os.read(self._ours, 65_536)
            self.written += piece
            self._stream.feed(piece)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code. The last output is on the screen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.05)
        while select.select([self._ours], [], [], 0)[0]:
            self._read(0)
        return self._process.returncode

    def hang_up(self) -> int:
        """Close the terminal and return the exit code. The program gets no signal, because it is in the session of the test."""
        os.close(self._ours)
        self._ours = os.open(os.devnull, os.O_RDWR)
        return self._process.wait(PATIENCE_SECONDS)

    def is_restored(self) -> bool:
        """Whether the terminal echoes, reads whole lines and shows its cursor again."""
        return termios.tcgetattr(self._theirs) == self.settings and not self.screen.cursor.hidden

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)
