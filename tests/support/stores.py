"""Tests that need only one of the stores in `make test`."""

from collections.abc import Callable, Iterable

import pytest


def leave_to_torture(items: Iterable[pytest.Item], is_of_one_store: Callable[[pytest.Function], bool]) -> None:
    """Run the chosen tests on SQLite only in `make test`, and on PostgreSQL, too, in `make torture`."""
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "postgres" in params.values() and is_of_one_store(item):  # type: ignore[arg-type]
            item.add_marker(pytest.mark.torture)
