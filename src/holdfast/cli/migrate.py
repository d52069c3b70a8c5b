"""`holdfast migrate`: which schema a ledger has."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.frame import Answer, asks_a_ledger
from holdfast.cli.page import Page

if TYPE_CHECKING:
    from holdfast.ledger import Ledger


@click.command()
@asks_a_ledger
def migrate(ledger: "Ledger") -> Answer:
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

    return Answer({"ledger": ledger.id, **schema._asdict()}, show)
