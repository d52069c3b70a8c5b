"""Jobs that a handler makes while it runs, with options."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.ledger import Job


class Children:
    """Enqueues jobs that belong to the one that is running."""

    def __init__(self, enqueue: Callable[[Any, Mapping[str, Any]], Job]) -> None:
        self._enqueue = enqueue

    def enqueue(self, handler: Any, /, **args: Any) -> Job:
        """A new job that belongs to this one: it has its correlation id and its trace."""
        return self._enqueue(handler, args)


class AsyncChildren:
    """The same for an `async def` handler."""

    def __init__(self, enqueue: Callable[[Any, Mapping[str, Any]], Awaitable[Job]]) -> None:
        self._enqueue = enqueue

    async def enqueue(self, handler: Any, /, **args: Any) -> Job:
        return await self._enqueue(handler, args)
