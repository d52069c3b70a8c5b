"""The memory of a server while a thousand clients follow its events, and none happens."""

import socket
from contextlib import ExitStack

import holdfast
from bench.figures.http import served
from bench.figures.idle import limit_row, resident_mib
from bench.places import Host
from bench.report import Heading, Row
from bench.sizes import Sizes
from holdfast.core.limits import HTTP_STREAMS_OF_ONE_MAX

HEADING = Heading(
    "The memory of a server with idle followers of its events", ours="found", base="limit", judged="most", unit=" MiB"
)
FOLLOWERS = 1_000
MIB_MAX = 150.0
SECONDS = 30.0


def measure(host: Host, sizes: Sizes) -> list[Row]:
    count = min(FOLLOWERS, sizes.singles)
    with host.place() as place, served(place) as (port, pid, _), ExitStack() as stack:
        with holdfast.open(place.url) as ledger:
            ledger.enqueue("noop")
            tokens = [ledger.new_token("reader", f"r{n}").text for n in range(-(-count // HTTP_STREAMS_OF_ONE_MAX))]
        before = resident_mib(pid)
        for number in range(count):
            stack.enter_context(_follow(port, tokens[number // HTTP_STREAMS_OF_ONE_MAX]))
        after, written = resident_mib(pid), place.events("enqueued")
    return [
        limit_row(f"{host.name}, no follower", before, MIB_MAX, events=written),
        limit_row(f"{host.name}, {count:,} followers", after, MIB_MAX, events=written),
    ]


def _follow(port: int, token: str) -> socket.socket:
    """Return a connection on which the first message of a stream has come."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    head = f"GET /v1/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    connection.sendall(head.encode())
    received = b""
    while b"event: hello" not in received:
        part = connection.recv(4_096)
        assert part, received
        received += part
    return connection
