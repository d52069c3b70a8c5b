"""How long a process knows the numbers of subqueues."""

import pytest

from holdfast.store.policies import RowCache

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(("step", "is_known"), [(0, True), (HOUR_US, True), (HOUR_US + 1, False), (-1, False)])
def test_numbers_of_subqueues_are_known_for_an_hour_of_the_ledger(step: int, is_known: bool):
    cache = RowCache()
    begin = 48 * HOUR_US
    cache.known_subqueues(begin)["p"] = 7
    assert cache.known_subqueues(begin + step) == ({"p": 7} if is_known else {})


def test_numbers_are_known_by_the_clocks_of_the_machine():
    cache = RowCache()
    cache.known_subqueues(None)["p"] = 7
    assert cache.known_subqueues(None) == {"p": 7}
    assert cache.known_subqueues(48 * HOUR_US) == {}


def test_a_cache_that_shares_numbers_keeps_them():
    cache, own = RowCache(), RowCache()
    cache.known_subqueues(0)["p"] = 7
    own.share_subqueues(cache, 0)
    assert own.known_subqueues(48 * HOUR_US) == {"p": 7}
    assert cache.known_subqueues(48 * HOUR_US) == {}
