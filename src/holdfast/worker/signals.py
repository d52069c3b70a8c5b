"""Signals that ask a program to stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue


@contextlib.contextmanager
def calling(stop: Callable[[], None]) -> Iterator[None]:
    """Within, SIGTERM and SIGINT call `stop`, each time. Only a main thread can hear signals; elsewhere nothing happens.

    It is called by a thread of its own: a signal comes in the midst of anything, and the locks of an Event that the main
    thread waits on at that moment are not made for that. Putting into a SimpleQueue is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: SimpleQueue[bool] = SimpleQueue()

    def listen() -> None:
        while asked.get():
            stop()

    listener = threading.Thread(target=listen, name="holdfast-signals", daemon=True)
    listener.start()
    before = {number: signal.signal(number, lambda *_: asked.put(True)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put(False)
        listener.join()
