"""Waits for a server: for new work, for the end of a job, and for events.

Each is one request that the server answers when there is something. It stays under way while the caller looks after other
things, so that waiting in short steps costs no further requests. The connections for this are limited. A wait that finds none
free, or that the server refuses, looks again and again instead.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from holdfast.core.limits import HTTP_WAIT_SECONDS_MAX
from holdfast.core.model import TERMINAL
from holdfast.errors import HoldfastError, TooManyRequests, Unavailable
from holdfast.ledger import Event
from holdfast.remote import answers as a
from holdfast.remote.items import path
from holdfast.remote.sockets import RequestDeadline
from holdfast.remote.transport import PendingAnswer, Transport
from holdfast.store.callers import stop_if_abandoned

POLL_SECONDS = 0.25
"""How long to wait before looking again without the server's help."""
STEP_SECONDS = 1.0
"""The longest single wait of a thread that works for a coroutine, so that a cancelled call ends soon."""
HELLO_SECONDS = 5.0
"""A stream whose first line takes longer is held back by a proxy, and is not used."""
SILENCE_SECONDS = 40.0
"""A stream is dead without a line for this long. The server sends one every 15 seconds."""
REFUSED_SECONDS = 30.0
"""How long to do without a stream after it was refused."""


class RemoteWaiter:
    """Waits for the server to tell of a change. A change between two waits is not missed."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._pending: PendingAnswer[a.WakeUp] | None = None
        self._seen = transport.call("GET", "/v1/wake", a.WakeUp, query={"wait_s": 0}).change

    def wait(self, timeout: float) -> bool:
        """Return True as soon as there may be a change, and False after `timeout` seconds without one."""
        end = time.monotonic() + timeout
        try:
            while True:
                if self._pending is None:
                    query = {"wait_s": HTTP_WAIT_SECONDS_MAX, "after": self._seen}
                    self._pending = self._transport.begin("/v1/wake", a.WakeUp, query)
                if not self._pending.has_come(end - time.monotonic()):
                    return False
                answered, self._pending = self._pending, None
                found = answered.read()
                self._seen = found.change
                if found.woken:
                    return True
        except (Unavailable, TooManyRequests) as error:
            if not error.retryable:
                raise
            self.close()
            time.sleep(max(0.0, min(end - time.monotonic(), POLL_SECONDS)))
            return True

    def close(self) -> None:
        if self._pending is not None:
            self._pending.close()
            self._pending = None


def wait_for_end(transport: Transport, read: Callable[[], Any], job_id: int, seconds: float | None) -> Any:
    """Return the job when it is over, or as it is after this many seconds. `read` returns the job as it is now."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = HTTP_WAIT_SECONDS_MAX if end is None else min(HTTP_WAIT_SECONDS_MAX, end - time.monotonic())
        if left <= 0:
            return read()
        try:
            found = _end_within(transport, job_id, left)
        except (Unavailable, TooManyRequests) as error:
            if not error.retryable:
                raise
            found = read()
            if found.status not in TERMINAL:
                time.sleep(min(left, POLL_SECONDS))
        if found.status in TERMINAL:
            return found


def _end_within(transport: Transport, job_id: int, seconds: float) -> Any:
    pending = transport.begin(path("jobs", job_id), a.FoundAnswer, {"wait": seconds})
    end = time.monotonic() + seconds + transport.seconds
    try:
        while not pending.has_come(STEP_SECONDS):
            stop_if_abandoned()
            if time.monotonic() > end:
                raise Unavailable("the server did not answer in time")
        return pending.read().job
    finally:
        pending.close()


# Events


class FollowDeadline(RequestDeadline):
    """The time limits of a stream: for the first line, for any line, and for an event."""

    def __init__(self, end: float | None) -> None:
        super().__init__(HELLO_SECONDS)
        self._event_end = end
        """When to stop without an event. None: never."""
        self.has_begun = False
        """Whether a line has come."""

    def extend(self) -> None:
        """Note that a line has come."""
        self.has_begun = True
        self._end = time.monotonic() + SILENCE_SECONDS

    def expect_event(self, end: float | None) -> None:
        self._event_end = end

    @property
    def is_over(self) -> bool:
        """Whether there was no event in time."""
        return self._event_end is not None and time.monotonic() >= self._event_end

    def left(self) -> float:
        stop_if_abandoned()
        if self.is_over:
            raise TimeoutError
        left = min(super().left(), STEP_SECONDS)
        return left if self._event_end is None else max(0.001, min(left, self._event_end - time.monotonic()))


class EventFollower:
    """Follows the events of a server. Pages of events are read until there are no more, and then the stream."""

    def __init__(self, transport: Transport, read: Callable[[int], a.StableEvents], after: int, seconds: float | None) -> None:
        """`read` returns the next events after a position. The follower ends after this many seconds without an event."""
        self._transport = transport
        self._read = read
        self._after = after
        self._seconds = seconds
        self._end: float | None = None
        """When to end without another event. None: never."""
        self._streams_from = float("-inf")
        """When to ask for a stream again after it was refused."""

    def events(self) -> Generator[Event, None, None]:
        self._expect_event()
        while True:
            yield from self._pages()
            if self._end is not None and time.monotonic() >= self._end:
                return
            if time.monotonic() >= self._streams_from:
                yield from self._streamed()
            stop_if_abandoned()
            time.sleep(POLL_SECONDS if self._end is None else max(0.0, min(POLL_SECONDS, self._end - time.monotonic())))

    def _pages(self) -> Generator[Event, None, None]:
        """Yield the events up to now. After a stream was cut, this finds what it did not send."""
        while True:
            page = self._read(self._after)
            if page.events:
                yield from page.events
                self._after = page.events[-1].pos
                self._expect_event()
            elif page.next_after is None:
                return
            self._after = page.next_after or self._after

    def _expect_event(self) -> None:
        self._end = None if self._seconds is None else time.monotonic() + self._seconds

    def _streamed(self) -> Generator[Event, None, None]:
        """Yield the events of one stream until it ends, is cut, or there was no event in time."""
        deadline = FollowDeadline(self._end)
        query = {"after": self._after}
        try:
            with contextlib.closing(self._transport.lines("/v1/events/stream", query, STREAM_TYPE, deadline=deadline)) as lines:
                for message in _messages(lines, deadline):
                    if message.name == b"event":
                        event = _decode_event(message.data)
                        yield event
                        self._after = event.pos
                        self._expect_event()
                        deadline.expect_event(self._end)
                    elif message.name == b"bookmark":
                        self._after = _decode_bookmark(message.data).pos
        except (HoldfastError, msgspec.DecodeError):
            # What the server refuses for a reason that matters to the caller, it refuses for the next page too.
            if not deadline.has_begun:
                self._streams_from = time.monotonic() + REFUSED_SECONDS


class StreamMessage(NamedTuple):
    name: bytes
    data: bytes


class Bookmark(msgspec.Struct, frozen=True):
    pos: int


STREAM_TYPE = "text/event-stream"
_decode_event = msgspec.json.Decoder(Event).decode
_decode_bookmark = msgspec.json.Decoder(Bookmark).decode


def _messages(lines: Iterable[bytes], deadline: FollowDeadline) -> Iterator[StreamMessage]:
    """Yield the complete messages of a stream. The server sends each one's data in one line."""
    fields: dict[bytes, bytes] = {}
    for line in lines:
        deadline.extend()
        name, _, text = line.rstrip(b"\r\n").partition(b": ")
        if name:
            fields[name] = text
            continue
        if b"data" in fields:
            yield StreamMessage(fields.get(b"event", b""), fields[b"data"])
        fields = {}
