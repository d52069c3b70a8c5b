"""A ledger has as many rows and pages after each cycle of fill, drain and prune. `bench.figures.growth` measures more cycles."""

from datetime import UTC, datetime

import apsw
import pytest

import holdfast
from bench import churn, cycles
from bench.places import Host, SqlitePlace
from bench.work import BATCH
from holdfast.testing import ManualClock

SWEPT_SECONDS = 10
"""After this time a sweep closes claims of which no job is held."""


class RunningClock(ManualClock):
    """Each look at the clock takes a millisecond."""

    def now(self) -> datetime:
        self.advance(0.001)
        return super().now()


def test_rows_and_pages_stay_the_same_over_cycles(host: Host) -> None:
    rows, pages, clock = [], [], RunningClock(datetime.now(UTC))
    with host.place() as place, holdfast.open(place.url, clock=clock) as ledger:
        cycles.work(ledger, BATCH)
        for _ in range(4):
            assert cycles.cycle(ledger, 3 * BATCH, place.vacuum) == 3 * (BATCH + cycles.RARE)
            clock.advance(SWEPT_SECONDS)
            ledger.sweep()
            rows.append(place.rows())
            if isinstance(place, SqlitePlace):
                with_pages = apsw.Connection(place.url.removeprefix("sqlite:///"))
                pages.append(with_pages.pragma("page_count"))
                with_pages.close()
        assert [ledger.check(job.id) for job in ledger.list(limit=20)] == [[]] * 20
    assert rows[1:] == [rows[0]] * 3
    assert pages[2:] == pages[1:-1]


def test_churn_prints_sizes(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    totals = churn.churn(host, seconds=0.2, every=0.0)
    assert totals
    assert min(totals) > 0
    assert host.name in capsys.readouterr().out


@pytest.mark.parametrize(("totals", "expected"), [([10, 20, 20, 20, 22, 21], 1.1), ([5], 1.0)])
def test_sizes_of_the_last_third_are_compared(totals: list[int], expected: float) -> None:
    assert churn.levelled(totals) == expected
