"""Whether workers that have signed in are still there, in words."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.cli.values import age

if TYPE_CHECKING:
    from holdfast.ledger import WorkerRecord

SILENT = timedelta(seconds=45)
"""Workers say every 15 s that they are there: one that has not for so long is shown as silent."""


def replaced(workers: "Iterable[WorkerRecord]") -> set[tuple[str, str]]:
    """Name and incarnation of each worker that was not seen any more once a newer one of its name had started."""
    found = list(workers)
    newest: dict[str, datetime] = {}
    for one in found:
        newest[one.name] = max(newest.get(one.name, one.started_at), one.started_at)
    return {(one.name, one.incarnation) for one in found if one.seen_at < newest[one.name]}


def last_seen(worker: "WorkerRecord", now: datetime, gone: set[tuple[str, str]]) -> str:
    """`3s ago`, `silent for 7m`, `replaced by a newer one, silent for 7m`. `gone` is the answer of `replaced`."""
    unseen = now - worker.seen_at
    words = f"silent for {age(unseen)}" if unseen > SILENT else f"{age(unseen)} ago"
    return f"replaced by a newer one, {words}" if (worker.name, worker.incarnation) in gone else words
