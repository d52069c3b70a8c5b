"""Threads that work for a coroutine: what they may still do, and how they run something on its event loop."""

import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Unavailable

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

LOOP_SECONDS = 30.0
"""How long a thread waits for one statement that the event loop runs for it."""


class Abandoned(BaseException):
    """The coroutine that this thread worked for was cancelled. It ends the thread's work; no caller sees it."""


class Awaited:
    """One call in a thread that a coroutine waits for."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._uses_connection = False
        self._abandoned = False

    def use_connection(self) -> None:
        """Say that the thread uses a connection of the coroutine's from now on. Raise Abandoned if it must not."""
        with self._lock:
            if self._abandoned:
                raise Abandoned
            self._uses_connection = True

    def abandon(self) -> bool:
        """Say that the coroutine was cancelled. Return whether it has to wait, since the thread uses its connection."""
        with self._lock:
            self._abandoned = True
            return self._uses_connection

    @property
    def is_abandoned(self) -> bool:
        return self._abandoned or self.loop.is_closed()


AWAITED: ContextVar[Awaited | None] = ContextVar("holdfast_awaited", default=None)
"""The call that this thread runs for a coroutine. None in any other thread."""


def stop_if_abandoned() -> None:
    """Raise Abandoned if this thread works for a coroutine that was cancelled. Long waits call it about every second."""
    awaited = AWAITED.get()
    if awaited is not None and awaited.is_abandoned:
        raise Abandoned


def use_connection() -> None:
    """Say that this call uses a connection of its caller's from now on."""
    awaited = AWAITED.get()
    if awaited is not None:
        awaited.use_connection()


def is_awaited() -> bool:
    """Whether this thread works for a coroutine, so that `on_loop` can be used."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return AWAITED.get() is not None
    return False


def on_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the event loop that waits for this thread. Raise Unavailable if the loop takes too long.

    A coroutine that has not begun by then does not run later.
    """
    import asyncio

    awaited = AWAITED.get()
    assert awaited is not None
    given_up = False

    async def run() -> T:
        if given_up:
            raise asyncio.CancelledError
        return await make()

    coroutine = run()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, awaited.loop)
    except RuntimeError:
        coroutine.close()
        raise Unavailable("the event loop has ended") from None
    try:
        return future.result(LOOP_SECONDS)
    except TimeoutError:
        if future.done():
            raise
        given_up = True
        future.cancel()
        late = Unavailable(f"the event loop did not run a statement within {LOOP_SECONDS:g} seconds", outcome="unknown")
        late.action = "Roll back the transaction. Look for code that blocks the event loop."
        raise late from None
