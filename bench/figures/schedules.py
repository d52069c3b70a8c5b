"""A thousand schedules beside a worker: what they cost while none is due, and how late their jobs are made under load."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from statistics import quantiles
from threading import Event, Thread

import holdfast
from bench import fleet
from bench.figures.idle import CORE_PERCENT_MAX, QUERIES_MAX, core_seconds, limit_row, no_autovacuum, statements
from bench.places import Host, PostgresHost
from bench.report import Heading, Row
from bench.sizes import Sizes

HEADING = Heading("A thousand schedules", ours="found", base="limit", judged="most", unit="")
PERIOD_SECONDS = 10
LATE_SECONDS_MAX = 1.0
LOAD = 500
"""Jobs that are enqueued at once, over and over, while the schedules fire."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    return [*_idle(host, sizes), _lateness(host, sizes)]


def _idle(host: Host, sizes: Sizes) -> list[Row]:
    with host.place() as place, fleet.fleet(place.url) as workers, no_autovacuum(host, place.url):
        with holdfast.open(place.url) as ledger:
            later = ledger.now() + timedelta(days=365)
            for number in range(sizes.schedules):
                ledger.set_schedule(f"s{number}", "noop", every="1h", start=later)
        worker = workers.start("work")
        time.sleep(sizes.settle_seconds)
        is_server = isinstance(host, PostgresHost)
        before, asked = core_seconds(worker.id), statements(place.url) if is_server else 0
        time.sleep(sizes.idle_seconds)
        spent = 100 * (core_seconds(worker.id) - before) / sizes.idle_seconds
        rows = [limit_row(f"{host.name}, none due, % of a core", spent, CORE_PERCENT_MAX)]
        if is_server:
            sent = (statements(place.url) - asked) / sizes.idle_seconds
            rows.append(limit_row(f"{host.name}, none due, queries/s", sent, QUERIES_MAX))
        return rows


def _lateness(host: Host, sizes: Sizes) -> Row:
    """The time from the planned time of a firing to the `enqueued` event of its job, while a worker drains other jobs."""
    with host.place() as place, fleet.fleet(place.url) as workers, holdfast.open(place.url) as ledger:
        workers.start("work")
        begin = ledger.now() + timedelta(seconds=sizes.settle_seconds)
        for number in range(sizes.schedules):
            start = begin + timedelta(seconds=PERIOD_SECONDS * number / sizes.schedules)
            ledger.set_schedule(f"s{number}", "noop", every=PERIOD_SECONDS, start=start, queue="scheduled")
        with _load(ledger):
            time.sleep(sizes.settle_seconds + max(1.0, sizes.idle_seconds))
        late = [(job.created_at - job.available_at).total_seconds() for job in _jobs(ledger)]
    p99 = quantiles(late, n=100, method="inclusive")[-1]
    return limit_row(f"{host.name}, lateness under load, p99, s", p99, LATE_SECONDS_MAX, {"seconds": late}, len(late))


@contextmanager
def _load(ledger: holdfast.Ledger) -> Iterator[None]:
    """Enqueue jobs until the block ends, as fast as the worker finishes them."""
    over = Event()

    def run() -> None:
        while not over.is_set():
            last = ledger.enqueue_many([{"kind": "noop"}] * LOAD)[-1]
            ledger.wait(last.id, timeout=fleet.TELL_SECONDS)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _jobs(ledger: holdfast.Ledger) -> Iterator[holdfast.Job]:
    after = 0
    while page := ledger.list(queue="scheduled", after=after, limit=1_000):
        yield from page
        after = page[-1].id
