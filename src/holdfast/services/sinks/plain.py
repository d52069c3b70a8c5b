"""Sinks within this process: a function, and the standard output."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdfast.errors import ValidationError
from holdfast.services.messages import Message
from holdfast.services.sinks.base import Sink


class CallableSink(Sink):
    """Calls `fn(message)`. It has arrived when the call returns, and failed when it raises."""

    def __init__(self, fn: Callable[[Message], object], *, name: str = "callable", **options: Any) -> None:
        super().__init__(name=name, **options)
        if not callable(fn):
            raise ValidationError("fn must be something to call", field="fn")
        self._fn = fn

    def deliver(self, message: Message, at: datetime) -> None:
        self._fn(message)


class StdoutSink(Sink):
    """One line of JSON a message, flushed. In ASCII, so that no terminal, locale or line reader changes it."""

    def __init__(self, *, name: str = "stdout", **options: Any) -> None:
        super().__init__(name=name, **options)

    def deliver(self, message: Message, at: datetime) -> None:
        sys.stdout.write(json.dumps(message.as_dict(), separators=(",", ":")) + "\n")
        sys.stdout.flush()
