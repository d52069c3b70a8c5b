"""`holdfast sink`: list sinks and their positions, and revive, skip or drop one that is stuck."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.command import CommandResult, NounGroup, with_existing_ledger, with_ledger
from holdfast.cli.values import format_time

if TYPE_CHECKING:
    from holdfast.ledger import Ledger
    from holdfast.ledger.verbs.services import SinkState


@click.group(cls=NounGroup)
def sink() -> None:
    """List and repair the sinks that receive events.

    \b
    Try:
      holdfast sink list
    """


@sink.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List sinks and their positions.

    \b
    Try:
      holdfast sink list
    """
    found = ledger.sinks()
    rows = [
        (
            state.name,
            _sink_state(state),
            state.pos,
            state.behind,
            state.failures,
            state.last_error or "–",
            format_time(state.updated_at),
        )
        for state in found
    ]
    heads = ("sink", "state", "position", "behind", "failures", "last error", "changed")
    return CommandResult({"sinks": found}, lambda page: page.listing(heads, rows, "There are no sinks."))


@sink.command()
@click.argument("name")
@with_ledger
def revive(ledger: "Ledger", *, name: str) -> CommandResult:
    """Resume the deliveries of a sink at once.

    \b
    Example:
      holdfast sink revive webhook
    """
    return _sink_result(ledger.revive_sink(name), "continues after")


@sink.command()
@click.argument("name")
@with_ledger
def skip(ledger: "Ledger", *, name: str) -> CommandResult:
    """Skip the event that a sink cannot deliver.

    The event is never delivered to it.

    \b
    Example:
      holdfast sink skip webhook
    """
    return _sink_result(ledger.skip_sink_event(name), "has skipped")


@sink.command()
@click.argument("name")
@with_ledger
def drop(ledger: "Ledger", *, name: str) -> CommandResult:
    """Delete a sink and its position.

    Stop the workers that serve it first: they would create it again.

    \b
    Example:
      holdfast sink drop webhook
    """
    ledger.drop_sink(name)
    return CommandResult({"name": name, "dropped": True}, lambda page: page.line(f"Sink {name} is deleted."))


def _sink_state(state: "SinkState") -> str:
    if state.dead_at is not None:
        return "dead"
    return "waits to retry" if state.retry_at is not None else "well"


def _sink_result(state: "SinkState", what: str) -> CommandResult:
    return CommandResult(
        {"sink": state}, lambda page: page.line(f"Sink {state.name} {what} position {state.pos}, {state.behind} behind.")
    )
