"""Commands as processes of their own that need not read the program first: each is forked from one that has read it.

A command is what `python -m holdfast` does, from its arguments to its exit code, with its own environment, folder and streams.
Only what Python itself takes from the environment at its start is not: a test that changes that starts a new program.
"""

import atexit
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

REQUEST_BYTES_MAX = 4_194_304


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Nursery:
    """One process that all commands of a test session are forked from."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            program = [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())]
            self._process = subprocess.Popen(program, pass_fds=[theirs.fileno()])

    def run(self, arguments: list[str], folder: Path, env: dict[str, str], stdin: str | None, timeout_s: float) -> Ended:
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            given.write(stdin or "")
            given.seek(0)
            request = json.dumps({"arguments": arguments, "folder": str(folder), "env": env}).encode()
            self._ours.settimeout(timeout_s)
            header = len(request).to_bytes(4)
            socket.send_fds(self._ours, [header], [given.fileno(), out.fileno(), err.fileno()])
            self._ours.sendall(request)
            answer = self._ours.recv(4)
            assert answer, "the process that commands are forked from has ended"
            said = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read())
            return Ended(int.from_bytes(answer, signed=True), *said)

    def close(self) -> None:
        self._ours.close()
        self._process.wait(30)


def _serve(line: socket.socket) -> dict[str, Any] | None:
    """In each child: what it is to do, with its streams in place. In the parent: None, once no further command is requested."""
    while True:
        header, fds, _, _ = socket.recv_fds(line, 4, 3)
        if not header:
            return None
        size, body = int.from_bytes(header), b""
        while len(body) < size:
            body += line.recv(size - len(body))
        child = os.fork()
        if child == 0:
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
                os.close(fd)
            line.close()
            request: dict[str, Any] = json.loads(body)
            return request
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(child, 0)
        line.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def _preload() -> None:
    """What commands read when they are asked for it."""
    import importlib

    import click

    from holdfast.cli import main

    for name in (
        "agent",
        "ledger",
        "mcp.http",
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


def _run(wanted: dict[str, Any]) -> int:
    """Run the command as `python -m holdfast` does. Returns its exit code, or raises what it did not catch."""
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv = ["holdfast", *wanted["arguments"]]
    sys.path[0] = ""
    try:
        runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
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
        # What Python does at its end, but for freeing what was read before the fork.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
