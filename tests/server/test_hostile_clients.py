"""Slow and oversized requests to a real `holdfast serve`: each gets its answer in time, others are served, memory stays flat."""

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast
from tests.support.served_process import Serving, serving
from tests.support.server import Client

SETTINGS = "[server.limits]\nhead_s = 0.5\nbody_s = 0.5\nidle_s = 5.0\nconnections_max = 400\n"
GROWTH_BYTES_MAX = 64 << 20
"""How much memory the attacks of one test may leave in use. Each sends or announces much more."""
MIB = b"x" * 1_048_576


class Attacked:
    """A server process, an admin's token for it, and raw connections to it."""

    def __init__(self, server: Serving, token: str, other: str) -> None:
        self.port = server.port
        self.client = Client(server.port, token)
        self.other = Client(server.port, other)
        """A caller that sends nothing hostile."""
        self._pid = server.process.pid

    def memory(self) -> int:
        """Return how much memory the process has used at most, in bytes."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1_024

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def head(self, *headers: str, path: str = "/v1/jobs") -> bytes:
        given = ["Host: 127.0.0.1", f"Authorization: Bearer {self.client.token}", "Content-Type: application/json", *headers]
        return f"POST {path} HTTP/1.1\r\n".encode() + "\r\n".join([*given, "", ""]).encode()

    def send(self, head: bytes, parts: Iterator[bytes] | tuple[bytes, ...] = ()) -> tuple[int, str]:
        """Send until the server has answered or all is sent. Return the status and the code of the answer."""
        with self.connect() as connection:
            connection.sendall(head)
            try:
                for part in parts:
                    connection.sendall(part)
            except OSError:
                pass  # the server has answered and closed
            return answer_of(connection)


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Read an answer to the end of the connection, and return its status and code."""
    data = b""
    try:
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            part = connection.recv(65_536)
            if not part:
                break
            data += part
    except ConnectionResetError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), data
    return int(head.split()[1]), json.loads(body)["code"]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "holdfast.toml").write_text(SETTINGS)
    with holdfast.open(f"sqlite:///{folder}/ledger.db") as ledger:
        token, other = (ledger.new_token("admin", name).text for name in ("root", "kim"))
    with serving(folder) as server:
        found = Attacked(server, token, other)
        assert found.client.post("/v1/jobs", {"kind": "first"}).status == 201
        yield found
        assert [job["kind"] for job in found.client.get("/v1/jobs").data["jobs"]] == ["first"]
        assert server.stop() == 0


@pytest.fixture
def flat(attacked: Attacked) -> Iterator[None]:
    """The most memory that the server has ever used hardly grows during the test."""
    before = attacked.memory()
    yield
    assert attacked.memory() - before < GROWTH_BYTES_MAX
    assert attacked.client.get("/healthz").status == 200


def chunks(part: bytes, count: int) -> Iterator[bytes]:
    head = b"%x\r\n" % len(part)
    for _ in range(count):
        yield head + part + b"\r\n"


def test_a_body_that_is_declared_too_large_is_413(attacked: Attacked, flat: None) -> None:
    assert attacked.send(attacked.head(f"Content-Length: {10**12}")) == (413, "limit_exceeded")
    assert attacked.send(attacked.head("Content-Length: 2097153"), (MIB, MIB, b"x")) == (413, "limit_exceeded")


def test_a_chunked_body_without_end_is_413(attacked: Attacked, flat: None) -> None:
    assert attacked.send(attacked.head("Transfer-Encoding: chunked"), chunks(MIB, 500)) == (413, "limit_exceeded")


def test_a_batch_without_end_is_413(attacked: Attacked, flat: None) -> None:
    head = attacked.head("Transfer-Encoding: chunked", path="/v1/jobs/batch")
    assert attacked.send(head, chunks(MIB, 500)) == (413, "limit_exceeded")


def test_a_gzip_bomb_is_413(attacked: Attacked, flat: None) -> None:
    squeezer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeezer.compress(b"\0" * len(MIB)) for _ in range(512)) + squeezer.flush()
    assert len(bomb) < len(MIB)
    refused = attacked.client.send("POST", "/v1/jobs", raw=bomb, Content_Encoding="gzip")
    assert (refused.status, refused.data["code"]) == (413, "limit_exceeded")
    nested = gzip.compress(bomb)
    assert attacked.client.send("POST", "/v1/jobs", raw=nested, Content_Encoding="gzip").status == 400


def test_gzip_that_inflates_to_nothing_has_an_end(attacked: Attacked, flat: None) -> None:
    empty_block = b"\x00\x00\x00\xff\xff"
    squeezer = zlib.compressobj(wbits=31)
    start = squeezer.compress(b"{}") + squeezer.flush(zlib.Z_SYNC_FLUSH)
    head = attacked.head("Transfer-Encoding: chunked", "Content-Encoding: gzip")
    body = chunks(start, 1), chunks(empty_block * 200_000, 300)
    assert attacked.send(head, (part for parts in body for part in parts)) == (413, "limit_exceeded")


def test_what_follows_the_end_of_gzip_is_refused(attacked: Attacked, flat: None) -> None:
    whole = gzip.compress(b'{"kind":"second"}')
    for more in (b"x", whole, MIB):
        refused = attacked.client.send("POST", "/v1/jobs", raw=whole + more, Content_Encoding="gzip")
        assert (refused.status, refused.data["code"]) == (400, "validation_error"), refused.body
    head = attacked.head("Transfer-Encoding: chunked", "Content-Encoding: gzip")
    body = chunks(whole, 1), chunks(MIB, 500)
    assert attacked.send(head, (part for parts in body for part in parts)) == (400, "validation_error")


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\na: " + b"v" * 17_408 + b"\r\n\r\n", (431, "header_too_large")),
        (b"GET /healthz HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(101)) + b"\r\n", (431, "header_too_large")),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", (408, "request_timeout")),
        (
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n",
            (400, "validation_error"),
        ),
    ],
    ids=["17 KiB of headers", "101 headers", "half a head", "two lengths"],
)
def test_a_head_beyond_its_limits_is_refused(attacked: Attacked, flat: None, data: bytes, answer: tuple[int, str]) -> None:
    with attacked.connect() as connection:
        connection.sendall(data)
        assert answer_of(connection) == answer


def test_half_a_body_is_408(attacked: Attacked, flat: None) -> None:
    assert attacked.send(attacked.head("Content-Length: 10"), (b'{"ki',)) == (408, "request_timeout")


def test_many_slow_clients_do_not_delay_others(attacked: Attacked, flat: None) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(attacked.connect()) for _ in range(300)]
        for number, connection in enumerate(slow):
            sent = attacked.head("Content-Length: 100") if number % 5 == 0 else b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nA: "
            connection.sendall(sent)
        assert attacked.other.get("/v1/jobs").status == 200
        for connection in slow:
            assert answer_of(connection) == (408, "request_timeout")
    assert attacked.client.get("/v1/jobs").status == 200


def test_a_client_that_takes_nothing_holds_no_memory(attacked: Attacked, flat: None) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(attacked.connect())
            request = f"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {attacked.client.token}\r\n\r\n"
            connection.sendall(request.encode() * 20)
        assert attacked.other.get("/v1/jobs").status == 200
