"""The fixtures of the pytest plugin under a name in the package: use `-p holdfast.testing.plugin` if plugins are not loaded
automatically."""

from _holdfast_pytest import holdfast_app, holdfast_bind, holdfast_clock, holdfast_ledger, holdfast_url

__all__ = ["holdfast_app", "holdfast_bind", "holdfast_clock", "holdfast_ledger", "holdfast_url"]
