"""Forks of a process that has SQLite ledgers open.

The child inherits SQLite's memory, but not its locks: POSIX locks belong to a process. SQLite does not notice. A connection that
the child opens to the same file would share the inherited state and take no lock at all, and another process could delete the log
under it. And if another thread of the parent is inside SQLite at the fork, its mutexes stay locked in the child forever.

So a fork waits until no thread uses a ledger, for FORK_SECONDS at most, and the child closes the connections that it has
inherited, without writing anything. Then it can open the ledger again. If a connection is still in use, or belongs to the
program itself, the child leaves it as it is and refuses to open a ledger on its file.
"""

import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Protocol

import apsw

from holdfast.errors import Unavailable

FORK_SECONDS = 1.0
_LOOK_SECONDS = 0.0005


class ForkAware(Protocol):
    """A store that is closed in forked children."""

    def close_forked(self) -> None:
        """Close the descriptors that are not SQLite's, without taking a lock. Called in the child."""


_depth_by_thread: dict[int, int] = {}
"""How many nested uses of SQLite each thread is in."""
_forking = 0
_fork_done = threading.Event()
_stores: "weakref.WeakSet[ForkAware]" = weakref.WeakSet()
_connections: "weakref.WeakSet[apsw.Connection]" = weakref.WeakSet()
_unusable_files: set[str] = set()
"""Files that this process can never open again."""


def register_store(store: ForkAware) -> None:
    _stores.add(store)


def enter() -> None:
    """Mark that the calling thread uses SQLite. Wait if another thread is about to fork."""
    thread = threading.get_ident()
    _depth_by_thread[thread] = _depth_by_thread.get(thread, 0) + 1
    while _forking and _depth_by_thread[thread] == 1:
        del _depth_by_thread[thread]
        _fork_done.wait(FORK_SECONDS)
        _depth_by_thread[thread] = 1


def leave() -> None:
    thread = threading.get_ident()
    if _depth_by_thread[thread] == 1:
        del _depth_by_thread[thread]
    else:
        _depth_by_thread[thread] -= 1


@contextlib.contextmanager
def using_sqlite() -> Iterator[None]:
    enter()
    try:
        yield
    finally:
        leave()


def register_connection(connection: apsw.Connection) -> None:
    """Register a connection that a forked child has to close."""
    _connections.add(connection)


def check_file(path: str) -> None:
    """Raise Unavailable for a file that was in use when this process was forked."""
    if _unusable_files and os.path.realpath(path) in _unusable_files:
        refused = Unavailable(f"this process was forked while a connection to {path} was in use", retryable=False)
        refused.action = (
            "Start a new program instead of a fork (subprocess, or multiprocessing with the method spawn), "
            "or fork while no other thread writes and no connection of your own to this file is open."
        )
        raise refused


def _before_fork() -> None:
    global _forking  # noqa: PLW0603 - state of the process
    _fork_done.clear()
    _forking += 1
    ours, deadline = threading.get_ident(), time.monotonic() + FORK_SECONDS
    while _depth_by_thread.keys() - {ours} and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _after_fork_in_parent() -> None:
    global _forking  # noqa: PLW0603 - state of the process
    _forking -= 1
    if not _forking:
        _fork_done.set()


def _after_fork_in_child() -> None:
    """Close idle connections. One that was in use can be neither used nor closed, not even when Python exits."""
    global _forking, _fork_done
    _forking, _fork_done = 0, threading.Event()
    in_use = bool(_depth_by_thread.keys() - {threading.get_ident()})
    for connection in _open_connections():
        if in_use or connection.in_transaction or connection not in _connections:
            _unusable_files.add(os.path.realpath(connection.db_filename("main")))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        else:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
    _connections.clear()
    for store in list(_stores):
        store.close_forked()
    _stores.clear()
    _depth_by_thread.clear()


def _open_connections() -> list[apsw.Connection]:
    """Return open connections, with those of the program itself if apsw lists them."""
    found = apsw.connections() if hasattr(apsw, "connections") else list(_connections)
    return [connection for connection in found if _is_open(connection)]


def _is_open(connection: apsw.Connection) -> bool:
    try:
        return bool(connection.db_filename("main"))
    except apsw.ConnectionClosedError:
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
