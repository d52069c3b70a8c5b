"""`holdfast sweep`: one liveness tick by hand. Workers sweep by themselves."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.frame import Answer, asks_a_ledger
from holdfast.cli.progress import meanwhile
from holdfast.core.limits import SWEEP_MAX

if TYPE_CHECKING:
    from holdfast.ledger import Ledger


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, SWEEP_MAX), default=SWEEP_MAX, show_default=True, help="The most jobs to look at."
)
@asks_a_ledger
def sweep(ledger: "Ledger", *, limit: int) -> Answer:
    """Look once for expired leases and other due work.

    Workers do this by themselves, many times a minute; it is for ledgers that have none at the moment.

    \b
    Try:
      holdfast sweep
    """
    from holdfast.ledger.sweep import UNSIGNED

    with meanwhile("sweeping"):
        made = ledger.sweep(limit=limit)
    unsigned = made.pop(UNSIGNED, 0)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(made.items())) or "nothing was due"
    left = f" Left alone for want of a server key: {unsigned}." if unsigned else ""
    return Answer({"events": made, "unsigned": unsigned}, lambda page: page.line(f"Swept: {told}.{left}"))
