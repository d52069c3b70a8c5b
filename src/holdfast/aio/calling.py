"""What the verbs of `AsyncLedger` have in common."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Self, TypeVar

from holdfast.aio.threads import Threads
from holdfast.ledger import Ledger
from holdfast.store.base import Schema, Waiter

T = TypeVar("T")

SLICE_SECONDS = 1.0
"""How long a thread waits at a time, so that a cancelled wait ends soon."""


class AsyncWaiter:
    """A `Waiter` whose `wait` and `close` are awaited."""

    def __init__(self, waiter: Waiter, threads: Threads) -> None:
        self._waiter = waiter
        self._threads = threads

    async def wait(self, timeout: float) -> bool:
        """True when there may be something new, at most `timeout` seconds from now; False if only time has passed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            left = min(SLICE_SECONDS, deadline - loop.time())
            if await self._threads.wait(lambda seconds=left: self._waiter.wait(max(0.0, seconds))):  # type: ignore[misc]
                return True
            if loop.time() >= deadline:
                return False

    async def close(self) -> None:
        await self._threads.call(self._waiter.close)


class Calling:
    """A ledger and the threads in which its verbs run."""

    def __init__(self, find: Callable[[], Ledger], threads: Threads | None = None) -> None:
        self._find = find
        self._threads = threads or Threads()

    @property
    def sync(self) -> Ledger:
        """The ledger itself, with the same verbs without `await`."""
        return self._find()

    @property
    def id(self) -> str:
        """The name drawn for this ledger when it was created."""
        return self.sync.id

    @property
    def schema(self) -> Schema:
        """The version of its tables, and what opening it has found and done."""
        return self.sync.schema

    @property
    def incarnation(self) -> str:
        """Drawn when the ledger was opened: workers of this process are told apart from others of the same name by it."""
        return self.sync.incarnation

    @property
    def has_unanswered(self) -> bool:
        """Whether `unanswered` has claims to look for."""
        return self.sync.has_unanswered

    @property
    def patience(self) -> float:
        """How many seconds a call that writes waits for one answer of the store. Past that, its connection is given up."""
        return self.sync.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self.sync.patience = seconds

    async def waiter(self) -> AsyncWaiter:
        """Something to wait on for new work: `await wait(timeout)`. Make it before looking for work, so that none is missed."""
        return AsyncWaiter(await self._call(lambda ledger: ledger.waiter()), self._threads)

    async def close(self) -> None:
        """Close the ledger. Calls that are under way end first or are refused."""
        await self._call(lambda ledger: ledger.close())
        self._threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, verb: Callable[[Ledger], T]) -> T:
        return await self._threads.call(lambda: verb(self._find()))

    async def _wait(self, verb: Callable[[Ledger], T]) -> T:
        return await self._threads.wait(lambda: verb(self._find()))

    async def _each(self, verb: Callable[[Ledger], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
        """What a generator yields. A wait that is cancelled ends the generator in its thread."""
        found = await self._call(verb)
        ended: Any = object()
        runs_on = False
        try:
            while True:
                try:
                    item = await self._threads.wait(lambda: next(found, ended))
                except asyncio.CancelledError:
                    runs_on = True
                    raise
                if item is ended:
                    return
                yield item
        finally:
            if not runs_on:
                await self._threads.call(found.close)
