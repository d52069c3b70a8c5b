"""`holdfast migrate` and `holdfast sweep`: run a migration or a sweep by hand."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.command import CommandResult, with_ledger
from holdfast.cli.output import Page, show_elapsed
from holdfast.core.limits import SWEEP_MAX

if TYPE_CHECKING:
    from holdfast.ledger import Ledger


@click.command()
@with_ledger
def migrate(ledger: "Ledger") -> CommandResult:
    """Create or upgrade the tables of a ledger.

    Every command and every program that opens the ledger migrates it first. Use this command to migrate at a time of your own
    choice, before other programs open it.

    \b
    Try:
      holdfast migrate
    """
    schema = ledger.schema

    def show(page: Page) -> None:
        if not schema.applied:
            page.line(f"The ledger has schema {schema.version}, the newest that this Holdfast knows.")
            return
        was = f"had schema {schema.found}" if schema.found else "was empty"
        page.line(f"The ledger {was}, and has schema {schema.version} now: {', '.join(schema.applied)}.")

    return CommandResult({"ledger": ledger.id, **schema._asdict()}, show)


@click.command()
@click.option("--limit", type=click.IntRange(1, SWEEP_MAX), default=SWEEP_MAX, show_default=True, help="The most jobs to handle.")
@with_ledger
def sweep(ledger: "Ledger", *, limit: int) -> CommandResult:
    """Handle expired leases and other due work once.

    Workers do this many times a minute. Use it for a ledger that has no workers at the moment.

    \b
    Try:
      holdfast sweep
    """
    from holdfast.ledger.sweep import UNSIGNED

    with show_elapsed("sweeping"):
        made = ledger.sweep(limit=limit)
    unsigned = made.pop(UNSIGNED, 0)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(made.items())) or "nothing was due"
    skipped = f" Skipped because there is no server key: {unsigned}." if unsigned else ""
    return CommandResult({"events": made, "unsigned": unsigned}, lambda page: page.line(f"Swept: {counts}.{skipped}"))
