"""`holdfast queue`: list queues with their counts, pause and unpause them."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.completion import QUEUE
from holdfast.cli.output import Page
from holdfast.core.model import Status
from holdfast.text import format_age

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.ledger import Ledger, QueueRecord

STATUSES = tuple(status.value for status in Status)


@click.group(cls=NounGroup)
def queue() -> None:
    """List, pause and unpause queues.

    \b
    Try:
      holdfast queue list
    """


@queue.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List queues, their counts and their waiting times.

    It lists queues that have jobs or are paused, with the number of jobs of each status and how long the next job has waited.

    \b
    Try:
      holdfast queue list --json
    """
    now, found = ledger.now(), ledger.queues()

    def show(page: Page) -> None:
        if not found:
            page.line("There are no queues.")
            return
        rows = [
            (one.name, queue_state(one, now), oldest_wait(one, now), *(one.counts.get(name, 0) for name in STATUSES))
            for one in found
        ]
        page.table(("queue", "state", "oldest", *STATUSES), rows)

    return CommandResult({"queues": [_queue_fields(one) for one in found]}, show)


def queue_state(queue: "QueueRecord", now: "datetime") -> str:
    """Return `open`, or how long ago the queue was paused, by which actor and why."""
    if queue.paused_at is None:
        return "open"
    by = "" if queue.paused_by is None else f" by {queue.paused_by}"
    return f"paused {format_age(now - queue.paused_at)} ago{by}" + (
        "" if queue.pause_reason is None else f": {queue.pause_reason}"
    )


def oldest_wait(queue: "QueueRecord", now: "datetime") -> str:
    return "–" if queue.ready_since is None else format_age(now - queue.ready_since)


def _queue_fields(queue: "QueueRecord") -> dict[str, Any]:
    return {
        "name": queue.name,
        "paused_at": queue.paused_at,
        "paused_by": queue.paused_by,
        "pause_reason": queue.pause_reason,
        "ready_since": queue.ready_since,
        "counts": {status: queue.counts.get(status, 0) for status in STATUSES},
    }


@queue.command()
@click.argument("name", type=QUEUE)
@click.option("--reason", help="Why, for the record.")
@request_option
@with_ledger
def pause(ledger: "Ledger", *, name: str, reason: str | None, request_id: str) -> CommandResult:
    """Pause a queue: no job is claimed from it.

    Jobs that workers already hold continue.

    \b
    Try:
      holdfast queue pause crawl --reason "reindexing until noon"
    """
    known = _has_jobs(ledger, name)
    ledger.pause(name, reason=reason, request_id=request_id)
    return _queue_result(ledger, name, "is paused: nothing more is claimed from it", None if known else "has no jobs yet")


@queue.command()
@click.argument("name", type=QUEUE)
@request_option
@with_ledger
def unpause(ledger: "Ledger", *, name: str, request_id: str) -> CommandResult:
    """Unpause a queue: jobs are claimed from it again.

    \b
    Try:
      holdfast queue unpause crawl
    """
    paused = ledger.paused()
    ledger.unpause(name, request_id=request_id)
    warning = None
    if name not in paused:
        warning = "was not paused" + ("" if _has_jobs(ledger, name) else ", and has no jobs")
        warning += f"; paused: {', '.join(sorted(paused))}" if paused else ""
    return _queue_result(ledger, name, "is open", warning)


def _has_jobs(ledger: "Ledger", name: str) -> bool:
    return bool(ledger.list(queue=name, limit=1))


def _queue_result(ledger: "Ledger", name: str, state: str, warning: str | None) -> CommandResult:
    """Return the answer. `warning` says why the user may have meant another queue."""

    def show(page: Page) -> None:
        page.line(f"Queue {name} {state}.")
        if warning is not None:
            page.remark(f"Queue {name} {warning}.")

    return CommandResult({"queue": {"name": name, "paused_at": ledger.paused().get(name)}}, show)
