"""The command line: parsing and printing only, one file per noun. Commands import what they need when they run."""

import click

from holdfast import __version__
from holdfast.cli.command import LazyGroup, db_group_option, json_group_option, no_color_option

SECTIONS = {
    "Jobs, day by day": ("job", "queue", "worker", "dlq", "explain", "top", "doctor"),
    "Plans and limits": ("schedule", "group", "limit", "policy"),
    "Agents, robots and other programs": ("task", "resume", "gate", "supervise", "beat", "mcp"),
    "Running a ledger": ("demo", "serve", "token", "migrate", "sweep", "events", "sink", "schema", "completion"),
    "Keys and proofs": ("key", "seal", "verify"),
}
"""The commands by what a person wants to do, daily ones first."""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
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
