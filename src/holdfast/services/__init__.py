"""Things that tick: each has a `tick()` that a test can call and a `run(stop)` that calls it when there is something to do."""

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
