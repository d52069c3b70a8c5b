"""A real server of a real SQLite ledger, and a proxy before it that cuts connections."""

import logging
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Ledger
from tests.support.proxy import HttpReader, Proxy
from tests.support.server import RunningServer, running


@pytest.fixture
def behind(sqlite_url: str) -> Iterator[Ledger]:
    """The ledger behind the server."""
    with holdfast.open(sqlite_url) as ledger:
        yield ledger


@pytest.fixture
def served(behind: Ledger) -> Iterator[RunningServer]:
    with running(behind) as server:
        yield server


@pytest.fixture
def token(served: RunningServer) -> str:
    text = served.client().token
    assert text is not None
    return text


@pytest.fixture
def line(served: RunningServer) -> Iterator[Proxy]:
    """Stands before the server and can cut connections."""
    with Proxy(served.port, HttpReader) as proxy:
        yield proxy


@pytest.fixture
def remote(line: Proxy, token: str) -> Iterator[Ledger]:
    """The ledger through the proxy."""
    with holdfast.open(f"http://127.0.0.1:{line.port}", token=token) as ledger:
        yield ledger


@pytest.fixture
def routes(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The routes of the requests that the server has answered, in their order."""
    caplog.set_level(logging.DEBUG, "holdfast.server")
    found: list[str] = []

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(getattr(record, "route", None) or "-")

    seen = Seen()
    logging.getLogger("holdfast.server").addHandler(seen)
    yield found
    logging.getLogger("holdfast.server").removeHandler(seen)
