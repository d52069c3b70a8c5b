"""Call a function on SIGTERM, SIGINT and SIGHUP."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

ECHO_SECONDS = 0.2
"""Signals within this time after another one count as the same request."""


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""SIGHUP stops too, unless the program ignores it (nohup) or has its own handler."""


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on each SIGTERM, SIGINT and SIGHUP within the block. Signals within ECHO_SECONDS count as one.

    Only the main thread can receive signals. In another thread this does nothing.

    A separate thread reads the signals from a socket. A Python signal handler runs only when the main thread next executes
    bytecode. That may be never, if the main thread waits and the system delivers the signal to another thread. A handler can also
    run between any two instructions, and the locks of an Event are not safe for that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    stopping = {*STOP_SIGNALS, signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else {*STOP_SIGNALS}

    def listen() -> None:
        received_at = float("-inf")
        while numbers := reader.recv(64):
            for number in numbers:
                if number in stopping and time.monotonic() - received_at > ECHO_SECONDS:
                    received_at = time.monotonic()
                    stop()

    listener = threading.Thread(target=listen, name="holdfast-signals", daemon=True)
    listener.start()
    previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    previous_handlers = {number: signal.signal(number, lambda *_: None) for number in stopping}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        # Closing alone would not end the listener while a process that a handler forked keeps a copy of the socket open.
        writer.shutdown(socket.SHUT_RDWR)
        writer.close()
        listener.join()
        reader.close()
