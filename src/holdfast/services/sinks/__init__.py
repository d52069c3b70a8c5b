"""Where messages go."""

from holdfast.services.sinks.base import DeliveryFailed, Sink
from holdfast.services.sinks.plain import CallableSink, StdoutSink
from holdfast.services.sinks.webhook import WebhookSink

__all__ = ["CallableSink", "DeliveryFailed", "Sink", "StdoutSink", "WebhookSink"]
