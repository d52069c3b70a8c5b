"""How the queues are."""

from datetime import datetime

import msgspec

from holdfast.core.limits import PAGE_MAX
from holdfast.ledger.desk import Desk
from holdfast.ledger.face import to_datetime
from holdfast.store.base import Session


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has jobs or is paused."""

    name: str
    counts: dict[str, int]
    """How many jobs of each status; one that it has none of is left out."""
    ready_since: datetime | None = None
    """Since when the first of those that could be claimed could be, were the queue open; None where there is none."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None


class Queues(Desk):
    def paused(self) -> dict[str, datetime]:
        """The paused queues and since when."""
        return {pause.queue: to_datetime(pause.at) for pause in self._store.read(lambda session: session.pauses())}

    def queues(self) -> list[QueueRecord]:
        """Every queue that has jobs or is paused, by name. It counts every job: not for a program that is in a hurry."""
        return self._store.read(_records)


def _records(session: Session) -> list[QueueRecord]:
    counts: dict[str, dict[str, int]] = {}
    for queue, status, jobs in session.counts():
        counts.setdefault(queue, {})[status] = jobs
    since: dict[str, datetime] = {}
    for ready in session.ready(PAGE_MAX):
        since.setdefault(ready.queue, to_datetime(ready.since))  # those that wait longest come first
    pauses = {pause.queue: pause for pause in session.pauses()}
    found = []
    for name in sorted(counts.keys() | pauses.keys()):
        pause = pauses.get(name)
        told = {} if pause is None else {"paused_at": to_datetime(pause.at), "paused_by": pause.by, "pause_reason": pause.reason}
        found.append(QueueRecord(name=name, counts=counts.get(name, {}), ready_since=since.get(name), **told))  # type: ignore[arg-type]
    return found
