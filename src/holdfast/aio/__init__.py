"""An asynchronous ledger. It has the same verbs, each a coroutine that runs the blocking verb in a thread.

    async with holdfast.aio.open(url) as ledger:
        job = await ledger.enqueue("mail", {"to": "ada"})

Cancelling an `await` does not undo its call: the outcome is unknown. If that matters, pass a `request_id` and make the same call
again. With `connection=`, the cancellation is raised after the call has ended.
"""

from collections.abc import Generator, Iterable, Mapping
from os import PathLike
from typing import Any

from holdfast.aio.ledger import AsyncLedger
from holdfast.aio.threads import CALLS_MAX, WAITS_MAX, AsyncWaiter, ThreadBridge
from holdfast.composition import Clock
from holdfast.composition import open as open_blocking
from holdfast.core.model import Fence
from holdfast.files.keys import KeySource
from holdfast.ledger import Ledger, fences
from holdfast.ledger.sweep import Entropy
from holdfast.ledger.validators import HookSource
from holdfast.watch.process import Metrics

__all__ = ["CALLS_MAX", "WAITS_MAX", "AsyncLedger", "AsyncWaiter", "Opening", "check_fence", "open"]

_threads = ThreadBridge()
"""Threads for calls without a ledger."""


class Opening:
    """A ledger that is being opened. `await` it, or use it with `async with`, which closes the ledger at the end."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._ledger: AsyncLedger | None = None

    def __await__(self) -> Generator[Any, Any, AsyncLedger]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncLedger:
        self._ledger = await self._open()
        return self._ledger

    async def __aexit__(self, *_: object) -> None:
        assert self._ledger is not None
        await self._ledger.close()

    async def _open(self) -> AsyncLedger:
        threads = ThreadBridge()
        opened: list[Ledger] = []
        is_wanted = True

        def work() -> None:
            ledger = open_blocking(**self._options)
            opened.append(ledger)
            if not is_wanted:
                ledger.close()

        try:
            await threads.call(work)
        except BaseException:
            is_wanted = False
            threads.close()
            for ledger in opened:
                ledger.close()
            raise
        [ledger] = opened
        return AsyncLedger(lambda: ledger, threads)


def open(
    url: str,
    *,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    actor: str = "client",
    metrics: Metrics | None = None,
    keys: Iterable[KeySource] | None = None,
    create: bool = True,
    validators: HookSource | None = None,
    token: str | None = None,
    token_file: str | PathLike[str] | None = None,
    ca_file: str | PathLike[str] | None = None,
) -> Opening:
    """Open the ledger at `url` with verbs to `await`: `async with holdfast.aio.open(url) as ledger:`.

    The options are those of `holdfast.open`.
    """
    return Opening(
        {
            "url": url,
            "clock": clock,
            "entropy": entropy,
            "actor": actor,
            "metrics": metrics,
            "keys": keys,
            "create": create,
            "validators": validators,
            "token": token,
            "token_file": token_file,
            "ca_file": ca_file,
        }
    )


async def check_fence(connection: Any, resource: str, fence: Fence) -> None:
    """Await `holdfast.check_fence`. `connection` may also be an asynchronous one of psycopg or SQLAlchemy."""
    await _threads.call(lambda: fences.check_fence(connection, resource, fence))
