"""`holdfast sink`: how far each has been told, and what to do about one that is stuck."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.frame import Answer, Noun, asks_a_ledger, reads_a_ledger
from holdfast.cli.page import Page
from holdfast.cli.values import stamp

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.ledger.outbox import SinkState


@click.group(cls=Noun)
def sink() -> None:
    """List and repair the sinks that receive events.

    \b
    Try:
      holdfast sink list
    """


@sink.command("list")
@reads_a_ledger
def list_(ledger: "Ledger") -> Answer:
    """List sinks, and how far each has got.

    \b
    Try:
      holdfast sink list
    """
    found = ledger.sinks()
    rows = [
        (state.name, _standing(state), state.pos, state.behind, state.failures, state.last_error or "–", stamp(state.updated_at))
        for state in found
    ]

    def show(page: Page) -> None:
        if rows:
            page.table(("sink", "state", "position", "behind", "failures", "last error", "changed"), rows)
        else:
            page.line("There are no sinks.")

    return Answer({"sinks": found}, show)


@sink.command()
@click.argument("name")
@asks_a_ledger
def revive(ledger: "Ledger", *, name: str) -> Answer:
    """Resume the deliveries of a sink at once.

    \b
    Example:
      holdfast sink revive webhook
    """
    return _told(ledger.revive_sink(name), "goes on after")


@sink.command()
@click.argument("name")
@asks_a_ledger
def skip(ledger: "Ledger", *, name: str) -> Answer:
    """Skip the event that a sink fails at.

    It is never delivered.

    \b
    Example:
      holdfast sink skip webhook
    """
    return _told(ledger.skip_sink_event(name), "has skipped")


@sink.command()
@click.argument("name")
@asks_a_ledger
def drop(ledger: "Ledger", *, name: str) -> Answer:
    """Delete a sink and its position.

    Stop the workers that serve it first: they would create it again.

    \b
    Example:
      holdfast sink drop webhook
    """
    ledger.drop_sink(name)
    return Answer({"name": name, "dropped": True}, lambda page: page.line(f"Sink {name} is forgotten."))


def _standing(state: "SinkState") -> str:
    if state.dead_at is not None:
        return "dead"
    return "waits to try again" if state.retry_at is not None else "well"


def _told(state: "SinkState", what: str) -> Answer:
    return Answer(
        {"sink": state}, lambda page: page.line(f"Sink {state.name} {what} position {state.pos}, {state.behind} behind.")
    )
