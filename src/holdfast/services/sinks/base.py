"""The base class of sinks, and the sink that calls a function."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

from holdfast.core import vocabulary
from holdfast.core.limits import NAME_BYTES_MAX, check_integer, check_name, check_text
from holdfast.core.vocabulary import Dialect
from holdfast.errors import ValidationError
from holdfast.ledger import validate
from holdfast.ledger.dialects import read_dialect
from holdfast.services.messages import Message, Topic

ATTEMPTS_MAX = 12
"""Failures in a row after which a sink is dead, by default. The waits between them add up to about half an hour."""
SINK_NAME_BYTES_MAX = NAME_BYTES_MAX // 2
"""Shorter than other names, because the name of a duty contains it."""


class DeliveryFailed(Exception):
    """A message did not arrive. If `final` is set, a retry cannot succeed."""

    def __init__(self, cause: str, *, final: bool = False) -> None:
        super().__init__(cause)
        self.final = final


class Sink(ABC):
    """A receiver of messages. `types`, `messages`, `queues` and `kinds` filter them; a filter that is None lets all pass.

    A new sink starts with the next event, or with the first one if `start` is `"beginning"`. `dialect` chooses the names and
    shapes in the `data` of its documents: holdfast, liveness, jobs or tasks.
    """

    def __init__(
        self,
        *,
        name: str,
        types: Iterable[str] | None = None,
        messages: Iterable[str] | None = None,
        queues: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        start: Literal["now", "beginning"] = "now",
        include_payload: bool = False,
        dialect: str = Dialect.HOLDFAST,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        self.name = check_text("name", name, SINK_NAME_BYTES_MAX)
        self._types = None if types is None else frozenset(vocabulary.event_types(validate.items("types", types)))
        self._topics = None if messages is None else frozenset(_topic(given) for given in validate.items("messages", messages))
        self._queues = None if queues is None else frozenset(check_name("queues", q) for q in validate.items("queues", queues))
        self._kinds = None if kinds is None else frozenset(check_name("kinds", k) for k in validate.items("kinds", kinds))
        self.of_heads = self._topics is not None and Topic.TREE_HEAD in self._topics
        if self.of_heads and (len(self._topics or ()) > 1 or any(given is not None for given in (types, queues, kinds))):
            raise ValidationError("a sink of TREE_HEAD gets nothing else, and has no other filters", field="messages")
        if start not in ("now", "beginning"):
            raise ValidationError('start must be "now" or "beginning"', field="start")
        self.from_beginning = start == "beginning"
        self.include_payload = validate.switch("include_payload", include_payload)
        self.dialect = read_dialect(dialect)
        self.attempts_max = check_integer("attempts_max", attempts_max, 1, 1_000)

    def wants(self, message: Message) -> bool:
        data = message.data
        return (
            (self._types is None or data.type in self._types)
            and (self._topics is None or data.message in self._topics)
            and (self._queues is None or data.queue in self._queues)
            and (self._kinds is None or data.kind in self._kinds)
        )

    @abstractmethod
    def deliver(self, message: Message, at: datetime) -> None:
        """Deliver one message at ledger time `at`. Any exception is a failure. Its text is stored and must contain no secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


def _topic(given: str) -> Topic:
    try:
        return Topic(given)
    except ValueError:
        raise ValidationError(f"messages must be among {', '.join(Topic)}", field="messages") from None


class CallableSink(Sink):
    """Call `fn(message)`. The delivery has succeeded if the call returns, and failed if it raises."""

    def __init__(self, fn: Callable[[Message], object], *, name: str = "callable", **options: Any) -> None:
        super().__init__(name=name, **options)
        if not callable(fn):
            raise ValidationError("fn must be callable", field="fn")
        self._fn = fn

    def deliver(self, message: Message, at: datetime) -> None:
        self._fn(message)
