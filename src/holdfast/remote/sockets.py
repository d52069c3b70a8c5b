"""Sockets whose reads and writes share one deadline, so that a peer that sends one byte at a time cannot hold a call."""

import contextlib
import io
import select
import socket
import ssl
import time
from typing import Any

EARLY_BYTES = 65_536


class RequestDeadline:
    """The time limit of one request, over all its steps."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return how many seconds to wait before asking again, more than 0. Raise TimeoutError if the time is over."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class DeadlineSocket:
    """The methods of a socket that http.client uses, under one deadline. The socket itself is closed by its owner."""

    def __init__(self, sock: socket.socket, deadline: RequestDeadline, bytes_max: int | None = None) -> None:
        """`bytes_max` is how much is read of one answer, with its headers. What follows is not read."""
        self._sock = sock
        self.deadline = deadline
        self._bytes_max = bytes_max
        self._early: bytes | None = None
        """What `has_come` has read. Empty if the peer has closed the connection."""

    def sendall(self, content: Any) -> None:
        rest = memoryview(content)
        while rest:
            self._sock.settimeout(self.deadline.left())
            try:
                rest = rest[self._sock.send(rest) :]
            except TimeoutError:
                continue  # `left` decides

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self, self._bytes_max))

    def has_come(self, seconds: float) -> bool:
        """Wait until the peer has sent something, or has closed the connection. Return False if the time is up first."""
        end = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while self._early is None:
            if not poll.poll(max(0.0, end - time.monotonic()) * 1_000):
                return False
            if not isinstance(self._sock, ssl.SSLSocket):
                return True
            # What has come may be a message of TLS itself, so it has to be read.
            self._sock.settimeout(0)
            with contextlib.suppress(ssl.SSLWantReadError):
                self._early = self._sock.recv(EARLY_BYTES)
        return True

    def receive_into(self, buffer: Any) -> int:
        if self._early is not None:
            count = min(len(self._early), len(buffer))
            buffer[:count] = self._early[:count]
            self._early = self._early[count:] or (None if count else b"")
            return count
        while True:
            self._sock.settimeout(self.deadline.left())
            try:
                return self._sock.recv_into(buffer)
            except TimeoutError:
                continue  # `left` decides

    def close(self) -> None:
        """Do nothing: http.client closes the socket before it has read an answer that ends with the connection."""


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: DeadlineSocket, bytes_max: int | None) -> None:
        self._sock = sock
        self._left = bytes_max

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer)[: self._left]
        if not target:
            return 0
        count = self._sock.receive_into(target)
        if self._left is not None:
            self._left -= count
        return count
