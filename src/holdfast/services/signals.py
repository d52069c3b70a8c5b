"""Call a function on SIGTERM, SIGINT and SIGHUP."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

ECHO_SECONDS = 0.2
"""What comes so soon after a signal is its echo."""


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""SIGHUP stops too, unless the program ignores it (nohup) or has a handler of its own."""


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within, SIGTERM, SIGINT and SIGHUP call `stop`, each time; echoes of one do not count.

    Only a main thread can hear signals; elsewhere nothing happens.

    A thread of its own listens, by way of a socket: a handler in Python would run only when the main thread next does something,
    which it does not while it waits and the system hands the signal to another thread; and it would run in the midst of
    anything, which the locks of an Event are not made for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    stopping = {*STOP_SIGNALS, signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else {*STOP_SIGNALS}

    def listen() -> None:
        heard = float("-inf")
        while numbers := ours.recv(64):
            for number in numbers:
                if number in stopping and time.monotonic() - heard > ECHO_SECONDS:
                    heard = time.monotonic()
                    stop()

    listener = threading.Thread(target=listen, name="holdfast-signals", daemon=True)
    listener.start()
    wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in stopping}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        # Closing it would not end the listener while a process that a handler has forked keeps a copy open.
        theirs.shutdown(socket.SHUT_RDWR)
        theirs.close()
        listener.join()
        ours.close()
