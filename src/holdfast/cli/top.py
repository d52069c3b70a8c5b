"""`holdfast top`: watch a ledger live in a terminal."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, as_json_option, db_option, key_option, load_keys, open_ledger, print_result
from holdfast.cli.config import ledger_url, without_password
from holdfast.cli.output import Page
from holdfast.cli.values import duration
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.top_view import LedgerSnapshot, ViewAction
    from holdfast.ledger import Ledger

EVERY_SECONDS_MIN = 0.1
QUEUED_MAX = 50


@click.command()
@click.option("--every", type=duration, default="1s", show_default=True, help="The time between two readings.")
@click.option("--once", is_flag=True, help="Print the ledger as it is now, and exit. The default without a terminal.")
@key_option
@db_option
@as_json_option
def top(*, every: timedelta, once: bool, keys: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Watch a ledger live.

    It shows queues and their rates, workers, running jobs, stalls, dead letters and limits. The key ? shows all keys.

    \b
    Try:
      holdfast top --once
    """
    url, ring = ledger_url(db), load_keys(keys)
    with open_ledger(url, ring, create=False) as ledger:
        if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            print_result(_snapshot(ledger), as_json)
        else:
            _run_view(ledger, without_password(url), max(EVERY_SECONDS_MIN, every.total_seconds()))


def _run_view(ledger: "Ledger", title: str, every_s: float) -> None:
    from holdfast.cli.top_screen import Terminal
    from holdfast.cli.top_view import SnapshotPoller

    with SnapshotPoller(ledger, every_s) as poller:
        Terminal(poller, title, _action_handler(ledger)).run()


def _snapshot(ledger: "Ledger") -> CommandResult:
    from holdfast.cli.top_view import SnapshotReader

    snapshot = SnapshotReader(ledger).read()
    return CommandResult(snapshot, lambda page: _show(page, snapshot))


def _show(page: Page, snapshot: "LedgerSnapshot") -> None:
    from holdfast.cli.top_view import shown_panes

    for number, pane in enumerate(shown_panes(snapshot)):
        rows = pane.rows(snapshot)
        if number:
            page.line()
        page.line(f"{pane.name} ({len(rows)})", bold=True)
        if rows:
            page.table(pane.heads, [row.cells for row in rows])


def _action_handler(ledger: "Ledger") -> "Callable[[ViewAction], str | list[str]]":
    def perform(action: "ViewAction") -> str | list[str]:
        match action.verb:
            case "cancel":
                over = ledger.cancel(action.job_id).finished_at is not None
                return f"Job {action.job_id} is {'cancelled' if over else 'asked to stop'}."
            case "replay":
                return _replay(ledger, action.job_id)
            case "pause":
                ledger.pause(action.queue)
                return f"Queue {action.queue} is paused."
            case "unpause":
                ledger.unpause(action.queue)
                return f"Queue {action.queue} is open."
            case "open_queue":
                return _queue_details(ledger, action.queue)
        return _job_details(ledger, action.job_id)

    return perform


def _replay(ledger: "Ledger", job_id: int) -> str:
    [answer] = ledger.on_jobs("replay", [job_id])
    if isinstance(answer, HoldfastError):
        raise answer
    if not answer.is_new and answer.finished_at is not None:
        return f"Job {job_id} was replayed before, as {answer.id} ({answer.status.value}): holdfast job replay {job_id} --again"
    return f"Job {job_id} is replayed as {answer.id}."


def _queue_details(ledger: "Ledger", name: str) -> list[str]:
    """Return lines with the state of the queue and its first queued jobs."""
    from holdfast.cli.job_views import JOB_HEADS, job_row
    from holdfast.cli.queue import oldest_wait, queue_state

    page, now = PageBuffer(), ledger.now()
    for queue in ledger.queues():
        if queue.name == name:
            page.line(f"Queue {name}: {queue_state(queue, now)}")
            page.fields([("oldest claimable job", oldest_wait(queue, now)), *queue.counts.items()])
    found = ledger.list(queue=name, status="queued", limit=QUEUED_MAX)
    page.heading(f"Queued, the first {QUEUED_MAX} by id")
    if found:
        page.table(JOB_HEADS, [job_row(job, now) for job in found])
    return page.lines


def _job_details(ledger: "Ledger", job_id: int) -> list[str]:
    """Return lines with an explanation of the job's state, the job as `job get` shows it, and its events."""
    from holdfast.cli.job_views import EVENT_HEADS, event_rows, show_job
    from holdfast.core.model import EventType

    page = PageBuffer()
    if explain := getattr(ledger, "explain", None):
        page.line(explain(job_id).text)
        page.line()
    show_job(page, ledger.get(job_id))
    page.heading("History, without beats")
    events = ledger.events(job_id, types=[kind.value for kind in EventType if kind is not EventType.HEARTBEAT])
    page.table(EVENT_HEADS, event_rows(ledger, events))
    return page.lines


class PageBuffer(Page):
    """A page that collects its lines instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def line(self, text: str = "", **style: Any) -> None:
        self.lines.append(text)
