"""Await a call that runs in a thread. Only programs with coroutines import this: it imports asyncio."""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def call_in_thread(start: Callable[[Callable[[], None]], object], work: Callable[[], T]) -> T:
    """Run `work` in a thread, with the caller's context variables, and return or raise its result.

    `start` runs a function in a thread of the caller's choice. If the caller is cancelled, work that has begun goes on, and its
    result is dropped.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        if answer.cancelled():
            return
        value, error = None, None
        try:
            value = context.run(work)
        except BaseException as raised:  # noqa: BLE001 - it is raised in the coroutine that awaits it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_deliver, answer, value, error)

    start(run)
    return await answer


def _deliver(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)
