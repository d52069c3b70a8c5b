"""A thread that calls each service's tick() at its own interval."""

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from holdfast.errors import HoldfastError, InternalError


class Outage:
    """Log the start and the end of an outage of one part of a process, but not the failures in between."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self.code: str | None = None
        """The code of the last failure. None after a success."""
        self._since = 0.0

    def began(self, error: Exception) -> None:
        """Note a failure. It is logged if it is the first one or has another code than the last."""
        code = error.code if isinstance(error, HoldfastError) else InternalError.code
        if code == self.code:
            return
        if self.code is None:
            self._since = time.monotonic()
        self.code = code
        if isinstance(error, HoldfastError):
            self._log.warning("%s: %s", self._what, code, extra={"error": error.message})
        else:
            self._log.error("%s failed", self._what, exc_info=error)

    def over(self) -> None:
        """Note a success. It is logged if it ends an outage."""
        if self.code is not None:
            self.code = None
            self._log.info("%s: works again after %.0f s", self._what, time.monotonic() - self._since)


log = logging.getLogger("holdfast.services")

STOP_SECONDS = 30.0
"""How long a service has to finish its current work when its process stops."""


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
        except Exception as error:  # noqa: BLE001 - the other services must continue
            self._outages[service].began(error)
        else:
            self._outages[service].over()

    def failing(self, service: Service) -> str | None:
        """Return the code of the service's last failure. None if its last tick was successful, or if there was none yet."""
        return self._outages[service].code

    def wake(self) -> None:
        """Make every service tick now."""
        self._woken.set()

    def stop(self) -> None:
        """Begin no further tick."""
        self._stopping = True
        self._woken.set()

    def close(self) -> None:
        """Stop, wait for the tick under way, but not longer than STOP_SECONDS, and drop the duties."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        for service in self._services:
            with contextlib.suppress(HoldfastError):
                service.close()
