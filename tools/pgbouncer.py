"""A real PgBouncer in transaction mode, for tests.

No wheel carries it, so the program is Debian's. One that is installed is taken. Else `program` downloads the package, with the
libraries of its own that the machine lacks, and unpacks it into the environment of this Python: apt-get can do that for any
user, and nothing is installed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tools.pgserver import HOST, free_port

PLACE = Path(sys.prefix) / "pgbouncer"
PLACES = ("/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin", str(PLACE / "usr/sbin"))
LIBRARIES = ("libevent", "libc-ares")
"""Prefixes of the names of packages that few machines have."""
FETCH_SECONDS = 300
START_SECONDS = 30
HELP = "PgBouncer is needed: install it (apt-get install pgbouncer, brew install pgbouncer), so that it is in PATH"

# Runs a program, reloads it for each line of input, and kills it when the input ends. The input ends with the process
# at the other end, however that process ends.
KEEPER = """
"$@" &
while read -r _; do kill -HUP $!; done
kill -KILL $!
wait $!
"""

SETTINGS = """
[databases]
* = host={host} port={server_port}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
server_lifetime = 2
server_login_retry = 0.2
"""


def program() -> Path:
    """Return the program, and download it if it is missing. Raise RuntimeError with advice if that fails."""
    with _alone():
        found = _installed()
        if found is None:
            _fetch()
            found = _installed()
    if found is None:
        raise RuntimeError(HELP)
    return found


def _installed() -> Path | None:
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    return None if found is None else Path(found)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time fetches it."""
    with Path(sys.prefix, ".pgbouncer.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise RuntimeError(HELP)
    with tempfile.TemporaryDirectory() as folder:
        options = _download(["pgbouncer"], folder, [])
        [package] = Path(folder).glob("pgbouncer_*.deb")
        needs = _run(["dpkg-deb", "-f", str(package), "Depends"], folder).replace("|", ",").split(",")
        _download([name for need in needs if (name := need.split()[0]).startswith(LIBRARIES)], folder, options)
        unpacked = Path(folder, "unpacked")
        for found in Path(folder).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(found), str(unpacked)], folder)
        shutil.copytree(unpacked, PLACE, symlinks=True, dirs_exist_ok=True)


def _download(names: Sequence[str], folder: str, options: list[str]) -> list[str]:
    """Return the options that were needed: without package lists on this machine, they are downloaded into the folder."""
    try:
        _run(["apt-get", *options, "download", *names], folder)
    except RuntimeError:
        if options:
            raise
        options = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache", "-o", "Debug::NoLocking=1"]
        Path(folder, "lists/partial").mkdir(parents=True)
        Path(folder, "cache/archives/partial").mkdir(parents=True)
        _run(["apt-get", *options, "update"], folder)
        _run(["apt-get", *options, "download", *names], folder)
    return options


def _run(command: Sequence[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{HELP}. {command[0]} said: {done.stderr.strip()}")
    return done.stdout


class PgBouncer:
    """One PgBouncer in front of a PostgreSQL server, on its own port, from `create` to `close`.

    Server connections live for two seconds, so that a client meets several sessions.
    """

    def __init__(self, server_port: int, *, pool_size: int) -> None:
        self.port = free_port()
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self._home.chmod(0o755)
        self._settings, self._pool_size = self._home / "settings", pool_size
        (self._home / "users").write_text('"postgres" ""\n')
        self._write(server_port)
        self._process: subprocess.Popen[bytes] | None = None

    def _write(self, server_port: int) -> None:
        values = {"port": self.port, "server_port": server_port, "pool_size": self._pool_size}
        self._settings.write_text(SETTINGS.format(host=HOST, users=self._home / "users", **values))

    @classmethod
    def create(cls, server_port: int, *, pool_size: int = 4) -> Self:
        """Started."""
        made = cls(server_port, pool_size=pool_size)
        try:
            made.start()
        except BaseException:
            made.close()
            raise
        return made

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def start(self) -> None:
        """Return once it passes statements on."""
        found = program()
        libraries = [str(path.parent) for path in (PLACE / "usr/lib").glob("*/*.so*")]
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(dict.fromkeys(libraries))}
        user = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, "sh", str(found), *user, str(self._settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = (self._home / "log").read_text(errors="replace")
                    raise RuntimeError(f"PgBouncer does not answer: {error}\n{said}") from None
            else:
                return
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def lead_to(self, server_port: int) -> None:
        """Pass further transactions on to another server; no client's connection is closed."""
        assert self._process is not None and self._process.stdin is not None
        self._write(server_port)
        self._process.stdin.write(b"reload\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
