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

    Any other command, and any program that opens the ledger, does the same first. This one is for those who want it done at a
    moment of their own, before the others come.

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
@click.option(
    "--limit", type=click.IntRange(1, SWEEP_MAX), default=SWEEP_MAX, show_default=True, help="The most jobs to look at."
)
@with_ledger
def sweep(ledger: "Ledger", *, limit: int) -> CommandResult:
    """Look once for expired leases and other due work.

    Workers do this by themselves, many times a minute; it is for ledgers that have none at the moment.

    \b
    Try:
      holdfast sweep
    """
    from holdfast.ledger.sweep import UNSIGNED

    with show_elapsed("sweeping"):
        made = ledger.sweep(limit=limit)
    unsigned = made.pop(UNSIGNED, 0)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(made.items())) or "nothing was due"
    left = f" Left alone for want of a server key: {unsigned}." if unsigned else ""
    return CommandResult({"events": made, "unsigned": unsigned}, lambda page: page.line(f"Swept: {told}.{left}"))
