"""Slow and oversized requests on real sockets: each is answered or cut in time, and others are served meanwhile."""

import asyncio
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn

from holdfast.server.connections import ConnectionLimits, GuardedConnection, allowed_connections, connection_class
from tests.support.waiting import wait_until

QUICK = ConnectionLimits(head_s=0.4, body_s=0.4, body_s_per_mib=0.0, idle_s=0.4, linger_s=0.3, connections_max=20)
PATIENT = ConnectionLimits()
WAIT_SECONDS = 20.0


class EchoApp:
    """Answers with the length of the body and the number of headers.

    /early does not read the body, /wait waits for a signal, /parts sends one half of the answer, waits, and sends the other.
    """

    def __init__(self) -> None:
        self.go = threading.Event()
        self.disconnects = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.client = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        size, more = 0, scope["path"] != "/early"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            size += len(message["body"])
            more = message["more_body"]
        while scope["path"] == "/wait" and not self.go.is_set():
            await asyncio.sleep(0.01)
        self.headers, self.client = scope["headers"], scope["client"][0]
        body = json.dumps({"size": size, "headers": len(scope["headers"])}).encode()
        status = 413 if scope["path"] == "/early" else 200
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        if scope["path"] == "/parts":
            for part in (body[:3], body[3:6]):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            body = body[6:]
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": body})


class Served:
    def __init__(self, port: int, app: EchoApp, protocol: type[GuardedConnection]) -> None:
        self.port, self.app, self.protocol = port, app, protocol

    def connect(self, tls: ssl.SSLContext | None = None) -> "Peer":
        return Peer(self.port, tls)

    def answer(self, data: bytes) -> tuple[int, Any]:
        """Send data on a connection of its own, and return the status and the body of the first answer."""
        with self.connect() as peer:
            peer.send(data)
            return peer.answer()


class Peer:
    """A client that sends bytes as they are."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def drip(self, data: bytes, every: float) -> None:
        """Send one byte at a time until all are sent, or the server has answered or closed the connection."""
        try:
            for place in range(len(data)):
                self._socket.sendall(data[place : place + 1])
                if self.is_answered_within(every):
                    return
        except OSError:
            return

    def is_answered_within(self, seconds: float) -> bool:
        """Return whether there is something to read within this time: a byte of an answer, or the end of the connection."""
        readable, _, _ = select.select([self._socket], [], [], seconds)
        return bool(readable)

    def answer(self) -> tuple[int, Any]:
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        length = 0
        while (header := self._file.readline()).strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return int(line.split()[1]), json.loads(self._file.read(length))

    def read_until(self, end: bytes) -> bytes:
        """Return what comes up to and with these bytes."""
        found = b""
        while not found.endswith(end):
            byte = self._file.read(1)
            assert byte, found
            found += byte
        return found

    def is_closed(self) -> bool:
        """Wait until the server closes the connection. Return False if it sends something instead."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def serving(chosen: ConnectionLimits, loop: Any = "asyncio", **options: Any) -> Iterator[Served]:
    app, protocol = EchoApp(), connection_class(chosen)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        plain: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none"}
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, loop=loop, **plain | options))
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield Served(listening.getsockname()[1], app, protocol)
        finally:
            app.go.set()
            server.should_exit = True
            thread.join(WAIT_SECONDS)


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def quick(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(QUICK, request.param) as served:
        yield served


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def patient(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(PATIENT, request.param) as served:
        yield served


PLAIN = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def post(headers: bytes, body: bytes = b"", path: bytes = b"/") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n" + body


def filled(size: int, count: int = 1) -> bytes:
    """A head of exactly this many bytes, without the empty line at its end, with this many headers besides Host."""
    start = b"GET / HTTP/1.1\r\nHost: x\r\n"
    counted = len(b"/") + len(b"Host: x\r\n")
    each = [b"a%d: " % number for number in range(count)]
    left = size - counted - sum(len(name) + 2 for name in each)
    lines = [name + b"v" * (left // count + (left % count if number == 0 else 0)) + b"\r\n" for number, name in enumerate(each)]
    return start + b"".join(lines) + b"\r\n"


def test_an_ordinary_request_is_answered(patient: Served) -> None:
    assert patient.answer(PLAIN) == (200, {"size": 0, "headers": 1})
    assert patient.answer(post(b"Content-Length: 5\r\n", b"12345"))[1]["size"] == 5
    assert patient.answer(post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"))[1]["size"] == 3


def test_an_answer_in_parts_is_sent_part_by_part(patient: Served) -> None:
    patient.app.go.clear()
    with patient.connect() as peer:
        peer.send(b"GET /parts HTTP/1.1\r\nHost: x\r\n\r\n")
        begun = peer.read_until(b'{"size')
        assert begun.startswith(b"HTTP/1.1 200 ")
        patient.app.go.set()
        assert peer.read_until(b"}") == b'": 0, "headers": 1}'


def test_an_answer_to_head_has_no_body(patient: Served) -> None:
    with patient.connect() as peer:
        peer.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + PLAIN)
        assert b"content-length: 25" in peer.read_until(b"\r\n\r\n")
        assert peer.answer() == (200, {"size": 0, "headers": 1})


def test_answers_to_requests_in_one_piece_are_in_order(patient: Served) -> None:
    with patient.connect() as peer:
        peer.send(b"".join(post(b"Content-Length: %d\r\n" % size, b"x" * size) for size in range(1, 8)))
        assert [peer.answer()[1]["size"] for _ in range(1, 8)] == list(range(1, 8))


@pytest.mark.parametrize("count", [1, 50])
def test_a_head_of_16_kib_is_accepted_and_a_larger_one_refused(patient: Served, count: int) -> None:
    assert patient.answer(filled(16_384, count))[0] == 200
    status, document = patient.answer(filled(16_385, count))
    assert (status, document["code"], document["status"]) == (431, "header_too_large", 431)
    assert patient.answer(filled(17 * 1_024, count))[0] == 431


def test_a_long_request_line_is_refused(patient: Served) -> None:
    assert patient.answer(b"GET /?" + b"q" * 17_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 431


def test_a_head_that_does_not_end_is_refused_before_it_takes_memory(patient: Served) -> None:
    with patient.connect() as peer:
        peer.send(b"GET / HTTP/1.1\r\nHost: x\r\na: ")
        try:
            for _ in range(400):
                peer.send(b"v" * 4_096)
                if peer.is_answered_within(0.0005):
                    break
        except OSError:
            pass
        assert peer.answer()[0] == 431


def test_100_headers_are_accepted_and_101_refused(patient: Served) -> None:
    assert patient.answer(filled(4_000, 99)) == (200, {"size": 0, "headers": 100})
    assert patient.answer(filled(4_000, 100))[0] == 431
    assert patient.answer(filled(60_000, 5_000))[0] == 431


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        post(b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"0\r\n\r\n"),
        post(b"Content-Length: 3\r\nContent-Length: 4\r\n", b"abcd"),
        post(b"Content-Length: -1\r\n"),
        post(b"Content-Length: 1_0\r\n"),
        post(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"),
        post(b"Transfer-Encoding: gzip\r\n", b"x"),
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\r\n c: d\r\n\r\n",
    ],
)
def test_an_ambiguous_or_broken_request_is_refused(patient: Served, request_bytes: bytes) -> None:
    with patient.connect() as peer:
        peer.send(request_bytes)
        status, document = peer.answer()
        assert (status, document["code"]) == (400, "validation_error")
        assert peer.is_closed()


def test_trailers_do_not_become_headers(patient: Served) -> None:
    sent = post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    assert patient.answer(sent)[0] == 200
    assert b"authorization" not in dict(patient.app.headers)
    status, document = patient.answer(post(b"Transfer-Encoding: chunked\r\n", b"0\r\na: " + b"v" * 17_000 + b"\r\n\r\n"))
    assert (status, document["code"]) == (431, "header_too_large")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nA: b"])
def test_half_a_head_times_out(quick: Served, sent: bytes) -> None:
    with quick.connect() as peer:
        peer.send(sent)
        status, document = peer.answer()
        assert (status, document["code"]) == (408, "request_timeout")
        assert peer.is_closed()
    assert quick.answer(PLAIN)[0] == 200


def test_half_a_body_times_out(quick: Served) -> None:
    before = quick.app.disconnects
    with quick.connect() as peer:
        peer.send(post(b"Content-Length: 10\r\n", b"12345"))
        assert peer.answer()[0] == 408
        assert peer.is_closed()
    wait_until(lambda: quick.app.disconnects == before + 1)


@pytest.mark.parametrize("sent", [PLAIN * 5, post(b"Content-Length: 400\r\n", b"x" * 400)], ids=["head", "body"])
def test_one_byte_at_a_time_is_too_slow(quick: Served, sent: bytes) -> None:
    began = time.monotonic()
    with quick.connect() as peer:
        if sent.startswith(b"POST"):
            head, _, body = sent.partition(b"\r\n\r\n")
            peer.send(head + b"\r\n\r\n")
            sent = body
        peer.drip(sent, 0.05)
        assert peer.answer()[0] == 408
    assert time.monotonic() - began < 10


def test_a_chunked_body_without_end_times_out(quick: Served) -> None:
    with quick.connect() as peer:
        peer.send(post(b"Transfer-Encoding: chunked\r\n"))
        peer.drip(b"1\r\na\r\n" * 200, 0.02)
        assert peer.answer()[0] == 408


def test_a_body_that_is_answered_early_does_not_keep_the_connection(quick: Served) -> None:
    with quick.connect() as peer:
        peer.send(post(b"Content-Length: 1000\r\n", b"x", b"/early"))
        assert peer.answer()[0] == 413
        peer.drip(b"x" * 999, 0.02)
        assert peer.is_closed()


def test_a_body_that_ends_soon_after_its_answer_keeps_the_connection(patient: Served) -> None:
    with patient.connect() as peer:
        peer.send(post(b"Content-Length: 2\r\n", b"x", b"/early"))
        assert peer.answer()[0] == 413
        peer.send(b"x")
        for _ in range(2):
            peer.send(PLAIN)
            assert peer.answer()[0] == 200


def test_an_idle_connection_is_closed(quick: Served) -> None:
    with quick.connect() as peer:
        peer.send(PLAIN)
        assert peer.answer()[0] == 200
        assert peer.is_closed()


def test_a_long_answer_is_not_cut(quick: Served) -> None:
    quick.app.go.clear()
    with quick.connect() as peer:
        peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not peer.is_answered_within(QUICK.head_s + QUICK.body_s + QUICK.idle_s)
        quick.app.go.set()
        assert peer.answer()[0] == 200


def test_requests_that_wait_for_another_answer_are_not_late(quick: Served) -> None:
    quick.app.go.clear()
    with quick.connect() as peer:
        peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + PLAIN + PLAIN[:-4])
        assert not peer.is_answered_within(QUICK.head_s * 2)
        quick.app.go.set()
        assert [peer.answer()[0] for _ in range(2)] == [200, 200]
        peer.send(PLAIN[-4:])
        assert peer.answer()[0] == 200


def test_an_error_is_not_read_as_the_answer_to_an_earlier_request(quick: Served) -> None:
    quick.app.go.clear()
    with quick.connect() as peer:
        peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET / HTTP/1.1\r\nbroken\r\n\r\n")
        assert peer.is_closed()
    quick.app.go.set()


def test_many_requests_on_one_connection_are_answered(patient: Served) -> None:
    with patient.connect() as peer:
        for number in range(20):
            sent = post(b"Content-Length: %d\r\n" % number, b"x" * number)
            peer.send(sent[:30])
            peer.send(sent[30:])
            assert peer.answer()[1]["size"] == number
        peer.send(PLAIN * 10)
        assert [peer.answer()[0] for _ in range(10)] == [200] * 10


def test_too_many_connections_are_refused_unless_one_is_idle() -> None:
    with serving(PATIENT._replace(connections_max=3)) as served, ExitStack() as stack:
        peers = [stack.enter_context(served.connect()) for _ in range(3)]
        for peer in peers[:2]:
            peer.send(post(b"Content-Length: 1\r\n"))
        peers[2].send(PLAIN)
        assert peers[2].answer()[0] == 200
        wait_until(lambda: len(served.protocol.idle) == 1)
        another = stack.enter_context(served.connect())
        another.send(post(b"Content-Length: 1\r\n"))
        assert peers[2].is_closed(), "the idle one makes room"
        wait_until(lambda: not served.protocol.idle)
        with served.connect() as refused:
            status, document = refused.answer()
            assert (status, document["code"]) == (503, "unavailable")
            assert refused.is_closed()
        for peer in (*peers[:2], another):
            peer.send(b"x")
            assert peer.answer() == (200, {"size": 1, "headers": 2})


def test_nothing_is_left_of_closed_connections(quick: Served) -> None:
    for _ in range(3):
        with quick.connect() as peer:
            peer.send(PLAIN)
            peer.answer()
    wait_until(lambda: not quick.protocol.idle)


def test_the_time_of_a_body_grows_with_its_size() -> None:
    assert PATIENT.body_deadline_s(0) == 30
    assert PATIENT.body_deadline_s(2 * 1_048_576) == 32
    assert PATIENT.body_deadline_s(None) == PATIENT.body_deadline_s(10**12) == 46


def test_fewer_connections_are_allowed_if_the_system_has_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((-1, 4_096), (1_024, 896), (100_000, 4_096), (64, 2)):
        monkeypatch.setattr("resource.getrlimit", lambda _, files=files: (files, files))
        assert allowed_connections() == most
