"""The fixtures of the pytest plugin by their place in the package: `-p holdfast.testing.plugin` where plugins are not found by
themselves."""

from _holdfast_pytest import holdfast_app, holdfast_bind, holdfast_clock, holdfast_ledger, holdfast_url

__all__ = ["holdfast_app", "holdfast_bind", "holdfast_clock", "holdfast_ledger", "holdfast_url"]
