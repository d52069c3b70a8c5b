"""The supervisor's side of a keeper process: one start of the command."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from holdfast.supervise import keeper

READ_BYTES = 1 << 12
KEEPER_SECONDS = 2.0
"""What a keeper may take for an order, beyond the grace, before its supervisor looks whether it can do anything at all."""


class CommandProcess:
    """The command, from its start until nothing of it is left. `read_messages` is to be called whenever its socket can be read.

    What is orphaned below this process is taken for a part of it, but for the `preexisting`.
    """

    def __init__(
        self,
        command: Sequence[str],
        grace_s: float,
        env: Mapping[str, str],
        *,
        beat_fd: int,
        preexisting: frozenset[int],
        streams: tuple[int | None, int | None, int | None] = (None, None, None),
    ) -> None:
        """`beat_fd` is the pipe for beats.

        `streams` are its standard input, output and error, where they are not this process's."""
        self.pid: int | None = None
        self.errno = 0
        """Why it could not be started."""
        self.exit_code: int | None = None
        """Negative for a signal. None too where the keeper was killed and cannot say."""
        self.has_ended = False
        """Nothing of it is left."""
        self.channel, theirs = socket.socketpair()
        self._buffer = b""
        self._preexisting = preexisting
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - a file of this very package
                [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno()), str(beat_fd), str(grace_s), *command],
                pass_fds=[theirs.fileno(), beat_fd],
                start_new_session=True,
                env=env,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
            )

    def read_messages(self) -> None:
        try:
            chunk = self.channel.recv(READ_BYTES)
        except ConnectionResetError:
            chunk = b""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            match word:
                case b"started":
                    self.pid = int(number)
                case b"failed":
                    self.errno = int(number)
                case b"exited":
                    self.exit_code = int(number)
        if not chunk:
            self._wait_for_keeper()
            self.has_ended = True

    def signal(self, number: int) -> None:
        """To the command alone: its own children are its own business."""
        self._send(f"signal {number}")

    def stop(self, number: int) -> None:
        """To all of it; what has not ended when the grace is over is killed."""
        self._send(f"stop {number}")

    def kill(self) -> None:
        self._send("kill")

    def kill_stopped_keeper(self) -> None:
        """Kill a keeper that was stopped, and so obeys nobody. One that only waits for what cannot be killed is left to it."""
        if keeper.is_stopped(self._process.pid):
            self._process.kill()

    def _send(self, order: str) -> None:
        with contextlib.suppress(OSError):
            self.channel.sendall(order.encode() + b"\n")

    def close(self) -> None:
        """Whatever is left of it is killed."""
        self.channel.close()
        self._wait_for_keeper()

    def _wait_for_keeper(self) -> None:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KEEPER_SECONDS)
                break
            self.kill_stopped_keeper()
        _kill_orphans(self._preexisting)


def _kill_orphans(preexisting: frozenset[int]) -> None:
    """Usually there is nothing: only a keeper that was killed leaves something behind, and then it is below this process."""
    while found := keeper.descendants(os.getpid(), preexisting):
        signalled = [pid for pid in found if keeper.send_signal([pid], signal.SIGKILL)]
        if not signalled:
            return
        for pid in signalled:  # parents first: whose parent has ended is a child of this process
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
