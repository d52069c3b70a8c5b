"""The loop and the thread of a service that works in rounds under duties: the relay and the sealer."""

import logging
import threading
from abc import ABC, abstractmethod
from typing import Self

from holdfast.errors import Unavailable
from holdfast.services.duties import DutyLeases
from holdfast.services.ticker import STOP_SECONDS, Outage
from holdfast.store.base import Waiter

WAIT_SECONDS_MIN = 0.5
"""The first poll interval after activity: the order of the new events may not be final yet."""
WAIT_SECONDS_MAX = 30.0
"""The longest poll interval while nothing happens. New events cause a wake-up before that."""
OUTAGE_SECONDS = 5.0
"""The wait before a store that is out of reach is tried again."""
WAIT_SLICE_SECONDS = 1.0
"""The longest single wait, so that a request to stop is noticed soon."""
RETRY_SECONDS = 5.0
"""The wait before a service that has failed runs again."""


class RoundService(ABC):
    """The base of a service that runs rounds. Between them it waits for a wake-up of the store and renews its duties."""

    def __init__(self, duties: DutyLeases, log: logging.Logger, name: str) -> None:
        self._duties = duties
        self.outage = Outage(log, name)

    @abstractmethod
    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""

    @property
    def is_active(self) -> bool:
        """Whether this process had one of the service's duties when they were last renewed."""
        return self._duties.holds_any

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
                    self.outage.began(error)
                    stop.wait(OUTAGE_SECONDS)
        finally:
            waiter.close()
            self._duties.release()

    def _run_until_outage(self, waiter: Waiter, stop: threading.Event) -> None:
        wait_seconds = WAIT_SECONDS_MIN
        while not stop.is_set():
            due_seconds = self._run_round()
            self.outage.over()
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


class RoundThread:
    """Run a service in a thread of its own. After a failure it runs again: a live process does not stop serving."""

    def __init__(self, name: str, service: RoundService) -> None:
        self.name = name
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._service.run(self._stop)
            except Exception as error:  # noqa: BLE001 - a sink or an anchor may raise anything
                self._service.outage.began(error)
                self._stop.wait(RETRY_SECONDS)

    @property
    def is_active(self) -> bool:
        return self._service.is_active

    @property
    def failing(self) -> str | None:
        """The code of the last failure. None if the last round was successful, or if there was none yet."""
        return self._service.outage.code

    def stop(self) -> None:
        """Let the service end after its current work. It drops its duties then."""
        self._stop.set()

    def join(self) -> None:
        """Wait until the service has ended, but not longer than STOP_SECONDS."""
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
