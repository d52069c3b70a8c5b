"""The command line: parsing and printing only, one file per noun. What a command needs is imported when it runs."""

import click

from holdfast import __version__
from holdfast.cli.frame import Nouns


@click.group(
    cls=Nouns,
    nouns=(
        "beat",
        "demo",
        "dlq",
        "doctor",
        "events",
        "explain",
        "gate",
        "key",
        "resume",
        "seal",
        "sink",
        "supervise",
        "sweep",
        "task",
        "verify",
        "worker",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """A durable ledger of jobs on SQLite or PostgreSQL."""
