"""Python programs as processes that do not import Holdfast first: each is forked from a server that has imported it.

A program behaves like `python -m module`, with its own arguments, environment, folder, streams and exit code. Variables
that Python reads when it starts are those of the server: `popen` and `run` start a new interpreter if a test changes
them.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PYTHONS_OWN = ("PYTHON", "LC_", "LANG")
"""Beginnings of the names of the variables that Python reads when it starts."""
PR_SET_CHILD_SUBREAPER = 36
_SEARCHED = [str(ROOT / "src"), str(ROOT)]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def popen(command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> "subprocess.Popen[str]":
    """Start a command as `subprocess.Popen` does, in text mode. Fork it if it is a Python module and that makes no difference.

    The options are the streams, `cwd` and `start_new_session`. The process is a child of this one in both cases.
    """
    environment = dict(os.environ if env is None else env)
    if sys.platform == "linux" and list(command[:2]) == [sys.executable, "-m"] and _starts_alike(environment):
        return _Forked(list(command), env=environment, text=True, **options)
    return subprocess.Popen(list(command), env=environment, text=True, **options)


def run(command: Sequence[str], folder: Path, env: Mapping[str, str], *, stdin: str = "", timeout_s: float = 120.0) -> Ended:
    """Run a Python module to its end, as `python -m` does."""
    if not _starts_alike(env):
        done = subprocess.run(
            command, cwd=folder, env=env, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
        )
        return Ended(done.returncode, done.stdout, done.stderr)
    assert list(command[:2]) == [sys.executable, "-m"]
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        given.write(stdin)
        given.seek(0)
        fds = [given.fileno(), out.fileno(), err.fileno()]
        with server().ask(command[2:], folder, env, fds) as line:
            line.settimeout(timeout_s)
            answer = line.recv(4)
        assert answer, "the server that programs are forked from has ended"
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read())
        return Ended(int.from_bytes(answer, signed=True), *said)


def shell_command(module: str) -> str:
    """Words for a shell that run a module as `python -m` does. It ends with the process that the shell starts for it."""
    client = Path(__file__).with_name("forked_client.py")
    return shlex.join([sys.executable, "-I", "-S", str(client), server().address, module])


def _starts_alike(env: Mapping[str, str]) -> bool:
    """Whether a new interpreter with this environment would start as the server did."""

    def read(found: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in found.items() if value and name.startswith(PYTHONS_OWN) and name != "PYTHONPATH"}

    return read(env) == read(os.environ) and _path(env) <= {*_path(os.environ), *_SEARCHED}


def _path(env: Mapping[str, str]) -> set[str]:
    return set(filter(None, env.get("PYTHONPATH", "").split(os.pathsep)))


class _Forked(subprocess.Popen[str]):
    """A process that the server has forked. Its parent has ended, and this process has adopted it."""

    # The signature is that of the method of `subprocess.Popen`, which starts the child.
    def _execute_child(
        self,
        args: list[str],
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Any,
        cwd: Path | None,
        env: dict[str, str],
        startupinfo: Any,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: bool,
        gid: Any,
        gids: Any,
        uid: Any,
        umask: int,
        start_new_session: bool,
        process_group: int,
    ) -> None:
        assert not (preexec_fn or pass_fds or shell) and (gid, gids, uid, umask, process_group) == (None, None, None, -1, -1)
        given = [own if fd == -1 else fd for own, fd in enumerate([p2cread, c2pwrite, errwrite])]
        with _adopting():
            session = {"new_session": start_new_session, "detached": True}
            with server().ask(args[2:], cwd or Path.cwd(), env, given, **session) as line:
                answer = line.recv(4)
            assert answer, "the server that programs are forked from has ended"
            self.pid = int.from_bytes(answer)
            # Fails if it is not a child of this process.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


_ADOPTION = threading.Lock()


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of descendants that lose theirs meanwhile."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with _ADOPTION:
        assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        try:
            yield
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class ForkServer:
    """One process that the programs of a test session are forked from. It ends with this process, however that ends."""

    def __init__(self) -> None:
        self.address = str(Path(tempfile.mkdtemp(prefix="hf-fork-")) / "socket")
        paths = os.pathsep.join([*_SEARCHED, *filter(None, [os.environ.get("PYTHONPATH")])])
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(128)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(listener.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )
        atexit.register(self.close)

    def ask(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str], fds: Sequence[int], **options: bool
    ) -> socket.socket:
        """Request a program: the name of a module and its arguments. Return the socket on which the server answers.

        The answer is the exit code. For a detached program it is the process id. A program that is not detached is killed when
        the socket is closed.
        """
        request = {"words": list(words), "folder": str(folder), "env": dict(env), **options}
        body = json.dumps(request).encode()
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(self.address)
            socket.send_fds(line, [len(body).to_bytes(4)], fds)
            line.sendall(body)
        except BaseException:
            line.close()
            raise
        return line

    def close(self) -> None:
        self._process.communicate(timeout=30)


@functools.cache
def server() -> ForkServer:
    """The server of this process, started when it is first needed."""
    return ForkServer()


# Code of the server and its children


class _Request(NamedTuple):
    line: socket.socket
    """Where the answer goes."""
    fds: list[int]
    """The streams."""
    body: dict[str, Any]


def _serve(listener: socket.socket) -> dict[str, Any] | None:
    """Serve requests. Return the request in the process of each program, and None in the server when it must end."""
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno())
    lines: dict[int, socket.socket] = {}
    """Where the end of each program is awaited, by its process id."""
    while True:
        inputs: list[socket.socket | int] = [listener, 0, woken, *lines.values()]
        ready, _, _ = select.select(inputs, [], [])
        for program in [program for program, line in lines.items() if line in ready or 0 in ready]:
            os.kill(program, signal.SIGKILL)
            lines.pop(program).close()
        if 0 in ready:
            shutil.rmtree(Path(listener.getsockname()).parent)
            return None
        if woken in ready:
            woken.recv(64)
            _reap(lines)
        if listener in ready and (request := _accept(listener)):
            program = os.fork()
            if program == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (listener, woken, wakes, *lines.values()):
                    other.close()
                return _begin(request)
            for fd in request.fds:
                os.close(fd)
            if request.body.get("detached", False):
                request.line.close()
            else:
                lines[program] = request.line


def _accept(listener: socket.socket) -> _Request | None:
    """Read the next request. Returns None if the client has ended meanwhile."""
    line, _ = listener.accept()
    header, fds, _, _ = socket.recv_fds(line, 4, 3)
    try:
        with line.makefile("rb") as stream:
            return _Request(line, fds, json.loads(stream.read(int.from_bytes(header))))
    except (OSError, ValueError):
        line.close()
        for fd in fds:
            os.close(fd)
        return None


def _reap(lines: dict[int, socket.socket]) -> None:
    """Send the exit codes of the programs that have ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if line := lines.pop(ended[0], None):
                with line, contextlib.suppress(OSError):
                    line.sendall(os.waitstatus_to_exitcode(ended[1]).to_bytes(4, signed=True))


def _begin(request: _Request) -> dict[str, Any]:
    """In the process of a program: put the streams in place. A detached program goes on in a child, once it is adopted."""
    line, fds, body = request
    detached, parent = body.get("detached", False), os.getpid()
    if detached and os.fork():
        os._exit(0)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if body.get("new_session", False):
        os.setsid()
    if detached:
        while os.getppid() == parent:
            time.sleep(0.0002)
        line.sendall(os.getpid().to_bytes(4))
    line.close()
    return body


def _preload() -> None:
    """Import modules that programs import later."""
    import click

    from holdfast.cli import main

    for name in (
        "agent",
        "ledger",
        "mcp.stdio",
        "store.postgres",
        "store.sqlite",
        "supervise",
        "proof.verify",
        "worker",
    ):
        importlib.import_module(f"holdfast.{name}")
    with click.Context(main) as context:
        for noun in main.list_commands(context):
            main.get_command(context, noun)


def _run(request: dict[str, Any]) -> int:
    """Run the program as `python -m` does. Return its exit code, or raise its uncaught exception."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    module, *arguments = request["words"]
    sys.argv = [module, *arguments]
    sys.path[0] = str(Path.cwd())
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        raise
    return 0


if __name__ == "__main__":
    _preload()
    # The collector of a child would write to every object, and so copy the memory of its parent.
    gc.freeze()
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        code = _run(wanted)
        # The exit of Python, without freeing modules that were imported before the fork.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
