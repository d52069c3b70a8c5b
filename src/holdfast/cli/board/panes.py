"""What the panes show: a heading, and rows that can be stood on."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.presence import SILENT, last_seen, replaced
from holdfast.cli.values import age
from holdfast.core.model import EventType
from holdfast.core.words import RETRIED, is_retry

if TYPE_CHECKING:
    from holdfast.cli.board.picture import JobLine, Picture, QueueLine
    from holdfast.ledger import WorkerRecord

BAR_CELLS = 10
WHOLE = 100
"""Progress counts what its job likes; within this it is drawn as a part of a hundred too."""


class Row(NamedTuple):
    key: str
    """The same from one picture to the next."""
    cells: tuple[str, ...]
    job_id: int | None = None
    queue: str | None = None
    tone: str = ""
    """good, warn, bad or dim."""


class Pane(NamedTuple):
    name: str
    heads: tuple[str, ...]
    rows: "Callable[[Picture], list[Row]]"


def _queues(picture: "Picture") -> list[Row]:
    return [_queue(one, picture.now) for one in picture.queues]


def _queue(one: "QueueLine", now: datetime) -> Row:
    counts = one.counts
    numbers = [
        str(counts[status]) for status in ("queued", "claimed", "running", "stalled", "failed", "dead_lettered", "succeeded")
    ]
    state = "open" if one.paused_at is None else "paused"
    oldest = "–" if one.ready_since is None else age(now - one.ready_since)
    cells = (one.name, state, oldest, *numbers, _rate(one.enqueued_per_s), _rate(one.finished_per_s))
    return Row(one.name, cells, queue=one.name, tone="warn" if one.paused_at else "")


def _rate(per_s: float | None) -> str:
    return "–" if per_s is None else f"{per_s:,.1f}/s"


def _workers(picture: "Picture") -> list[Row]:
    gone = replaced(picture.workers)
    return [_worker(one, picture.now, gone) for one in picture.workers]


def _worker(one: "WorkerRecord", now: datetime, gone: set[tuple[str, str]]) -> Row:
    said = one.details
    queues = said.get("queues")
    names = ", ".join(map(str, queues)) if isinstance(queues, list) else "–"
    cells = (one.name, last_seen(one, now, gone), str(one.holding), names, f"{said.get('host', '–')}")
    return Row(
        f"{one.name} {one.incarnation}",
        cells,
        tone="dim" if (one.name, one.incarnation) in gone else "bad" if now - one.seen_at > SILENT else "",
    )


def _running(picture: "Picture") -> list[Row]:
    rows = []
    for job in picture.running:
        beaten = "–" if job.last_heartbeat_at is None else f"{age(picture.now - job.last_heartbeat_at)} ago"
        cells = (
            str(job.id),
            job.kind,
            job.queue,
            job.owner or "–",
            str(job.attempt),
            beaten,
            job.stage or "–",
            bar(job.progress),
        )
        rows.append(_of_job(job, cells))
    return rows


def bar(progress: int | None) -> str:
    if progress is None:
        return "–"
    if not 0 <= progress <= WHOLE:
        return str(progress)
    full = round(progress * BAR_CELLS / WHOLE)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {progress}"


def _stalls(picture: "Picture") -> list[Row]:
    rows = []
    for job in picture.stalled:
        silent = "–" if job.last_heartbeat_at is None else age(picture.now - job.last_heartbeat_at)
        why = f"{RETRIED}: {job.error}" if is_retry(EventType.STALLED, job.reason) and job.error else job.reason or "–"
        cells = (str(job.id), job.kind, job.queue, job.owner or "–", str(job.attempt), why, silent)
        rows.append(_of_job(job, cells, "warn"))
    return rows


def _failed(picture: "Picture") -> list[Row]:
    return _came_to_nothing(picture.failed, picture)


def _letters(picture: "Picture") -> list[Row]:
    return _came_to_nothing(picture.dead_letters, picture)


def _came_to_nothing(jobs: "Sequence[JobLine]", picture: "Picture") -> list[Row]:
    rows = []
    for job in jobs:
        ago = "–" if job.finished_at is None else age(picture.now - job.finished_at)
        cells = (str(job.id), job.kind, job.queue, job.reason or "–", str(job.attempt), ago, job.error or "–")
        rows.append(_of_job(job, cells, "bad"))
    return rows


def _of_job(job: "JobLine", cells: tuple[str, ...], tone: str = "") -> Row:
    return Row(str(job.id), cells, job.id, job.queue, tone)


PANES: Sequence[Pane] = (
    Pane(
        "Queues",
        ("queue", "state", "oldest", "queued", "claimed", "running", "stalled", "failed", "dead", "succeeded", "in", "done"),
        _queues,
    ),
    Pane("Workers", ("worker", "seen", "holding", "queues", "host"), _workers),
    Pane("Running", ("job", "kind", "queue", "owner", "attempt", "beat", "stage", "progress"), _running),
    Pane("Stalled", ("job", "kind", "queue", "owner", "attempt", "why", "silent"), _stalls),
    Pane("Failed", ("job", "kind", "queue", "why", "attempts", "age", "error"), _failed),
    Pane("Dead letters", ("job", "kind", "queue", "why", "attempts", "age", "error"), _letters),
)


def chosen(pane: Pane, picture: "Picture", wanted: str) -> list[Row]:
    """The rows in which the filter occurs."""
    wanted = wanted.casefold()
    return [row for row in pane.rows(picture) if not wanted or any(wanted in cell.casefold() for cell in row.cells)]
