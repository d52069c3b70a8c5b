"""The systemd units on pages start existing commands and wait for their end."""

import configparser
import shlex

import click
import pytest

from docs.generate import ROOT
from holdfast.cli.seal import seal
from holdfast.cli.worker import run
from holdfast.core.policy import DAY_MS, duration_ms
from holdfast.worker.heartbeats import GRACE_SECONDS
from tests.docs.pages import blocks


@pytest.fixture
def services() -> list[configparser.SectionProxy]:
    """The section [Service] of each unit of the guide: a worker's and a sealer's."""
    found = [configparser.ConfigParser(interpolation=None, strict=False) for _ in range(2)]
    for unit, parser in zip(blocks(ROOT / "docs/guides/fleet.md", "ini"), found, strict=True):
        parser.read_string(unit.text)
    return [parser["Service"] for parser in found]


def started(service: configparser.SectionProxy, command: click.Command, *words: str) -> click.Context:
    """The context of the command that a unit starts."""
    _, *given = shlex.split(service["ExecStart"])
    assert given[: len(words)] == [*words]
    return command.make_context(words[-1], given[len(words) :])


def test_a_unit_waits_for_an_orderly_end(services: list[configparser.SectionProxy]) -> None:
    given = started(services[0], run, "worker", "run").params
    patience_s = duration_ms("shutdown_timeout", given["shutdown_timeout"], 0, DAY_MS) / 1_000
    assert int(services[0]["TimeoutStopSec"]) > patience_s + GRACE_SECONDS


def test_a_unit_runs_the_sealer_until_it_is_stopped(services: list[configparser.SectionProxy]) -> None:
    given = started(services[1], seal, "seal").params
    assert not given["once"] and given["keys"] and given["anchor"] is not None
