"""`holdfast serve` as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 30.0


class Serving:
    """A server process."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, lines: list[str], port: int) -> None:
        self.process = process
        self.port = port or int(url.rpartition(":")[2])
        self.url = url
        self.lines = lines

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(
    folder: Path, *options: str, lines: int = 1, port: int = 0, db: str = "sqlite:///ledger.db", **variables: str
) -> Iterator[Serving]:
    """Run a server of a ledger, by default the one in this folder, and read this many lines of its output."""
    command = [sys.executable, "-m", "holdfast", "serve", "--db", db, "--port", str(port), *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")} | variables
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            said = [process.stdout.readline().strip() for _ in range(lines)]
            assert said[0].startswith("Serving "), (folder / "log").read_text()
            yield Serving(process, said[0].removeprefix("Serving "), said, port)
        finally:
            process.kill()
