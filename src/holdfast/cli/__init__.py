"""The command line: parsing and printing only. What a command needs is imported when it runs."""

import click

from holdfast import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """A durable ledger of jobs on SQLite or PostgreSQL."""


@main.command()
@click.option("--db", metavar="URL", help="The ledger to use. By default a new SQLite file in a temporary directory.")
@click.option("--jobs", default=200, show_default=True, type=click.IntRange(1, 5_000), help="How many jobs to run.")
@click.option("--workers", default=3, show_default=True, type=click.IntRange(2, 16), help="How many worker processes to start.")
@click.pass_context
def demo(context: click.Context, db: str | None, jobs: int, workers: int) -> None:
    """Run jobs on real workers, kill one of them in mid-job, and check the record.

    Exits with 0 only if every job finished and every history is in order.
    """
    from holdfast.cli.demo import run

    context.exit(run(db, jobs=jobs, workers=workers))
