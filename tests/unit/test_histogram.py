"""The histogram of times: its buckets, its quantiles and the bounds of the metrics."""

import math
import random

import msgspec
import pytest

from holdfast.watch import tally
from holdfast.watch.tally import BOUNDS_US, EDGES_US, Histogram, edge_of, merged


def of(*times_us: int) -> Histogram:
    found = Histogram()
    found.add(list(times_us))
    return found


def test_there_are_16_buckets_to_a_doubling_and_the_bounds_of_metrics_are_edges():
    assert sum(2**20 < edge <= 2**21 and edge not in BOUNDS_US for edge in EDGES_US) == 16
    assert set(BOUNDS_US) <= set(EDGES_US)
    assert list(EDGES_US) == sorted(set(EDGES_US))
    assert EDGES_US[-1] > 8 * 365 * 86_400 * 1_000_000


@pytest.mark.parametrize(
    ("us", "edge"), [(-5, 0), (0, 0), (1, 1), (31, 31), (32, 32), (33, 34), (34, 34), (1_000, 1_000), (1_001, 1_024)]
)
def test_a_time_is_in_the_first_bucket_that_is_not_shorter(us: int, edge: int):
    assert edge_of(us) == edge


def test_a_longer_time_is_in_the_last_bucket():
    assert edge_of(10**18) == EDGES_US[-1]
    assert of(10**18, 5).buckets == {5: 1, EDGES_US[-1]: 1}


def test_no_time_has_no_quantile():
    assert Histogram().quantile(0.5) is None


def test_a_quantile_is_within_5_percent():
    chance = random.Random(7)
    for _ in range(300):
        times = sorted(round(chance.lognormvariate(14, 4)) for _ in range(chance.randrange(1, 50)))
        found = of(*times)
        for share in (0.5, 0.95):
            true = times[math.ceil(share * len(times)) - 1]
            assert found.quantile_us(share) == pytest.approx(true, rel=0.05, abs=0.5)


def test_20_times_of_11_s():
    found = of(*[11_000_000] * 20)
    assert (found.count, found.sum_us) == (20, 220_000_000)
    assert found.quantile(tally.P50) == pytest.approx(11, rel=0.05)
    assert found.quantile(tally.P95) == pytest.approx(11, rel=0.05)


def test_what_does_not_exceed_a_bound_is_counted_exactly():
    times = [us for bound in BOUNDS_US for us in (bound - 1, bound, bound + 1)]
    counts = of(*times).up_to_bounds()
    assert counts == [*(sum(us <= bound for us in times) for bound in BOUNDS_US), len(times)]


def test_histograms_add_up():
    first, second = of(5, 70), of(70, 90)
    assert merged([first, second]) == of(5, 70, 70, 90)
    assert first == of(5, 70)


def test_a_histogram_is_stored_by_the_buckets_that_have_times():
    stored = msgspec.json.encode(of(5, 5, 1_001))
    assert stored == b'{"us":1011,"n":{"5":2,"1024":1}}'
    assert msgspec.json.decode(stored, type=Histogram) == of(5, 5, 1_001)
