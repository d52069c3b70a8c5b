"""Interrupts a program in the middle of its calls, as Ctrl-C would, and reports the outcomes of all other calls."""

import contextlib
import faulthandler
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import holdfast


def say(*facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def transact_methods(ledger: holdfast.Ledger) -> list[str]:
    """The methods of the store by which group commit runs a transaction. On SQLite, the second one calls the first."""
    return ["transact"] if ledger._store.__module__.startswith("holdfast.store.sqlite") else ["transact", "transact_enqueue"]


def follower(ledger: holdfast.Ledger) -> None:
    """The main thread waits for a slow leader and is interrupted while it waits."""
    leading, go_on = threading.Event(), threading.Event()

    def slow(transact: Callable[..., Any], *call: Any) -> Any:
        if not leading.is_set():
            leading.set()
            go_on.wait(30)
        return transact(*call)

    for name in transact_methods(ledger):
        setattr(ledger._store, name, partial(slow, getattr(ledger._store, name)))
    answers: list[int] = []
    leader = threading.Thread(target=lambda: answers.append(ledger.enqueue("leader").id))
    leader.start()
    leading.wait(30)
    waiting = ledger._pipeline._groups["work"]._waiting

    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not waiting:
            time.sleep(0.001)
        # Signal the main thread itself: only that wakes it.
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    interrupted = False
    try:
        ledger.enqueue("interrupted")
    except KeyboardInterrupt:
        interrupted = True
    behind = threading.Thread(target=lambda: answers.append(ledger.enqueue("behind").id))
    behind.start()
    go_on.set()
    leader.join(30)
    behind.join(30)
    after = ledger.enqueue("after").id
    say(interrupted, len(answers), after > 0, sorted(job.kind for job in ledger.list()))


class Others:
    """Two threads that continue their calls while the main thread is interrupted."""

    def __init__(self, ledger: holdfast.Ledger) -> None:
        self._ledger = ledger
        self._stop = threading.Event()
        self.counts = [0, 0]
        self.surprises: list[str] = []
        self._threads = [threading.Thread(target=self._call, args=(place,), daemon=True) for place in (0, 1)]
        for thread in self._threads:
            thread.start()

    def _call(self, place: int) -> None:
        while not self._stop.is_set():
            try:
                self._ledger.enqueue("other")
                self.counts[place] += 1
            except holdfast.Unavailable as error:
                if "interrupted" not in error.message:
                    self.surprises.append(repr(error))
            except BaseException as error:  # noqa: BLE001 - the test reports every error
                self.surprises.append(repr(error))

    def stop(self) -> list[bool]:
        """Whether each of them is stuck."""
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        return [thread.is_alive() for thread in self._threads]


def interrupt_often(ledger: holdfast.Ledger, seconds: float) -> tuple[int, int]:
    """Interrupt the main thread repeatedly. Return the numbers of interrupted and of answered calls."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    answered = interrupted = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(KeyboardInterrupt):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00001 * (interrupted % 300))
                ledger.enqueue("main")
                signal.setitimer(signal.ITIMER_REAL, 0)
                answered += 1
            except KeyboardInterrupt:
                interrupted += 1
            except holdfast.Unavailable:
                signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return interrupted, answered


def interrupt_anywhere(ledger: holdfast.Ledger, seconds: float) -> None:
    """Interrupt the main thread at random places. Afterwards no call may wait for a leader that has ended."""
    others = Others(ledger)
    interrupted, answered = interrupt_often(ledger, seconds)
    done = threading.Event()

    def after() -> None:
        with contextlib.suppress(holdfast.Unavailable):
            ledger.enqueue("after")
        done.set()

    threading.Thread(target=after, daemon=True).start()
    open_again = done.wait(5)
    if not open_again:
        faulthandler.dump_traceback()
    say(open_again, others.stop(), interrupted, answered, others.counts, others.surprises[:5])


if __name__ == "__main__":
    mode, url, *rest = sys.argv[1:]
    # A shell that runs the tests in the background ignores the signal, and a child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    opened = holdfast.open(url)
    if mode == "follower":
        follower(opened)
    else:
        interrupt_anywhere(opened, float(rest[0]))
