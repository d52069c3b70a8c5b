"""A supervisor's side of its keeper: one start of the command."""

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


class Child:
    """The command, from its start until nothing of it is left. `hear` is to be called whenever its socket can be read.

    What is orphaned below this process is taken for a part of it, but for the `strangers`.
    """

    def __init__(
        self,
        command: Sequence[str],
        grace_s: float,
        env: Mapping[str, str],
        *,
        told: int,
        strangers: frozenset[int],
        streams: tuple[int | None, int | None, int | None] = (None, None, None),
    ) -> None:
        """`told` is the pipe for beats. `streams` are its standard input, output and error, where they are not this process's."""
        self.pid: int | None = None
        self.errno = 0
        """Why it could not be started."""
        self.exit_code: int | None = None
        """Negative for a signal. None too where the keeper was killed and cannot say."""
        self.over = False
        """Nothing of it is left."""
        self.channel, theirs = socket.socketpair()
        self._unread = b""
        self._strangers = strangers
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - a file of this very package
                [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno()), str(told), str(grace_s), *command],
                pass_fds=[theirs.fileno(), told],
                start_new_session=True,
                env=env,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
            )

    def hear(self) -> None:
        try:
            chunk = self.channel.recv(READ_BYTES)
        except ConnectionResetError:
            chunk = b""
        *lines, self._unread = (self._unread + chunk).split(b"\n")
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
            self._bury()
            self.over = True

    def signal(self, number: int) -> None:
        """To the command alone: its own children are its own business."""
        self._tell(f"signal {number}")

    def stop(self, number: int) -> None:
        """To all of it; what has not ended when the grace is over is killed."""
        self._tell(f"stop {number}")

    def kill(self) -> None:
        self._tell("kill")

    def overrule(self) -> None:
        """Kill a keeper that was stopped, and so obeys nobody. One that only waits for what cannot be killed is left to it."""
        if keeper.is_stopped(self._process.pid):
            self._process.kill()

    def _tell(self, order: str) -> None:
        with contextlib.suppress(OSError):
            self.channel.sendall(order.encode() + b"\n")

    def close(self) -> None:
        """Whatever is left of it is killed."""
        self.channel.close()
        self._bury()

    def _bury(self) -> None:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KEEPER_SECONDS)
                break
            self.overrule()
        _sweep_up(self._strangers)


def _sweep_up(strangers: frozenset[int]) -> None:
    """Usually there is nothing: only a keeper that was killed leaves something behind, and then it is below this process."""
    while found := keeper.descendants(os.getpid(), strangers):
        struck = [pid for pid in found if keeper.strike([pid], signal.SIGKILL)]
        if not struck:
            return
        for pid in struck:  # parents first: whose parent has ended is a child of this process
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
