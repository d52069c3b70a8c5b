"""Background services. Each is one module with a `tick()` that a test can call.

The modules of the outbox and of the sealed log are imported only when they are used: most workers need neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.services.anchors import FileAnchor
    from holdfast.services.history import HistoryService
    from holdfast.services.messages import CloudEvent, HeadData, HeadMessage, Message, StatusData, Topic
    from holdfast.services.relay import Relay
    from holdfast.services.sealer import Sealer
    from holdfast.services.sinks import CallableSink, DeliveryFailed, Sink, WebhookSink

__all__ = [
    "CallableSink",
    "CloudEvent",
    "DeliveryFailed",
    "FileAnchor",
    "HeadData",
    "HeadMessage",
    "HistoryService",
    "Message",
    "Relay",
    "Sealer",
    "Sink",
    "StatusData",
    "Topic",
    "WebhookSink",
]

_MODULES = {
    **dict.fromkeys(("CloudEvent", "HeadData", "HeadMessage", "Message", "StatusData", "Topic"), "messages"),
    **dict.fromkeys(("CallableSink", "DeliveryFailed", "Sink", "WebhookSink"), "sinks"),
    "FileAnchor": "anchors",
    "HistoryService": "history",
    "Relay": "relay",
    "Sealer": "sealer",
}


if not TYPE_CHECKING:  # type checkers see the imports above, and report every other name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'holdfast.services' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"holdfast.services.{_MODULES[name]}"), name)
        return value
