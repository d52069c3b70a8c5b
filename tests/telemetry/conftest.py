"""An empty schema for each test, which on PostgreSQL is emptied and reused."""

import pytest


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url
