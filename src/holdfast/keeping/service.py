"""Services, and the loop that runs them.

A service is work that is repeated: `tick()` does it once, and `every_s` then says when there is more to do. It may have a duty,
so that one process of many does it, and a waiter of the store, so that a change of the ledger makes it tick at once.
"""

import contextlib
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from holdfast.errors import HoldfastError, Unavailable
from holdfast.keeping.duty import Duty
from holdfast.keeping.outage import Outage
from holdfast.store.base import Waiter

log = logging.getLogger("holdfast.services")

POLL_SECONDS_MIN = 0.5
"""The first poll interval of a service with a waiter after activity: the order of the new events may not be final yet."""
POLL_SECONDS_MAX = 30.0
"""The longest poll interval while nothing happens. New events cause a wake-up before that."""
WAIT_SLICE_SECONDS = 1.0
"""The longest single wait for a wake-up of the store, so that a request to stop is noticed soon."""
RETRY_SECONDS = 5.0
"""The wait before a service with a waiter that has failed ticks again."""
STOP_SECONDS = 30.0
"""How long a service has to finish its current work when its process stops."""


class Service(ABC):
    """Work that is repeated. A test calls `tick` itself."""

    name: str
    every_s: float
    """The time until the next tick. A loop reads it after each tick. Infinity means: with the next wake-up."""
    log: ClassVar[logging.Logger] = log
    duty: Duty | None = None
    stopping = threading.Event()
    """Set when the service's loop has to end."""

    @abstractmethod
    def tick(self) -> object:
        """Work once."""

    def begin(self) -> Waiter | None:
        """Prepare for the ticks of a loop. Return a waiter if changes of the ledger cause them.

        A service with a waiter needs a loop of its own.
        """
        return None

    def on_wakeup(self) -> None:  # noqa: B027 - most services need nothing
        """Called between a wake-up and the tick that follows."""

    @property
    def is_active(self) -> bool:
        """Whether this process does the work: it had the duty at the last tick."""
        return self.duty is None or self.duty.is_held

    def run(self, stop: threading.Event) -> None:
        """Tick in this thread until `stop` is set, and wait meanwhile, also during an outage of the store. Then `close`.

        Raise any other failure. This is for services with a waiter. A later `tick` takes the duty again if it is free.
        """
        ServiceLoop([self], stop=stop).run()

    def close(self) -> None:
        """End: drop the duty, so that another process can take over at once."""
        if self.duty is not None:
            self.duty.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ServiceLoop:
    """Call the `tick` of each service when it is due, in one thread.

    A failure is logged when it begins and when it is over. It affects neither the other services nor the next tick.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        name: str | None = None,
        wake: threading.Event | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Setting `wake` makes every service tick at once, as the method does. Setting `stop` ends a loop that has a waiter."""
        self._services = services
        self._outages = {service: Outage(service.log, service.name) for service in services}
        self._stop = stop or threading.Event()
        self._woken = wake or threading.Event()
        self.name = name or services[0].name
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{self.name}", daemon=True)

    @property
    def is_active(self) -> bool:
        return all(service.is_active for service in self._services)

    @property
    def failing(self) -> str | None:
        """The code of a failure at the last ticks. None if they were successful, or if there was none yet."""
        return next((outage.code for outage in self._outages.values() if outage.code is not None), None)

    def start(self) -> None:
        self._thread.start()

    def run(self) -> None:
        """Run in this thread. Raise a failure of a service with a waiter that is not an outage of the store."""
        try:
            self._work()
        finally:
            self._close_services()

    def wake(self) -> None:
        """Make every service tick now."""
        self._woken.set()

    def stop(self) -> None:
        """Begin no further tick. The services are closed after their current work."""
        self._stop.set()
        self._woken.set()

    def close(self) -> None:
        """Stop, and wait until the services are closed, but not longer than STOP_SECONDS."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        """Work until the end. After a failure the service drops its duty, for a process that can work, and begins again."""
        try:
            while not self._stop.is_set():
                try:
                    self._work()
                except Exception as error:  # noqa: BLE001 - a live process does not stop serving
                    service = self._services[0]
                    self._outages[service].began(error)
                    if service.duty is not None:
                        service.duty.drop()
                    self._stop.wait(RETRY_SECONDS)
        finally:
            self._close_services()

    def _close_services(self) -> None:
        for service in self._services:
            service.stopping = Service.stopping
            with contextlib.suppress(HoldfastError):
                service.close()

    def _work(self) -> None:
        for service in self._services:
            service.stopping = self._stop
        waiter = self._services[0].begin()
        if waiter is None:
            self._tick_by_clock()
        else:
            with contextlib.closing(waiter):
                self._tick_by_waiter(self._services[0], waiter)

    # Without a waiter

    def _tick_by_clock(self) -> None:
        due = dict.fromkeys(self._services, float("-inf"))
        while not self._stop.is_set():
            now = time.monotonic()
            for service in self._services:
                if due[service] <= now:
                    self._tick(service)
                    due[service] = time.monotonic() + service.every_s
            left = min(due.values()) - time.monotonic()
            if self._woken.wait(None if left == math.inf else max(0.0, left)):
                self._woken.clear()
                due = dict.fromkeys(due, float("-inf"))

    def _tick(self, service: Service) -> None:
        try:
            service.tick()
        except Exception as error:  # noqa: BLE001 - the other services must continue
            self._outages[service].began(error)
        else:
            self._outages[service].over()

    # With a waiter

    def _tick_by_waiter(self, service: Service, waiter: Waiter) -> None:
        outage, poll_s = self._outages[service], POLL_SECONDS_MIN
        while not self._stop.is_set():
            try:
                service.tick()
                outage.over()
                if service.every_s == 0:
                    poll_s = POLL_SECONDS_MIN
                elif self._wait(service, waiter, min(poll_s, service.every_s)):
                    poll_s = POLL_SECONDS_MIN
                    service.on_wakeup()
                else:
                    poll_s = min(2 * poll_s, POLL_SECONDS_MAX)
            except Unavailable as error:
                if not error.retryable:
                    raise
                outage.began(error)
                poll_s = POLL_SECONDS_MIN
                self._stop.wait(RETRY_SECONDS)

    def _wait(self, service: Service, waiter: Waiter, seconds: float) -> bool:
        """Return True on a wake-up or when a duty is gained, and False after `seconds` or a stop. Renew the duty meanwhile."""
        duty = service.duty
        slice_max = WAIT_SLICE_SECONDS if duty is None else min(WAIT_SLICE_SECONDS, duty.renew_seconds)
        while seconds > 0 and not self._stop.is_set():
            slice_seconds = min(seconds, slice_max)
            if waiter.wait(slice_seconds) or (duty is not None and duty.renew()):
                return True
            seconds -= slice_seconds
        return False
