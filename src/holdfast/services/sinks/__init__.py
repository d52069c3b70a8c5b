"""Sinks: receivers of messages."""

from holdfast.services.sinks.base import CallableSink, DeliveryFailed, Sink
from holdfast.services.sinks.webhook import WebhookSink

__all__ = ["CallableSink", "DeliveryFailed", "Sink", "WebhookSink"]
