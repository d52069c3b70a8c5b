"""Duties: one holder at a time, as long as ledger time says."""

import pytest

import holdfast
from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.contract.builders import refused

TICK_S = 0.000_001
TTL_S = 10


def test_duties_of_different_names_have_different_holders(ledger: Ledger):
    assert ledger.take_duty("sweep", "a", ttl=TTL_S)
    assert ledger.take_duty("relay", "b", ttl=TTL_S)


def test_a_duty_is_held_up_to_and_including_its_end(ledger: Ledger, clock: ManualClock):
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    clock.advance(TTL_S)
    assert not ledger.take_duty("sweep", "b", ttl=TTL_S)
    clock.advance(TICK_S)
    assert ledger.take_duty("sweep", "b", ttl=TTL_S)
    assert not ledger.take_duty("sweep", "a", ttl=TTL_S)


def test_taking_a_duty_again_renews_it(ledger: Ledger, clock: ManualClock):
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    clock.advance(TTL_S)
    assert ledger.take_duty("sweep", "a", ttl=TTL_S)
    clock.advance(TTL_S)
    assert not ledger.take_duty("sweep", "b", ttl=TTL_S)


def test_a_refused_caller_does_not_change_the_end_of_the_duty(ledger: Ledger, clock: ManualClock):
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    clock.advance(TTL_S)
    assert not ledger.take_duty("sweep", "b", ttl=3_600)
    clock.advance(TICK_S)
    assert ledger.take_duty("sweep", "c", ttl=TTL_S)


def test_a_holder_may_take_an_expired_duty_again(ledger: Ledger, clock: ManualClock):
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    clock.advance(2 * TTL_S)
    assert ledger.take_duty("sweep", "a", ttl=TTL_S)


def test_a_dropped_duty_is_free_at_once(ledger: Ledger):
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    ledger.drop_duty("sweep", "a")
    assert ledger.take_duty("sweep", "b", ttl=TTL_S)


def test_a_duty_of_another_holder_is_not_dropped(ledger: Ledger):
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    ledger.drop_duty("sweep", "b")
    ledger.drop_duty("relay", "a")
    assert not ledger.take_duty("sweep", "b", ttl=TTL_S)


def test_the_clock_of_the_ledger_decides_for_all_processes(store_url: str, ledger: Ledger, clock: ManualClock):
    with holdfast.open(store_url, clock=clock) as other:
        assert ledger.take_duty("sweep", "a", ttl=TTL_S)
        assert not other.take_duty("sweep", "b", ttl=TTL_S)
        clock.advance(TTL_S + TICK_S)
        assert other.take_duty("sweep", "b", ttl=TTL_S)


def test_a_duty_taken_while_the_clock_was_far_ahead_is_free_after_the_step_back(ledger: Ledger, clock: ManualClock):
    clock.jump(86_400 * 365)
    ledger.take_duty("sweep", "a", ttl=TTL_S)
    clock.jump(-86_400 * 365)
    ledger.set_schedule("s", "report", every="1s")
    assert ledger.wants_sweeping("b")
    assert ledger.take_duty("sweep", "b", ttl=TTL_S)


@pytest.mark.parametrize("ttl", [1, "1s", 3_600, "1h"])
def test_a_ttl_at_its_limits_is_accepted(ledger: Ledger, ttl: object):
    assert ledger.take_duty("sweep", "a", ttl=ttl)


@pytest.mark.parametrize(
    ("name", "holder", "ttl", "code"),
    [
        ("sweep", "a", 0.999, "limit_exceeded"),
        ("sweep", "a", 3_601, "limit_exceeded"),
        ("sweep", "a", None, "validation_error"),
        ("sweep", "a", True, "validation_error"),
        ("", "a", TTL_S, "validation_error"),
        ("sweep", " a", TTL_S, "validation_error"),
        ("s" * 201, "a", TTL_S, "limit_exceeded"),
        ("sweep", "a" * 201, TTL_S, "limit_exceeded"),
        (7, "a", TTL_S, "validation_error"),
    ],
)
def test_wrong_arguments_are_refused(ledger: Ledger, name, holder, ttl, code: str):
    with refused(code):
        ledger.take_duty(name, holder, ttl=ttl)
    assert ledger.take_duty("sweep", "b", ttl=TTL_S)
