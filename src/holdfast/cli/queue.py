"""`holdfast queue`: list and show queues with their counts, pause and unpause them, and set how they serve their jobs."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command import CommandResult, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.completion import QUEUE
from holdfast.cli.flow_options import format_replaced, read_pairs
from holdfast.cli.output import Page
from holdfast.core.model import Status
from holdfast.core.text import format_age

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.ledger import Ledger, QueueRecord, QueueSettingsRecord

STATUSES = tuple(status.value for status in Status)
WEIGHTS_SHOWN_MAX = 10


@click.group(cls=NounGroup)
def queue() -> None:
    """List, show, pause, unpause and set queues.

    \b
    Try:
      holdfast queue list
    """


@queue.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List queues, their counts and their waiting times.

    It lists queues that have jobs, are paused or have settings, with the number of jobs of each status and how long the next
    job has waited.

    \b
    Try:
      holdfast queue list --json
    """
    now, found = ledger.now(), ledger.queues()
    settings = {one.queue: one for one in ledger.queue_settings()}
    found += [_without_jobs(name) for name in sorted(settings.keys() - {one.name for one in found})]

    def show(page: Page) -> None:
        if not found:
            page.line("There are no queues.")
            return
        show_queues(page, found, now)
        for one in settings.values():
            page.line(f"Queue {one.queue} has {_settings_text(one)}.")

    return CommandResult({"queues": [_queue_fields(one, settings.get(one.name)) for one in found]}, show)


@queue.command("get")
@click.argument("name", type=QUEUE)
@with_existing_ledger
def get(ledger: "Ledger", *, name: str) -> CommandResult:
    """Show a queue, its counts and its settings.

    \b
    Try:
      holdfast queue get crawl
    """
    from holdfast.ledger.verbs.flow import find_settings

    settings, now = find_settings(ledger, name), ledger.now()
    found = next((one for one in ledger.queues() if one.name == name), None) or _without_jobs(name)

    def show(page: Page) -> None:
        page.line(f"Queue {name} is {_queue_state(found, now)}, and has {_settings_text(settings)}.")
        counts = [(status, found.counts[status]) for status in STATUSES if found.counts.get(status)]
        if not counts:
            page.line("It has no jobs.")
            return
        page.fields([("oldest", _oldest_wait(found, now)), *counts])

    return CommandResult({"queue": _queue_fields(found, settings)}, show)


def show_queues(page: Page, found: "Sequence[QueueRecord]", now: "datetime") -> None:
    """Print a table of queues."""
    rows = [
        (one.name, _queue_state(one, now), _oldest_wait(one, now), *(one.counts.get(name, 0) for name in STATUSES))
        for one in found
    ]
    page.table(("queue", "state", "oldest", *STATUSES), rows)


def _without_jobs(name: str) -> "QueueRecord":
    from holdfast.ledger import QueueRecord

    return QueueRecord(name=name, counts={})


def _settings_text(settings: "QueueSettingsRecord") -> str:
    """Return the settings of a queue in words."""
    weights = [f"{partition}={weight}" for partition, weight in settings.weights.items()]
    parts = [
        f"the weights {', '.join(weights[:WEIGHTS_SHOWN_MAX])}" if weights else None,
        f"and {len(weights) - WEIGHTS_SHOWN_MAX} more" if len(weights) > WEIGHTS_SHOWN_MAX else None,
    ]
    return " ".join(part for part in parts if part) or "no settings"


def _queue_state(queue: "QueueRecord", now: "datetime") -> str:
    """Return `open`, or how long ago the queue was paused, by which actor and why."""
    if queue.paused_at is None:
        return "open"
    by = "" if queue.paused_by is None else f" by {queue.paused_by}"
    return f"paused {format_age(now - queue.paused_at)} ago{by}" + (
        "" if queue.pause_reason is None else f": {queue.pause_reason}"
    )


def _oldest_wait(queue: "QueueRecord", now: "datetime") -> str:
    return "–" if queue.ready_since is None else format_age(now - queue.ready_since)


def _queue_fields(queue: "QueueRecord", settings: "QueueSettingsRecord | None") -> dict[str, Any]:
    return {
        "name": queue.name,
        "paused_at": queue.paused_at,
        "paused_by": queue.paused_by,
        "pause_reason": queue.pause_reason,
        "ready_since": queue.ready_since,
        "counts": {status: queue.counts.get(status, 0) for status in STATUSES},
        "weights": {} if settings is None else settings.weights,
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


@queue.command("set")
@click.argument("name", type=QUEUE)
@click.option(
    "--weight", "weights", multiple=True, metavar="PARTITION=N", help="Turns of a partition in one round; may be repeated."
)
@request_option
@with_ledger
def set_(ledger: "Ledger", *, name: str, weights: tuple[str, ...], request_id: str) -> CommandResult:
    """Set how a queue serves its partitions.

    What is not given is unset. A partition without a weight has the weight 1.

    \b
    Try:
      holdfast queue set crawl --weight acme=3
      holdfast queue set crawl
    """
    given = read_pairs("PARTITION=N", weights)
    before = next((one for one in ledger.queue_settings() if one.queue == name), None)
    made = ledger.set_queue(name, weights=given, request_id=request_id)
    old = {} if before is None else _settings(before)
    replaced = format_replaced("It had settings before, which are replaced", old, _settings(made))

    def show(page: Page) -> None:
        page.line(f"Queue {name} has {_settings_text(made)}.")
        if replaced:
            page.remark(replaced)

    return CommandResult({"settings": made}, show)


def _settings(found: "QueueSettingsRecord") -> dict[str, object]:
    return {f"weight {partition}": weight for partition, weight in found.weights.items()}


def _has_jobs(ledger: "Ledger", name: str) -> bool:
    return bool(ledger.list(queue=name, limit=1))


def _queue_result(ledger: "Ledger", name: str, state: str, warning: str | None) -> CommandResult:
    """Return the answer. `warning` says why the user may have meant another queue."""

    def show(page: Page) -> None:
        page.line(f"Queue {name} {state}.")
        if warning is not None:
            page.remark(f"Queue {name} {warning}.")

    return CommandResult({"queue": {"name": name, "paused_at": ledger.paused().get(name)}}, show)
