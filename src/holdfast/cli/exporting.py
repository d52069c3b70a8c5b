"""`holdfast events export`: the whole record, as a file for `holdfast verify`."""

import sys
from pathlib import Path

import click

from holdfast.cli.address import ledger_url
from holdfast.cli.envelope import misuse
from holdfast.cli.frame import Answer, as_json_option, db_option, open_ledger, say
from holdfast.cli.values import dialect_option
from holdfast.core.vocabulary import Dialect
from holdfast.core.words import counted


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; else standard output.")
@dialect_option
@db_option
@as_json_option
def export(*, out: Path | None, dialect: str, db: str | None, as_json: bool) -> None:
    """Export the whole history as of one moment.

    It holds the events that are sealed and those that are newer.

    With --dialect, the file has the events alone, with the names and shapes of that dialect. It is for other readers: `holdfast
    verify` refuses it.

    \b
    Try:
      holdfast events export --out all.jsonl

    \b
    Example:
      holdfast events export --dialect liveness --out robots.jsonl
    """
    from holdfast.cli.progress import Progress
    from holdfast.cli.writing import written_to

    if out is None and as_json:
        raise misuse("--json needs --out: the export itself is JSON")
    is_on_screen = out is None and sys.stdout.isatty()
    showing = Progress("positions exported", quiet=is_on_screen)
    with open_ledger(ledger_url(db), create=False) as ledger, written_to(out) as write, showing as progress:
        made = ledger.export(write, dialect=dialect, progress=progress)
    if out is not None and dialect != Dialect.HOLDFAST:
        events, are = counted(made.events, "event"), "is" if made.events == 1 else "are"
        text = f"{events} {are} in {out}, in the dialect {dialect}. The file is for other readers and cannot be verified."
        say(Answer({"file": str(out), "dialect": dialect, "lines": made}, lambda page: page.line(text)), as_json)
    elif out is not None:
        are = "is" if made.events == 1 else "are"
        events, jobs, heads = counted(made.events, "event"), counted(made.jobs, "job"), counted(made.heads, "head")
        text = f"{events} of {jobs} {are} in {out}, under {heads}."
        say(Answer({"file": str(out), "dialect": dialect, "lines": made}, lambda page: page.line(text)), as_json)
