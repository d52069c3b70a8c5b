"""Messages of a contender's processes to the measuring process: a marked line on standard output for each."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

MARK = "@@"
HOLD_SECONDS = 3_600
"""The length of the job during which a worker is killed."""


class Asked(NamedTuple):
    """The command line of every program: what to do, where, in which configuration, and with how many jobs."""

    verb: str
    place: str
    config: str
    jobs: int

    @property
    def tuned(self) -> bool:
        return self.config == "tuned"


def say(what: str, at: float | None = None) -> None:
    """One write, so that the lines of many threads stay whole."""
    fact = {"what": what, "at": time.time() if at is None else at}
    os.write(1, f"{MARK}{json.dumps(fact)}\n".encode())


def counting(jobs: int) -> Callable[[], None]:
    """Return a function for every empty job to call. It sends a message when the last one has run."""
    numbers = count(1)

    def ran() -> None:
        if next(numbers) == jobs:
            say("ran")

    return ran


def orders() -> Iterator[str]:
    """Yield the kinds of job to send, one for each line of input, and report the time just before each was sent."""
    say("ready")
    for line in sys.stdin:
        at = time.time()
        yield line.strip()
        say("sent", at)


def end_with_parent() -> None:
    """End the whole process group at the end of input, which comes when the parent ends. A worker would run for ever."""
    while os.read(0, 1):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main(verbs: dict[str, Callable[[Asked], None]]) -> None:
    asked = Asked(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    if asked.verb == "work":
        threading.Thread(target=end_with_parent, daemon=True).start()
    verbs[asked.verb](asked)
