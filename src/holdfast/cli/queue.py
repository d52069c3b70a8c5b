"""`holdfast queue`: how much is in each, and whether anything is taken out."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.enqueuing import request_option
from holdfast.cli.frame import Answer, Noun, asks_a_ledger, reads_a_ledger
from holdfast.cli.page import Page
from holdfast.cli.values import age
from holdfast.core.model import Status

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.ledger import Ledger

STATUSES = tuple(status.value for status in Status)


@click.group(cls=Noun)
def queue() -> None:
    """See what is in the queues, pause them and let them go on.

    \b
    Try:
      holdfast queue list
    """


@queue.command("list")
@reads_a_ledger
def list_(ledger: "Ledger") -> Answer:
    """Every queue that has jobs or is paused, and how many jobs of each status it has.

    \b
    Try:
      holdfast queue list --json
    """
    now, counts, paused = ledger.now(), ledger.counts(), ledger.paused()
    names = sorted(counts.keys() | paused.keys())
    found = [_said(name, counts.get(name, {}), paused.get(name)) for name in names]

    def show(page: Page) -> None:
        if not found:
            page.line("There are no queues.")
            return
        rows = [
            (
                one["name"],
                "open" if one["paused_at"] is None else f"paused {age(now - one['paused_at'])} ago",
                *(one["counts"][status] for status in STATUSES),
            )
            for one in found
        ]
        page.table(("queue", "state", *STATUSES), rows)

    return Answer({"queues": found}, show)


def _said(name: str, counts: dict[str, int], paused_at: "datetime | None") -> dict[str, Any]:
    return {"name": name, "paused_at": paused_at, "counts": {status: counts.get(status, 0) for status in STATUSES}}


@queue.command()
@click.argument("name")
@request_option
@asks_a_ledger
def pause(ledger: "Ledger", *, name: str, request_id: str | None) -> Answer:
    """Let nothing more be claimed from a queue. Jobs that somebody holds go on.

    \b
    Try:
      holdfast queue pause crawl
    """
    ledger.pause(name, request_id=request_id)
    return _told(ledger, name)


@queue.command()
@click.argument("name")
@request_option
@asks_a_ledger
def unpause(ledger: "Ledger", *, name: str, request_id: str | None) -> Answer:
    """Let jobs be claimed from a queue again.

    \b
    Try:
      holdfast queue unpause crawl
    """
    ledger.unpause(name, request_id=request_id)
    return _told(ledger, name)


def _told(ledger: "Ledger", name: str) -> Answer:
    paused_at = ledger.paused().get(name)
    said = "is open" if paused_at is None else "is paused: nothing more is claimed from it"
    return Answer({"queue": {"name": name, "paused_at": paused_at}}, lambda page: page.line(f"Queue {name} {said}."))
