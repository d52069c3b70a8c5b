"""Things that tick: each one file with a `tick()` that a test can call.

The rooms of the outbox are entered only when somebody asks for them: most workers have no sinks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.services.messages import CloudEvent, Message, StatusData, Topic
    from holdfast.services.relay import Relay
    from holdfast.services.sinks import CallableSink, DeliveryFailed, Sink, StdoutSink, WebhookSink

__all__ = [
    "CallableSink",
    "CloudEvent",
    "DeliveryFailed",
    "Message",
    "Relay",
    "Sink",
    "StatusData",
    "StdoutSink",
    "Topic",
    "WebhookSink",
]

_ROOMS = {
    **dict.fromkeys(("CloudEvent", "Message", "StatusData", "Topic"), "messages"),
    **dict.fromkeys(("CallableSink", "DeliveryFailed", "Sink", "StdoutSink", "WebhookSink"), "sinks"),
    "Relay": "relay",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'holdfast.services' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"holdfast.services.{_ROOMS[name]}"), name)
    return found
