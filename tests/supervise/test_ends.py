"""Every process that a program has started ends with it, and the program ends with its supervisor."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.cli.conftest import Running, command, environment
from tests.supervise.conftest import QUICK, Ended, Supervise, is_alive
from tests.support.waiting import wait_until

PYTHON = [sys.executable, "-S", "-c"]

LISTEN = """
import signal, sys
heard = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGQUIT, signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("ready", flush=True)
while True:
    number = signal.sigwait(heard)
    print(signal.Signals(number).name, flush=True)
    if number in (signal.SIGTERM, signal.SIGINT):
        sys.exit(int(sys.argv[1]))
"""

DEAF = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""

ESCAPE = """
import os, signal, sys, time
# Twice forked, in a session of its own, without its parent's descriptors or environment, and deaf. It writes once it is adopted.
if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.001)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        output = os.dup(1)
        os.closerange(3, output)
        os.write(output, b"%d\\n" % os.getpid())
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import signal; signal.pause()"], {})
    os._exit(0)
os.wait()
if sys.argv[1] == "stay":
    signal.pause()
"""

STOP_KEEPER = """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
print(os.getpid(), flush=True)
signal.pause()
"""


def test_signals_are_passed_on(supervise: Supervise) -> None:
    one = supervise("--", *PYTHON, LISTEN, 0)
    assert one.line() == "ready"
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGQUIT):
        one.signal(number)
        assert one.line() == number.name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_is_passed_on_and_ends_the_run(supervise: Supervise, url: str, number: signal.Signals) -> None:
    """The program is not started again, with any exit code."""
    one = supervise("--name", "web", "--json", "--", *PYTHON, LISTEN, 7)
    assert one.line() == "ready"
    one.signal(number)
    assert one.line() == number.name
    done = one.rest()
    assert (done.code, done.answer["data"]["reason"], done.answer["data"]["last_exit"]) == (0, "operator_shutdown", 7)
    with holdfast.open(url) as ledger:
        assert ledger.runs()[0].terminal_reason == "operator_shutdown"


def test_a_program_that_ignores_the_signal_is_killed_after_the_grace(supervise: Supervise) -> None:
    one = supervise("--grace", "10ms", "--json", "--", *PYTHON, DEAF)
    pid = int(one.line())
    one.signal()
    done = one.rest()
    assert (done.code, done.answer["data"]["last_exit"]) == (0, -signal.SIGKILL)
    assert not is_alive(pid)


def test_the_second_signal_ends_the_grace(supervise: Supervise) -> None:
    one = supervise("--grace", "1h", "--", *PYTHON, DEAF)
    pid = int(one.line())
    one.signal()
    one.logged("stopping")
    assert is_alive(pid)
    wait_until(lambda: dead_after_signal(one, pid))
    assert one.rest().code == 0


def dead_after_signal(one: Running, pid: int) -> bool:
    """Signal the supervisor and return whether the program is dead. A signal right after another is taken for a repetition."""
    one.signal()
    return not is_alive(pid)


def escaped(one: Running) -> int:
    pid = int(one.line())
    assert is_alive(pid)
    return pid


def test_processes_that_a_program_leaves_behind_end_with_it(ended: Ended) -> None:
    done = ended("--grace", "10ms", "--", *PYTHON, ESCAPE, "leave")
    assert done.code == 0
    assert not is_alive(int(done.out))


def test_a_double_fork_does_not_escape_a_stop(supervise: Supervise) -> None:
    one = supervise("--grace", "10ms", "--", *PYTHON, ESCAPE, "stay")
    pid = escaped(one)
    one.signal()
    assert one.rest().code == 0
    assert not is_alive(pid)


def test_nothing_survives_a_supervisor_that_is_killed(supervise: Supervise) -> None:
    one = supervise("--", *PYTHON, ESCAPE, "stay")
    pid = escaped(one)
    one.signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), what="the escaped process is dead")
    one.rest()


def test_nothing_survives_a_keeper_that_is_killed(supervise: Supervise) -> None:
    """The supervisor only knows that the program has ended, and starts it again."""
    one = supervise(*QUICK, "--", *PYTHON, ESCAPE, "stay")
    first = escaped(one)
    os.kill(parent_of(first), signal.SIGKILL)
    second = int(one.line())
    assert (is_alive(first), is_alive(second)) == (False, True)


def test_a_program_that_stops_its_keeper_is_still_ended(supervise: Supervise) -> None:
    one = supervise("--grace", "10ms", "--", *PYTHON, STOP_KEEPER)
    pid = int(one.line())
    one.signal()
    assert one.rest().code == 0
    assert not is_alive(pid)


def test_a_hanging_program_that_stopped_its_keeper_is_ended(ended: Ended) -> None:
    done = ended("--grace", "10ms", "--stall-timeout", "1s", "--max-restarts", 0, "--", *PYTHON, STOP_KEEPER)
    assert (done.code, is_alive(int(done.out))) == (1, False)
    assert "is not started again: stall_timeout" in done.err


def test_a_keeper_that_was_stopped_does_not_outlive_its_supervisor(supervise: Supervise) -> None:
    one = supervise("--", *PYTHON, STOP_KEEPER)
    pid = int(one.line())
    keeper = parent_of(pid)
    one.signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid) and not is_alive(keeper), what="program and keeper are dead")
    one.rest()


def test_processes_older_than_the_supervisor_are_not_ended(folder: Path, sockets: str) -> None:
    words = shlex.join(command("supervise", "--", "true"))
    shell = ["sh", "-c", f"sleep 1000 >&- 2>&- & echo $!; exec {words}"]
    done = subprocess.run(
        shell, cwd=folder, env=environment(XDG_RUNTIME_DIR=sockets), capture_output=True, text=True, check=True, timeout=120
    )
    pid = int(done.stdout)
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


# Programs that cannot be started


@pytest.mark.parametrize(("command", "code"), [("./nowhere", 127), ("nowhere", 127), ("./plain", 126), (".", 126)])
def test_a_program_that_cannot_be_started_has_the_exit_code_of_a_shell(
    ended: Ended, folder: Path, url: str, command: str, code: int
) -> None:
    (folder / "plain").write_text("#!/bin/sh\n")
    done = ended("--name", "web", "--json", "--", command)
    assert (done.code, done.answer["error_code"]) == (code, "unrecoverable_error")
    with holdfast.open(url) as ledger:
        [state] = ledger.runs()
        assert (state.terminal_reason, state.exit_code, state.restarts) == ("unrecoverable_error", code, 0)
    assert ended("--name", "web", "--", "true").code == 0


def test_a_program_starts_as_it_would_without_a_supervisor(ended: Ended) -> None:
    """The program has default signal handlers, no other open descriptors, and its own session."""
    program = (
        "import os, signal\n"
        "print([n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)"
        " if signal.getsignal(n) not in (signal.SIG_DFL, signal.default_int_handler) and n != signal.SIGPIPE])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "print(os.getsid(0) == os.getpid() == os.getpgid(0))\n"
        "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2 and os.path.exists(f'/proc/self/fd/{fd}'))"
        " == [int(os.environ['HOLDFAST_BEAT_FD'])])\n"
    )
    assert ended("--", *PYTHON, program).out.splitlines() == ["[]", "set()", "True", "True"]
