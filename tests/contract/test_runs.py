"""Supervised runs in the ledger: written by the holder of the duty, read by all, reset by an operator."""

from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.core.payloads import UNSET
from holdfast.core.restart import RestartController, RestartPolicyConfig, TerminalReason
from holdfast.ledger.verbs.services import RunBody
from holdfast.testing import ManualClock
from tests.contract.builders import refused
from tests.support.near import near

CONFIG = RestartPolicyConfig(
    max_restarts=3,
    window_ticks=60_000,
    circuit_breaker_threshold_ticks=5_000,
    circuit_breaker_max_failures=3,
    stall_timeout_ticks=1_000,
)


def body(holder: str = "h", **more: Any) -> RunBody:
    plain: dict[str, Any] = {"run": 1, "incarnation": "i", "program": "serve"}
    plain["controller"] = msgspec.Raw(RestartController(CONFIG).to_json().encode())
    return RunBody(holder=holder, **plain | more)


def begin(ledger: Ledger, name: str = "web", **more: Any) -> None:
    assert near(ledger).supervision.take(name, "h", 15)
    near(ledger).supervision.keep(name, body(**more), 15)


def test_a_stored_run_is_found(ledger: Ledger, clock: ManualClock):
    begin(ledger, restarts=2, exit_code=-9, job_id=7, receipt=msgspec.Raw(b'{"run_id":"web/1"}'))
    found = near(ledger).supervision.find("web")
    assert found is not None and not isinstance(found.controller, msgspec.UnsetType)
    assert RestartController.from_json(bytes(found.controller)).config == CONFIG
    [state] = ledger.runs()
    assert (state.name, state.run, state.program, state.restarts, state.exit_code, state.job_id) == ("web", 1, "serve", 2, -9, 7)
    assert (state.receipt, state.terminal_reason, state.needs_reset) == ({"run_id": "web/1"}, None, False)
    assert state.updated_at == clock.now()


def test_a_ledger_without_runs_finds_none(ledger: Ledger):
    assert near(ledger).supervision.find("web") is None
    assert ledger.runs() == []


def test_a_second_supervisor_is_refused(ledger: Ledger, clock: ManualClock):
    begin(ledger)
    assert not near(ledger).supervision.take("web", "other", 15)
    with refused("conflict"):
        near(ledger).supervision.keep("web", body("other", restarts=9), 15)
    assert ledger.runs()[0].restarts == 0
    assert near(ledger).supervision.take("api", "other", 15)


def test_keeping_a_run_keeps_its_duty(ledger: Ledger, clock: ManualClock):
    begin(ledger)
    for _ in range(3):
        clock.advance(10)
        near(ledger).supervision.keep("web", body(), 15)
    assert not near(ledger).supervision.take("web", "other", 15)
    clock.advance(16)
    assert near(ledger).supervision.take("web", "other", 15)
    with refused("conflict"):
        near(ledger).supervision.keep("web", body(), 15)


def test_a_dropped_run_can_be_taken_at_once(ledger: Ledger):
    begin(ledger)
    near(ledger).supervision.drop("web", "other")
    assert not near(ledger).supervision.take("web", "other", 15)
    near(ledger).supervision.drop("web", "h")
    assert near(ledger).supervision.take("web", "other", 15)


@pytest.mark.parametrize("reason", list(TerminalReason))
def test_a_reset_removes_the_restarts_and_the_reason(ledger: Ledger, reason: TerminalReason):
    begin(ledger, run=4, terminal_reason=reason)
    near(ledger).supervision.drop("web", "h")
    needs = reason in ("restart_limit_exceeded", "circuit_breaker_open", "stall_timeout")
    assert [(state.terminal_reason, state.needs_reset) for state in ledger.runs()] == [(reason, needs)]
    state = ledger.reset_run("web", actor="ada")
    assert (state.run, state.terminal_reason, state.needs_reset, state.reset_by) == (4, None, False, "ada")
    found = near(ledger).supervision.find("web")
    assert found is not None and found.is_over and found.controller is UNSET


def test_a_run_that_is_supervised_is_not_reset(ledger: Ledger, clock: ManualClock):
    begin(ledger, terminal_reason=TerminalReason.CIRCUIT_BREAKER_OPEN)
    with refused("conflict"):
        ledger.reset_run("web")
    clock.advance(16)
    assert ledger.reset_run("web").terminal_reason is None


def test_runs_by_name_and_page(ledger: Ledger):
    for name in ("b", "ä", "B", "a"):
        begin(ledger, name)
    assert [state.name for state in ledger.runs()] == ["B", "a", "b", "ä"]
    assert [state.name for state in ledger.runs(after="a", limit=1)] == ["b"]


def test_a_tick_is_a_millisecond_of_ledger_time(ledger: Ledger, clock: ManualClock):
    first = near(ledger).supervision.tick()
    clock.advance(1.5)
    assert near(ledger).supervision.tick() == first + 1_500


def test_a_run_too_large_is_refused(ledger: Ledger):
    assert near(ledger).supervision.take("web", "h", 15)
    with refused("limit_exceeded"):
        near(ledger).supervision.keep("web", body(program="x" * 70_000), 15)
    assert ledger.runs() == []


def test_wrong_filters_are_refused(ledger: Ledger):
    with refused("not_found"):
        ledger.reset_run("unknown")
    with refused("validation_error"):
        ledger.reset_run("")
    with refused("limit_exceeded"):
        ledger.runs(limit=0)
