"""Enqueueing for a handler. Arguments are checked against its signature at run time, and by type checkers before."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.ledger import Job
from holdfast.ledger.public import CallOptions

if TYPE_CHECKING:
    from holdfast.worker.context import AsyncContext

P = ParamSpec("P")
R = TypeVar("R")

OPTIONS = CallOptions.__optional_keys__ | CallOptions.__required_keys__
"""The options of `app.options` and `job.options`."""


# A handler that takes a Context takes an AsyncContext too, so one signature serves both.


class EnqueueMethods:
    """The `enqueue` method, typed by the handler's own parameters."""

    @overload
    def enqueue(
        self, handler: "Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R | None]: ...
    @overload
    def enqueue(
        self, handler: "Callable[Concatenate[AsyncContext, P], R]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R | None]: ...
    @overload
    def enqueue(self, handler: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R | None]: ...
    @overload
    def enqueue(self, handler: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R | None]: ...
    @overload
    def enqueue(self, handler: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    def enqueue(self, handler: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue a job for a handler or a kind. The arguments are the handler's, without its context, and are checked first."""
        return self._enqueue(handler, args, kwargs)

    @abstractmethod
    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job[Any]: ...


class AsyncEnqueueMethods:
    """`enqueue` as a coroutine, typed by the handler's own parameters."""

    @overload
    async def enqueue(
        self, handler: "Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R | None]: ...
    @overload
    async def enqueue(
        self, handler: "Callable[Concatenate[AsyncContext, P], R]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R | None]: ...
    @overload
    async def enqueue(
        self, handler: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R | None]: ...
    @overload
    async def enqueue(self, handler: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R | None]: ...
    @overload
    async def enqueue(self, handler: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    async def enqueue(self, handler: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue a job for a handler or a kind. The arguments are the handler's, without its context, and are checked first."""
        return await self._enqueue(handler, args, kwargs)

    @abstractmethod
    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job[Any]]: ...


EnqueueFunction = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Job[Any]]


class ChildEnqueuer(EnqueueMethods):
    """Enqueue jobs that get the correlation id and the trace of the running job."""

    def __init__(self, enqueue_job: EnqueueFunction) -> None:
        self._enqueue_job = enqueue_job

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job[Any]:
        return self._enqueue_job(handler, args, kwargs)


class AsyncChildEnqueuer(AsyncEnqueueMethods):
    def __init__(self, enqueue_job: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Awaitable[Job[Any]]]) -> None:
        self._enqueue_job = enqueue_job

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job[Any]]:
        return self._enqueue_job(handler, args, kwargs)
