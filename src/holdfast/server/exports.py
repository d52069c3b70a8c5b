"""Routes that stream many lines: the export of the ledger, the proof of a job, and lists of jobs as files."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

import msgspec

from holdfast.core import limits
from holdfast.errors import Forbidden, Unavailable
from holdfast.ledger import Job
from holdfast.server import bodies as b
from holdfast.server.call import Call, Reply
from holdfast.server.routes import route
from holdfast.server.streams import Stream

PARTS_MAX = 16
"""Parts that wait for the client. The thread that makes them waits too."""
PART_SECONDS_MAX = 30.0
PART_BYTES = 65_536
NDJSON = "application/x-ndjson"
_encode = msgspec.json.Encoder().encode


class LineStream:
    """Parts that a thread makes and the event loop sends. A client that takes nothing stops the thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(PARTS_MAX)
        self._buffer = bytearray()
        self._closed = False
        self._error: BaseException | None = None

    def write(self, line: bytes) -> None:
        """Add a line. Raise Unavailable if the client has gone or takes nothing."""
        self._buffer += line
        if len(self._buffer) >= PART_BYTES:
            self._flush()

    def _flush(self) -> None:
        part = bytes(self._buffer)
        self._buffer.clear()
        self._put(part)

    def _put(self, part: bytes | None) -> None:
        if self._closed:
            raise Unavailable("the client has gone")
        try:
            asyncio.run_coroutine_threadsafe(self._parts.put(part), self._loop).result(PART_SECONDS_MAX)
        except TimeoutError:
            raise Unavailable("the client takes nothing") from None

    def _produce(self, work: Callable[[Callable[[bytes], object]], object]) -> None:
        try:
            work(self.write)
            self._flush()
        except BaseException as error:  # noqa: BLE001 - the stream is cut, so that the client does not take it for whole
            self._error = error
        finally:
            if not self._closed:
                self._put(None)

    def _note_refusal(self, producing: "asyncio.Future[None]") -> None:
        """End the stream if no thread could take the work."""
        if not producing.cancelled() and (error := producing.exception()) is not None:
            self._error = error
            self._parts.put_nowait(None)

    async def parts(self, call: Call, work: Callable[[Callable[[bytes], object]], object]) -> AsyncGenerator[bytes, None]:
        """Yield the parts. Raise if the work fails: the connection is closed before the end."""
        producing = asyncio.ensure_future(call.server.pools["file"].call(lambda: self._produce(work)))
        producing.add_done_callback(self._note_refusal)
        try:
            while (part := await self._parts.get()) is not None:
                if part:
                    yield part
            if self._error is not None:
                raise self._error
        finally:
            self._closed = True
            while not self._parts.empty():
                self._parts.get_nowait()
            producing.cancel()


async def _attached(call: Call, name: str, media_type: str, work: Callable[[Callable[[bytes], object]], object]) -> Reply:
    """Answer a file. An error before its first part is answered as usual; a later one cuts the connection."""
    parts = LineStream().parts(call, work)
    first = await anext(parts, b"")

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield first
            async for part in parts:
                yield part
        finally:
            await parts.aclose()

    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Reply(Stream(whole(), media_type), headers=headers)


@route("GET", "/v1/export", "admin", answer=None, awaits=True, verb="export", media=(NDJSON,))
async def export(call: Call) -> Reply:
    """Stream all events as lines that `holdfast verify` checks."""
    call.check_scope(None)
    return await _attached(call, f"holdfast-{call.ledger.id}.jsonl", NDJSON, call.ledger.export)


@route("GET", "/v1/jobs/{job_id}/proof", "reader", answer=None, awaits=True, verb="read", media=(NDJSON,))
async def prove(call: Call) -> Reply:
    """Stream the events of one job with what proves them."""
    if call.redaction is not None:
        raise Forbidden(
            "a proof has all contents, and some are hidden from this caller",
            action="Use a token whose role is not in redact_for.",
            verb="prove",
        )
    job_id = await call.server.read(call.check_visible)

    def work(write: Callable[[bytes], object]) -> object:
        return call.ledger.prove(job_id, write)

    return await _attached(call, f"holdfast-{call.ledger.id}-{job_id}.jsonl", NDJSON, work)


@route("GET", "/v1/jobs/export", "reader", query=b.ListQuery, answer=None, awaits=True, verb="read", media=(NDJSON,))
async def export_jobs(call: Call) -> Reply:
    """Stream the jobs of a list as a file, up to 100,000."""
    call.check_search(call.query.text)

    def work(write: Callable[[bytes], object]) -> None:
        for job in _chosen(call):
            write(_encode(call.view(job)) + b"\n")

    return await _attached(call, "jobs.ndjson", NDJSON, work)


def _chosen(call: Call) -> Iterator[Job]:
    """Yield the jobs of the filter, page by page."""
    given = msgspec.structs.asdict(call.query)
    for name in ("fields", "why", "cursor"):
        del given[name]
    left = limits.HTTP_EXPORT_JOBS_MAX
    given["limit"] = limits.PAGE_MAX
    while left > 0:
        page = call.ledger.list(**given)
        for job in page[:left]:
            if call.principal.sees(job.queue):
                yield job
        left -= len(page)
        if page.next_cursor is None:
            return
        given |= {"after": 0, "cursor": page.next_cursor}
