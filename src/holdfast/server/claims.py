"""Claims that wait for jobs, without a thread or a connection of their own."""

import asyncio
import contextlib
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.core import limits
from holdfast.errors import HoldfastError, TooManyRequests, Unavailable
from holdfast.keeping.outage import Outage
from holdfast.ledger import HeldJob, Ledger
from holdfast.ledger.verbs.fleet import ready_queues
from holdfast.server.call import Call
from holdfast.server.threads import WorkThreads
from holdfast.store.rows import chunks

ClaimKey = tuple[tuple[str, ...], tuple[str, ...] | None, tuple[str, ...]]
"""The queues, the kinds and the labels of a claim. Claims with the same ones are a group."""
SLICE_SECONDS = 0.25
"""The longest single wait of the thread that waits for changes, so that the server stops soon."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.005, 0.025
"""The pause after a change was told. It grows under constant load: the claims that were woken have work then."""
OUTAGE_SECONDS = 1.0
CLOSE_SECONDS = 1.0
log = logging.getLogger("holdfast.server")
GROUPS_WOKEN_MAX = 8
"""With more groups of waiting claims than this, a change wakes only those whose queues have a job that is ready."""


class ChangeWatcher:
    """One thread waits for changes of the ledger, and calls `on_change` in the event loop's thread."""

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._ledger = ledger
        self._loop = loop
        self._on_change = on_change
        self._stopping = threading.Event()
        self._outage = Outage(log, "waiting for changes")
        self._thread = threading.Thread(target=self._run, name="holdfast-changes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except Exception as error:  # noqa: BLE001 - without this thread, claims would wait for their whole time
                self._outage.began(error)
                self._stopping.wait(OUTAGE_SECONDS)

    def _watch(self) -> None:
        waiter = self._ledger.waiter()
        try:
            self._tell()  # no waiter has seen the changes before this one was made
            pause = PAUSE_SECONDS
            while not self._stopping.is_set():
                is_busy = waiter.wait(0.0)
                woken = is_busy or waiter.wait(SLICE_SECONDS)
                self._outage.over()
                if woken:
                    self._tell()
                    pause = min(2 * pause, PAUSE_SECONDS_MAX) if is_busy else PAUSE_SECONDS
                    self._stopping.wait(pause)
        finally:
            waiter.close()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_change)

    def close(self) -> None:
        """Stop. The thread uses the ledger, so wait for it, but not for long: a store out of reach may hold it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)


class WaitingClaim:
    """A claim that waits. `woken` is set when it should claim again."""

    __slots__ = ("key", "woken")

    def __init__(self, key: ClaimKey) -> None:
        self.key = key
        self.woken = asyncio.Event()


class Claims:
    """Claims of all workers. Those that wait for the same queues and kinds are woken one after the other, in their order."""

    def __init__(self, ledger: Ledger, writes: WorkThreads, reads: WorkThreads) -> None:
        self._ledger = ledger
        self._writes = writes
        self._reads = reads
        self._waiting: dict[ClaimKey, OrderedDict[WaitingClaim, None]] = {}
        self._listeners: set[asyncio.Event] = set()
        self._of_worker: Counter[str] = Counter()
        self.waiting = 0
        """How many claims wait."""
        self._changes = 0
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0
        """The newest change before the last look for queues with ready jobs."""
        self._ending = False

    async def claim(self, call: Call) -> list[HeldJob]:
        body, worker = call.body, call.worker
        attempt = partial(
            call.run,
            partial(
                self._ledger.claim,
                worker.name,
                body.queues,
                limit=body.limit,
                start=body.start,
                kinds=body.kinds,
                labels=body.labels,
                incarnation=worker.incarnation,
                request_id=call.request_id,
            ),
        )
        before = self._changes
        jobs = await self._writes.call(attempt)
        if jobs or not body.wait_s or self._ending:
            return jobs
        with self._place(worker.name):
            return await self._wait(call, attempt, before)

    @contextlib.contextmanager
    def _place(self, worker: str) -> Any:
        """Count a waiting claim. Raise if there are too many."""
        if self._of_worker[worker] >= limits.HTTP_CLAIMS_WAITING_OF_ONE_MAX:
            raise TooManyRequests(f"worker {worker} has {self._of_worker[worker]} claims that wait already", retry_after_s=1)
        if self.waiting >= limits.HTTP_CLAIMS_WAITING_MAX:
            raise Unavailable("too many claims wait already")
        self.waiting += 1
        self._of_worker[worker] += 1
        try:
            yield
        finally:
            self.waiting -= 1
            self._of_worker[worker] -= 1
            if not self._of_worker[worker]:
                del self._of_worker[worker]

    async def _wait(self, call: Call, attempt: Callable[[], list[HeldJob]], before: int) -> list[HeldJob]:
        """Wait for jobs. `before` is the newest change before a claim that found none."""
        loop, body = asyncio.get_running_loop(), call.body
        until_ready = partial(
            self._ledger.until_ready, body.queues, kinds=body.kinds, worker=call.worker.name, labels=body.labels
        )
        deadline = loop.time() + body.wait_s
        key: ClaimKey = (tuple(body.queues), None if body.kinds is None else tuple(body.kinds), tuple(sorted(body.labels)))
        waiting = WaitingClaim(key)
        line = self._waiting.setdefault(key, OrderedDict())
        line[waiting] = None
        if self._changes != before:
            waiting.woken.set()
        gone = asyncio.ensure_future(call.exchange.wait_until_gone())
        gone.add_done_callback(lambda _: waiting.woken.set())
        try:
            while True:
                due = await self._reads.call(until_ready)
                left = deadline - loop.time()
                if left <= 0 or self._ending:
                    return []
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(waiting.woken.wait(), left if due is None else min(left, max(due, 0.02)))
                waiting.woken.clear()
                if gone.done() or self._ending:
                    return []
                if jobs := await self._writes.call(attempt):
                    return jobs
                await self._pass_on(waiting)
        finally:
            gone.cancel()
            line.pop(waiting, None)
            if not line:
                self._waiting.pop(key, None)
            # There may be more jobs, or this claim was woken and could not claim: its client has gone, or the store failed.
            self._wake_first(key)

    async def _pass_on(self, waiting: WaitingClaim) -> None:
        """Wake the next claim of the group if there are jobs that this one could not have: they may be for another worker."""
        line = iter(self._waiting.get(waiting.key, ()))
        if waiting not in line:  # this advances to the place after it
            return
        following = next(line, None)
        if following is not None:
            ready: set[str] = await self._reads.call(partial(ready_queues, self._ledger, waiting.key[0]))
            if ready:
                following.woken.set()

    def _wake_first(self, key: ClaimKey) -> None:
        for waiting in self._waiting.get(key, ()):
            if not waiting.woken.is_set():
                waiting.woken.set()
                return

    @property
    def change(self) -> str:
        """Names the newest change that this server knows. Another server has other names."""
        return f"{self._ledger.incarnation}.{self._changes}"

    def notify(self) -> None:
        """Wake the first claim of each group that may find a job, and all that wait for any change."""
        self._changes += 1
        for event in self._listeners:
            event.set()
        if len(self._waiting) <= GROUPS_WOKEN_MAX:
            for key in list(self._waiting):
                self._wake_first(key)
        elif self._looking is None:
            self._looking = asyncio.create_task(self._wake_ready())

    async def _wake_ready(self) -> None:
        """Wake the first claim of each group whose queues have a ready job. Look again if there was a change meanwhile."""
        try:
            while self._looked_at != self._changes:
                self._looked_at = self._changes
                names = sorted({queue for queues, _, _ in self._waiting for queue in queues})
                for part in chunks(names, limits.NAMES_PER_CLAIM_MAX):
                    ready: set[str] = await self._reads.call(partial(ready_queues, self._ledger, part))
                    for key in list(self._waiting):
                        if not ready.isdisjoint(key[0]):
                            self._wake_first(key)
        except HoldfastError:
            self._looked_at = -1  # the next change is a reason to look again
        finally:
            self._looking = None

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait until the ledger has changed. Return False if the time is up first."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            await asyncio.wait_for(event.wait(), min(max(seconds, 0.0), limits.HTTP_WAIT_SECONDS_MAX))
        except TimeoutError:
            return False
        else:
            return not self._ending
        finally:
            self._listeners.discard(event)

    def end(self) -> None:
        """Answer all waiting claims now: the server stops."""
        self._ending = True
        for line in self._waiting.values():
            for waiting in line:
                waiting.woken.set()
        for event in self._listeners:
            event.set()
