"""Telemetry: metrics, spans and log lines. It costs almost nothing while no collector is set up."""

from holdfast.telemetry.metrics import Metrics, Quantiles

__all__ = ["Metrics", "Quantiles"]
