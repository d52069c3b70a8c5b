"""The log lines of an outage."""

import logging
import time

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
