"""Threads for calls of the ledger, which blocks. Each kind of call has threads of its own."""

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from holdfast.aio.thread_calls import call_in_thread
from holdfast.core import limits
from holdfast.errors import Unavailable

T = TypeVar("T")


class WorkThreads:
    """A fixed number of daemon threads, and a limit for the calls that wait for one."""

    def __init__(self, name: str, threads: int, waiting_max: int) -> None:
        self._name = name
        self._threads = threads
        self._started = 0
        self._under_way = 0
        self._most = threads + waiting_max
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. Raise Unavailable at once if too many calls wait already."""
        if self._under_way >= self._most:
            raise Unavailable("the server has too many requests to answer", outcome="none")
        self._under_way += 1
        try:
            return await call_in_thread(self._submit, work)
        finally:
            self._under_way -= 1

    def _submit(self, run: Callable[[], None]) -> None:
        # Only the event loop's thread comes here.
        if self._started < self._threads and self._under_way > self._started:
            self._started += 1
            threading.Thread(target=self._run, name=f"holdfast-{self._name}-{self._started}", daemon=True).start()
        self._work.put(run)

    def _run(self) -> None:
        while (run := self._work.get()) is not None:
            with contextlib.suppress(Exception):  # the result, or the error, is in the future of the caller
                run()

    def close(self) -> None:
        for _ in range(self._started):
            self._work.put(None)


def thread_pools(waiting_max: int) -> dict[str, WorkThreads]:
    """Return the threads by kind of call. A slow read must never delay a heartbeat, and no file a read.

    A client that takes its file slowly keeps a thread for as long, and so does an identity provider that answers slowly. Both
    have few threads, and none waits for one.
    """
    pools = {name: WorkThreads(name, size, waiting_max) for name, size in {"write": 16, "beat": 8, "read": 8}.items()}
    few = {"file": limits.HTTP_FILES_MAX, "provider": limits.HTTP_SIGN_INS_MAX}
    return {**pools, **{name: WorkThreads(name, size, 0) for name, size in few.items()}}
