"""Read a whole ledger at once."""

from collections import defaultdict
from collections.abc import Generator, Iterator

from holdfast import Event, Job, Ledger
from holdfast.core import model
from holdfast.core.audit import check_history
from holdfast.remote.ledger import RemoteLedger
from holdfast.store.events import EventFilter
from holdfast.store.jobs import JobFilter

PAGE = 1_000


def all_events(ledger: Ledger) -> Iterator[Event]:
    after = 0
    while page := ledger.events(after=after, limit=PAGE):
        yield from page
        after = page[-1].pos


def all_jobs(ledger: Ledger) -> Iterator[Job]:
    after = 0
    while page := ledger.list(after=after, limit=PAGE):
        yield from page
        after = page[-1].id


def following_of(ledger: Ledger, after: int = 0) -> Generator[Event, None, None]:
    """A follower that can be closed."""
    return ledger.follow(after)


def count_jobs(ledger: Ledger) -> int:
    return sum(sum(by_status.values()) for by_status in ledger.counts().values())


def problems(ledger: Ledger) -> list[str]:
    """The findings of `Ledger.check` for all jobs, and errors in their ids and positions."""
    if isinstance(ledger, RemoteLedger):
        return [str(found) for job in all_jobs(ledger) for found in ledger.check(job.id)]
    histories: defaultdict[int, list[model.EventRecord]] = defaultdict(list)
    after = 0
    while events := ledger._store.read(lambda session: session.events(EventFilter(after=after, limit=10 * PAGE))):  # noqa: B023
        for event in events:
            histories[event.job_id].append(event)
        after = events[-1].pos
    found: list[str] = []
    last = rows = 0
    while page := ledger._store.read(lambda session: session.jobs(JobFilter(after=last, limit=PAGE))):  # noqa: B023
        rows += len(page)
        last = page[-1].id
        for row in page:
            found += map(str, check_history(histories.pop(row.id, []), row))
    found += [f"events of job {id_}, which has no row" for id_ in histories]
    if count_jobs(ledger) != rows:
        found.append(f"{rows} jobs, but {count_jobs(ledger)} over all statuses")
    return found
