"""The environment of contenders: one PostgreSQL server for all, and a new database and folder for every measurement."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

import psycopg

from bench.peers.base import Absent, Peer, Setting
from bench.peers.process import ROOT
from tools.pgserver import PostgresServer

HOME = ROOT / ".bench"
REDIS = "bench.peers.redis"


def contenders() -> list[Peer]:
    """The PEERS of all modules of this folder, Holdfast first."""
    names = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]) if module.name != "__main__")
    offered = [peer for name in names for peer in getattr(import_module(f"bench.peers.{name}"), "PEERS", ())]
    return sorted(offered, key=lambda peer: peer.name != "holdfast")


@contextmanager
def database(server_url: str, name: str) -> Iterator[str]:
    """Yield the address of a new, empty database, and drop it at the end."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{server_url.rpartition('/')[0]}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


class Ground:
    """`absent` says what could not be installed, and why."""

    def __init__(self, server: PostgresServer, home: Path) -> None:
        self._server = server
        self._home = home
        self.absent: list[str] = []
        self._python = self._installed("bench.peers.install", HOME / "venv" / "bin" / "python")
        self._node_modules = self._installed("bench.peers.npm", HOME / "node_modules")

    def _installed(self, module: str, otherwise: Path) -> Path:
        if find_spec(module) is None:
            return otherwise
        try:
            return Path(import_module(module).install(HOME))
        except Absent as error:
            self.absent.append(str(error))
            return otherwise

    @contextmanager
    def setting(self, peer: Peer) -> Iterator[Setting]:
        """An empty storage, prepared for the contender. Raises Absent."""
        name = f"peer_{uuid.uuid4().hex}"
        home = self._home / name
        home.mkdir()
        try:
            with database(self._server.url, name) as url, self._redis(peer) as redis_url:
                setting = Setting(home, url, redis_url, self._python, self._node_modules)
                peer.prepare(setting)
                yield setting
        finally:
            shutil.rmtree(home)

    @contextmanager
    def _redis(self, peer: Peer) -> Iterator[str | None]:
        if peer.storage != "redis" or find_spec(REDIS) is None:
            yield None
            return
        with import_module(REDIS).RedisServer.create(self._python) as server:
            yield server.url
