"""A real PgBouncer in transaction mode, for tests.

No wheel carries it, so the program is Debian's: the installed one, or one that is downloaded.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tools import debian
from tools.pgserver import HOST, free_port

PLACES = ("/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin", str(debian.place("pgbouncer") / "usr/sbin"))
LIBRARIES = ("libevent", "libc-ares")
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
    return debian.find_or_fetch("pgbouncer", _installed, LIBRARIES, HELP)


def _installed() -> Path | None:
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    return None if found is None else Path(found)


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
        user = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, "sh", str(found), *user, str(self._settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=debian.environment("pgbouncer"),
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
