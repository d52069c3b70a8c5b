"""A TCP proxy in front of PostgreSQL, or of a Holdfast server, that can break a connection during a COMMIT or another request.

It reads the messages of PostgreSQL's clients, so it recognises a COMMIT as text and as a prepared statement.
"""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Literal, Self

Cut = Literal["before", "after"]
"""Before the COMMIT is forwarded, or after the server has run it and before its answer is forwarded."""

COMMIT = b"COMMIT"
HOST = "127.0.0.1"
_STARTUP = 196_608
_PIECE = 65_536
_NO_ROWS = b"SELECT 0\0"
"""A part of the server's answer to a query without rows."""


class Proxy:
    """Forward everything to a server on this machine, unless a fault is set."""

    def __init__(self, port: int, reader: "type[Reader | HttpReader] | None" = None) -> None:
        self._target = port
        self.reader = reader or Reader
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._pairs: set[Pair] = set()
        self._cut: Cut | None = None
        self._gone = self._refuses = False
        self._mutex = threading.Lock()
        self._passes_new = threading.Event()
        self._passes_new.set()
        self._silent_at_commit = False
        self.statement = COMMIT
        self.was_cut = threading.Event()
        self._accept()

    def url(self, url: str) -> str:
        """The url of the same database through this proxy."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    def cut(self, when: Cut, *, then_gone: bool = False, statement: bytes = COMMIT) -> None:
        """Break the connection that commits next; with `then_gone`, all others too, and refuse new ones.

        With `statement`, the connection that next sends a query with this text in it, outside of a transaction. After a query
        that returned no rows nothing is cut.
        """
        self.was_cut.clear()
        with self._mutex:
            self._cut, self._gone, self.statement = when, then_gone, statement

    def go_away(self) -> None:
        """Break all connections, and refuse new ones."""
        self.close()

    def come_back(self) -> None:
        """Accept connections again."""
        self._gone = self._refuses = False
        self._listener = self._listen(self.port)
        self._accept()

    def fall_silent(self, *, new: bool = False) -> None:
        """Forward nothing on existing connections, in either direction, not even their end.

        They stay open and silent, as if a router had dropped their state. With `new`, new connections get no
        answer until `speak`.
        """
        if new:
            self._passes_new.clear()
        for pair in list(self._pairs):
            pair.silent = True

    def fall_silent_at_commit(self) -> None:
        """Like `fall_silent`, as soon as a connection is about to commit: the server keeps its transaction open."""
        self.was_cut.clear()
        self.statement = COMMIT
        self._silent_at_commit = True

    def speak(self) -> None:
        """Forward new connections again, also waiting ones."""
        self._passes_new.set()

    def at_commit(self) -> Cut | None:
        """Decide what happens to a connection that is about to commit. Only one is cut each time."""
        if self._silent_at_commit:
            self._silent_at_commit = False
            self.fall_silent()
            self.was_cut.set()
            return None
        with self._mutex:
            cut, self._cut = self._cut, None
        return cut

    def spare(self) -> None:
        """The statement to cut has returned no rows: cut the next one."""
        with self._mutex:
            self._cut = "after"

    def do_cut(self, pair: "Pair") -> None:
        """Break this connection. If all others are broken too, break them first, so that the client cannot use them."""
        for other in self._refuse() - {pair} if self._gone else ():
            other.close()
        pair.close()
        self.was_cut.set()

    def close(self) -> None:
        self._passes_new.set()
        for pair in self._refuse():
            pair.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _refuse(self) -> "set[Pair]":
        """Accept no more connections. Return the existing ones."""
        with self._mutex:
            self._refuses = True
            found = set(self._pairs)
        with contextlib.suppress(OSError):
            # close() alone would leave the thread in accept(), and with it the port open.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        return found

    def _listen(self, port: int) -> socket.socket:
        return socket.create_server((HOST, port), backlog=128)

    def _accept(self) -> None:
        threading.Thread(target=self._run, args=(self._listener,), name="proxy", daemon=True).start()

    def _run(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._passes_new.is_set():
                self._connect(client)
            else:
                threading.Thread(target=self._connect_later, args=(client,), name="proxy-waits", daemon=True).start()

    def _connect_later(self, client: socket.socket) -> None:
        self._passes_new.wait()
        self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self._target))
        except OSError:
            client.close()
            return
        pair = Pair(self, client, server)
        with self._mutex:
            refused = self._refuses
            if not refused:
                self._pairs.add(pair)
                pair.start()
        if refused:
            pair.close()

    def forget(self, pair: "Pair") -> None:
        with self._mutex:
            self._pairs.discard(pair)


class Pair:
    """One client's connection and the server's side of it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._reader = proxy.reader()
        self._withhold = threading.Event()
        self.silent = False
        """Drop input, and do not forward the end of the connection."""

    def start(self) -> None:
        for work in (self._forward, self._back):
            threading.Thread(target=work, name="proxy-pair", daemon=True).start()

    def _forward(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._client.recv(_PIECE):
                cut = self._proxy.at_commit() if self._reader.sends(self._proxy.statement, piece) else None
                if cut == "before":
                    self._proxy.do_cut(self)
                    return
                if cut == "after":
                    self._withhold.set()
                if not self.silent:
                    self._server.sendall(piece)
        if not (self._withhold.is_set() or self.silent):
            self.close()

    def _back(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._server.recv(_PIECE):
                if self._withhold.is_set() and _NO_ROWS in piece:
                    self._withhold.clear()
                    self._proxy.spare()
                elif self._withhold.is_set():
                    # The answer has arrived, so the commit is done. The answer is not forwarded.
                    self._proxy.do_cut(self)
                    return
                if not self.silent:
                    self._client.sendall(piece)
        if not self.silent:
            self.close()

    def close(self) -> None:
        self._proxy.forget(self)
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Reader:
    """Read a client's messages from pieces of the stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._statements: dict[bytes, bytes] = {}

    def sends(self, wanted: bytes, piece: bytes) -> bool:
        """Whether the input so far executes a COMMIT, or a statement with a given text."""
        self._rest += piece
        found = False
        while (message := self._next()) is not None:
            found |= _means(wanted, self._carried_out(*message))
        return found

    def _next(self) -> tuple[bytes, bytes] | None:
        """The kind and body of the next complete message. The first messages of a connection have no kind."""
        head = 1 if self._started else 0
        if len(self._rest) < head + 4:
            return None
        (length,) = struct.unpack_from("!i", self._rest, head)
        if len(self._rest) < head + length:
            return None
        kind, body = self._rest[:head], self._rest[head + 4 : head + length]
        self._rest = self._rest[head + length :]
        if not self._started and struct.unpack_from("!i", body)[0] == _STARTUP:
            self._started = True
        return kind, body

    def _carried_out(self, kind: bytes, body: bytes) -> bytes:
        """The text of the statement that a message executes, or an empty text."""
        match kind:
            case b"Q":
                return body
            case b"P":
                name, _, rest = body.partition(b"\0")
                self._statements[name] = rest.partition(b"\0")[0]
            case b"B":
                name = body.partition(b"\0")[2].partition(b"\0")[0]
                return self._statements.get(name, b"")
        return b""


class HttpReader:
    """Recognises a request by its first line, such as `POST /v1/claims`."""

    def sends(self, wanted: bytes, piece: bytes) -> bool:
        return piece.startswith(wanted)


def _means(wanted: bytes, text: bytes) -> bool:
    if wanted == COMMIT:
        return text.rstrip(b"\0; ").strip().upper() == COMMIT
    return wanted in text
