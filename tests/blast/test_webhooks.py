"""Hostile receivers of webhooks, and receivers that do not answer at some of their addresses."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import holdfast
from holdfast import Ledger
from holdfast.services import Relay, WebhookSink
from tests.support.receiver import SECRET, Receiver


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/holdfast.db") as ledger:
        yield ledger


@pytest.mark.parametrize("length", ["99999999999999999999", "1000000000000", "nonsense", "-1"])
def test_a_huge_content_length_of_an_answer_is_ignored(ledger: Ledger, length: str) -> None:
    """The status line confirms the delivery. No memory is allocated for the body."""

    def boast(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nx".encode())

    ledger.enqueue("work")
    with Receiver(boast) as receiver:
        sink = WebhookSink(receiver.url, secret=SECRET, allow_private=True, start="beginning", name="hook")
        assert Relay(ledger, [sink]).tick() == {"hook.delivered": 1}


@contextmanager
def deaf(host: str, port: int) -> Iterator[None]:
    """An address that accepts no connection: its backlog is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


def test_an_address_that_never_answers_does_not_use_up_the_time_of_the_next(ledger: Ledger) -> None:
    ledger.enqueue("work")
    with Receiver() as receiver, deaf("127.0.0.2", receiver.port):
        sink = WebhookSink(
            f"http://two.example:{receiver.port}/",
            secret=SECRET,
            allow_private=True,
            resolver=lambda host, port: ["127.0.0.2", "127.0.0.1"],
            timeout="2s",
            start="beginning",
            name="hook",
        )
        assert Relay(ledger, [sink]).tick() == {"hook.delivered": 1}
