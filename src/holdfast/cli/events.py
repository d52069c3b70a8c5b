"""`holdfast events`: what happened to a job, and what happens."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.frame import Answer, asks_a_ledger
from holdfast.cli.tail import tail

if TYPE_CHECKING:
    from holdfast.cli.page import Page
    from holdfast.ledger import Event, Ledger

PAGE = 1_000


@click.group()
def events() -> None:
    """See what happened, and what happens.

    \b
    Try:
      holdfast events tail --once
    """


@events.command()
@click.argument("job_id", type=click.IntRange(min=1), metavar="JOB")
@asks_a_ledger
def show(ledger: "Ledger", *, job_id: int) -> Answer:
    """The events of one job, oldest first.

    \b
    Example:
      holdfast events show 12
    """
    from holdfast.cli.jobs import show_events

    ledger.get(job_id)
    found = _all(ledger, job_id)

    def tell(page: "Page") -> None:
        show_events(page, found)

    return Answer({"events": found}, tell)


def _all(ledger: "Ledger", job_id: int) -> "list[Event]":
    found: list[Any] = []
    while page := ledger.events(job_id, after=found[-1].pos if found else 0, limit=PAGE):
        found += page
    return found


events.add_command(tail)
