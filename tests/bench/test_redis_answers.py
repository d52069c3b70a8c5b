"""Answers of a Redis server are read without a client library, and missing programs are reported."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.base import Absent
from bench.peers.npm import install
from bench.peers.redis import Redis, RedisConnection, RedisServer

ANSWERS = [b"+OK\r\n", b":7\r\n", b"*3\r\n:1\r\n$3\r\nabc\r\n$-1\r\n", b"-ERR no\r\n", b":5\r\n"]


@pytest.fixture
def url() -> Iterator[str]:
    """A server that gives the same answers, one for each command, to the first client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for answer in ANSWERS:
                    if not connection.recv(4_096):
                        return
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        thread.join()


def test_every_kind_of_answer_is_read(url: str) -> None:
    with RedisConnection(url) as connection:
        assert connection.count("LLEN", "jobs") == 7
        assert connection.ask("XPENDING", "jobs") == [1, "abc", None]
        with pytest.raises(RuntimeError, match="ERR no"):
            connection.ask("NO")
        assert connection.count("HLEN", "jobs") == 5


def test_the_counts_of_commands_are_added_up(url: str) -> None:
    store = Redis(url, "LLEN jobs")
    assert store.left() == 7
    store.close()


def test_without_npm_or_redis_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Absent, match="no npm"):
        install(tmp_path)
    with pytest.raises(Absent, match="no redis-server"):
        RedisServer.create(tmp_path / "nowhere")
