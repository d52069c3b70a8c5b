"""The keeper: a small process between a supervisor and its command. No process of the command outlives it or the supervisor.

It runs as a script, by its path and with the standard library alone, so that it starts quickly and needs little memory.
Its arguments are the descriptors of a socket to the supervisor and of the heartbeat pipe, the grace in seconds, and the command.

It reads lines: `signal N` signals the command itself, `stop N` signals its whole tree and kills it after the grace, and `kill`
kills the tree. The end of the socket means that the supervisor has ended, and counts as `kill`. It writes `started PID` or
`failed ERRNO`, then `exited CODE`, and ends when no process is left that it can end.

On Linux every orphan below the keeper becomes its child, however it was forked, so none can escape. On other systems the keeper
knows only the command's process group.

The command may stop the keeper (SIGSTOP). Its supervisor kills it then. If the supervisor dies first, the kernel continues it.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
KILL_INTERVAL_SECONDS = 0.05
"""How often the tree is killed again until it is gone, because it may have forked meanwhile."""
READ_BYTES = 1 << 12
BEAT_FD = 3
"""The command's descriptor of the heartbeat pipe. A plain shell cannot write to a descriptor above 9."""
_SHIELDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM]
"""Signals that may be sent to all processes at once. The keeper ignores them, because it has to end the command first."""
_IGNORED = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python ignores. The command gets their default actions back."""


def adopt_orphans() -> None:
    """Make orphans below this process its children. Only on Linux."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def continue_when_parent_dies() -> None:
    """Have the kernel continue this process when its parent ends, if it was stopped. Only on Linux."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _stat(pid: str) -> tuple[bytes, int]:
    """Return a process's state and its parent."""
    with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - the keeper starts without pathlib
        state, parent = stat.read().rpartition(b")")[2].split()[:2]
    return state, int(parent)


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a tracer has stopped the process. Return False without /proc."""
    with contextlib.suppress(OSError):
        return _stat(str(pid))[0] in (b"T", b"t")
    return False


def descendants(root: int, excluded: frozenset[int] = frozenset()) -> list[int]:
    """Return the live descendants of a process, parents first, without `excluded` and their descendants; [] without /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if _LINUX else []:  # noqa: PTH208 - the keeper starts without pathlib
        if name.isdigit() and int(name) not in excluded:
            with contextlib.suppress(OSError):
                state, parent = _stat(name)
                if state not in (b"Z", b"X"):
                    children.setdefault(parent, []).append(int(name))
    pids = list(children.get(root, ()))
    for pid in pids:
        pids += children.get(pid, ())
    return pids


def send_signal(pids: list[int], number: int) -> bool:
    """Send a signal to each process. Return whether any was signalled. Some may have ended or belong to another user."""
    signalled = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            signalled = True
    return signalled


class KeptCommand:
    """The command, in its own session."""

    def __init__(self, argv: list[str], beat_fd: int) -> None:
        self.errno = 0
        ignored = [number for number in _SHIELDED if signal.signal(number, signal.SIG_IGN) is signal.SIG_IGN]
        ours, theirs = os.pipe()
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                theirs = os.dup(theirs)  # it may be at BEAT_FD, which is replaced next
                os.dup2(beat_fd, BEAT_FD)
                os.set_inheritable(BEAT_FD, True)
                self._exec(argv, keeper, ignored)
            except OSError as error:
                os.write(theirs, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(theirs)
        self.errno = int(os.read(ours, 16) or 0)
        os.close(ours)

    @staticmethod
    def _exec(argv: list[str], keeper: int, ignored: list[signal.Signals]) -> None:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)
        for number in {*_SHIELDED, *_IGNORED} - {*ignored}:
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606 - runs the command that the user gave

    def signal_all(self, number: int) -> bool:
        """Signal all processes below the keeper, or the command's group without /proc. Return whether there were any."""
        if _LINUX:
            return send_signal(descendants(os.getpid()), number)
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Keeper:
    def __init__(self, channel: int, beat_fd: int, grace_s: float, argv: list[str]) -> None:
        self._channel = channel
        self._grace_s = grace_s
        self._buffer = b""
        self._running = True
        self._is_done = False
        """No process that the keeper can end is left below it."""
        self._kill_at: float | None = None
        """When the remaining processes are killed. They got a signal to stop before."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        os.set_blocking(theirs, False)
        self._wakeup_fd = ours
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._command = KeptCommand(argv, beat_fd)

    def run(self) -> None:
        if self._command.errno:
            os.waitpid(self._command.pid, 0)
            self._send(f"failed {self._command.errno}")
            return
        self._send(f"started {self._command.pid}")
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wakeup_fd, select.POLLIN)
        while not self._is_done:
            ready = dict(poll.poll(self._poll_timeout_ms()))
            if self._wakeup_fd in ready:
                os.read(self._wakeup_fd, READ_BYTES)
            if self._channel in ready and not self._read_orders():
                poll.unregister(self._channel)
            self._reap()
            if not self._is_done:
                self._end_remaining()

    def _poll_timeout_ms(self) -> float | None:
        if self._kill_at is None:
            return None
        return max(KILL_INTERVAL_SECONDS, self._kill_at - time.monotonic()) * 1_000

    def _read_orders(self) -> bool:
        """Carry out the supervisor's orders. Return False if the supervisor has ended."""
        try:
            chunk = os.read(self._channel, READ_BYTES)
        except ConnectionResetError:
            chunk = b""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"signal" and self._running:  # its pid cannot be reused before it is reaped
                send_signal([self._command.pid], int(number))
            elif word == b"stop":
                self._stop(int(number))
            elif word == b"kill":
                self._kill_at = float("-inf")
        if not chunk:
            self._kill_at = float("-inf")
        return bool(chunk)

    def _stop(self, number: int) -> None:
        self._command.signal_all(number)
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if reaped[0] == self._command.pid:
                    self._running = False
                    self._send(f"exited {os.waitstatus_to_exitcode(reaped[1])}")
            return
        self._is_done = _LINUX or not self._command.signal_all(0)

    def _end_remaining(self) -> None:
        """Stop the processes that the command has left behind, and kill the whole tree when the grace is over.

        A process of another user cannot be killed. If only such processes are left, the keeper is done.
        """
        if not self._running and self._kill_at is None:
            self._stop(signal.SIGTERM)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            signalled = self._command.signal_all(signal.SIGKILL)
            self._is_done = not self._running and not signalled and bool(descendants(os.getpid()))

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._channel, line.encode() + b"\n")


def main() -> None:
    channel, beat_fd, grace_s, *argv = sys.argv[1:]
    for descriptor in (channel, beat_fd):
        os.set_inheritable(int(descriptor), False)
    continue_when_parent_dies()
    adopt_orphans()
    Keeper(int(channel), int(beat_fd), float(grace_s), argv).run()


if __name__ == "__main__":
    main()
