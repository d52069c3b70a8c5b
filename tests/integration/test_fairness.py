"""Many processes write to one SQLite file, and each gets its share."""

import pytest

from holdfast import Ledger
from tests.support.histories import count_jobs
from tests.support.processes import fleet


def share(url: str, seconds: float) -> list[int]:
    done: list[int] = fleet("workers.write_for", 8, url=url, seconds=seconds)
    assert min(done) >= sum(done) / len(done) / 10, done
    return done


def test_eight_writers_share_a_file_fairly(sqlite_url: str, on_sqlite: Ledger) -> None:
    done = share(sqlite_url, seconds=1.5)
    assert count_jobs(on_sqlite) == sum(done) + 8


@pytest.mark.torture
def test_eight_writers_share_a_file_fairly_for_long(sqlite_url: str, on_sqlite: Ledger) -> None:
    done = share(sqlite_url, seconds=20)
    assert count_jobs(on_sqlite) == sum(done) + 8
