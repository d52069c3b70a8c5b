"""A thread that calls each service's tick() at its own interval."""

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from holdfast.errors import HoldfastError


class Outage:
    """Log the start and the end of an outage of one part of a process, but not the failures in between."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._code: str | None = None
        self._since = 0.0

    def began(self, error: HoldfastError) -> None:
        """Note a failure. It is logged if it is the first one or has another code than the last."""
        if error.code != self._code:
            if self._code is None:
                self._since = time.monotonic()
            self._code = error.code
            self._log.warning("%s: %s", self._what, error.code, extra={"error": error.message})

    def over(self) -> None:
        """Note a success. It is logged if it ends an outage."""
        if self._code is not None:
            self._code = None
            self._log.info("%s: works again after %.0f s", self._what, time.monotonic() - self._since)


log = logging.getLogger("holdfast.services")


class Service(Protocol):
    """Work that is repeated at an interval. A test calls `tick` itself."""

    name: str
    every_s: float

    def tick(self) -> object: ...
    def close(self) -> None:
        """Drop the duties of the service, so that another process can take over at once."""


class Ticker:
    """Call each service's `tick` at its interval. A failure is logged, and does not affect other services or the next tick."""

    def __init__(self, services: Sequence[Service], *, name: str = "holdfast-services") -> None:
        self._services = services
        self._outages = {service: Outage(log, service.name) for service in services}
        self._stopping = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        due = dict.fromkeys(range(len(self._services)), float("-inf"))
        while not self._stopping:
            now = time.monotonic()
            for number, service in enumerate(self._services):
                if due[number] <= now:
                    self._tick(service)
                    due[number] = time.monotonic() + service.every_s
            if self._woken.wait(max(0.0, min(due.values()) - time.monotonic())):
                self._woken.clear()
                due = dict.fromkeys(due, float("-inf"))

    def _tick(self, service: Service) -> None:
        try:
            service.tick()
        except HoldfastError as error:
            self._outages[service].began(error)
        except Exception:  # the other services must continue
            log.exception("%s failed", service.name)
        else:
            self._outages[service].over()

    def wake(self) -> None:
        """Make every service tick now."""
        self._woken.set()

    def close(self) -> None:
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
        for service in self._services:
            with contextlib.suppress(HoldfastError):
                service.close()
