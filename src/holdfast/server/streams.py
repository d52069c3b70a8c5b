"""Events as server-sent events: one reader for all followers, and pages from the store for those that are behind."""

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import msgspec

from holdfast.core import limits, vocabulary
from holdfast.core.text import iso_format
from holdfast.errors import Conflict, ValidationError
from holdfast.keeping.outage import Outage
from holdfast.ledger import Event, Ledger
from holdfast.server import bodies as b
from holdfast.server.call import Call, Reply
from holdfast.server.routes import route
from holdfast.server.threads import WorkThreads
from holdfast.server.throttles import StreamSlots

KEEPALIVE_SECONDS = 15.0
BOOKMARK_SECONDS = 10.0
AGE_SECONDS_MAX = 3_600.0
"""After this time a stream ends, and the follower opens another one."""
RING_EVENTS_MAX = 10_000
RING_BYTES_MAX = 8_388_608
PAGE = 500
READS_MAX = 4
"""Followers that read pages from the store at once."""
POLL_SECONDS = 0.25
"""How often the reader looks for events if no change was told."""
log = logging.getLogger("holdfast.server")
_POSITION = re.compile(r"[0-9]{1,16}", re.ASCII)
EVENT_STREAM = "text/event-stream"
RETRY = b"retry: 2000\n\n"
_encode = msgspec.json.Encoder().encode


class Stream(NamedTuple):
    """An answer that is sent part by part."""

    parts: AsyncIterator[bytes]
    media_type: str = EVENT_STREAM


class RingEntry(NamedTuple):
    event: Event
    body: bytes
    """The event as JSON."""


class EventFeed:
    """Reads new events once for all followers while there are any, and keeps the newest in memory."""

    def __init__(self, ledger: Ledger, reads: WorkThreads) -> None:
        self._ledger = ledger
        self._reads = reads
        self._ring: deque[RingEntry] = deque()
        self._size = 0
        self._first = 0
        """Every event after this position, up to `pos`, is in the ring."""
        self.pos = 0
        """The position up to which all events were read. No event can appear at or before it any more."""
        self._changed = asyncio.Event()
        self._told = asyncio.Event()
        self.slots = StreamSlots()
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self._pages = asyncio.Semaphore(READS_MAX)
        self._outage = Outage(log, "event feed")
        self.ending = False

    def notify(self) -> None:
        """Read new events soon."""
        self._told.set()

    @contextlib.asynccontextmanager
    async def joined(self, principal: str) -> AsyncIterator[None]:
        """Count a follower. The first one starts the reader, the last one stops it."""
        self._followers += 1
        try:
            if self._task is None:
                pos = await self._reads.call(self._ledger.stable_position)
                if self._task is None:  # another follower may have started the reader meanwhile
                    self._start_at(pos)
            with self.slots.slot(principal):
                yield
        finally:
            self._followers -= 1
            if not self._followers and self._task is not None:
                self._task.cancel()
                self._task = None

    def _start_at(self, pos: int) -> None:
        self._first = self.pos = pos
        self._ring.clear()
        self._size = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                while found := await self._reads.call(partial(self._ledger.stable_events, self.pos, limit=limits.PAGE_MAX)):
                    self._add(found)
                self._outage.over()
            except Exception as error:  # noqa: BLE001 - without its reader, followers would wait forever
                self._outage.began(error)
            self._told.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), POLL_SECONDS)

    def _add(self, events: Sequence[Event]) -> None:
        for event in events:
            body = _encode(event)
            self._ring.append(RingEntry(event, body))
            self._size += len(body)
            while self._size > RING_BYTES_MAX or len(self._ring) > RING_EVENTS_MAX:
                dropped = self._ring.popleft()
                self._size -= len(dropped.body)
                self._first = dropped.event.pos
        self.pos = events[-1].pos
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def after(self, pos: int, seconds: float) -> tuple[list[RingEntry], int]:
        """Return events after a position, and the position up to which they are complete. Wait for some if there are none."""
        if pos >= self.pos:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)
        if pos >= self.pos:
            return [], pos
        complete = self.pos  # the reader may add events while a page is read, and the page may be without them
        if pos >= self._first:
            found = self._newer(pos)
        else:
            async with self._pages:
                page = await self._reads.call(partial(self._ledger.stable_events, pos, limit=PAGE))
            found = [RingEntry(event, _encode(event)) for event in page]
        return found, found[-1].event.pos if found else complete

    def _newer(self, pos: int) -> list[RingEntry]:
        """Return the first events of the ring after a position. Most followers lack only the newest, so it is read backwards."""
        found = list(takewhile(lambda entry: entry.event.pos > pos, reversed(self._ring)))
        return found[: -PAGE - 1 : -1]

    def end(self) -> None:
        """End all streams: the server stops."""
        self.ending = True
        self._changed.set()


class StreamQuery(b.Body, frozen=True):
    after: int | None = None
    types: str | None = None
    queue: str | None = None
    kind: str | None = None
    job_id: int | None = None
    correlation_id: str | None = None


class EventChoice:
    """Which events a follower gets: those of its filter, of queues that it may see."""

    def __init__(self, call: Call) -> None:
        query: StreamQuery = call.query
        self._types = None if query.types is None else frozenset(vocabulary.event_types(query.types.split(",")))
        self._query = query
        self._sees = call.principal.sees
        self.needs_origins = query.queue is not None or query.kind is not None or not call.principal.sees_all

    def takes(self, event: Event, origin: tuple[str, str] | None) -> bool:
        query = self._query
        if self._types is not None and event.type not in self._types:
            return False
        if query.job_id not in (None, event.job_id) or query.correlation_id not in (None, event.correlation_id):
            return False
        if not self.needs_origins:
            return True
        if origin is None:
            return False
        queue, kind = origin
        return query.queue in (None, queue) and query.kind in (None, kind) and self._sees(queue)


@route("GET", "/v1/events/stream", "reader", query=StreamQuery, answer=None, verb="read", awaits=True, media=(EVENT_STREAM,))
async def events_stream(call: Call) -> Reply:
    """Follow the events: each once, in order, from `Last-Event-ID` or `after` on."""
    feed: EventFeed = call.server.feed
    after = _start(call)
    choice = EventChoice(call)
    if after is None:
        after = await call.server.read(call.ledger.stable_position)
    elif after > (newest := await call.server.read(call.ledger.position)):
        action = "Start anew, without Last-Event-ID: this is another ledger."
        raise Conflict(f"position {after} is beyond this ledger's newest position, {newest}", action=action, pos=newest)
    feed.slots.check(call.principal.key)
    return Reply(Stream(_follow(call, feed, choice, after)))


def _start(call: Call) -> int | None:
    text = call.last_event_id
    if text is None:
        return call.query.after  # type: ignore[no-any-return]
    if not _POSITION.fullmatch(text):
        raise ValidationError("Last-Event-ID is a position", field="Last-Event-ID")
    return int(text)


async def _follow(call: Call, feed: EventFeed, choice: EventChoice, after: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    opened = bookmarked = loop.time()
    async with feed.joined(call.principal.key):
        now = iso_format(await call.server.read(call.ledger.now), "microseconds")
        hello = {"ledger_id": call.ledger.id, "pos": feed.pos, "after": after, "now": now}
        yield RETRY + _message("hello", _encode(hello))
        while not feed.ending and loop.time() - opened < AGE_SECONDS_MAX:
            found, complete = await feed.after(after, KEEPALIVE_SECONDS)
            parts = await _chosen(call, choice, found)
            if parts:
                bookmarked = loop.time()
                yield b"".join(parts)
            elif complete > after and loop.time() - bookmarked >= BOOKMARK_SECONDS:
                bookmarked = loop.time()
                yield _message("bookmark", _encode({"pos": complete}), complete)
            elif complete == after:
                yield b": keep-alive\n\n"
            after = complete
        yield _message("bye", _encode({"reason": "ending" if feed.ending else "rotate"}))


async def _chosen(call: Call, choice: EventChoice, found: list[RingEntry]) -> list[bytes]:
    origins: dict[int, tuple[str, str]] = {}
    if found and choice.needs_origins:
        ids = sorted({entry.event.job_id for entry in found})
        origins = await call.server.read(partial(call.server.origins, ids))
    parts = []
    for entry in found:
        if choice.takes(entry.event, origins.get(entry.event.job_id)):
            body = entry.body if call.redaction is None else _encode(call.redaction.fields(entry.event))
            parts.append(_message("event", body, entry.event.pos))
    return parts


def _message(name: str, data: bytes, id_: int | None = None) -> bytes:
    head = b"" if id_ is None else b"id: %d\n" % id_
    return head + b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
