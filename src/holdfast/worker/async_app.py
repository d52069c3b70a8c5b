"""An app's methods as coroutines. Each runs in a thread."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.aio import AsyncLedger
from holdfast.aio.threads import ThreadBridge
from holdfast.ledger import Job
from holdfast.ledger.public import CallOptions
from holdfast.worker.enqueue import AsyncEnqueueMethods

if TYPE_CHECKING:
    from holdfast.worker.app import App, Enqueuer


class AsyncEnqueuer(AsyncEnqueueMethods):
    """Enqueue jobs with options: `await app.aio.options(priority=5).enqueue(index_page, url=…)`."""

    def __init__(self, enqueuer: "Enqueuer | App", threads: ThreadBridge) -> None:
        self._enqueuer = enqueuer
        self._threads = threads

    async def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        return await self._threads.call(lambda: self._enqueuer.enqueue(handler, *args, **kwargs))

    async def enqueue_many(self, handler: Any, args: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs for one handler in one transaction: all or none."""
        return await self._threads.call(lambda: self._enqueuer.enqueue_many(handler, args))


class AsyncApp(AsyncEnqueuer):
    """The methods of an app that use the ledger, as coroutines. It is `app.aio`."""

    def __init__(self, app: "App") -> None:
        super().__init__(app, ThreadBridge())
        self._app = app
        self.ledger = AsyncLedger(lambda: app.ledger, self._threads)
        """The app's ledger. It is opened when it is first used."""

    def options(self, **options: Unpack[CallOptions]) -> AsyncEnqueuer:
        """Set options of `ledger.enqueue` for a call: priority, delay, dedupe_key, queue, tier, request_id, connection…"""
        return AsyncEnqueuer(self._app.options(**options), self._threads)

    async def close(self) -> None:
        """Close the app's ledger. It is opened again when it is next used."""
        await self._threads.call(self._app.close)
