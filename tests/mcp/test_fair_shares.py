"""One client over HTTP cannot block another: real sockets, a real server, and a token for each client."""

import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn

from holdfast.core import limits
from holdfast.ledger import Ledger
from holdfast.mcp.access import TransportSessions
from holdfast.mcp.http import connection_class, connections_max
from holdfast.mcp.sessions import ClientSessions, SessionKey, TooManySessions
from tests.mcp.conftest import ACCEPT, INITIALIZE, RESUME, Serve, Served
from tests.unit.test_hosts import TRICKY

GREEDY, MODEST = "greedy-client-0000", "modest-client-0000"
OTHERS = [f"another-client-{number:04}" for number in range(limits.MCP_TOKENS_MAX - 2)]
SHARE = limits.MCP_SESSIONS_MAX // limits.MCP_TOKENS_MAX


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("shares")
    tokens = folder / "tokens"
    tokens.touch(0o600)
    tokens.write_text("\n".join([GREEDY, *OTHERS, MODEST, ""]))
    server = Served(f"sqlite:///{folder}/holdfast.db", "--http", "127.0.0.1:0", "--token-file", str(tokens))
    yield server
    server.close()


class Client:
    """One request after another, each on a connection of its own."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.headers = url, {**ACCEPT, "Authorization": f"Bearer {token}"}

    def post(self, body: Any, **headers: str) -> httpx2.Response:
        return httpx2.post(self.url, json=body, headers={**self.headers, **headers}, timeout=60)

    def open(self) -> httpx2.Response:
        return self.post(INITIALIZE)

    def works(self) -> None:
        """Open a session, call a tool in it, and end it."""
        begun = self.open()
        assert begun.status_code == 200, begun.text
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        assert self.post(RESUME, **session).status_code == 200
        assert httpx2.delete(self.url, headers={**self.headers, **session}).status_code == 200


@pytest.fixture
def modest(served: Served) -> Client:
    return Client(served.url, MODEST)


@pytest.fixture
def greedy(served: Served) -> Client:
    return Client(served.url, GREEDY)


def connected(served: Served, said: bytes = b"") -> socket.socket:
    place = urlsplit(served.url)
    made = socket.create_connection((place.hostname or "", place.port or 0), timeout=60)
    made.sendall(said)
    return made


def heard(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    found = b""
    while data := connection.recv(65_536):
        found += data
    return found


def room_for(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@pytest.mark.parametrize("said", [b"", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "], ids=["idle", "slow head"])
def test_silent_connections_block_no_other_client(served: Served, modest: Client, said: bytes) -> None:
    room_for(2 * limits.MCP_CONNECTIONS_MAX)
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(served, said)) for _ in range(limits.MCP_CONNECTIONS_MAX + 50)]
        modest.works()
        # The oldest connections were closed, with an answer that a reset may discard. The newest are still open.
        with suppress(*([ConnectionResetError] if said else [])):
            assert heard(idle[0]).startswith(b"HTTP/1.1 503 ")
        idle[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            idle[-1].recv(1)


def test_the_head_of_a_request_has_a_time_limit(served: Served, modest: Client) -> None:
    with connected(served, b"POST /mcp HTTP/1.1\r\n") as slow, connected(served) as silent:
        modest.works()
        for connection in (slow, silent):
            answer = heard(connection)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert answer.endswith(b"The head of a request has to come within 10 s.")


def test_concurrent_requests_are_limited_for_each_token(served: Served, greedy: Client, modest: Client) -> None:
    """The requests are streams, which stay open as long as the client wants."""
    room_for(2 * limits.MCP_CONNECTIONS_MAX)
    share = limits.MCP_REQUESTS_MAX // limits.MCP_TOKENS_MAX
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {GREEDY}\r\nContent-Type: application/json\r\n"
    body = json.dumps(INITIALIZE)
    request = f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body) + 1}\r\n\r\n{body}".encode()  # its last byte never comes
    with ExitStack() as stack:
        for _ in range(share):
            stack.enter_context(connected(served, request))
        until(lambda: greedy.open().status_code == 429)
        refused = greedy.open()
        assert (refused.headers["retry-after"], refused.text) == (
            "1",
            f"Too many requests: at most {share} may be under way for this client at once.",
        )
        modest.works()
    until(lambda: greedy.open().status_code == 200)


def test_sessions_are_limited_for_each_token(served: Served, greedy: Client, modest: Client) -> None:
    opened = []
    with httpx2.Client(timeout=60) as connection:
        while (answer := connection.post(served.url, json=INITIALIZE, headers=greedy.headers)).status_code == 200:
            opened.append(answer.headers["mcp-session-id"])
            assert len(opened) <= SHARE
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.text == f"Too many sessions: at most {SHARE} may be open for this client. End some with DELETE."
        modest.works()
        # Its open sessions continue, and ending one frees its place. Another client can neither use nor end it.
        assert greedy.post(RESUME, **{"mcp-session-id": opened[0]}).status_code == 200
        assert modest.post(RESUME, **{"mcp-session-id": opened[0]}).status_code == 404
        assert httpx2.delete(served.url, headers={**modest.headers, "mcp-session-id": opened[0]}).status_code == 404
        for session in opened:
            gone = connection.delete(served.url, headers={**greedy.headers, "mcp-session-id": session})
            assert gone.status_code == 200
    greedy.works()


def until(holds: Callable[[], bool]) -> None:
    """Repeat, because the server accepts a connection a little later than its client."""
    for _ in range(200):
        if holds():
            return
    raise AssertionError("it never came to that")


def test_a_session_that_is_idle_too_long_frees_its_place() -> None:
    now = 0.0
    sessions = TransportSessions(1, 10.0, lambda: now)
    assert sessions.has_capacity(0)
    sessions.begin(None, 0)
    assert not sessions.has_capacity(0)
    sessions.done(None, 0, "secret")
    sessions.begin("secret", 0)
    now = 100.0
    assert not sessions.has_capacity(0)  # a request is under way
    assert sessions.has_capacity(1)
    sessions.done("secret", 0, None)
    now = 111.0
    assert sessions.has_capacity(0)
    assert not sessions.belongs_to_another("secret", 1)


@pytest.mark.parametrize("host", [host for host in TRICKY if host.isascii() and host == host.strip()])
def test_a_request_for_another_server_name_is_refused(modest: Client, host: str) -> None:
    assert modest.post(INITIALIZE, Host=host).status_code in (400, 421)
    if host:
        assert modest.post(INITIALIZE, Origin=f"http://{host}").status_code == 403


def test_two_origin_headers_are_refused(served: Served, modest: Client) -> None:
    headers = [*modest.headers.items(), ("Origin", "http://localhost"), ("Origin", "http://evil.example")]
    assert httpx2.post(served.url, json=INITIALIZE, headers=headers).status_code == 403


def test_connections_are_limited_by_the_file_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((-1, limits.MCP_CONNECTIONS_MAX), (1_048_576, limits.MCP_CONNECTIONS_MAX), (256, 128), (10, 2)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, soft=soft: (soft, soft))
        assert connections_max() == most


def test_tokens_are_distinct_and_limited(tmp_path: Path, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli import main

    for text, said in (
        (f"{GREEDY}\n{GREEDY}\n", "one a line and each once"),
        ("\n".join(f"token-number-{number:08}" for number in range(limits.MCP_TOKENS_MAX + 1)), "at most 16 tokens"),
        (f"{GREEDY}\nshort\n", "is not one of 16 or more"),
        ("\n", "is not one of 16 or more"),
    ):
        (tmp_path / "tokens").write_text(text)
        (tmp_path / "tokens").chmod(0o600)
        with pytest.raises(SystemExit) as ended:
            main(["mcp", "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "tokens")])
        assert (ended.value.code, said in capsys.readouterr().err) == (2, True)
    with pytest.raises(SystemExit):
        main(["mcp", "--http", "127.0.0.1:0", "--allow-host", "http://a.example"])
    assert "is not HOST or HOST:PORT" in capsys.readouterr().err


def test_the_body_of_a_request_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_REQUEST_MS_MAX", 50)
    ended = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            assert message["more_body"]
        ended.append(scope["method"])

    config = uvicorn.Config(app, http=connection_class(5), log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        with socket.create_connection(listening.getsockname()[:2], timeout=60) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc")
            answer = heard(slow)
        server.should_exit = True
        thread.join()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"The body of a request" in answer
    assert ended == ["POST"]


def test_sessions_with_held_tasks_are_limited_for_each_token(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_SESSIONS_MAX", 4)
    sessions = ClientSessions(ledger, lambda: 0.0, clients=2)
    for session in ("a", "b"):
        place = SessionKey("ada", session)
        sessions.check_capacity(place, None, client=0)
        sessions.track(sessions.agent(place), sessions.agent(place).start(ledger.enqueue("draft").id), client=0)
    with pytest.raises(TooManySessions, match="at most 2 sessions"):
        sessions.check_capacity(SessionKey("ada", "c"), None, client=0)
    sessions.check_capacity(SessionKey("ada", "c"), None, client=1)
