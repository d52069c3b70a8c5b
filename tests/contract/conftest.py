"""Agents of the ledger under test, and an empty schema for each test, which on PostgreSQL is emptied and reused."""

import pytest

from holdfast import Ledger
from holdfast.agent import Agent


@pytest.fixture
def empty_schema(reused_url: str) -> str:
    return reused_url


@pytest.fixture
def ada(ledger: Ledger) -> Agent:
    return Agent(ledger, "ada")


@pytest.fixture
def bob(ledger: Ledger) -> Agent:
    return Agent(ledger, "bob")
