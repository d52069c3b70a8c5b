"""Handlers by kind and by function: what an app offers, and what a worker of several apps can do."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.errors import ValidationError
from holdfast.worker.handlers import Handler


class Registry:
    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        self._by_kind: dict[str, Handler] = {}
        self._by_function: dict[Callable[..., Any], Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        if handler.kind in self._by_kind:
            raise ValidationError(f"there are two handlers for {handler.kind!r}", field="kind")
        self._by_kind[handler.kind] = handler
        self._by_function[handler.function] = handler

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)

    def of_kind(self, kind: str) -> Handler | None:
        return self._by_kind.get(kind)

    def find(self, named: Any) -> Handler:
        """The handler behind a function or a kind."""
        found = self._by_kind.get(named) if isinstance(named, str) else self._by_function.get(named)
        if found is None:
            name = named if isinstance(named, str) else getattr(named, "__qualname__", repr(named))
            raise ValidationError(f"{name:.200} is not a handler of this app", field="handler")
        return found

    def item(self, named: Any, args: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """What `enqueue_many` takes, with the arguments checked against the handler's signature."""
        handler = self.find(named)
        return {"kind": handler.kind, "queue": handler.queue, **handler.options, **options, "args": handler.signature.admit(args)}
