"""Saying once that something is out of reach, and once that it is there again."""

import logging
import time

from holdfast.errors import HoldfastError


class Outage:
    """What one part of a process cannot do for the moment. In between, nothing is said: it would be the same every second."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._code: str | None = None
        self._since = 0.0

    def began(self, error: HoldfastError) -> None:
        """It went wrong, or still does."""
        if error.code != self._code:
            if self._code is None:
                self._since = time.monotonic()
            self._code = error.code
            self._log.warning("%s: %s", self._what, error.code, extra={"error": error.message})

    def over(self) -> None:
        """It went well."""
        if self._code is not None:
            self._code = None
            self._log.info("%s: works again after %.0f s", self._what, time.monotonic() - self._since)
