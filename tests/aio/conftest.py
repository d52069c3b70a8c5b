"""Fixtures of the tests of `holdfast.aio`."""

import pytest


@pytest.fixture
def pg_url(reused_url: str) -> str:
    """An empty store on PostgreSQL."""
    return reused_url


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url
