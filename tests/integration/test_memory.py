"""A process that follows or drains a large ledger does not grow."""

import pytest

from holdfast import Ledger
from tests.support.processes import Program

GROWTH_KIB = 24 * 1_024
"""Allowed growth from a tenth of the run to its end. A leak for every event or job would be far larger."""


def grown(mode: str, url: str, count: int) -> int:
    # With a prefix the program is not forked from a server, whose memory would be counted.
    with Program("measured", mode, url, count, prefix=["env"]) as program:
        early, late = program.answer()
        program.wait()
    assert early > 0
    return int(late) - int(early)


def fill(ledger: Ledger, count: int) -> None:
    for _ in range(count // 10_000):
        ledger.enqueue_many([{"kind": "work", "args": {"pad": "x" * 100}}] * 10_000)


def test_following_and_draining_do_not_grow_the_process(store_url: str, real: Ledger) -> None:
    fill(real, 20_000)
    assert grown("drain", store_url, 20_000) < GROWTH_KIB
    fill(real, 40_000)
    assert grown("follow", store_url, 100_000) < GROWTH_KIB


@pytest.mark.torture
def test_following_and_draining_much_more_do_not_grow_the_process(store_url: str, real: Ledger) -> None:
    fill(real, 200_000)
    assert grown("drain", store_url, 200_000) < GROWTH_KIB
    assert grown("follow", store_url, 800_000) < GROWTH_KIB
