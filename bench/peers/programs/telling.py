"""What a contender's processes tell the one that measures: a marked line on standard output for each fact."""

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
"""How long the job lasts that a worker is killed over."""


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
    """To be called by every job that does nothing; tells when the last one has run."""
    numbers = count(1)

    def ran() -> None:
        if next(numbers) == jobs:
            say("ran")

    return ran


def orders() -> Iterator[str]:
    """The kinds of job to send, one whenever the other side asks for it; tells when each was about to be sent."""
    say("ready")
    for line in sys.stdin:
        at = time.time()
        yield line.strip()
        say("sent", at)


def end_with_parent() -> None:
    """A worker would work for ever: the end of its input, however its parent ended, is the end of its whole group."""
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
