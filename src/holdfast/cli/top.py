"""`holdfast top`: a ledger, live, in a terminal."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.address import ledger_url, without_password
from holdfast.cli.frame import Answer, as_json_option, db_option, key_option, loaded_keys, open_ledger, say
from holdfast.cli.page import Page
from holdfast.cli.values import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.board.picture import Picture
    from holdfast.cli.board.stand import Wish
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

    It shows queues and their rates, workers, running jobs, stalls and dead letters. The key ? shows all keys.

    \b
    Try:
      holdfast top --once
    """
    url, ring = ledger_url(db), loaded_keys(keys)
    with open_ledger(url, ring, create=False) as ledger:
        if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            say(_snapshot(ledger), as_json)
        else:
            _watch(ledger, without_password(url), max(EVERY_SECONDS_MIN, every.total_seconds()))


def _watch(ledger: "Ledger", title: str, every_s: float) -> None:
    from holdfast.cli.board.terminal import Terminal
    from holdfast.cli.board.watcher import Watcher

    with Watcher(ledger, every_s) as watcher:
        Terminal(watcher, title, _doing(ledger)).run()


def _snapshot(ledger: "Ledger") -> Answer:
    from holdfast.cli.board.picture import Looking

    picture = Looking(ledger).look()
    return Answer(picture, lambda page: _show(page, picture))


def _show(page: Page, picture: "Picture") -> None:
    from holdfast.cli.board.panes import PANES

    for number, pane in enumerate(PANES):
        rows = pane.rows(picture)
        if number:
            page.line()
        page.line(f"{pane.name} ({len(rows)})", bold=True)
        if rows:
            page.table(pane.heads, [row.cells for row in rows])


def _doing(ledger: "Ledger") -> "Callable[[Wish], str | list[str]]":
    def do(wish: "Wish") -> str | list[str]:
        match wish.verb:
            case "cancel":
                over = ledger.cancel(wish.job_id).finished_at is not None
                return f"Job {wish.job_id} is {'cancelled' if over else 'asked to stop'}."
            case "replay":
                return _replayed(ledger, wish.job_id)
            case "pause":
                ledger.pause(wish.queue)
                return f"Queue {wish.queue} is paused."
            case "unpause":
                ledger.unpause(wish.queue)
                return f"Queue {wish.queue} is open."
            case "open_queue":
                return _opened_queue(ledger, wish.queue)
        return _opened(ledger, wish.job_id)

    return do


def _replayed(ledger: "Ledger", job_id: int) -> str:
    from holdfast.cli.replaying import replayed_before

    before = replayed_before(ledger, job_id)
    if before is not None:
        return f"Job {job_id} was replayed before, as {before.id} ({before.status.value}): holdfast job replay {job_id} --again"
    return f"Job {job_id} is replayed as {ledger.replay(job_id).id}."


def _opened_queue(ledger: "Ledger", name: str) -> list[str]:
    """How the queue is, and the first of its queued jobs."""
    from holdfast.cli.jobs import HEADS, row
    from holdfast.cli.queue import state, waits

    page, now = Kept(), ledger.now()
    for queue in ledger.queues():
        if queue.name == name:
            page.line(f"Queue {name}: {state(queue, now)}")
            page.fields([("oldest that could be claimed", waits(queue, now)), *queue.counts.items()])
    found = ledger.list(queue=name, status="queued", limit=QUEUED_MAX)
    page.heading(f"Queued, the first {QUEUED_MAX} by id")
    if found:
        page.table(HEADS, [row(job, now) for job in found])
    return page.lines


def _opened(ledger: "Ledger", job_id: int) -> list[str]:
    """Why a job stands where it stands, where the ledger can tell; the job as `job get` shows it, and its events."""
    from holdfast.cli.jobs import show_events, show_job
    from holdfast.core.model import EventType

    page = Kept()
    if explain := getattr(ledger, "explain", None):
        page.line(explain(job_id).text)
        page.line()
    show_job(page, ledger.get(job_id))
    page.heading("History, without beats")
    show_events(page, ledger.events(job_id, types=[kind.value for kind in EventType if kind is not EventType.HEARTBEAT]))
    return page.lines


class Kept(Page):
    """A page that is not printed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def line(self, text: str = "", **style: Any) -> None:
        self.lines.append(text)
