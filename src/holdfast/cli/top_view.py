"""The panes of `holdfast top`, and the action of each key. This module uses neither a terminal nor a ledger."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.top_model import LedgerSnapshot
from holdfast.cli.worker import SILENT, last_seen_text, replaced_workers
from holdfast.core.formatting import RETRIED, is_retry
from holdfast.core.model import EventType
from holdfast.text import format_age

if TYPE_CHECKING:
    from holdfast.cli.top_model import JobRow, QueueRow
    from holdfast.ledger import WorkerRecord


BAR_CELLS = 10
PROGRESS_MAX = 100
"""Progress is any number that the job chooses. Up to this value it is drawn as a bar too."""


class PaneRow(NamedTuple):
    key: str
    """Identifies the row in all snapshots."""
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
    details = one.details
    queues = details.get("queues")
    names = ", ".join(map(str, queues)) if isinstance(queues, list) else "–"
    cells = (one.name, last_seen_text(one, now, gone), str(one.holding), names, f"{details.get('host', '–')}")
    return PaneRow(
        f"{one.name} {one.incarnation}",
        cells,
        tone="dim" if (one.name, one.incarnation) in gone else "bad" if now - one.seen_at > SILENT else "",
    )


def _running_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in snapshot.running:
        last_beat = "–" if job.last_heartbeat_at is None else f"{format_age(snapshot.now - job.last_heartbeat_at)} ago"
        cells = (
            str(job.id),
            job.kind,
            job.queue,
            job.owner or "–",
            str(job.attempt),
            last_beat,
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
    """Return the rows that contain the filter text."""
    wanted = wanted.casefold()
    return [row for row in pane.rows(snapshot) if not wanted or any(wanted in cell.casefold() for cell in row.cells)]


STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdn": 10, "home": -1_000_000, "g": -1_000_000}
STEPS |= {"end": 1_000_000, "G": 1_000_000}
HELP = """\
up, down, k, j   move                 tab, shift-tab   next pane, previous pane
enter            open the marked row  /                show only rows that contain a text
c                cancel the job       r                replay the job
p                pause or unpause the queue
?                this page            q                quit
esc              close, or clear the filter"""


class ViewAction(NamedTuple):
    """An action that the user has chosen: cancel, replay, pause, unpause, open, open_queue or quit."""

    verb: str
    job_id: int = 0
    queue: str = ""


class ViewState:
    def __init__(self) -> None:
        self.pane = 0
        self.marks: dict[int, str] = {}
        """The key of the marked row of each pane. The row stays marked when other rows appear or disappear."""
        self.filter = ""
        self.typing = False
        self.to_confirm: ViewAction | None = None
        """The action that the user is asked to confirm."""
        self.pages: list[str] | None = None
        """The lines of the open page."""
        self.scroll = 0
        self.message = ""
        """The result of the last action."""

    def rows(self, snapshot: LedgerSnapshot, pane: int) -> list[PaneRow]:
        return filtered_rows(PANES[pane], snapshot, self.filter)

    def index(self, rows: list[PaneRow], pane: int) -> int:
        mark = self.marks.get(pane)
        return next((n for n, row in enumerate(rows) if row.key == mark), 0)

    def marked(self, snapshot: LedgerSnapshot) -> PaneRow | None:
        rows = self.rows(snapshot, self.pane)
        return rows[self.index(rows, self.pane)] if rows else None

    def press(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        """Handle a key. Return the action to perform, or None if only the view has changed."""
        self.message = ""
        if self.to_confirm is not None:
            return self._confirm(key)
        if self.typing:
            self._type(key)
        elif self.pages is not None:
            self._scroll(key)
        else:
            return self._browse(key, snapshot)
        return None

    def _confirm(self, key: str) -> ViewAction | None:
        action, self.to_confirm = self.to_confirm, None
        if key in ("y", "Y"):
            return action
        self.message = "Nothing was done."
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

    def _scroll(self, key: str) -> None:
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
            return self._act(key, snapshot)
        return None

    def _move(self, by: int, snapshot: LedgerSnapshot) -> None:
        rows = self.rows(snapshot, self.pane)
        if rows:
            self.marks[self.pane] = rows[max(0, min(len(rows) - 1, self.index(rows, self.pane) + by))].key

    def _act(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
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
            self.to_confirm = ViewAction("cancel" if key == "c" else "replay", row.job_id)
        elif key == "p" and row.queue is not None:
            paused = any(one.paused_at for one in snapshot.queues if one.name == row.queue)
            return ViewAction("unpause" if paused else "pause", queue=row.queue)
        return None

    @property
    def question(self) -> str:
        assert self.to_confirm is not None
        what = "Cancel" if self.to_confirm.verb == "cancel" else "Replay"
        return f"{what} job {self.to_confirm.job_id}? y/n"
