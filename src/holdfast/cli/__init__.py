"""The command line: parsing and printing only, one file per noun. Commands import what they need when they run."""

import click

from holdfast import __version__
from holdfast.cli.command import LazyGroup, db_group_option, json_group_option, no_color_option


@click.group(
    cls=LazyGroup,
    nouns=(
        "beat",
        "completion",
        "demo",
        "dlq",
        "doctor",
        "events",
        "explain",
        "gate",
        "group",
        "job",
        "key",
        "limit",
        "mcp",
        "migrate",
        "policy",
        "queue",
        "resume",
        "schedule",
        "schema",
        "seal",
        "serve",
        "sink",
        "supervise",
        "sweep",
        "task",
        "token",
        "top",
        "verify",
        "worker",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="holdfast")
@db_group_option
@json_group_option
@no_color_option
def main() -> None:
    """A durable ledger of jobs on SQLite or PostgreSQL.

    Commands use the ledger that --db names, else HOLDFAST_URL, else the url in holdfast.toml, else sqlite:///holdfast.db.
    With --json they answer with one line. `holdfast schema` shows its form.

    \b
    Try:
      holdfast job enqueue index_page --queue crawl --args '{"url": "https://a.example"}'
      holdfast job list
      holdfast queue list --json
    """
