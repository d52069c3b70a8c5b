"""The systemd units on pages start existing commands and wait for their end."""

import configparser
import shlex

from docs.generate import ROOT
from holdfast.cli.worker import run
from holdfast.core.policy import DAY_MS, duration_ms
from holdfast.worker.heartbeats import GRACE_SECONDS
from tests.docs.pages import blocks


def test_a_unit_waits_for_an_orderly_end() -> None:
    [unit] = blocks(ROOT / "docs/guides/fleet.md", "ini")
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.read_string(unit.text)
    service = found["Service"]
    _, *words = shlex.split(service["ExecStart"])
    assert words[:2] == ["worker", "run"]
    given = run.make_context("run", words[2:]).params
    patience_s = duration_ms("shutdown_timeout", given["shutdown_timeout"], 0, DAY_MS) / 1_000
    assert int(service["TimeoutStopSec"]) > patience_s + GRACE_SECONDS
