"""What the tests of `holdfast.aio` share."""

import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import drop_schema


@pytest.fixture
def pg_url(postgres_url: str) -> Iterator[str]:
    """An empty store on PostgreSQL."""
    schema = f"hf_{uuid.uuid4().hex}"
    yield f"{postgres_url}?schema={schema}"
    drop_schema(postgres_url, schema)
