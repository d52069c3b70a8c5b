"""The supervisor's side of a keeper process: one start of the command."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from holdfast.supervise import keeper
from holdfast.supervise.event_loop import Timers

READ_BYTES = 1 << 12
KEEPER_SECONDS = 2.0
"""How long a keeper may take for an order, beyond the grace, before its supervisor checks whether it is stopped."""


class CommandProcess:
    """The command, from its start until none of its processes is left. Call `read_messages` when `channel` is readable.

    Orphans below this process count as part of the command, except the `preexisting` processes.
    """

    def __init__(
        self,
        command: Sequence[str],
        grace_s: float,
        env: Mapping[str, str],
        *,
        timers: Timers,
        beat_fd: int,
        preexisting: frozenset[int],
        streams: tuple[int | None, int | None, int | None] = (None, None, None),
    ) -> None:
        """`beat_fd` is the heartbeat pipe. A keeper that carries out no order is looked at by one of `timers`.

        `streams` are the command's standard input, output and error; None stands for this process's stream."""
        self.pid: int | None = None
        self.errno = 0
        """Why the command could not be started."""
        self.exit_code: int | None = None
        """Negative for a signal. Also None if the keeper was killed and could not report it."""
        self.has_ended = False
        """No process of the command is left."""
        self.channel, theirs = socket.socketpair()
        self._buffer = b""
        self._grace_s, self._timers = grace_s, timers
        self._preexisting = preexisting
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - a file of this package
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
        """Send a signal to the command alone, not to its children."""
        self._send(f"signal {number}")

    def stop(self, number: int) -> None:
        """Send a signal to all processes of the command. Those that are left after the grace are killed."""
        self._send(f"stop {number}")
        self._timers.call_later(self._grace_s + KEEPER_SECONDS, self._check_keeper)

    def kill(self) -> None:
        self._send("kill")
        self._timers.call_later(KEEPER_SECONDS, self._check_keeper)

    def _check_keeper(self) -> None:
        self._kill_stopped_keeper()
        self._timers.call_later(KEEPER_SECONDS, self._check_keeper)

    def _kill_stopped_keeper(self) -> None:
        """Kill a keeper that was stopped: it cannot carry out orders. A keeper that waits for its processes is not killed."""
        if keeper.is_stopped(self._process.pid):
            self._process.kill()

    def _send(self, order: str) -> None:
        with contextlib.suppress(OSError):
            self.channel.sendall(order.encode() + b"\n")

    def close(self) -> None:
        """Kill the processes of the command that are left."""
        self._timers.cancel(self._check_keeper)
        self.channel.close()
        self._wait_for_keeper()

    def _wait_for_keeper(self) -> None:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KEEPER_SECONDS)
                break
            self._kill_stopped_keeper()
        _kill_orphans(self._preexisting)


def _kill_orphans(preexisting: frozenset[int]) -> None:
    """Kill processes that a killed keeper has left behind; they are below this process. Usually there are none."""
    while orphans := keeper.descendants(os.getpid(), preexisting):
        signalled = [pid for pid in orphans if keeper.send_signal([pid], signal.SIGKILL)]
        if not signalled:
            return
        for pid in signalled:  # parents first: when a parent has ended, its children become children of this process
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
