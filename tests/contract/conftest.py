"""Agents at the ledger under test."""

import pytest

from holdfast import Ledger
from holdfast.agent import Agent


@pytest.fixture
def ada(ledger: Ledger) -> Agent:
    return Agent(ledger, "ada")


@pytest.fixture
def bob(ledger: Ledger) -> Agent:
    return Agent(ledger, "bob")
