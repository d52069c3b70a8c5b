"""The loop of a service that works in rounds under duties: the relay and the sealer."""

import logging
import threading
from abc import ABC, abstractmethod
from typing import Self

from holdfast.errors import Unavailable
from holdfast.services.duties import DutyLeases
from holdfast.services.ticker import Outage
from holdfast.store.base import Waiter

WAIT_SECONDS_MIN = 0.5
"""The first poll interval after activity: the order of the new events may not be final yet."""
WAIT_SECONDS_MAX = 30.0
"""The longest poll interval while nothing happens. New events cause a wake-up before that."""
OUTAGE_SECONDS = 5.0
"""The wait before a store that is out of reach is tried again."""
WAIT_SLICE_SECONDS = 1.0
"""The longest single wait, so that a request to stop is noticed soon."""


class RoundService(ABC):
    """The base of a service that runs rounds. Between them it waits for a wake-up of the store and renews its duties."""

    def __init__(self, duties: DutyLeases, log: logging.Logger, name: str) -> None:
        self._duties = duties
        self._outage = Outage(log, name)

    def close(self) -> None:
        """Drop the duties, so that another process can take over at once."""
        self._duties.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _run_round(self) -> float | None:
        """Work once. Return in how many seconds there is more to do, 0 for at once; None if that is not known."""

    def _on_wakeup(self, stop: threading.Event) -> None:  # noqa: B027 - the relay has nothing to do here
        """Called between a wake-up and the next round. The default does nothing."""

    def _run_rounds(self, waiter: Waiter, stop: threading.Event) -> None:
        """Run rounds until `stop` is set, then close the waiter and drop the duties. Wait during an outage of the store."""
        try:
            while not stop.is_set():
                try:
                    self._run_until_outage(waiter, stop)
                except Unavailable as error:
                    if not error.retryable:
                        raise
                    self._outage.began(error)
                    stop.wait(OUTAGE_SECONDS)
        finally:
            waiter.close()
            self._duties.release()

    def _run_until_outage(self, waiter: Waiter, stop: threading.Event) -> None:
        wait_seconds = WAIT_SECONDS_MIN
        while not stop.is_set():
            due_seconds = self._run_round()
            self._outage.over()
            if due_seconds == 0:
                wait_seconds = WAIT_SECONDS_MIN
            elif self._wait(waiter, stop, wait_seconds if due_seconds is None else min(wait_seconds, due_seconds)):
                wait_seconds = WAIT_SECONDS_MIN
                self._on_wakeup(stop)
            else:
                wait_seconds = min(2 * wait_seconds, WAIT_SECONDS_MAX)

    def _wait(self, waiter: Waiter, stop: threading.Event, seconds: float) -> bool:
        """Return True on a wake-up or when a duty is gained, and False after `seconds` or when `stop` is set."""
        while seconds > 0 and not stop.is_set():
            slice_seconds = min(seconds, WAIT_SLICE_SECONDS, self._duties.renew_seconds)
            if waiter.wait(slice_seconds) or self._duties.renew():
                return True
            seconds -= slice_seconds
        return False
