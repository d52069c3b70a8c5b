"""The panes of `holdfast top`, and what each key does. Knows neither terminal nor ledger."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.top_model import LedgerSnapshot
from holdfast.cli.values import format_age
from holdfast.cli.worker import SILENT, last_seen_text, replaced_workers
from holdfast.core.formatting import RETRIED, is_retry
from holdfast.core.model import EventType

if TYPE_CHECKING:
    from holdfast.cli.top_model import JobRow, QueueRow
    from holdfast.ledger import WorkerRecord


BAR_CELLS = 10
PROGRESS_MAX = 100
"""Progress counts what its job likes; within this it is drawn as a part of a hundred too."""


class PaneRow(NamedTuple):
    key: str
    """The same from one snapshot to the next."""
    cells: tuple[str, ...]
    job_id: int | None = None
    queue: str | None = None
    tone: str = ""
    """good, warn, bad or dim."""


class Pane(NamedTuple):
    name: str
    heads: tuple[str, ...]
    rows: "Callable[[LedgerSnapshot], list[PaneRow]]"


def _queue_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return [_queue_row(one, snapshot.now) for one in snapshot.queues]


def _queue_row(one: "QueueRow", now: datetime) -> PaneRow:
    counts = one.counts
    numbers = [
        str(counts[status]) for status in ("queued", "claimed", "running", "stalled", "failed", "dead_lettered", "succeeded")
    ]
    state = "open" if one.paused_at is None else "paused"
    oldest = "–" if one.ready_since is None else format_age(now - one.ready_since)
    cells = (one.name, state, oldest, *numbers, _format_rate(one.enqueued_per_s), _format_rate(one.finished_per_s))
    return PaneRow(one.name, cells, queue=one.name, tone="warn" if one.paused_at else "")


def _format_rate(per_s: float | None) -> str:
    return "–" if per_s is None else f"{per_s:,.1f}/s"


def _worker_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    gone = replaced_workers(snapshot.workers)
    return [_worker_row(one, snapshot.now, gone) for one in snapshot.workers]


def _worker_row(one: "WorkerRecord", now: datetime, gone: set[tuple[str, str]]) -> PaneRow:
    said = one.details
    queues = said.get("queues")
    names = ", ".join(map(str, queues)) if isinstance(queues, list) else "–"
    cells = (one.name, last_seen_text(one, now, gone), str(one.holding), names, f"{said.get('host', '–')}")
    return PaneRow(
        f"{one.name} {one.incarnation}",
        cells,
        tone="dim" if (one.name, one.incarnation) in gone else "bad" if now - one.seen_at > SILENT else "",
    )


def _running_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in snapshot.running:
        beaten = "–" if job.last_heartbeat_at is None else f"{format_age(snapshot.now - job.last_heartbeat_at)} ago"
        cells = (
            str(job.id),
            job.kind,
            job.queue,
            job.owner or "–",
            str(job.attempt),
            beaten,
            job.stage or "–",
            progress_bar(job.progress),
        )
        rows.append(_job_row(job, cells))
    return rows


def progress_bar(progress: int | None) -> str:
    if progress is None:
        return "–"
    if not 0 <= progress <= PROGRESS_MAX:
        return str(progress)
    full = round(progress * BAR_CELLS / PROGRESS_MAX)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {progress}"


def _stalled_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in snapshot.stalled:
        silent = "–" if job.last_heartbeat_at is None else format_age(snapshot.now - job.last_heartbeat_at)
        why = f"{RETRIED}: {job.error}" if is_retry(EventType.STALLED, job.reason) and job.error else job.reason or "–"
        cells = (str(job.id), job.kind, job.queue, job.owner or "–", str(job.attempt), why, silent)
        rows.append(_job_row(job, cells, "warn"))
    return rows


def _failed_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return _ended_rows(snapshot.failed, snapshot)


def _dead_letter_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return _ended_rows(snapshot.dead_letters, snapshot)


def _ended_rows(jobs: "Sequence[JobRow]", snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in jobs:
        ago = "–" if job.finished_at is None else format_age(snapshot.now - job.finished_at)
        cells = (str(job.id), job.kind, job.queue, job.reason or "–", str(job.attempt), ago, job.error or "–")
        rows.append(_job_row(job, cells, "bad"))
    return rows


def _job_row(job: "JobRow", cells: tuple[str, ...], tone: str = "") -> PaneRow:
    return PaneRow(str(job.id), cells, job.id, job.queue, tone)


PANES: Sequence[Pane] = (
    Pane(
        "Queues",
        ("queue", "state", "oldest", "queued", "claimed", "running", "stalled", "failed", "dead", "succeeded", "in", "done"),
        _queue_rows,
    ),
    Pane("Workers", ("worker", "seen", "holding", "queues", "host"), _worker_rows),
    Pane("Running", ("job", "kind", "queue", "owner", "attempt", "beat", "stage", "progress"), _running_rows),
    Pane("Stalled", ("job", "kind", "queue", "owner", "attempt", "why", "silent"), _stalled_rows),
    Pane("Failed", ("job", "kind", "queue", "why", "attempts", "age", "error"), _failed_rows),
    Pane("Dead letters", ("job", "kind", "queue", "why", "attempts", "age", "error"), _dead_letter_rows),
)


def filtered_rows(pane: Pane, snapshot: "LedgerSnapshot", wanted: str) -> list[PaneRow]:
    """The rows in which the filter occurs."""
    wanted = wanted.casefold()
    return [row for row in pane.rows(snapshot) if not wanted or any(wanted in cell.casefold() for cell in row.cells)]


STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdn": 10, "home": -1_000_000, "g": -1_000_000}
STEPS |= {"end": 1_000_000, "G": 1_000_000}
HELP = """\
up, down, k, j   move                 tab, shift-tab   next pane, the one before
enter            open what is marked  /                show only rows with a text in them
c                cancel the job       r                start the job over
p                pause the queue, or let it go on
?                this page            q                end
esc              close, or drop the filter"""


class ViewAction(NamedTuple):
    """Something to be done: cancel, replay, pause, unpause, open, open_queue or quit."""

    verb: str
    job_id: int = 0
    queue: str = ""


class ViewState:
    def __init__(self) -> None:
        self.pane = 0
        self.marks: dict[int, str] = {}
        """The key of the marked row of each pane: it stays marked when others come and go."""
        self.filter = ""
        self.typing = False
        self.asking: ViewAction | None = None
        self.pages: list[str] | None = None
        """The lines of what was opened."""
        self.scroll = 0
        self.said = ""
        """What became of the last wish."""

    def rows(self, snapshot: LedgerSnapshot, pane: int) -> list[PaneRow]:
        return filtered_rows(PANES[pane], snapshot, self.filter)

    def index(self, rows: list[PaneRow], pane: int) -> int:
        mark = self.marks.get(pane)
        return next((n for n, row in enumerate(rows) if row.key == mark), 0)

    def marked(self, snapshot: LedgerSnapshot) -> PaneRow | None:
        rows = self.rows(snapshot, self.pane)
        return rows[self.index(rows, self.pane)] if rows else None

    def press(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        """What is to be done about it; None where it only moves something."""
        self.said = ""
        if self.asking is not None:
            return self._answer(key)
        if self.typing:
            self._type(key)
        elif self.pages is not None:
            self._read(key)
        else:
            return self._browse(key, snapshot)
        return None

    def _answer(self, key: str) -> ViewAction | None:
        asked, self.asking = self.asking, None
        if key in ("y", "Y"):
            return asked
        self.said = "Nothing was done."
        return None

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _read(self, key: str) -> None:
        if key in STEPS:
            self.scroll = max(0, min(len(self.pages or ()) - 1, self.scroll + STEPS[key]))
        elif key in ("escape", "q", "enter", "?"):
            self.pages, self.scroll = None, 0

    def open(self, lines: list[str]) -> None:
        self.pages, self.scroll = lines, 0

    def _browse(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        if key == "q":
            return ViewAction("quit")
        if key in STEPS:
            self._move(STEPS[key], snapshot)
        elif key in ("tab", "backtab"):
            self.pane = (self.pane + (1 if key == "tab" else -1)) % len(PANES)
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == "escape":
            self.filter = ""
        elif key == "?":
            self.open(HELP.splitlines())
        else:
            return self._wish(key, snapshot)
        return None

    def _move(self, by: int, snapshot: LedgerSnapshot) -> None:
        rows = self.rows(snapshot, self.pane)
        if rows:
            self.marks[self.pane] = rows[max(0, min(len(rows) - 1, self.index(rows, self.pane) + by))].key

    def _wish(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        row = self.marked(snapshot)
        if row is None:
            return None
        if key == "enter" and row.job_id is not None:
            return ViewAction("open", row.job_id)
        if key == "enter" and row.queue is not None:
            return ViewAction("open_queue", queue=row.queue)
        if key == "enter":
            self.open([f"{head}: {cell}" for head, cell in zip(PANES[self.pane].heads, row.cells, strict=True)])
        elif key in ("c", "r") and row.job_id is not None:
            self.asking = ViewAction("cancel" if key == "c" else "replay", row.job_id)
        elif key == "p" and row.queue is not None:
            paused = any(one.paused_at for one in snapshot.queues if one.name == row.queue)
            return ViewAction("unpause" if paused else "pause", queue=row.queue)
        return None

    @property
    def question(self) -> str:
        assert self.asking is not None
        what = "Cancel" if self.asking.verb == "cancel" else "Start over"
        return f"{what} job {self.asking.job_id}? y/n"
