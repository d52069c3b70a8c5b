"""`holdfast events`: what happened."""

import click

from holdfast.cli.exporting import export


@click.group()
def events() -> None:
    """See what happened."""


events.add_command(export)
