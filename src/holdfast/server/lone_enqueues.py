"""Lone enqueues of many connections: those that come while others are being written share the next transaction."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.errors import Unavailable
from holdfast.ledger import Ledger
from holdfast.ledger.verbs.jobs import EnqueueCall, EnqueuedJob, enqueue_together
from holdfast.server.threads import WorkThreads

TOGETHER_MAX = 100
"""The most calls of one transaction."""


class _Waiting(NamedTuple):
    call: EnqueueCall
    reply: Callable[[EnqueuedJob], Any]
    answer: "asyncio.Future[Any]"


class LoneEnqueues:
    """Runs calls that each enqueue one job. One thread writes at a time: a thread for each call costs more than its enqueue.

    Only the event loop's thread uses it.
    """

    def __init__(self, ledger: Ledger, writes: WorkThreads, waiting_max: int) -> None:
        self._ledger = ledger
        self._writes = writes
        self._waiting_max = waiting_max
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def enqueue(self, call: EnqueueCall, reply: Callable[[EnqueuedJob], Any]) -> Any:
        """Create a job, and return what `reply` makes of it in the thread. None: another transaction uses the request id.

        Raise the refusal of this call, or Unavailable at once if too many calls wait already.
        """
        if len(self._waiting) >= self._waiting_max:
            raise Unavailable("the server has too many requests to answer", outcome="none")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(call, reply, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER_MAX))]
                answers: Sequence[Any]
                try:
                    answers = await self._writes.call(partial(self._write, group))
                except Exception as error:  # noqa: BLE001 - each caller gets it
                    answers = [error] * len(group)
                for one, answer in zip(group, answers, strict=True):
                    if one.answer.done():  # its client has gone
                        continue
                    if isinstance(answer, Exception):
                        one.answer.set_exception(answer)
                    else:
                        one.answer.set_result(answer)
        finally:
            self._task = None

    def _write(self, group: Sequence[_Waiting]) -> list[Any]:
        found = enqueue_together(self._ledger, [one.call for one in group])
        return [
            one.reply(answer) if isinstance(answer, EnqueuedJob) else answer for one, answer in zip(group, found, strict=True)
        ]
