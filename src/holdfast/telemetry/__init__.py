"""What operators watch: counts and timings, spans, log lines. Costs next to nothing where nobody is watching."""

from holdfast.telemetry.metrics import Metrics, Quantiles

__all__ = ["Metrics", "Quantiles"]
