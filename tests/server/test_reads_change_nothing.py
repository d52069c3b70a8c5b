"""GET, HEAD and OPTIONS change nothing: every row of the store is compared before and after each route."""

import re
import socket
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.server.routes import ROUTES, Route
from tests.support.generated_requests import KEY, fill
from tests.support.server import Client, RunningServer, running
from tests.support.tables import all_rows

SIGN_IN = frozenset({"/auth/login", "/auth/callback"})
"""The steps of a browser to an identity provider and back. The second begins a session, and has a cookie and a state to check."""
READS = [route for route in ROUTES if route.method == "GET" and route.path not in SIGN_IN]
NAMES = {"scope": "kinds", "key_id": "0" * 16, "code": "conflict", "name": "default"}
QUERIES = {
    "/v1/wake": "?wait_s=0",
    "/v1/until-ready": "?queues=default",
    "/v1/firings": "?every=1h",
    "/v1/jobs": "?text=card",
}
STREAMS = frozenset({"/v1/events/stream"})
"""An answer that does not end by itself. Its beginning is read."""


@pytest.fixture(scope="module")
def shared(shared_url: str) -> Iterator[RunningServer]:
    with holdfast.open(shared_url, keys=[KEY]) as ledger, running(ledger) as server:
        fill(ledger)
        yield server


@pytest.fixture(scope="module")
def root(shared: RunningServer) -> Client:
    return shared.client().acting(Holdfast_Actor="worker:arm-1#http", Idempotency_Key="read")


def _paths(route: Route) -> list[str]:
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], found[0]), route.path)
    numbers = range(1, 12) if "{job_id}" in path else [1]
    return [path.replace("{job_id}", str(number)) + QUERIES.get(route.path, "") for number in numbers]


@pytest.mark.parametrize("route", READS, ids=[route.path for route in READS])
def test_a_read_changes_nothing(shared: RunningServer, shared_url: str, root: Client, route: Route) -> None:
    before = all_rows(shared_url)
    answers = []
    for path in _paths(route):
        if route.path in STREAMS:
            _begin(root, path)
            continue
        answers.append(root.get(path))
        assert root.send("HEAD", path).status == answers[-1].status
        assert root.send("OPTIONS", path).status in (204, 405)
    assert 200 in {answer.status for answer in answers} or route.path in STREAMS, answers
    assert all_rows(shared_url) == before


def _begin(client: Client, path: str) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {client.token}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
